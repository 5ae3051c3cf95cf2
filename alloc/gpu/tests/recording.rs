//! What a recorder is told: samples, their ends, and pictures of the pool.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;

use poolscope_gpu::{Config, Picture, Pool, Recorder, Sample, Simulated, Stream, Token, refresh_sampling_period};
use poolscope_wire::{DeviceCounter, cell, place};
use support::{Book, KIB, MIB, Program, US};

fn program(period: u64, memory: u64) -> (Program, Arc<Book>) {
    let book = Book::new(period);
    (Program::recorded(Simulated::new(memory), Config::default(), book.clone()), book)
}

#[test]
fn with_a_period_of_one_every_block_is_recorded_until_it_is_freed() {
    let (program, book) = program(1, 256 * MIB);
    let stream = program.device.stream();
    let sizes = [1, 256, 300, 4 * KIB, 64 * KIB, 65 * KIB, MIB, MIB + 1, 10 * MIB];
    for _ in 0..50 {
        let blocks: Vec<_> = sizes.iter().map(|size| program.alloc(*size, stream)).collect();
        assert_eq!(book.sizes(), sizes);
        for block in blocks {
            program.write(block, 1, stream, US);
            program.free(block, stream);
        }
        assert_eq!(book.sizes(), [0u64; 0]);
    }
    program.assert_in_order();
    let stats = program.pool.stats();
    assert_eq!((stats.allocation_count, stats.free_count), (450, 450));
    assert_eq!(stats.current_usage, 0);
}

#[test]
fn blocks_that_are_freed_elsewhere_are_forgotten_too() {
    let (program, book) = program(1, 256 * MIB);
    let (own, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
    for size in [300, 64 * KIB, 3 * MIB] {
        let block = program.alloc(size, own);
        program.order(own, other);
        program.write(block, size, other, US);
        program.free(block, other);
        let block = program.alloc(size, own);
        program.order(own, other);
        program.write(block, size, other, US);
        program.pool.record_stream(block, other).unwrap();
        program.free(block, own);
    }
    assert_eq!(book.sizes(), [0u64; 0]);
    program.assert_in_order();
}

#[test]
fn a_threads_next_samples_are_served_by_what_it_has_freed() {
    let (program, _) = program(1, 64 * MIB);
    let stream = program.device.stream();
    for size in [4 * KIB, 64 * KIB] {
        let round = || {
            let blocks: Vec<_> = (0..4).map(|_| program.alloc(size, stream)).collect();
            blocks.iter().for_each(|block| program.free(*block, stream));
        };
        round();
        let before = program.pool.stats();
        (0..10).for_each(|_| round());
        let stats = program.pool.stats();
        assert_eq!(stats.thread_hits - before.thread_hits, 40, "none took the pool's lock for its block: {stats}");
        assert_eq!((stats.current_usage, stats.held), (before.current_usage, before.held));
    }
    program.pool.release_all();
    assert_eq!(program.pool.stats().held, 0);
    program.assert_in_order();
}

#[test]
fn samples_stand_for_what_was_allocated_and_cost_the_other_blocks_nothing() {
    // One in 64 blocks of a kibibyte.
    let (program, book) = program(41 * MIB, 256 * MIB);
    let stream = program.device.stream();
    let mut live = Vec::new();
    for round in 0..60_000u64 {
        live.push(program.alloc(1024, stream));
        if live.len() == 1000 {
            let block = live.swap_remove((round * 7919 % 1000) as usize);
            program.free(block, stream);
        }
    }
    let objects = book.objects.load(Ordering::Relaxed) as f64 / 65_536.0;
    // All blocks are of one place, of which no more than one stratum is unknown.
    assert!((objects - 60_000.0).abs() < 64.0, "{objects}");
    let hits = program.pool.stats().thread_hits;
    assert!(hits > 55_000, "{hits}");
    let sampled = book.live.lock().unwrap().len();
    assert!((2..60).contains(&sampled), "{sampled} of 999 live blocks");
    live.drain(..).for_each(|block| program.free(block, stream));
    assert_eq!(book.sizes(), [0u64; 0]);
}

#[test]
fn a_thread_whose_period_changes_records_from_its_next_block_on() {
    let (program, book) = program(1 << 40, 64 * MIB);
    let stream = program.device.stream();
    let before = program.alloc(MIB, stream);
    book.period.store(1, Ordering::Relaxed);
    refresh_sampling_period();
    let inside: Vec<_> = [256, MIB, 2 * MIB].map(|size| program.alloc(size, stream)).into();
    book.period.store(1 << 40, Ordering::Relaxed);
    refresh_sampling_period();
    let after = program.alloc(512, stream);
    // What was first of its place and size is recorded in any case: the first block, and the last one.
    assert_eq!(book.sizes(), [256, 512, MIB, MIB, 2 * MIB]);
    inside.into_iter().chain([before, after]).for_each(|block| program.free(block, stream));
    assert_eq!(book.sizes(), [0u64; 0]);
}

/// Sites of the program: their blocks are allocated from other depths of the stack, or for other sizes.
#[inline(never)]
fn leak(program: &Program, depth: u32, size: u64) -> u64 {
    let pad = std::hint::black_box([0_u8; 64]);
    let block = if depth == 0 { program.alloc(size, Stream::LEGACY) } else { leak(program, depth - 1, size) };
    std::hint::black_box(pad);
    block
}

#[test]
fn the_first_block_of_each_site_is_recorded_whatever_the_period() {
    // So long a period that strata are as long as they can be: of the blocks behind the first ones, one in 67 million
    // is a sample.
    let (program, book) = program(1 << 52, 256 * MIB);
    let sizes = [300, 5_000, 100_000, MIB - 100, 3 * MIB - 100];
    for round in 0..20 {
        for depth in 0..10 {
            for block in sizes.map(|size| leak(&program, depth, size + round)) {
                program.free(block, Stream::LEGACY);
            }
        }
    }
    assert_eq!(book.samples.load(Ordering::Relaxed), 50, "each of them once, and none of the 950 that came after");
    assert_eq!(book.objects.load(Ordering::Relaxed), 50 << 16, "each of them for itself");
    let block = leak(&program, 11, 4096);
    assert_eq!(book.sizes(), [4096]);
    program.free(block, Stream::LEGACY);
}

#[test]
fn the_period_in_force_is_published() {
    let (program, book) = program(64 * KIB, 64 * MIB);
    assert_eq!(program.pool.stats().sample_period, 0, "nobody has allocated");
    for (asked, in_force) in [(64 * KIB, 64 * KIB), (1, 1), (1 << 40, 1 << 40)] {
        book.period.store(asked, Ordering::Relaxed);
        refresh_sampling_period();
        (0..3).for_each(|_| program.free(program.alloc(4096, Stream::LEGACY), Stream::LEGACY));
        assert_eq!(program.pool.stats().sample_period, in_force);
    }
}

#[test]
fn a_picture_shows_the_counters_and_what_lies_where() {
    let (program, book) = program(1 << 40, 64 * MIB);
    let stream = program.device.stream();
    let large = program.alloc(10 * MIB, stream);
    let gone = program.alloc(6 * MIB, stream);
    let small = program.alloc(256, stream);
    program.write(gone, 6 * MIB, stream, 1000 * US);
    program.free(gone, stream);
    std::thread::sleep(std::time::Duration::from_millis(120));
    program.pool.maintain();
    let picture = book.pictures.lock().unwrap().last().cloned().expect("it was long enough");
    assert_eq!((picture.memory, picture.cell_bytes), (64 * MIB, 2 * MIB));
    let count = |state| picture.map.cells.iter().filter(|cell| **cell == state).count();
    assert_eq!((count(cell::LARGE), count(cell::SMALL)), (5, 1), "{:?}", picture.map.cells);
    assert_eq!(count(cell::FREE) + count(cell::PENDING), 3, "{:?}", picture.map.cells);
    // Each cell of the large block says where in it it lies, and on which stream; what waits says for whom.
    let map = &picture.map;
    let at = |wanted: u8| map.cells.iter().zip(&map.places).filter(move |(cell, _)| **cell == wanted);
    let of = |(_, word): (_, &u64)| (place::address(*word), place::stream(*word).map(|at| map.streams[at]));
    let of_large: Vec<_> = at(cell::LARGE).map(of).collect();
    assert_eq!(of_large, (0..5).map(|at| (Some(large + at * 2 * MIB), Some(stream.0))).collect::<Vec<_>>());
    assert!(at(cell::PENDING).map(of).all(|(_, waits_for)| waits_for == Some(stream.0)));
    assert_eq!(at(cell::SMALL).map(of).map(|(_, stream)| stream).collect::<Vec<_>>(), [None]);
    assert_eq!(picture.stats.current_usage, 10 * MIB + 256);
    assert_eq!(picture.stats.held, 18 * MIB);
    assert_eq!(picture.stats.values()[DeviceCounter::LargestHole as usize], 6 * MIB);
    [large, small].into_iter().for_each(|block| program.free(block, stream));
}

#[test]
fn pictures_come_ten_times_a_second_at_most() {
    let (program, book) = program(1 << 40, 64 * MIB);
    let began = std::time::Instant::now();
    for _ in 0..100_000 {
        let block = program.pool.allocate(3 * MIB, Stream::LEGACY).unwrap();
        program.pool.free(block, Stream::LEGACY).unwrap();
    }
    let most = began.elapsed().as_millis() / 100 + 2;
    let pictures = book.pictures.lock().unwrap().len();
    assert!((1..=most as usize).contains(&pictures), "{pictures} of {most}");
}

#[test]
fn threads_free_each_others_recorded_blocks() {
    let (program, book) = program(1, 256 * MIB);
    let pool = &program.pool;
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        for thread in 0..2u64 {
            let sender = sender.clone();
            scope.spawn(move || {
                for round in 0..300 {
                    let size = 256 << ((round + thread) % 14);
                    sender.send(pool.allocate(size, Stream::LEGACY).unwrap()).unwrap();
                }
            });
        }
        drop(sender);
        scope.spawn(move || receiver.into_iter().for_each(|block| pool.free(block, Stream::LEGACY).unwrap()));
    });
    assert_eq!(book.sizes(), [0u64; 0]);
    assert_eq!(book.samples.load(Ordering::Relaxed), 600);
}

/// Takes the pool's lock, by a thread of its own, whenever it is told of a block.
#[derive(Default)]
struct Curious {
    pool: OnceLock<Weak<Pool<Simulated>>>,
    told: AtomicU64,
}

impl Curious {
    fn ask(&self) {
        let Some(pool) = self.pool.get().and_then(Weak::upgrade) else { return };
        let (said, heard) = mpsc::channel();
        std::thread::spawn(move || said.send(pool.stats().allocation_count));
        heard.recv_timeout(Duration::from_secs(60)).expect("the pool's lock is held");
        self.told.fetch_add(1, Ordering::Relaxed);
    }
}

impl Recorder for Curious {
    fn period(&self) -> Option<u64> {
        Some(1)
    }

    fn samples_per_second(&self) -> u64 {
        0
    }

    fn allocated(&self, _: &Sample) -> Option<Token> {
        self.ask();
        Some(Token(1))
    }

    fn freed(&self, _: Token, _: u64, _: [u64; 2]) {
        self.ask();
    }

    fn publish(&self, _: &Picture) {}

    fn closed(&self) {}
}

#[test]
fn the_recorder_is_called_without_the_pools_lock() {
    let recorder = Arc::new(Curious::default());
    let device = Arc::new(Simulated::new(256 * MIB));
    let pool = Arc::new(Pool::with_recorder(device, Config::default(), recorder.clone()).unwrap());
    recorder.pool.set(Arc::downgrade(&pool)).unwrap();
    for size in [512, 100 * KIB, 3 * MIB] {
        let block = pool.allocate(size, Stream::LEGACY).unwrap();
        pool.free(block, Stream::LEGACY).unwrap();
    }
    // A block is allocated and freed.
    assert_eq!(recorder.told.load(Ordering::Relaxed), 6);
}

#[test]
fn the_recorder_hears_of_the_pools_end() {
    let (program, book) = program(1, 64 * MIB);
    drop(program);
    assert_eq!(book.closed.load(Ordering::Relaxed), 1);
}
