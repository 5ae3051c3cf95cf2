//! Threads that allocate at once, each on a stream of its own, and free what others have allocated.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use poolscope_gpu::{Config, Device, Pool, Stream};

use super::setup::{KIB, MIB, Settings, ensure, pool};
use crate::gpu::{Gpu, Random, Result};

pub fn threads(gpu: &Gpu, settings: &Settings) -> Result<String> {
    let pool = pool(gpu, Config::default())?;
    run_threads(gpu, &pool, 16, settings.seconds)
}

/// A block that goes to another thread, behind an event.
struct Parcel {
    block: u64,
    size: u64,
    value: u32,
    stream: Stream,
    event: usize,
}

fn size_of_some_block(random: &mut Random) -> u64 {
    match random.below(100) {
        0..50 => 256 + random.below(64 * KIB),
        50..95 => 64 * KIB + random.below(960 * KIB),
        95..99 => MIB + random.below(8 * MIB),
        _ => random.below(48 * MIB) + 4,
    }
}

/// Threads that write, verify, free and pass on blocks.
pub fn run_threads<D: Device>(gpu: &Gpu, pool: &Pool<D>, count: u64, seconds: u64) -> Result<String> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let channels: Vec<_> = (0..count).map(|_| channel::<Parcel>()).collect();
    let barrier = Barrier::new(count as usize);
    let senders: Vec<_> = channels.iter().map(|(sender, _)| sender.clone()).collect();
    let results: Vec<Result<(u64, u64)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = channels
            .into_iter()
            .enumerate()
            .map(|(number, (_, inbox))| {
                let next = senders[(number + 1) % senders.len()].clone();
                let gpu = gpu.for_thread(number as u64);
                let barrier = &barrier;
                scope.spawn(move || -> Result<(u64, u64)> {
                    gpu.enter()?;
                    let stream = gpu.stream()?;
                    let mut random = Random(number as u64 + 1);
                    let mut live: Vec<(u64, u64, u32)> = Vec::new();
                    let (mut done, mut passed) = (0u64, 0u64);
                    let mut work = || -> Result<()> {
                        while Instant::now() < end {
                            let (size, value) = (size_of_some_block(&mut random), random.next() as u32);
                            let block = pool.allocate(size, stream)?;
                            gpu.fill(block, size, value, stream)?;
                            live.push((block, size, value));
                            if live.len() > 48 {
                                let (block, size, value) = live.swap_remove(random.below(48) as usize);
                                if random.below(8) == 0 {
                                    let event = gpu.event(stream)?;
                                    let _ = next.send(Parcel { block, size, value, stream, event });
                                } else {
                                    gpu.verify(block, size, value, stream)?;
                                    pool.free(block, stream)?;
                                }
                            }
                            for parcel in inbox.try_iter() {
                                passed += 1;
                                receive(&gpu, pool, stream, parcel, passed % 2 == 0)?;
                            }
                            done += 1;
                            if done % 1000 == 0 {
                                gpu.all_right().map_err(|error| format!("thread {number}: {error}"))?;
                                if number == 0 {
                                    pool.maintain();
                                }
                            }
                        }
                        Ok(())
                    };
                    let result = work();
                    // Nobody sends any more: what is still on its way is freed by whom it was sent to.
                    barrier.wait();
                    result?;
                    for parcel in inbox.try_iter() {
                        passed += 1;
                        receive(&gpu, pool, stream, parcel, false)?;
                    }
                    for (block, size, value) in live {
                        gpu.verify(block, size, value, stream)?;
                        pool.free(block, stream)?;
                    }
                    gpu.all_right().map_err(|error| format!("thread {number}: {error}"))?;
                    Ok((done, passed))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("the thread died".into()))).collect()
    });
    let (mut done, mut passed) = (0, 0);
    for result in results {
        let (blocks, parcels) = result?;
        (done, passed) = (done + blocks, passed + parcels);
    }
    let stats = pool.stats();
    ensure(stats.current_usage == 0, format!("{} bytes are still allocated", stats.current_usage))?;
    ensure(passed > 0, "no block went to another thread")?;
    Ok(format!(
        "{count} threads, {seconds} s, {done} blocks, {passed} passed on, held {} MiB, {} driver calls",
        stats.peak_held >> 20,
        stats.driver_calls
    ))
}

fn receive<D: Device>(gpu: &Gpu, pool: &Pool<D>, stream: Stream, parcel: Parcel, record: bool) -> Result<()> {
    let Parcel { block, size, value, stream: from, event } = parcel;
    gpu.wait(stream, event)?;
    gpu.verify(block, size, value, stream)?;
    if record {
        // Back to the stream that it came from, which knows nothing of the work here.
        pool.record_stream(block, stream)?;
        pool.free(block, from)?;
    } else {
        pool.free(block, stream)?;
    }
    Ok(())
}
