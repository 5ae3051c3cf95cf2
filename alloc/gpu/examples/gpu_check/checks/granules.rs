//! Granules: mapped at two addresses, put together under load, all in use, and given back.

use std::time::{Duration, Instant};

use poolscope_gpu::{Config, Device, GRANULE, PoolError, Stream};

use super::setup::{GIB, MIB, Settings, ensure, pool};
use crate::gpu::{Gpu, Random, Result};

pub fn two_addresses(gpu: &Gpu, _: &Settings) -> Result<String> {
    let (cuda, stream) = (&gpu.cuda, gpu.stream()?);
    let base = cuda.reserve(2 * GRANULE)?;
    let granule = cuda.create(GRANULE)?;
    cuda.map(base, granule)?;
    cuda.map(base + GRANULE, granule)?;
    cuda.set_access(base, 2 * GRANULE)?;
    gpu.fill(base, GRANULE, 7, stream)?;
    gpu.verify(base + GRANULE, GRANULE, 7, stream)?;
    gpu.all_right()?;
    gpu.fill(base + GRANULE, GRANULE, 8, stream)?;
    gpu.verify(base, GRANULE, 8, stream)?;
    gpu.all_right()?;
    cuda.unmap(base, GRANULE)?;
    gpu.verify(base + GRANULE, GRANULE, 8, stream)?;
    gpu.all_right()?;
    cuda.unmap(base + GRANULE, GRANULE)?;
    cuda.release(granule)?;
    cuda.unreserve(base, 2 * GRANULE)?;
    Ok(String::new())
}

pub fn remapping(gpu: &Gpu, _: &Settings) -> Result<String> {
    // What is free under a stitch in use can't be put together again before all of it is free:
    // half of the memory is slack.
    let limit = GIB;
    let pool = pool(gpu, Config { memory_limit: 2 * limit, ..Config::default() })?;
    let streams = [gpu.stream()?, gpu.stream()?, gpu.stream()?];
    let mut random = Random(42);
    let mut live: Vec<(u64, u64, u32, Stream)> = Vec::new();
    let (mut used, mut value) = (0, 0);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        // Small holes first, then one request that only fits if they are put together.
        let large = random.below(8) == 0;
        let granules = if large { 20 + random.below(60) } else { 1 + random.below(6) };
        let size = granules * GRANULE - random.below(2) * random.below(4096) * 256;
        let stream = streams[random.below(3) as usize];
        while used + size > limit / 2 {
            let (block, size, value, stream) = live.swap_remove(random.below(live.len() as u64) as usize);
            gpu.verify(block, size, value, stream)?;
            pool.free(block, stream)?;
            used -= size;
        }
        let block = pool.allocate(size, stream)?;
        value += 1;
        gpu.fill(block, size, value, stream)?;
        live.push((block, size, value, stream));
        used += size;
        if value % 64 == 0 {
            gpu.all_right()?;
            pool.maintain();
        }
    }
    for (block, size, value, stream) in live {
        gpu.verify(block, size, value, stream)?;
        pool.free(block, stream)?;
    }
    gpu.all_right()?;
    let stats = pool.stats();
    ensure(stats.granules_remapped > 100, format!("only {} granules were remapped", stats.granules_remapped))?;
    Ok(format!(
        "{value} blocks, {} granules remapped, {} stitches reused, held {} MiB",
        stats.granules_remapped,
        stats.stitches_reused,
        stats.peak_held >> 20
    ))
}

pub fn full(gpu: &Gpu, _: &Settings) -> Result<String> {
    let pool = pool(gpu, Config::default())?;
    let stream = gpu.stream()?;
    let mut blocks = Vec::new();
    let before = gpu.cuda.memory_info()?;
    let picture = loop {
        match pool.allocate(4 * GIB, stream) {
            Ok(block) => blocks.push(block),
            Err(PoolError::OutOfMemory(picture)) => break picture,
            Err(error) => return Err(error.into()),
        }
    };
    ensure(blocks.len() as u64 + 1 >= before.free / (4 * GIB), format!("{} blocks, {before:?}", blocks.len()))?;
    let text = picture.to_string();
    println!("{}", text.trim_end().lines().map(|line| format!("      | {line}")).collect::<Vec<_>>().join("\n"));
    ensure(text.contains("held by size") && text.contains("tried: own caches"), "the picture is not whole")?;
    gpu.fill(blocks[0], 4 * GIB, 1, stream)?;
    gpu.fill(*blocks.last().ok_or("no block")?, 4 * GIB, 2, stream)?;
    gpu.verify(blocks[0], 4 * GIB, 1, stream)?;
    gpu.all_right()?;
    let count = blocks.len();
    for block in blocks {
        pool.free(block, stream)?;
    }
    let size = before.free / 2 / GRANULE * GRANULE;
    let block = pool.allocate(size, stream)?;
    pool.free(block, stream)?;
    drop(pool);
    let after = gpu.cuda.memory_info()?;
    ensure(after.free + 64 * MIB >= before.free, format!("not all came back: {before:?}, {after:?}"))?;
    Ok(format!("{count} blocks of 4 GiB, then one of {} GiB", size / GIB))
}

pub fn idle(gpu: &Gpu, _: &Settings) -> Result<String> {
    let pool = pool(gpu, Config { idle_release_ms: 100, ..Config::default() })?;
    let stream = gpu.stream()?;
    for size in [GIB, MIB] {
        let block = pool.allocate(size, stream)?;
        gpu.fill(block, size, 1, stream)?;
        pool.free(block, stream)?;
    }
    let held = pool.stats().held;
    let begin = Instant::now();
    while pool.stats().held > 2 * GRANULE && begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = pool.stats().held;
    ensure(left <= 2 * GRANULE, format!("{left} bytes are still held"))?;
    let first = begin.elapsed();
    let begin = Instant::now();
    drop(pool);
    ensure(begin.elapsed() < Duration::from_secs(2), "the pool's thread does not end")?;
    Ok(format!("{} MiB in {:.1} s", held >> 20, first.as_secs_f64()))
}
