//! What is measured, on any allocator.

use std::cell::RefCell;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use poolscope_bench::Result;
use poolscope_bench::results::Figures;
use poolscope_gpu::Stream;
use poolscope_replay::{Latencies, Playback, Policy, PolicyError, Trace};

use crate::contestants::Place;

/// What the command line says of the rows.
#[derive(Clone, Debug)]
pub struct Extent {
    pub threads: Vec<usize>,
    pub traces: Vec<PathBuf>,
    pub place: Place,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// A block of so many bytes is allocated and freed, again and again.
    Pair(u64),
    /// So many threads, each with a stream and 64 blocks of 256 B to 1 MiB, of which the oldest goes for the next.
    Threads(usize, Sizes),
    /// So many threads as above, from the moment on at which the allocator has nothing: 100,000 pairs each.
    FirstMoment(usize),
    /// A recorded trace, or a made one.
    Trace(PathBuf),
    /// The same, and each operation is timed by itself.
    Tail(PathBuf),
    /// What allocations cost before and after rounds in which 40% of the blocks stay.
    Phases,
}

/// How the sizes of the threads' blocks are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All are as likely: half of the blocks are over 512 KiB.
    Even,
    /// Each doubling is as likely: half of the blocks are below 16 KiB.
    Doublings,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// All rows. The simulated device has those whose figures are no times of this machine's.
pub fn all(extent: &Extent) -> Vec<Row> {
    let mut rows = Vec::new();
    if extent.place != Place::Simulated {
        rows.extend([256, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB].map(Row::Pair));
        let threads = |sizes| extent.threads.iter().map(move |count| Row::Threads(*count, sizes));
        rows.extend(threads(Sizes::Even).chain(threads(Sizes::Doublings)));
        rows.extend(extent.threads.iter().copied().map(Row::FirstMoment));
    }
    rows.extend(extent.traces.iter().cloned().map(Row::Trace));
    rows.extend(extent.traces.iter().cloned().map(Row::Tail));
    rows.push(Row::Phases);
    rows
}

impl Row {
    /// Its name on the command line and in what is written.
    pub fn id(&self) -> String {
        match self {
            Row::Pair(size) => format!("pair/{}", size_name(*size)),
            Row::Threads(count, Sizes::Even) => format!("threads/{count}"),
            Row::Threads(count, Sizes::Doublings) => format!("threads-doublings/{count}"),
            Row::FirstMoment(count) => format!("first-moment/{count}"),
            Row::Trace(path) => format!("trace/{}", trace_name(path)),
            Row::Tail(path) => format!("tail/{}", trace_name(path)),
            Row::Phases => "phases".to_owned(),
        }
    }

    /// How often it is measured in a round. What takes milliseconds on a machine whose processors change their speed
    /// now and then is best measured at many different times.
    pub fn turns(&self) -> usize {
        match self {
            Row::Pair(_) => 3,
            Row::Phases => 5,
            Row::Threads(..) | Row::FirstMoment(_) | Row::Trace(_) | Row::Tail(_) => 1,
        }
    }

    /// Whether one thread alone is measured.
    pub fn is_of_one_thread(&self) -> bool {
        !matches!(self, Row::Threads(2.., _) | Row::FirstMoment(2..))
    }
}

/// `64K`.
fn size_name(size: u64) -> String {
    match size {
        ..KIB => size.to_string(),
        KIB..MIB => format!("{}K", size / KIB),
        _ => format!("{}M", size / MIB),
    }
}

fn trace_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.trim_end_matches(".gz").trim_end_matches(".trace").to_owned()
}

/// Where an allocator is measured.
pub struct Ground<'a> {
    /// A new stream.
    pub stream: &'a dyn Fn() -> Result<Stream>,
    /// Destroys one, of which the policy was told.
    pub destroy: &'a dyn Fn(Stream),
    /// Called first by each thread.
    pub attach: &'a (dyn Fn() + Sync),
    /// Nanoseconds by what the driver's calls cost, on the simulated device.
    pub clock: Option<&'a dyn Fn() -> u64>,
    /// Whether it counts its calls to the driver.
    pub counts_calls: bool,
    /// Passes over a trace.
    pub passes: usize,
}

/// Measures a row on an allocator that has no memory yet. The row's streams end with it.
pub fn measure<P: Policy + ?Sized>(row: &Row, policy: &P, ground: &Ground<'_>) -> Result<Figures> {
    let made = RefCell::new(Vec::new());
    let stream = || (ground.stream)().inspect(|stream| made.borrow_mut().push(*stream));
    let figures = measure_on(row, policy, &Ground { stream: &stream, ..*ground });
    for stream in made.take() {
        if policy.stream_ends(stream) {
            (ground.destroy)(stream);
        }
    }
    figures
}

fn measure_on<P: Policy + ?Sized>(row: &Row, policy: &P, ground: &Ground<'_>) -> Result<Figures> {
    let said = |error: PolicyError| error.to_string();
    match row {
        Row::Pair(size) => pair(policy, *size, (ground.stream)()?).map_err(said),
        Row::Threads(count, sizes) => {
            let streams: Result<Vec<Stream>> = (0..*count).map(|_| (ground.stream)()).collect();
            threads(policy, &streams?, *sizes, ground.attach).map_err(said)
        }
        Row::FirstMoment(count) => {
            let streams: Result<Vec<Stream>> = (0..*count).map(|_| (ground.stream)()).collect();
            first_moment(policy, &streams?, ground.attach).map_err(said)
        }
        Row::Trace(path) => trace(policy, path, ground),
        Row::Tail(path) => tail(policy, path, ground),
        Row::Phases => phases(policy, ground),
    }
}

/// How long pairs and threads are measured.
const SPAN: Duration = Duration::from_millis(30);
const THREAD_SPAN: Duration = Duration::from_millis(80);
/// How long threads run before: caches that learn have learnt by then.
const THREAD_WARM_UP: Duration = Duration::from_millis(40);
/// Pairs between two looks at the clock.
const BATCH: u32 = 64;

/// xorshift64: cheap beside what is measured, and the same in every run.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    #[inline]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    /// From 256 B to 1 MiB.
    #[inline]
    fn size(&mut self, sizes: Sizes) -> u64 {
        let number = self.next();
        match sizes {
            Sizes::Even => 256 + number % (MIB - 255),
            Sizes::Doublings => {
                let doubling = 256 << (number % 12);
                doubling + (number >> 8) % (doubling + 1)
            }
        }
    }

    /// From 1 KiB to 4 MiB, each doubling as likely.
    fn wide_size(&mut self) -> u64 {
        let exponent = (self.next() % (1 << 20)) as f64 / f64::from(1 << 20);
        (1024.0 * 4096f64.powf(exponent)) as u64
    }
}

fn pair<P: Policy + ?Sized>(policy: &P, size: u64, stream: Stream) -> std::result::Result<Figures, PolicyError> {
    let batch = || -> std::result::Result<(), PolicyError> {
        for _ in 0..BATCH {
            let block = policy.allocate(black_box(size), stream)?;
            policy.free_sized(black_box(block), size, stream)?;
        }
        Ok(())
    };
    let run = |span: Duration| -> std::result::Result<f64, PolicyError> {
        let (start, mut pairs) = (Instant::now(), 0u64);
        while start.elapsed() < span {
            batch()?;
            pairs += u64::from(BATCH);
        }
        Ok(start.elapsed().as_nanos() as f64 / pairs as f64)
    };
    run(SPAN / 3)?;
    Ok(Figures::from([("ns".to_owned(), run(SPAN)?)]))
}

const LIVE: usize = 64;

fn threads<P: Policy + ?Sized>(
    policy: &P,
    streams: &[Stream],
    sizes: Sizes,
    attach: &(dyn Fn() + Sync),
) -> std::result::Result<Figures, PolicyError> {
    let (barrier, stop) = (Barrier::new(streams.len() + 1), AtomicBool::new(false));
    let work = |seed: usize, stream: Stream| -> std::result::Result<u64, PolicyError> {
        attach();
        let mut live = [(0u64, 0u64); LIVE];
        let mut random = Random::new(seed as u64 + 1);
        let mut replace = |place: &mut (u64, u64)| {
            if place.1 != 0 {
                policy.free_sized(place.0, place.1, stream)?;
                place.1 = 0;
            }
            let size = random.size(sizes);
            *place = (policy.allocate(size, stream)?, size);
            Ok(())
        };
        let (begun, mut warm) = (Instant::now(), Ok(()));
        while warm.is_ok() && begun.elapsed() < THREAD_WARM_UP {
            warm = live.iter_mut().try_for_each(&mut replace);
        }
        barrier.wait();
        let mut pairs = 0u64;
        let done = warm.and_then(|()| {
            while !stop.load(Ordering::Relaxed) {
                replace(&mut live[pairs as usize % LIVE])?;
                pairs += 1;
            }
            Ok(())
        });
        for (address, size) in live.into_iter().filter(|block| block.1 != 0) {
            policy.free_sized(address, size, stream)?;
        }
        done.map(|()| pairs)
    };
    let (mut pairs, mut seconds) = (0, 0.0);
    std::thread::scope(|scope| -> std::result::Result<(), PolicyError> {
        let work = &work;
        let running: Vec<_> =
            streams.iter().enumerate().map(|(seed, stream)| scope.spawn(move || work(seed, *stream))).collect();
        barrier.wait();
        let start = Instant::now();
        std::thread::sleep(THREAD_SPAN);
        stop.store(true, Ordering::Relaxed);
        seconds = start.elapsed().as_secs_f64();
        for thread in running {
            // A thread that panics has ended the process.
            pairs += thread.join().unwrap_or(Ok(0))?;
        }
        Ok(())
    })?;
    Ok(Figures::from([("mpairs".to_owned(), pairs as f64 / seconds / 1e6)]))
}

/// Pairs of a thread from the first moment on.
const FIRST_PAIRS: usize = 100_000;

/// As [`threads`] with even sizes, on an allocator that has no memory: all threads do as many pairs.
fn first_moment<P: Policy + ?Sized>(
    policy: &P,
    streams: &[Stream],
    attach: &(dyn Fn() + Sync),
) -> std::result::Result<Figures, PolicyError> {
    let barrier = Barrier::new(streams.len() + 1);
    let work = |seed: usize, stream: Stream| -> std::result::Result<(), PolicyError> {
        attach();
        let mut live = [(0u64, 0u64); LIVE];
        let mut random = Random::new(seed as u64 + 1);
        barrier.wait();
        let mut replace = |place: &mut (u64, u64)| {
            if place.1 != 0 {
                policy.free_sized(place.0, std::mem::take(&mut place.1), stream)?;
            }
            let size = random.size(Sizes::Even);
            *place = (policy.allocate(size, stream)?, size);
            Ok(())
        };
        let done = (0..FIRST_PAIRS).try_for_each(|pair| replace(&mut live[pair % LIVE]));
        for (address, size) in live.into_iter().filter(|block| block.1 != 0) {
            policy.free_sized(address, size, stream)?;
        }
        done
    };
    let mut seconds = 0.0;
    std::thread::scope(|scope| -> std::result::Result<(), PolicyError> {
        let work = &work;
        let running: Vec<_> =
            streams.iter().enumerate().map(|(seed, stream)| scope.spawn(move || work(seed, *stream))).collect();
        barrier.wait();
        let start = Instant::now();
        for thread in running {
            // A thread that panics has ended the process.
            thread.join().unwrap_or(Ok(()))?;
        }
        seconds = start.elapsed().as_secs_f64();
        Ok(())
    })?;
    let pairs = (FIRST_PAIRS * streams.len()) as f64;
    Ok(Figures::from([("mpairs".to_owned(), pairs / seconds / 1e6)]))
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn trace<P: Policy + ?Sized>(policy: &P, path: &Path, ground: &Ground<'_>) -> Result<Figures> {
    let trace = Trace::open(path).map_err(|error| error.to_string())?;
    let streams: Result<Vec<Stream>> = (0..trace.streams().max(1)).map(|_| (ground.stream)()).collect();
    let mut playback = Playback::new(&trace, streams?);
    let now = || ground.clock.map_or(0, |clock| clock());
    let (mut passes, mut priced) = (Vec::new(), Vec::new());
    for _ in 0..ground.passes {
        let begun = now();
        passes.push(playback.run(policy).map_err(|error| error.to_string())?);
        priced.push((now() - begun) as f64 / trace.operations() as f64);
    }
    // The first pass is cold; of the others the later half are warm, or the first where there is no other.
    let warm = &passes[passes.len() / 2..];
    let operations: u64 = warm.iter().map(|pass| pass.operations).sum();
    let calls: u64 = warm.iter().map(|pass| pass.driver_calls).sum();
    let last = passes.last().ok_or("no pass")?;
    let mut figures = Figures::from([
        ("cold_ns".to_owned(), passes[0].per_operation()),
        ("second_ns".to_owned(), passes[passes.len().min(2) - 1].per_operation()),
        ("warm_ns".to_owned(), median(warm.iter().map(|pass| pass.per_operation()).collect())),
        ("loop_ns".to_owned(), trace.loop_cost().per_operation()),
        ("peak_live".to_owned(), trace.peak() as f64),
    ]);
    if last.peak_reserved > 0 {
        figures.insert("peak_reserved".to_owned(), last.peak_reserved as f64);
        figures.insert("fragmentation".to_owned(), last.fragmentation(&trace));
    }
    if ground.counts_calls {
        figures.insert("cold_calls".to_owned(), passes[0].calls_per_thousand());
        figures.insert("warm_calls".to_owned(), calls as f64 * 1000.0 / operations.max(1) as f64);
        // Each pass by itself: how soon it has met everything.
        for (number, pass) in passes.iter().enumerate() {
            figures.insert(format!("calls_pass_{number}"), pass.calls_per_thousand());
        }
    }
    if ground.clock.is_some() {
        figures.insert("cold_driver_ns".to_owned(), priced[0]);
        figures.insert("second_driver_ns".to_owned(), priced[passes.len().min(2) - 1]);
        let warm = &priced[passes.len() / 2..];
        figures.insert("warm_driver_ns".to_owned(), warm.iter().sum::<f64>() / warm.len() as f64);
    }
    Ok(figures)
}

/// Passes in which each operation is timed, the cold one among them.
const TIMED_PASSES: usize = 3;

/// How long single operations take: on a card by the host's clock, which is part of it; on the simulated device what
/// an H200's driver charges.
fn tail<P: Policy + ?Sized>(policy: &P, path: &Path, ground: &Ground<'_>) -> Result<Figures> {
    let trace = Trace::open(path).map_err(|error| error.to_string())?;
    let streams: Result<Vec<Stream>> = (0..trace.streams().max(1)).map(|_| (ground.stream)()).collect();
    let mut playback = Playback::new(&trace, streams?);
    let start = Instant::now();
    let clock = || ground.clock.map_or_else(|| start.elapsed().as_nanos() as u64, |clock| clock());
    let mut latencies = Latencies::default();
    for _ in 0..TIMED_PASSES.min(ground.passes) {
        playback.run_timed(policy, &clock, &mut latencies).map_err(|error| error.to_string())?;
    }
    let mut part = |(name, part): (&str, f64)| (name.to_owned(), latencies.part(part) as f64);
    Ok([("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("longest", 1.0)].map(&mut part).into())
}

/// Blocks that are allocated in a row, and freed.
const BLOCKS: usize = 100;
/// How often that is timed; the median counts.
const REPEATS: usize = 21;
/// Of each round's blocks stay so many.
const STAY: usize = 40;

/// Adds how much longer an allocation takes in the later phases than in the first, to figures of the four-phase test.
/// Of one turn each: between two turns the processor's speed may change by more than that.
pub fn add_changes(figures: &mut Figures) {
    let Some(baseline) = figures.get("baseline_ns").copied() else { return };
    for phase in ["after_50", "after_150"] {
        if let Some(later) = figures.get(&format!("{phase}_ns")).copied() {
            figures.insert(format!("{phase}_change"), later / baseline - 1.0);
        }
    }
}

/// The four-phase test: baseline; 50 rounds of churn in which 40% of each round's blocks survive; measure;
/// 100 more; measure.
fn phases<P: Policy + ?Sized>(policy: &P, ground: &Ground<'_>) -> Result<Figures> {
    let stream = (ground.stream)()?;
    let said = |error: PolicyError| error.to_string();
    let mut random = Random::new(7);
    let sizes: Vec<u64> = (0..BLOCKS).map(|_| random.wide_size()).collect();
    let now = || ground.clock.map_or(0, |clock| clock());
    let mut blocks = Vec::with_capacity(BLOCKS);
    let mut figures = Figures::new();
    let mut survivors: Vec<(u64, u64)> = Vec::new();

    // Nanoseconds an allocation, and of these what the driver charges where that is known.
    let mut measure = |name: &str, figures: &mut Figures| -> std::result::Result<(), PolicyError> {
        let (mut times, mut priced, calls) = (Vec::new(), 0, policy.stats().driver_calls);
        for _ in 0..REPEATS {
            let (begun, start) = (now(), Instant::now());
            for size in &sizes {
                blocks.push(policy.allocate(*size, stream)?);
            }
            times.push(start.elapsed().as_nanos() as f64 / BLOCKS as f64);
            priced += now() - begun;
            for (address, size) in blocks.drain(..).zip(&sizes) {
                policy.free_sized(address, *size, stream)?;
            }
        }
        let allocations = (REPEATS * BLOCKS) as f64;
        figures.insert(format!("{name}_mean_ns"), times.iter().sum::<f64>() / REPEATS as f64);
        figures.insert(format!("{name}_ns"), median(times));
        if ground.clock.is_some() {
            figures.insert(format!("{name}_driver_ns"), priced as f64 / allocations);
        }
        if ground.counts_calls {
            let calls = (policy.stats().driver_calls - calls) as f64;
            figures.insert(format!("{name}_calls"), calls * 1000.0 / (2.0 * allocations));
        }
        Ok(())
    };
    let mut churn = |rounds: usize, survivors: &mut Vec<(u64, u64)>| -> std::result::Result<(), PolicyError> {
        for _ in 0..rounds {
            let mut round = Vec::with_capacity(BLOCKS);
            for _ in 0..BLOCKS {
                let size = random.wide_size();
                round.push((policy.allocate(size, stream)?, size));
            }
            while round.len() > STAY {
                let (address, size) = round.swap_remove(random.next() as usize % round.len());
                policy.free_sized(address, size, stream)?;
            }
            survivors.extend(round);
        }
        Ok(())
    };
    let mut all = || -> std::result::Result<(), PolicyError> {
        // Once untimed: what a pool takes at first is none of its later allocations.
        measure("first", &mut figures)?;
        measure("baseline", &mut figures)?;
        churn(50, &mut survivors)?;
        measure("after_50", &mut figures)?;
        churn(100, &mut survivors)?;
        measure("after_150", &mut figures)
    };
    let done = all();
    let live: u64 = survivors.iter().map(|(_, size)| size).sum::<u64>() + sizes.iter().sum::<u64>();
    let reserved = policy.stats().peak_reserved;
    for (address, size) in survivors {
        policy.free_sized(address, size, stream).map_err(said)?;
    }
    done.map_err(said)?;
    if reserved > 0 {
        figures.insert("peak_reserved".to_owned(), reserved as f64);
        figures.insert("fragmentation".to_owned(), 1.0 - live as f64 / reserved as f64);
    }
    Ok(figures)
}
