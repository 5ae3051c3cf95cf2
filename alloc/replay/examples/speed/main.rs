//! What the pool costs on the host: pairs of allocation and free by size, threads with streams of their own, and
//! recorded traces, cold and warm.
//!
//! `cargo run --release -p poolscope-replay --example speed -- [--device sim|N] [--rounds N] [--recorded]
//! [--traces-only] [--calls] [--first-moment] [--threads N] [--stats] [--set SETTING=VALUE] [mix-4x512-7 | TRACE.gz ...]`
//!
//! With `--first-moment`, threads do 100,000 pairs each on a pool that has nothing, and the simulated device's calls
//! take the time that they are charged with. With `--threads`, only so many do, and pairs by size are left out;
//! with `--stats`, the pool's counters are shown after each round.
//!
//! With `--calls`, each pass of a trace is followed by what the calls to the driver took in it.
//!
//! With `--recorded`, blocks are sampled as they are in a program that is watched, but for their stacks: sampled small
//! blocks have slabs of their own.
//!
//! On the simulated device the driver's calls charge its clock, not the caller; on a real one they are part of the
//! time. Each figure is the median of the rounds.

mod wrapped;

use std::hint::black_box;
use std::sync::{Arc, Barrier};
use std::time::Instant;

use poolscope_gpu::{Config, Cuda, Device, NoRecorder, Picture, Pool, Recorder, Sample, Simulated, Stream, Token};
use poolscope_replay::{Replay, synthetic};
use wrapped::{Slow, Timed};

const PAIRS: u32 = 1_000_000;
const LIVE: usize = 64;

/// Wants samples, and forgets them.
struct Forgetful;

impl Recorder for Forgetful {
    fn period(&self) -> Option<u64> {
        Some(512 << 10)
    }

    fn samples_per_second(&self) -> u64 {
        10_000
    }

    fn allocated(&self, _: &Sample) -> Option<Token> {
        Some(Token(0))
    }

    fn freed(&self, _: Token, _: u64, _: [u64; 2]) {}

    fn publish(&self, _: &Picture) {}

    fn closed(&self) {}
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn pairs<D: Device>(pool: &Pool<D>, size: u64, stream: Stream) -> f64 {
    let start = Instant::now();
    for _ in 0..PAIRS {
        let block = pool.allocate(black_box(size), stream).expect("the device has room");
        pool.free(black_box(block), stream).expect("it is a block");
    }
    start.elapsed().as_nanos() as f64 / f64::from(PAIRS)
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
    fn of(self, random: u64) -> u64 {
        match self {
            Sizes::Even => 256 + (random >> 11) % ((1 << 20) - 255),
            Sizes::Powers => (256 << ((random >> 11) % 12)) + (random >> 32) % 256,
        }
    }
}

/// Pairs of random sizes, with 64 blocks live: the place of the oldest is taken by the next.
fn random_pairs<D: Device>(pool: &Pool<D>, stream: Stream, pairs: u32, sizes: Sizes, seed: u64) {
    let mut live = [0u64; LIVE];
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for number in 0..pairs as usize {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let place = &mut live[number % LIVE];
        if *place != 0 {
            pool.free(*place, stream).expect("it is a block");
        }
        *place = pool.allocate(sizes.of(random), stream).expect("the device has room");
    }
    for block in live.into_iter().filter(|block| *block != 0) {
        pool.free(block, stream).expect("it is a block");
    }
}

fn threads<D: Device>(pool: &Pool<D>, streams: &[Stream], sizes: Sizes, rounds: usize) -> f64 {
    let barrier = Barrier::new(streams.len() + 1);
    let mut figures = Vec::new();
    std::thread::scope(|scope| {
        for (seed, stream) in streams.iter().enumerate() {
            let barrier = &barrier;
            scope.spawn(move || {
                random_pairs(pool, *stream, PAIRS / 10, sizes, seed as u64 + 1);
                for _ in 0..rounds {
                    barrier.wait();
                    random_pairs(pool, *stream, PAIRS, sizes, seed as u64 + 1);
                    barrier.wait();
                }
            });
        }
        for _ in 0..rounds {
            barrier.wait();
            let start = Instant::now();
            barrier.wait();
            figures.push(f64::from(PAIRS) * streams.len() as f64 / start.elapsed().as_secs_f64() / 1e6);
        }
    });
    median(figures)
}

/// What the calls of a pass took.
fn calls<D: Device>(device: &Timed<D>, operations: u64) {
    for (call, taken) in device.take() {
        println!(
            "    {:<24} {:>8.2} calls in 1,000, {:>8.0} ns each, {:>9.1} us at most, {:>7.1} ns an operation",
            call.name(),
            1000.0 * taken.calls as f64 / operations as f64,
            taken.ns as f64 / taken.calls as f64,
            taken.longest_ns as f64 / 1000.0,
            taken.ns as f64 / operations as f64
        );
    }
}

fn trace<D: Device>(pool: &Pool<D>, path: &str, streams: &[Stream], rounds: usize, after: impl Fn(u64)) {
    let trace = synthetic::open(path, 17).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut replay = Replay::new(&trace, pool, streams.to_vec());
    let mut figures = Vec::new();
    for pass in 0..6 + rounds {
        let done = replay.pass().expect("the device has room");
        let (time, calls) = (done.per_operation(), done.calls_per_thousand());
        let fragmentation = 100.0 * done.fragmentation(&trace);
        println!(
            "  pass {pass}: {time:>7.1} ns an operation, {calls:>7.2} calls in 1,000, fragmentation {fragmentation:.2}%"
        );
        after(done.operations);
        if pass >= 6 {
            figures.push(time);
        }
    }
    println!("  warm:   {:>7.1} ns an operation", median(figures));
}

/// Threads from the moment on at which a pool has nothing: million pairs a second, and what it held, in MiB.
fn first_moment(count: usize, options: &Options) -> (f64, u64) {
    let device = Arc::new(Slow(Simulated::new(140 << 30)));
    let streams: Vec<_> = (0..count).map(|_| device.0.non_blocking_stream()).collect();
    let pool = options.pool(device);
    let barrier = Barrier::new(count + 1);
    let began = std::thread::scope(|scope| {
        for (seed, stream) in streams.iter().enumerate() {
            let (barrier, pool) = (&barrier, &pool);
            scope.spawn(move || {
                barrier.wait();
                random_pairs(pool, *stream, PAIRS / 10, Sizes::Even, seed as u64 + 1);
            });
        }
        barrier.wait();
        Instant::now()
    });
    let rate = f64::from(PAIRS / 10) * count as f64 / began.elapsed().as_secs_f64() / 1e6;
    if options.stats {
        pool.print_stats();
    }
    (rate, pool.stats().peak_held >> 20)
}

struct Options {
    config: Config,
    first_moment: bool,
    threads: Option<usize>,
    calls: bool,
    stats: bool,
    device: String,
    rounds: usize,
    recorded: bool,
    traces_only: bool,
    traces: Vec<String>,
}

impl Options {
    fn pool<D: Device>(&self, device: Arc<D>) -> Pool<D> {
        Pool::with_recorder(device, self.config.clone(), self.recorder()).expect("the device is there")
    }

    fn recorder(&self) -> Arc<dyn Recorder> {
        if self.recorded { Arc::new(Forgetful) } else { Arc::new(NoRecorder) }
    }
}

fn run<D: Device>(device: Arc<D>, stream: impl Fn(&D) -> Stream, options: &Options) {
    println!("{}", device.properties().name);
    if !options.traces_only {
        blocks(&*device, &options.pool(device.clone()), &stream, options.rounds, options.threads);
    }
    for path in &options.traces {
        println!("{path}");
        let streams: Vec<_> = (0..8).map(|_| stream(&device)).collect();
        if options.calls {
            let device = Arc::new(Timed::new(device.clone()));
            let after = |operations| calls(&device, operations);
            trace(&options.pool(device.clone()), path, &streams, options.rounds, after);
        } else {
            trace(&options.pool(device.clone()), path, &streams, options.rounds, |_| {});
        }
    }
}

/// Pairs by size, and threads.
fn blocks<D: Device>(device: &D, pool: &Pool<D>, stream: impl Fn(&D) -> Stream, rounds: usize, only: Option<usize>) {
    let sizes = [256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20];
    for size in sizes.into_iter().filter(|_| only.is_none()) {
        let stream = stream(device);
        pairs(pool, size, stream);
        println!("{size:>10} B: {:>6.1} ns a pair", median((0..rounds).map(|_| pairs(pool, size, stream)).collect()));
    }
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let is_wanted = |count: &usize| only.map_or(*count <= cores.max(2), |only| only == *count);
    for count in [1, 2, 4, 8, 16].into_iter().filter(is_wanted) {
        let streams: Vec<_> = (0..count).map(|_| stream(device)).collect();
        for sizes in [Sizes::Even, Sizes::Powers] {
            let rate = threads(pool, &streams, sizes, rounds);
            println!("{count:>3} threads, {sizes:?}: {rate:>7.1} million pairs/s");
        }
    }
}

fn cuda_stream(device: &Cuda) -> Stream {
    let mut stream = std::ptr::null_mut();
    // SAFETY: the driver is loaded and the context is the device's; both functions only take what they are given.
    unsafe {
        cudarc::driver::sys::cuCtxSetCurrent(device.context() as *mut _).result().expect("a context");
        cudarc::driver::sys::cuStreamCreate(&mut stream, 1).result().expect("a stream");
    }
    Stream(stream as u64)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut options = Options {
        config: Config::default(),
        first_moment: false,
        threads: None,
        calls: false,
        stats: false,
        device: "sim".to_owned(),
        rounds: 5,
        recorded: false,
        traces_only: false,
        traces: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--device" => options.device = arguments.next().expect("--device takes sim or a number"),
            "--recorded" => options.recorded = true,
            "--traces-only" => options.traces_only = true,
            "--calls" => options.calls = true,
            "--first-moment" => options.first_moment = true,
            "--threads" => options.threads = arguments.next().and_then(|text| text.parse().ok()),
            "--stats" => options.stats = true,
            "--set" => {
                let setting = arguments.next().expect("--set takes SETTING=VALUE");
                let (name, value) = setting.split_once('=').expect("--set takes SETTING=VALUE");
                options.config.set(name, value).unwrap_or_else(|error| panic!("{error}"));
            }
            "--rounds" => {
                options.rounds = arguments.next().and_then(|text| text.parse().ok()).expect("--rounds takes a number")
            }
            _ => options.traces.push(argument),
        }
    }
    if options.first_moment {
        for count in [1, 2, 4, 8, 16].into_iter().filter(|count| options.threads.is_none_or(|only| only == *count)) {
            let figures: Vec<_> = (0..options.rounds).map(|_| first_moment(count, &options)).collect();
            let held = figures.iter().map(|(_, held)| *held).max().unwrap_or(0);
            let rate = median(figures.into_iter().map(|(rate, _)| rate).collect());
            println!("{count:>3} threads from the first moment: {rate:>7.1} million pairs/s, {held} MiB");
        }
        return;
    }
    if options.device == "sim" {
        return run(Arc::new(Simulated::new(140 << 30)), Simulated::non_blocking_stream, &options);
    }
    let ordinal = options.device.parse().expect("--device takes sim or a number");
    match Cuda::open(ordinal) {
        Ok(device) => run(Arc::new(device), cuda_stream, &options),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(3);
        }
    }
}
