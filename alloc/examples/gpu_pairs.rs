//! What recording costs a pair of allocation and free: the same pool with its blocks recorded and without, in turns.
//!
//! ```text
//! cargo run --release -p poolscope-alloc --features gpu --example gpu_pairs [sim|cuda]
//! ```

use std::sync::Arc;
use std::time::Instant;

use poolscope_alloc::gpu::{self, Config, Cuda, Device, Pool, Simulated, Stream};

const ROUNDS: usize = 15;
const SIZES: [u64; 6] = [256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1).as_deref() {
        None | Some("sim") => measure(Arc::new(Simulated::new(4 << 30))),
        Some("cuda") => measure(Arc::new(Cuda::open(0)?)),
        Some(other) => Err(format!("{other}: sim or cuda").into()),
    }
}

fn measure<D: Device>(device: Arc<D>) -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", device.properties().name);
    let plain = Pool::new(device.clone(), Config::default())?;
    let recorded = gpu::pool(device, 0, Config::default())?;
    println!("{:>12} {:>10} {:>10}  ns a pair, median of {ROUNDS}", "bytes", "plain", "recorded");
    for size in SIZES {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (pool, times) in [&plain, &recorded].into_iter().zip(&mut times) {
                times.push(pairs(pool, size)?);
            }
        }
        let [plain, recorded] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[ROUNDS / 2]
        });
        println!("{size:>12} {plain:>10.1} {recorded:>10.1}");
    }
    Ok(())
}

/// Nanoseconds of a pair.
fn pairs<D: Device>(pool: &Pool<D>, size: u64) -> Result<f64, gpu::PoolError> {
    let count = if size > 1 << 20 { 100_000 } else { 500_000 };
    let began = Instant::now();
    for _ in 0..count {
        let block = pool.allocate(size, Stream::LEGACY)?;
        pool.free(block, Stream::LEGACY)?;
    }
    Ok(began.elapsed().as_nanos() as f64 / f64::from(count))
}
