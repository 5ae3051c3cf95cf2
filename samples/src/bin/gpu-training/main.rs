//! A made-up training run on devices that are not there: something for the GPU view of `poolscope top` on any machine.
//!
//! Each device has a pool on a simulated device and a thread that trains on it: weights and the optimizer's state stay,
//! activations live from the forward pass to the backward pass, and every eighth step evaluates on another stream with
//! batches of another size. With `--trace`, the last device replays a recorded trace instead. With `--leak`, every step
//! forgets so many bytes; with `--pinned`, batches come through so many bytes of pinned host memory. It says its
//! process id, and runs until the steps are done or, without `--steps`, until its standard input ends. A device that has
//! no memory left ends it at once.

mod options;
mod training;

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use options::Options;
use poolscope_alloc::gpu::{self, Config, Pool, Simulated, Stream};
use poolscope_replay::{Playback, Trace};
use training::Training;

#[global_allocator]
static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let Some(options) = Options::parse(std::env::args().skip(1))? else {
        print!("{}", options::USAGE);
        return Ok(());
    };
    let trace = options.trace.as_ref().map(Trace::open).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    println!("gpu-training: pid {}, {} devices", std::process::id(), options.devices);
    io::stdout().flush()?;
    let memory = options.memory;
    let pools = gpu::pools(Config::default(), move |_| Ok(Arc::new(Simulated::new(memory))));
    let (say, heard) = mpsc::channel();
    for number in 0..options.devices {
        let pool = pools.get(number)?;
        let (stop, options, say) = (stop.clone(), options.clone(), say.clone());
        let trace = trace.clone().filter(|_| number + 1 == options.devices);
        let work = move || {
            let result = match trace {
                Some(trace) => replay(&trace, &pool, &options, &stop),
                None => train(&pool, &options, &stop),
            };
            // Main goes when the first device has failed, and hears no more.
            let _ = say.send(result);
        };
        thread::Builder::new().name(format!("device-{number}")).spawn(work)?;
    }
    drop(say);
    if options.steps.is_none() {
        thread::spawn(move || {
            let _ = io::stdin().read_to_end(&mut Vec::new());
            stop.store(true, Ordering::Relaxed);
        });
    }
    (0..options.devices).try_for_each(|_| heard.recv().map_err(|_| "a worker panicked")?)
}

/// The end of a step: the device gets on with its work, and the pool with its own.
fn end_step(pool: &Pool<Simulated>, options: &Options) {
    pool.device().advance(options.step_ms.max(1) * 1_000_000);
    pool.maintain();
    thread::sleep(Duration::from_millis(options.step_ms));
}

/// The buffer that batches come through.
#[inline(never)]
fn make_staging_buffer(pool: &Pool<Simulated>, bytes: u64) -> Result<Option<u64>, Failure> {
    let wanted = (bytes > 0).then(|| pool.pinned_memory()?.allocate(bytes, Stream::LEGACY));
    Ok(wanted.transpose()?)
}

fn train(pool: &Pool<Simulated>, options: &Options, stop: &AtomicBool) -> Result<(), Failure> {
    let streams: [Stream; 2] = [pool.device().stream(), pool.device().non_blocking_stream()];
    let staging = make_staging_buffer(pool, options.pinned)?;
    let mut training = Training::new(pool, streams)?;
    for step in 0..options.steps.unwrap_or(u64::MAX) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        training.step(step, options.leak)?;
        end_step(pool, options);
    }
    if let Some(staging) = staging {
        pool.pinned_memory()?.free(staging, Stream::LEGACY)?;
    }
    training.end()
}

fn replay(trace: &Trace, pool: &Pool<Simulated>, options: &Options, stop: &AtomicBool) -> Result<(), Failure> {
    let streams = (0..trace.streams()).map(|_| pool.device().stream()).collect();
    let mut playback = Playback::new(trace, streams);
    for _ in 0..options.steps.unwrap_or(u64::MAX) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        playback.run(pool)?;
        end_step(pool, options);
    }
    Ok(())
}
