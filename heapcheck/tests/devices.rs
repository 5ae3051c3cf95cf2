//! Device memory that a scope leaks.

use std::sync::Arc;
use std::thread;

use poolscope_alloc::gpu::{self, Config, Pool, Simulated, Stream};
use poolscope_heapcheck::scope;

#[global_allocator]
static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;

#[inline(never)]
fn forget_a_tensor(pool: &Pool<Simulated>, bytes: u64) {
    pool.allocate(bytes, Stream::LEGACY).expect("a block");
}

#[test]
fn a_forgotten_tensor_fails_the_test_with_its_device_and_stack() {
    let pool = gpu::pool(Arc::new(Simulated::new(64 << 20)), 3, Config::default()).expect("a pool");
    let failure = thread::spawn(move || {
        let _scope = scope();
        forget_a_tensor(&pool, 123_456);
        let freed = pool.allocate(5 << 20, Stream::LEGACY).expect("a block");
        pool.free(freed, Stream::LEGACY).expect("it is allocated");
    })
    .join()
    .expect_err("the leak was not noticed");
    let message = failure.downcast_ref::<String>().expect("a message");
    assert!(message.contains("123,456 B in 1 block, of device 3"), "{message}");
    assert!(message.contains("forget_a_tensor") && !message.contains("5,242,880"), "{message}");
}

#[test]
fn a_forgotten_block_is_noticed_where_others_of_its_size_were_freed_before() {
    for bytes in [3_000, 70_000, 200_000, 3 << 20] {
        let pool = gpu::pool(Arc::new(Simulated::new(64 << 20)), 4, Config::default()).expect("a pool");
        let failure = thread::spawn(move || {
            let _scope = scope();
            let blocks: Vec<u64> =
                (0..40).map_while(|_| pool.allocate(bytes.min(1 << 20), Stream::LEGACY).ok()).collect();
            blocks.into_iter().for_each(|block| pool.free(block, Stream::LEGACY).expect("it is allocated"));
            forget_a_tensor(&pool, bytes);
        })
        .join()
        .expect_err("the leak was not noticed");
        let message = failure.downcast_ref::<String>().expect("a message");
        assert!(message.contains("B in 1 block, of device 4"), "{bytes}: {message}");
    }
}
