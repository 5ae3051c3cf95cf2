//! What a pair of allocation and free costs on the host: the simulated device charges its clock, not the caller.
//!
//! `cargo run --release -p poolscope-gpu --example pairs`

use std::hint::black_box;
use std::sync::{Arc, Barrier};
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
    for sizes in [Sizes::Even, Sizes::Powers] {
        for threads in [1, 2, 4, 8, 16] {
            random(&pool, &device, threads, sizes);
        }
    }
}

/// How random sizes are spread from 256 B to 1 MiB.
#[derive(Clone, Copy, Debug)]
enum Sizes {
    /// Each size as often.
    Even,
    /// Each power of two as often.
    Powers,
}

impl Sizes {
    fn draw(self, random: &mut u64) -> u64 {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        match self {
            Sizes::Even => 256 + *random % ((1 << 20) - 255),
            Sizes::Powers => (256 << (*random % 12)) + (*random >> 32) % 256,
        }
    }
}

/// Threads that each keep 64 blocks of random sizes on a stream of their own, and replace one after the other.
fn random(pool: &Pool<Simulated>, device: &Simulated, threads: u64, sizes: Sizes) {
    const LIVE: usize = 64;
    let start = Barrier::new(threads as usize);
    let run = &|thread: u64| {
        let stream = device.stream();
        let mut seed = 0x9e37_79b9_7f4a_7c15 ^ (thread + 1);
        let mut one = || pool.allocate(sizes.draw(&mut seed), stream).expect("the device has room");
        let mut live: Vec<u64> = (0..LIVE).map(|_| one()).collect();
        let mut round = |pairs: u32| {
            for at in 0..pairs as usize {
                let slot = &mut live[at * 7 % LIVE];
                pool.free(std::mem::replace(slot, one()), stream).expect("it is a block");
            }
        };
        round(PAIRS / 10);
        start.wait();
        let from = Instant::now();
        round(PAIRS);
        let took = from.elapsed();
        live.into_iter().for_each(|block| pool.free(block, stream).expect("it is a block"));
        took
    };
    let slowest = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).max()
    });
    let rate = f64::from(PAIRS) * threads as f64 / slowest.unwrap_or_default().as_secs_f64() / 1e6;
    println!("{threads:>2} threads, {sizes:?}: {rate:.0} million pairs/s");
}
