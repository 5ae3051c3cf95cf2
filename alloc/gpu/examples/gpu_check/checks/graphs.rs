//! Captured graphs: what a graph uses stays its own, and no call of the pool's spoils a capture.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use poolscope_gpu::{Config, Cuda, Device, Pool, Stream};

use super::setup::{KIB, MIB, Settings, ensure, pool};
use crate::gpu::{Gpu, Result};

/// Ends the other threads' work, however its own thread's ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub fn graph(gpu: &Gpu, _: &Settings) -> Result<String> {
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

pub fn untold_capture(gpu: &Gpu, _: &Settings) -> Result<String> {
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
