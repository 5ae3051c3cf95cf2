//! What a pair of allocation and free costs on the host: the simulated device charges its clock, not the caller.
//!
//! `cargo run --release -p poolscope-gpu --example pairs`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use poolscope_gpu::{Config, Pool, Simulated, Stream};

const PAIRS: u32 = 2_000_000;

fn pairs(pool: &Pool<Simulated>, size: u64, stream: Stream) -> f64 {
    let start = Instant::now();
    for _ in 0..PAIRS {
        let block = pool.allocate(black_box(size), stream).expect("the device has room");
        pool.free(black_box(block), stream).expect("it is a block");
    }
    start.elapsed().as_nanos() as f64 / f64::from(PAIRS)
}

fn main() {
    let device = Arc::new(Simulated::new(64 << 30));
    let pool = Pool::new(device.clone(), Config::default()).expect("the device is there");
    for size in [256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20] {
        let stream = device.stream();
        pairs(&pool, size, stream);
        println!("{size:>10} B: {:>6.1} ns a pair", pairs(&pool, size, stream));
    }
    for threads in [1, 2] {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| pairs(&pool, 4 << 10, device.stream()));
            }
        });
        let rate = f64::from(PAIRS * threads) / start.elapsed().as_secs_f64() / 1e6;
        println!("{threads} threads, 4 KiB: {rate:.0} million pairs/s");
    }
}
