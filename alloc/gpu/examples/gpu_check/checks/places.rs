//! Memory that is somewhere else than usual: on the host, without virtual memory, or under another device's hands.

use poolscope_gpu::{Config, Cuda, Pool};

use super::setup::{GIB, KIB, MIB, Settings, ensure, pool};
use super::streams::in_turns;
use super::threads::run_threads;
use crate::gpu::{Gpu, Result};

pub fn pinned_fallback(gpu: &Gpu, _: &Settings) -> Result<String> {
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

pub fn pinned(gpu: &Gpu, _: &Settings) -> Result<String> {
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

pub fn plain(gpu: &Gpu, settings: &Settings) -> Result<String> {
    let plain = Gpu::on(Cuda::open(settings.ordinal)?.without_virtual_memory())?;
    let pool = pool(&plain, Config { memory_limit: 4 * GIB, ..Config::default() })?;
    let reused = in_turns(&plain, &pool, &[64 * KIB, 2 * MIB, 5 * MIB, 64 * MIB], 40)?;
    let done = run_threads(&plain, &pool, 4, settings.seconds.min(4))?;
    let stats = pool.stats();
    let _ = gpu;
    Ok(format!("{reused} blocks went to the other stream, threads: {done}, held {} MiB", stats.peak_held >> 20))
}

pub fn peers(gpu: &Gpu, settings: &Settings) -> Result<String> {
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
