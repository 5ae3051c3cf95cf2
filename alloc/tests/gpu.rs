//! Pools of device memory in a program on the pool: what a leak checker's scope sees of them.

use std::sync::Arc;

use poolscope_alloc::gpu::{self, Config, Pool, Simulated, Stream};
use poolscope_alloc::scope::Scope;

#[global_allocator]
static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;

fn pool(number: u32) -> Pool<Simulated> {
    gpu::pool(Arc::new(Simulated::new(64 << 20)), number, Config::default()).expect("a pool")
}

/// What a scope has of devices: number and size.
fn of_devices(scope: &Scope) -> Vec<(u32, u64)> {
    let mut blocks = Vec::with_capacity(64);
    scope.visit_live(|block, _| {
        if block.kind != poolscope_wire::kind::HOST && blocks.len() < blocks.capacity() {
            blocks.push((block.device, block.size));
        }
    });
    blocks.sort_unstable();
    blocks
}

#[test]
fn a_scope_records_every_block_of_every_device_and_of_its_own_thread_only() {
    let pools = [pool(0), pool(1)];
    let allocate = |device: usize, size: u64| pools[device].allocate(size, Stream::LEGACY).expect("a block");
    let before = allocate(0, 1000);
    let scope = Scope::begin().expect("the program is on the pool");
    let blocks = [allocate(0, 300), allocate(1, 5 << 20), allocate(1, 70_000)];
    std::thread::scope(|threads| {
        threads.spawn(|| allocate(0, 4096));
    });
    scope.pause();
    allocate(0, 999);
    scope.resume();
    assert_eq!(of_devices(&scope), [(0, 300), (1, 70_000), (1, 5 << 20)]);
    pools[1].free(blocks[1], Stream::LEGACY).expect("it is allocated");
    pools[0].free(before, Stream::LEGACY).expect("it is allocated");
    assert_eq!(of_devices(&scope), [(0, 300), (1, 70_000)]);
}

#[test]
fn pools_of_several_devices_and_of_pinned_memory_are_recorded() {
    let pools = gpu::pools(Config::default(), |_| Ok(Arc::new(Simulated::new(64 << 20))));
    let (first, second) = (pools.get(20).expect("a pool"), pools.get(21).expect("a pool"));
    let pinned = gpu::pinned_pool(Arc::new(Simulated::new(64 << 20)), 22, Config::default()).expect("a pool");
    let scope = Scope::begin().expect("the program is on the pool");
    first.allocate(1000, Stream::LEGACY).expect("a block");
    second.allocate(2000, Stream::LEGACY).expect("a block");
    second.pinned_memory().expect("a pool").allocate(3000, Stream::LEGACY).expect("a block");
    pinned.allocate(4000, Stream::LEGACY).expect("a block");
    assert_eq!(of_devices(&scope), [(20, 1000), (21, 2000), (21, 3000), (22, 4000)]);
}

#[test]
fn hooks_see_what_closures_may_keep_and_go_with_their_guards() {
    use poolscope_alloc::gpu::hooks::{self, Moment};
    use std::sync::Mutex;

    let pool = pool(30);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    let hook = hooks::add(move |event| {
        if event.device == 30 {
            kept.lock().unwrap().push((event.moment, event.size));
        }
    });
    let block = pool.allocate(1000, Stream::LEGACY).expect("a block");
    pool.free(block, Stream::LEGACY).expect("it is allocated");
    drop(hook);
    let block = pool.allocate(1000, Stream::LEGACY).expect("a block");
    pool.free(block, Stream::LEGACY).expect("it is allocated");
    let expected = [
        (Moment::BeforeAlloc, 1000),
        (Moment::AfterAlloc, 1000),
        (Moment::BeforeFree, 1024),
        (Moment::AfterFree, 1024),
    ];
    assert_eq!(*seen.lock().unwrap(), expected);
    assert_eq!(Arc::strong_count(&seen), 1, "the closure is gone");
}

#[inline(never)]
fn load_weights(pool: &Pool<Simulated>) -> Vec<u64> {
    (0..5).map(|_| pool.allocate(6 << 20, Stream::LEGACY).unwrap()).collect()
}

#[inline(never)]
fn keep_activations(pool: &Pool<Simulated>) -> u64 {
    pool.allocate(16 << 20, Stream::LEGACY).unwrap()
}

#[test]
fn without_memory_the_message_names_the_functions_that_hold_it() {
    let pool = pool(11);
    let mut blocks = load_weights(&pool);
    blocks.push(keep_activations(&pool));
    let error = pool.allocate(32 << 20, Stream::LEGACY).unwrap_err().to_string();
    let holders: Vec<_> = error.lines().filter(|line| line.contains("held by stack")).collect();
    assert!(holders[0].contains("30.0 MiB in 5 blocks: "), "{error}");
    assert!(
        holders[0].contains("load_weights (gpu.rs:") && holders[1].contains("keep_activations (gpu.rs:"),
        "{error}"
    );
    assert!(holders[1].contains("16.0 MiB in 1 block: "), "{error}");
    blocks.into_iter().for_each(|block| pool.free(block, Stream::LEGACY).unwrap());
}
