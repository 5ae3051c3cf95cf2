//! The checks.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use poolscope_gpu::{Config, Cuda, Device, GRANULE, Pool, PoolError, Stream};

use crate::gpu::{Gpu, Random, Result};

pub struct Settings {
    pub ordinal: u32,
    /// How long the threads run.
    pub seconds: u64,
}

pub type Check = fn(&Gpu, &Settings) -> Result<String>;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

pub const CHECKS: &[(&str, Check)] = &[
    ("a granule may be mapped at two addresses", two_addresses),
    ("the detector sees an overlap that is there", detector),
    ("the default streams are told apart", default_streams),
    ("a block freed on one stream and allocated on another is not in use by both", streams),
    ("a block freed on another stream than its own waits for both", freed_elsewhere),
    ("a recorded stream holds a block back", recorded),
    ("a thread's default stream shares with the others", per_thread),
    ("a captured graph has its memory to itself, and no call ends the capture", graph),
    ("a capture that the pool is not told of survives other threads' calls", untold_capture),
    ("memory remapped under load keeps its contents", remapping),
    ("a full device is refused with the whole picture, and recovers", full),
    ("pinned host memory serves when the limit is reached", pinned_fallback),
    ("pinned host memory is read and written by both sides", pinned),
    ("plain allocations serve where there is no virtual memory", plain),
    ("idle memory goes back by itself", idle),
    ("another device reads and writes this one's memory", peers),
    ("threads with streams of their own keep their contents", threads),
    ("a stream that was destroyed without a word a while ago strands nothing", lost),
];

fn pool(gpu: &Gpu, config: Config) -> Result<Pool<Cuda>> {
    Ok(Pool::new(gpu.cuda.clone(), config)?)
}

fn ensure(condition: bool, what: impl Into<String>) -> Result<()> {
    if condition { Ok(()) } else { Err(what.into().into()) }
}

fn two_addresses(gpu: &Gpu, _: &Settings) -> Result<String> {
    let (cuda, stream) = (&gpu.cuda, gpu.stream()?);
    let base = cuda.reserve(2 * GRANULE)?;
    let granule = cuda.create()?;
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

fn detector(gpu: &Gpu, _: &Settings) -> Result<String> {
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

fn default_streams(gpu: &Gpu, _: &Settings) -> Result<String> {
    let id = |stream| gpu.cuda.stream_id(stream);
    ensure(id(Stream::NULL)? == id(Stream::LEGACY)?, "the null stream is not the legacy one")?;
    let own = id(Stream::PER_THREAD)?;
    ensure(own != id(Stream::LEGACY)?, "the thread's stream is the legacy one")?;
    let others = std::thread::scope(|scope| scope.spawn(|| id(Stream::PER_THREAD)).join());
    let others = others.map_err(|_| "the thread died")??;
    ensure(own != others, "two threads have one stream")?;
    Ok(format!("ids {} and {own}, {others}", id(Stream::NULL)?))
}

/// Each block is written on one stream and looked at after a while; whoever gets it next on the other one writes at once.
fn in_turns<D: Device>(gpu: &Gpu, pool: &Pool<D>, sizes: &[u64], rounds: u32) -> Result<u32> {
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

fn streams(gpu: &Gpu, _: &Settings) -> Result<String> {
    let pool = pool(gpu, Config { memory_limit: 256 * MIB, ..Config::default() })?;
    let reused = in_turns(gpu, &pool, &[2 * MIB, 5 * MIB, 64 * MIB, 200 * MIB], 60)?;
    ensure(reused > 50, format!("only {reused} blocks went to the other stream"))?;
    Ok(format!("{reused} blocks went to the other stream, {} behind events", pool.stats().from_other_streams))
}

fn freed_elsewhere(gpu: &Gpu, _: &Settings) -> Result<String> {
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
            pool.free(block, other)?;
        }
        gpu.all_right().map_err(|error| format!("{size} B: {error}"))?;
    }
    ensure(reused > 20, format!("only {reused} blocks were used again"))?;
    Ok(format!("{reused} blocks were used again"))
}

fn recorded(gpu: &Gpu, _: &Settings) -> Result<String> {
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
            pool.record_stream(block, other)?;
            pool.free(block, own)?;
        }
        gpu.all_right().map_err(|error| format!("{size} B: {error}"))?;
    }
    ensure(reused > 20, format!("only {reused} blocks were used again"))?;
    Ok(format!("{reused} blocks were used again"))
}

fn per_thread(gpu: &Gpu, _: &Settings) -> Result<String> {
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

/// Ends the other threads' work, however its own thread's ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn graph(gpu: &Gpu, _: &Settings) -> Result<String> {
    let pool = pool(gpu, Config::default())?;
    let (captured, launched, other) = (gpu.stream()?, gpu.stream()?, gpu.stream()?);
    let sizes = [4 * MIB, 64 * KIB, 24 * MIB, 4 * MIB];
    let churn = |gpu: &Gpu, stream: Stream, rounds: u32| -> Result<()> {
        for round in 0..rounds {
            for size in [64 * KIB, 4 * MIB, 24 * MIB] {
                let block = pool.allocate(size, stream)?;
                gpu.fill(block, size, round, stream)?;
                gpu.verify(block, size, round, stream)?;
                pool.free(block, stream)?;
            }
        }
        Ok(())
    };
    churn(gpu, other, 3)?;
    let (over, second) = (AtomicBool::new(false), gpu.stream()?);
    let (graph, memory) = std::thread::scope(|scope| -> Result<_> {
        let thread = scope.spawn(|| -> Result<u32> {
            gpu.enter()?;
            let (gpu, mut rounds) = (gpu.for_thread(1), 0);
            while !over.load(Ordering::Relaxed) {
                churn(&gpu, other, 1)?;
                let block = pool.allocate(4 * MIB, other)?;
                pool.free(block, second)?;
                pool.maintain();
                rounds += 1;
            }
            Ok(rounds)
        });
        let ends = Ends(&over);
        let memory = pool.begin_capture(captured)?;
        gpu.begin_capture(captured)?;
        std::thread::sleep(Duration::from_millis(20));
        let kept = pool.allocate(MIB, captured)?;
        gpu.fill(kept, MIB, 9, captured)?;
        for (value, size) in sizes.into_iter().enumerate() {
            let block = pool.allocate(size, captured)?;
            gpu.fill(block, size, value as u32, captured)?;
            gpu.spin(100, captured)?;
            gpu.verify(block, size, value as u32, captured)?;
            pool.free(block, captured)?;
            std::thread::sleep(Duration::from_millis(5));
        }
        gpu.verify(kept, MIB, 9, captured)?;
        let graph = gpu.end_capture(captured);
        pool.end_capture(captured)?;
        drop(ends);
        let rounds = thread.join().map_err(|_| "the thread died")??;
        ensure(rounds > 0, "the other thread did nothing")?;
        Ok((graph?, memory))
    })?;
    for _ in 0..50 {
        gpu.launch_graph(graph, launched)?;
        churn(gpu, other, 1)?;
        pool.maintain();
    }
    gpu.all_right()?;
    ensure(gpu.for_thread(1).mismatches()? == 0, "the other thread's blocks were overwritten")?;
    pool.end_graph(memory, launched)?;
    churn(gpu, other, 3)?;
    gpu.all_right()?;
    Ok("50 launches".to_owned())
}

fn untold_capture(gpu: &Gpu, _: &Settings) -> Result<String> {
    let pool = pool(gpu, Config { memory_limit: 128 * MIB, ..Config::default() })?;
    let captured = gpu.stream()?;
    let scratch = gpu.cuda.allocate(MIB)?;
    let streams = [gpu.stream()?, gpu.stream()?];
    gpu.begin_capture(captured)?;
    gpu.fill(scratch, MIB, 1, captured)?;
    let calls = std::thread::scope(|scope| {
        let work = || -> Result<u64> {
            gpu.enter()?;
            let gpu = gpu.for_thread(1);
            let reused = in_turns_without_synchronizing(&gpu, &pool, streams)?;
            Ok(u64::from(reused) + pool.stats().driver_calls)
        };
        scope.spawn(work).join().map_err(|_| "the thread died")
    })??;
    gpu.verify(scratch, MIB, 1, captured)?;
    let graph = gpu.end_capture(captured)?;
    gpu.launch_graph(graph, captured)?;
    gpu.all_right()?;
    ensure(gpu.for_thread(1).mismatches()? == 0, "blocks were overwritten")?;
    gpu.cuda.free(scratch)?;
    Ok(format!("{calls} driver calls during it"))
}

fn in_turns_without_synchronizing(gpu: &Gpu, pool: &Pool<Cuda>, streams: [Stream; 2]) -> Result<u32> {
    let mut reused = 0;
    for round in 0..40u32 {
        for size in [64 * KIB, 3 * MIB, 100 * MIB] {
            let stream = streams[round as usize % 2];
            let block = pool.allocate(size, stream)?;
            gpu.fill(block, size, round, stream)?;
            gpu.verify(block, size, round, stream)?;
            pool.free(block, streams[round as usize / 2 % 2])?;
            if stream != streams[round as usize / 2 % 2] {
                gpu.order(stream, streams[round as usize / 2 % 2])?;
            }
            reused += 1;
        }
        pool.maintain();
    }
    Ok(reused)
}

fn remapping(gpu: &Gpu, _: &Settings) -> Result<String> {
    // What is free under a stitch in use can't be put together again before all of it is free: half of the memory is slack.
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

fn full(gpu: &Gpu, _: &Settings) -> Result<String> {
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

fn pinned_fallback(gpu: &Gpu, _: &Settings) -> Result<String> {
    let config = Config { memory_limit: 64 * MIB, pinned_fallback: true, ..Config::default() };
    let pool = pool(gpu, config)?;
    let stream = gpu.stream()?;
    let sizes = [50 * MIB, 40 * MIB, MIB];
    let blocks: Vec<_> =
        sizes.iter().map(|size| pool.allocate(*size, stream)).collect::<std::result::Result<_, _>>()?;
    for (value, (block, size)) in blocks.iter().zip(sizes).enumerate() {
        gpu.fill(*block, size, value as u32, stream)?;
    }
    for (value, (block, size)) in blocks.iter().zip(sizes).enumerate() {
        gpu.verify(*block, size, value as u32, stream)?;
        pool.free(*block, stream)?;
    }
    gpu.all_right()?;
    let stats = pool.stats();
    ensure(stats.ladder_pinned_host_served > 0, "nothing came from the host")?;
    Ok(format!("{} from the host", stats.ladder_pinned_host_served))
}

fn pinned(gpu: &Gpu, _: &Settings) -> Result<String> {
    let pool = Pool::pinned(gpu.cuda.clone(), Config::default())?;
    let stream = gpu.stream()?;
    for (value, size) in [4 * KIB, 64 * KIB, MIB, 30 * MIB].into_iter().enumerate() {
        let (value, words) = (value as u32, size as usize / 4);
        let block = pool.allocate(size, stream)?;
        // SAFETY: the block is locked host memory of this size, which no kernel uses now.
        let host = unsafe { std::slice::from_raw_parts_mut(block as usize as *mut u32, words) };
        host.iter_mut().enumerate().for_each(|(at, word)| *word = at as u32 ^ value);
        gpu.verify(block, size, value, stream)?;
        gpu.all_right()?;
        gpu.fill(block, size, value + 100, stream)?;
        gpu.synchronize(stream)?;
        let right = host.iter().enumerate().all(|(at, word)| *word == at as u32 ^ (value + 100));
        ensure(right, "the host does not see what the device wrote")?;
        pool.free(block, stream)?;
    }
    let reused = in_turns(gpu, &pool, &[64 * KIB, 2 * MIB], 20)?;
    Ok(format!("{reused} blocks went to the other stream"))
}

fn plain(gpu: &Gpu, settings: &Settings) -> Result<String> {
    let plain = Gpu::on(Cuda::open(settings.ordinal)?.without_virtual_memory())?;
    let pool = pool(&plain, Config { memory_limit: 4 * GIB, ..Config::default() })?;
    let reused = in_turns(&plain, &pool, &[64 * KIB, 2 * MIB, 5 * MIB, 64 * MIB], 40)?;
    let done = run_threads(&plain, &pool, 4, settings.seconds.min(4))?;
    let stats = pool.stats();
    let _ = gpu;
    Ok(format!("{reused} blocks went to the other stream, threads: {done}, held {} MiB", stats.peak_held >> 20))
}

fn idle(gpu: &Gpu, _: &Settings) -> Result<String> {
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

fn peers(gpu: &Gpu, settings: &Settings) -> Result<String> {
    let Some(second) = Cuda::devices()?.into_iter().map(|device| device.ordinal).find(|it| *it != settings.ordinal)
    else {
        return Ok("there is one device: not checked".to_owned());
    };
    let peer = Gpu::open(second)?;
    gpu.enter()?;
    let pools = [Config::default(), Config { memory_limit: 256 * MIB, ..Config::default() }];
    for config in pools {
        let pool = pool(gpu, config)?;
        let stream = gpu.stream()?;
        let before: Vec<_> = (0..10).map(|_| pool.allocate(4 * MIB, stream)).collect::<std::result::Result<_, _>>()?;
        pool.enable_peer(&peer.cuda)?;
        before.iter().step_by(2).try_for_each(|block| pool.free(*block, stream))?;
        let mut blocks: Vec<(u64, u64)> = before.iter().skip(1).step_by(2).map(|block| (*block, 4 * MIB)).collect();
        for size in [256, 64 * KIB, 18 * MIB, 60 * MIB] {
            blocks.push((pool.allocate(size, stream)?, size));
        }
        for (value, (block, size)) in blocks.iter().enumerate() {
            gpu.fill(*block, *size, value as u32, stream)?;
        }
        gpu.all_right()?;
        peer.enter()?;
        let theirs = peer.stream()?;
        for (value, (block, size)) in blocks.iter().enumerate() {
            peer.verify(*block, *size, value as u32, theirs)?;
            peer.fill(*block, *size, value as u32 + 100, theirs)?;
        }
        peer.all_right()?;
        gpu.enter()?;
        for (value, (block, size)) in blocks.iter().enumerate() {
            gpu.verify(*block, *size, value as u32 + 100, stream)?;
            pool.free(*block, stream)?;
        }
        gpu.all_right()?;
    }
    Ok(format!("device {second} on the memory of device {}", settings.ordinal))
}

fn lost(gpu: &Gpu, _: &Settings) -> Result<String> {
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

fn threads(gpu: &Gpu, settings: &Settings) -> Result<String> {
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
fn run_threads<D: Device>(gpu: &Gpu, pool: &Pool<D>, count: u64, seconds: u64) -> Result<String> {
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
