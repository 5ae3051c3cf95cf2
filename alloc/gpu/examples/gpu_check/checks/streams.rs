//! What streams have to wait for: nobody writes to memory that another stream still uses.
//!
//! Each check has one stream look at a block some time after it was freed, by a kernel that is queued, while another
//! one gets what the pool gives out next. The first makes sure that an overlap would be seen.

use std::time::Duration;

use poolscope_gpu::{Config, Cuda, Device, Pool, PoolError, Stream};

use super::setup::{KIB, MIB, Settings, ensure, pool};
use crate::gpu::{Gpu, Result};

pub fn detector(gpu: &Gpu, _: &Settings) -> Result<String> {
    let (one, other) = (gpu.stream()?, gpu.stream()?);
    let block = gpu.cuda.allocate(MIB)?;
    gpu.fill(block, MIB, 1, one)?;
    gpu.spin(20_000, one)?;
    gpu.verify(block, MIB, 1, one)?;
    gpu.fill(block, MIB, 2, other)?;
    let bad = gpu.mismatches()?;
    gpu.cuda.free(block)?;
    ensure(bad > 0, "a block was overwritten under a kernel, and nobody noticed")?;
    Ok(format!("{bad} words"))
}

pub fn default_streams(gpu: &Gpu, _: &Settings) -> Result<String> {
    let id = |stream| gpu.cuda.stream_id(stream);
    ensure(id(Stream::NULL)? == id(Stream::LEGACY)?, "the null stream is not the legacy one")?;
    let own = id(Stream::PER_THREAD)?;
    ensure(own != id(Stream::LEGACY)?, "the thread's stream is the legacy one")?;
    let others = std::thread::scope(|scope| scope.spawn(|| id(Stream::PER_THREAD)).join());
    let others = others.map_err(|_| "the thread died")??;
    ensure(own != others, "two threads have one stream")?;
    Ok(format!("ids {} and {own}, {others}", id(Stream::NULL)?))
}

/// Each block is written on one stream and looked at after a while;
/// whoever gets it next on the other one writes at once.
pub fn in_turns<D: Device>(gpu: &Gpu, pool: &Pool<D>, sizes: &[u64], rounds: u32) -> Result<u32> {
    let streams = [gpu.stream()?, gpu.stream()?];
    let mut reused = 0;
    for &size in sizes {
        let mut last = 0;
        for round in 0..rounds {
            let stream = streams[round as usize % 2];
            let block = pool.allocate(size, stream)?;
            reused += u32::from(block == last);
            last = block;
            gpu.fill(block, size, round, stream)?;
            gpu.spin(300, stream)?;
            gpu.verify(block, size, round, stream)?;
            pool.free(block, stream)?;
            if round % 5 == 4 {
                pool.maintain();
            }
        }
        gpu.all_right().map_err(|error| format!("{size} B: {error}"))?;
    }
    for stream in streams {
        pool.stream_ends(stream)?;
        gpu.destroy(stream)?;
    }
    Ok(reused)
}

pub fn streams(gpu: &Gpu, _: &Settings) -> Result<String> {
    let pool = pool(gpu, Config { memory_limit: 256 * MIB, ..Config::default() })?;
    let reused = in_turns(gpu, &pool, &[2 * MIB, 5 * MIB, 64 * MIB, 200 * MIB], 60)?;
    ensure(reused > 50, format!("only {reused} blocks went to the other stream"))?;
    Ok(format!("{reused} blocks went to the other stream, {} behind events", pool.stats().from_other_streams))
}

pub fn freed_elsewhere(gpu: &Gpu, _: &Settings) -> Result<String> {
    read_elsewhere(gpu, |pool, block, _own, other| pool.free(block, other))
}

pub fn recorded(gpu: &Gpu, _: &Settings) -> Result<String> {
    read_elsewhere(gpu, |pool, block, own, other| {
        pool.record_stream(block, other)?;
        pool.free(block, own)
    })
}

/// Blocks of one stream that another reads last, and that are freed with a word of that: they are used again, and never
/// too early.
fn read_elsewhere(
    gpu: &Gpu,
    free: impl Fn(&Pool<Cuda>, u64, Stream, Stream) -> std::result::Result<(), PoolError>,
) -> Result<String> {
    let pool = pool(gpu, Config { memory_limit: 64 * MIB, ..Config::default() })?;
    let (own, other) = (gpu.stream()?, gpu.stream()?);
    let mut reused = 0;
    for size in [4 * KIB, 64 * KIB, MIB, 20 * MIB] {
        let mut seen = Vec::new();
        for round in 0..50 {
            let block = pool.allocate(size, own)?;
            reused += u32::from(seen.contains(&block));
            seen.push(block);
            gpu.fill(block, size, round, own)?;
            gpu.order(own, other)?;
            gpu.spin(300, other)?;
            gpu.verify(block, size, round, other)?;
            free(&pool, block, own, other)?;
        }
        gpu.all_right().map_err(|error| format!("{size} B: {error}"))?;
    }
    ensure(reused > 20, format!("only {reused} blocks were used again"))?;
    Ok(format!("{reused} blocks were used again"))
}

pub fn per_thread(gpu: &Gpu, _: &Settings) -> Result<String> {
    let pool = pool(gpu, Config { memory_limit: 64 * MIB, ..Config::default() })?;
    for round in 0..40u32 {
        let run = |stream: Stream, value: u32| -> Result<()> {
            gpu.enter()?;
            for size in [64 * KIB, 40 * MIB] {
                let block = pool.allocate(size, stream)?;
                gpu.fill(block, size, value, stream)?;
                gpu.spin(200, stream)?;
                gpu.verify(block, size, value, stream)?;
                pool.free(block, stream)?;
            }
            Ok(())
        };
        run(Stream::PER_THREAD, round)?;
        std::thread::scope(|scope| scope.spawn(|| run(Stream::PER_THREAD, round + 1000)).join())
            .map_err(|_| "the thread died")??;
        run(Stream::NULL, round + 2000)?;
        let own = gpu.stream()?;
        run(own, round + 3000)?;
        pool.stream_ends(own)?;
        gpu.destroy(own)?;
    }
    gpu.all_right()?;
    let others = pool.stats().from_other_streams;
    ensure(others > 20, format!("only {others} blocks went to other streams"))?;
    Ok(format!("{others} blocks went to other streams"))
}

pub fn lost(gpu: &Gpu, _: &Settings) -> Result<String> {
    let pool = pool(gpu, Config { memory_limit: 64 * MIB, ..Config::default() })?;
    let other = gpu.stream()?;
    for round in 0..10 {
        let gone = gpu.stream()?;
        for size in [40 * MIB, 64 * KIB, 4 * KIB] {
            let block = pool.allocate(size, gone)?;
            gpu.fill(block, size, round, gone)?;
            gpu.spin(1000, gone)?;
            gpu.verify(block, size, round, gone)?;
            pool.free(block, gone)?;
        }
        gpu.destroy(gone)?;
        // The pool uses no handle that was not named in this round or the last one.
        std::thread::sleep(Duration::from_millis(200));
        let block = pool.allocate(50 * MIB, other)?;
        gpu.fill(block, 50 * MIB, round + 1000, other)?;
        gpu.verify(block, 50 * MIB, round + 1000, other)?;
        pool.free(block, other)?;
    }
    gpu.all_right()?;
    pool.release_all();
    let held = pool.stats().held;
    ensure(held == 0, format!("{held} bytes are still held"))?;
    Ok(String::new())
}
