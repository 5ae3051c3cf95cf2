//! What recording costs a pair of allocation and free: the same pool with its blocks recorded and without, in turns.
//! One thread and one size at a time, then allocations while a heap grows and breaks into pieces, then threads with
//! streams of their own and random sizes.
//!
//! ```text
//! cargo run --release -p poolscope-alloc --features gpu --example gpu_pairs [sim|cuda [THREADS ...]]
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use poolscope_alloc::gpu::{self, Config, Cuda, Device, Pool, Simulated, Stream};

const ROUNDS: usize = 15;
const SIZES: [u64; 6] = [256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20];

/// Blocks that a thread has at a time.
const LIVE: usize = 64;
const WARM_UP: Duration = Duration::from_millis(40);
const SPAN: Duration = Duration::from_millis(80);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let threads = std::env::args().skip(2).map(|count| count.parse()).collect::<Result<Vec<usize>, _>>()?;
    match std::env::args().nth(1).as_deref() {
        None | Some("sim") => {
            let device = Arc::new(Simulated::new(64 << 30));
            measure(&device)?;
            phases(&device)?;
            scale(&device, &threads, |device| Ok(device.stream()))
        }
        Some("cuda") => {
            let device = Arc::new(Cuda::open(0)?);
            measure(&device)?;
            phases(&device)?;
            scale(&device, &threads, |device| Ok(device.create_stream()?))
        }
        Some(other) => Err(format!("{other}: sim or cuda").into()),
    }
}

/// Nanoseconds of an allocation of 100 blocks of 1 KiB to 4 MiB, each doubling as likely: at first, after 50 rounds of
/// churn and after 100 more.
fn phases<D: Device>(device: &Arc<D>) -> Result<(), Box<dyn std::error::Error>> {
    println!("{:>12} {:>10} {:>10}  ns an allocation, median of {ROUNDS}", "phase", "plain", "recorded");
    let mut times: [[Vec<f64>; 2]; 3] = Default::default();
    for _ in 0..ROUNDS {
        let plain = phases_of(&Pool::new(device.clone(), Config::default())?)?;
        let recorded = phases_of(&gpu::pool(device.clone(), 0, Config::default())?)?;
        for (at, times) in times.iter_mut().enumerate() {
            times[0].push(plain[at]);
            times[1].push(recorded[at]);
        }
    }
    for (name, times) in ["baseline", "after 50", "after 150"].into_iter().zip(times) {
        let [plain, recorded] = times.map(median);
        println!("{name:>12} {plain:>10.1} {recorded:>10.1}");
    }
    Ok(())
}

fn phases_of<D: Device>(pool: &Pool<D>) -> Result<[f64; 3], gpu::PoolError> {
    const BLOCKS: usize = 100;
    let mut random = 7u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let size = |random: u64| {
        let doubling = 1024 << (random % 12);
        doubling + (random >> 8) % (doubling + 1)
    };
    let sizes: Vec<u64> = (0..BLOCKS).map(|_| size(next())).collect();
    let mut blocks = Vec::with_capacity(BLOCKS);
    let mut measure = || {
        let mut times = Vec::new();
        for _ in 0..21 {
            let began = Instant::now();
            for size in &sizes {
                blocks.push(pool.allocate(*size, Stream::LEGACY)?);
            }
            times.push(began.elapsed().as_nanos() as f64 / BLOCKS as f64);
            blocks.drain(..).try_for_each(|block| pool.free(block, Stream::LEGACY))?;
        }
        Ok::<_, gpu::PoolError>(median(times))
    };
    let mut survivors = Vec::new();
    let mut churn = |rounds: usize| {
        for _ in 0..rounds {
            let mut round = Vec::new();
            for _ in 0..BLOCKS {
                round.push(pool.allocate(size(next()), Stream::LEGACY)?);
            }
            while round.len() > BLOCKS * 2 / 5 {
                pool.free(round.swap_remove(next() as usize % round.len()), Stream::LEGACY)?;
            }
            survivors.append(&mut round);
        }
        Ok::<_, gpu::PoolError>(())
    };
    measure()?;
    let baseline = measure()?;
    churn(50)?;
    let after_50 = measure()?;
    churn(100)?;
    let after_150 = measure()?;
    survivors.into_iter().try_for_each(|block| pool.free(block, Stream::LEGACY))?;
    Ok([baseline, after_50, after_150])
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Threads with random sizes from 256 B to 1 MiB, all as likely. The first window is the first of these threads' lives.
fn scale<D: Device>(
    device: &Arc<D>,
    counts: &[usize],
    stream: impl Fn(&D) -> Result<Stream, Box<dyn std::error::Error>>,
) -> Result<(), Box<dyn std::error::Error>> {
    println!("{:>12} {:>10} {:>10}  million pairs/s, median of {ROUNDS}", "threads", "plain", "recorded");
    for &count in counts {
        let streams = (0..count).map(|_| stream(device)).collect::<Result<Vec<_>, _>>()?;
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            let plain = Pool::new(device.clone(), Config::default())?;
            rates[0].push(threads(&plain, &streams)?);
            drop(plain);
            rates[1].push(threads(&gpu::pool(device.clone(), 0, Config::default())?, &streams)?);
        }
        let [plain, recorded] = rates.map(median);
        println!("{count:>12} {plain:>10.1} {recorded:>10.1}");
    }
    Ok(())
}

/// Million pairs a second of all threads together.
fn threads<D: Device>(pool: &Pool<D>, streams: &[Stream]) -> Result<f64, gpu::PoolError> {
    let (barrier, stop) = (Barrier::new(streams.len() + 1), AtomicBool::new(false));
    let work = |seed: usize, stream: Stream| -> Result<u64, gpu::PoolError> {
        let mut random = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut live = [0u64; LIVE];
        let mut replace = |block: &mut u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if *block != 0 {
                pool.free(std::mem::take(block), stream)?;
            }
            *block = pool.allocate(256 + random % ((1 << 20) - 255), stream)?;
            Ok::<_, gpu::PoolError>(())
        };
        let begun = Instant::now();
        let mut result = Ok(());
        while result.is_ok() && begun.elapsed() < WARM_UP {
            result = live.iter_mut().try_for_each(&mut replace);
        }
        barrier.wait();
        let mut pairs = 0;
        while result.is_ok() && !stop.load(Ordering::Relaxed) {
            result = replace(&mut live[pairs as usize % LIVE]);
            pairs += 1;
        }
        live.into_iter().filter(|block| *block != 0).try_for_each(|block| pool.free(block, stream))?;
        result.map(|()| pairs)
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            streams.iter().enumerate().map(|(seed, stream)| scope.spawn(move || work(seed, *stream))).collect();
        barrier.wait();
        let start = Instant::now();
        std::thread::sleep(SPAN);
        stop.store(true, Ordering::Relaxed);
        let seconds = start.elapsed().as_secs_f64();
        let mut pairs = 0;
        for thread in threads {
            pairs += thread.join().expect("no thread panics")?;
        }
        Ok(pairs as f64 / seconds / 1e6)
    })
}

fn measure<D: Device>(device: &Arc<D>) -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", device.properties().name);
    let plain = Pool::new(device.clone(), Config::default())?;
    let recorded = gpu::pool(device.clone(), 0, Config::default())?;
    println!("{:>12} {:>10} {:>10}  ns a pair, median of {ROUNDS}", "bytes", "plain", "recorded");
    for size in SIZES {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (pool, times) in [&plain, &recorded].into_iter().zip(&mut times) {
                times.push(pairs(pool, size)?);
            }
        }
        let [plain, recorded] = times.map(median);
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
