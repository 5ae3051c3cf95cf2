//! The workloads that `compare` times, on whatever `malloc` this process has: the calls go through the dynamic linker, so
//! a preloaded library takes them.
//!
//! usage: `workloads pair64|batch64|random|cross-thread` prints nanoseconds per malloc and free;
//! `workloads busy SECONDS` prints a line each 100 ms: the time since its start in milliseconds and the pairs done;
//! `workloads peak LIBRARY PROGRAM ARGS...` prints the peak resident memory of PROGRAM with LIBRARY preloaded, in KiB.

use std::hint::black_box;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let timed = |pairs: u64, run: fn(u64)| {
        run(pairs / 10);
        let start = Instant::now();
        run(pairs);
        println!("{:.4}", start.elapsed().as_nanos() as f64 / pairs as f64);
    };
    match name.as_str() {
        "pair64" => timed(60_000_000, pair64),
        "batch64" => timed(40_000_000, batch64),
        "random" => timed(15_000_000, random),
        "cross-thread" => timed(8_000_000, cross_thread),
        "busy" => busy(args.next().and_then(|seconds| seconds.parse().ok()).unwrap_or(10)),
        "peak" => peak(&args.collect::<Vec<_>>()),
        _ => {
            eprintln!("workloads: no workload {name:?}");
            std::process::exit(2);
        }
    }
}

#[inline(always)]
fn allocate(size: usize) -> *mut u8 {
    // SAFETY: malloc has no preconditions; the block is written within its size.
    unsafe {
        let block = black_box(libc::malloc(size)).cast::<u8>();
        assert!(!block.is_null(), "out of memory");
        block.write(1);
        block
    }
}

#[inline(always)]
fn release(block: *mut u8) {
    // SAFETY: every caller passes a block of `allocate`, or null, once.
    unsafe { libc::free(black_box(block).cast()) };
}

/// One block at a time.
fn pair64(pairs: u64) {
    for _ in 0..pairs {
        release(allocate(64));
    }
}

/// A thousand blocks, then their frees in the same order.
fn batch64(pairs: u64) {
    let mut blocks = [std::ptr::null_mut(); 1000];
    for _ in 0..pairs / 1000 {
        for block in &mut blocks {
            *block = allocate(64);
        }
        for &block in &blocks {
            release(block);
        }
    }
}

/// 4096 live blocks of 8 to 511 bytes; each step replaces one of them.
struct Replacement {
    live: Vec<*mut u8>,
    state: u64,
}

impl Replacement {
    fn new() -> Replacement {
        Replacement { live: vec![std::ptr::null_mut(); 4096], state: 0x9e37_79b9_7f4a_7c15 }
    }

    #[inline(always)]
    fn step(&mut self) {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let slot = &mut self.live[(self.state >> 20) as usize % 4096];
        release(*slot);
        *slot = allocate(8 + (self.state >> 40) as usize % 504);
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        self.live.iter().for_each(|&block| release(block));
    }
}

fn random(pairs: u64) {
    let mut replacement = Replacement::new();
    for _ in 0..pairs {
        replacement.step();
    }
}

const BATCH: usize = 64;
const SLOTS: usize = 64;

/// A ring of batches: one thread allocates, another frees.
struct Ring {
    batches: [[AtomicUsize; BATCH]; SLOTS],
    written: AtomicUsize,
    read: AtomicUsize,
}

fn cross_thread(pairs: u64) {
    let ring = Ring {
        batches: std::array::from_fn(|_| std::array::from_fn(|_| AtomicUsize::new(0))),
        written: AtomicUsize::new(0),
        read: AtomicUsize::new(0),
    };
    let batches = pairs as usize / BATCH;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..batches {
                while ring.written.load(Ordering::Acquire) == number {
                    std::thread::yield_now();
                }
                for cell in &ring.batches[number % SLOTS] {
                    release(cell.load(Ordering::Relaxed) as *mut u8);
                }
                ring.read.store(number + 1, Ordering::Release);
            }
        });
        let mut size = 0;
        for number in 0..batches {
            while number - ring.read.load(Ordering::Acquire) == SLOTS {
                std::thread::yield_now();
            }
            for cell in &ring.batches[number % SLOTS] {
                size = (size + 72) % 448;
                cell.store(allocate(64 + size) as usize, Ordering::Relaxed);
            }
            ring.written.store(number + 1, Ordering::Release);
        }
    });
}

#[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
fn peak(args: &[String]) {
    let [library, program, args @ ..] = args else {
        eprintln!("workloads peak LIBRARY PROGRAM ARGS...");
        std::process::exit(2);
    };
    let mut command = std::process::Command::new(program);
    command.args(args);
    if !library.is_empty() {
        command.env("LD_PRELOAD", library);
    }
    let child = command.spawn().expect("the program can be started");
    let mut status = 0;
    // SAFETY: all zero bytes are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the child is ours and nobody else waits for it; both pointers are to locals.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    assert!(waited == child.id() as i32 && status == 0, "{program} failed");
    println!("{}", usage.ru_maxrss);
}

fn busy(seconds: u64) {
    let start = Instant::now();
    let end = Duration::from_secs(seconds);
    let slot = Duration::from_millis(100);
    let mut replacement = Replacement::new();
    let mut out = std::io::stdout();
    let mut next = slot;
    let mut pairs = 0_u64;
    loop {
        for _ in 0..2000 {
            replacement.step();
        }
        pairs += 2000;
        let now = start.elapsed();
        if now >= next {
            // One write, flushed at once: the reader is another process.
            let _ = writeln!(out, "{} {pairs}", now.as_millis()).and_then(|()| out.flush());
            pairs = 0;
            next = now + slot;
        }
        if now >= end {
            return;
        }
    }
}
