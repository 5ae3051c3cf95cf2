//! What a recorder is told: samples, their ends, and pictures of the pool.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use poolscope_gpu::{Config, Simulated, Stream, look_again};
use poolscope_wire::{DeviceCounter, cell};
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
fn samples_stand_for_what_was_allocated_and_cost_the_other_blocks_nothing() {
    let (program, book) = program(64 * KIB, 256 * MIB);
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
    // p is 1/64.5; five standard errors.
    let error = (60_000.0f64 * 63.5).sqrt() * 5.0;
    assert!((objects - 60_000.0).abs() < error, "{objects}");
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
    look_again();
    let inside: Vec<_> = [256, MIB, 2 * MIB].map(|size| program.alloc(size, stream)).into();
    book.period.store(1 << 40, Ordering::Relaxed);
    look_again();
    let after = program.alloc(512, stream);
    assert_eq!(book.sizes(), [256, MIB, 2 * MIB]);
    inside.into_iter().chain([before, after]).for_each(|block| program.free(block, stream));
    assert_eq!(book.sizes(), [0u64; 0]);
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
    let count = |state| picture.cells.iter().filter(|cell| **cell == state).count();
    assert_eq!((count(cell::LARGE), count(cell::SMALL)), (5, 1), "{:?}", picture.cells);
    assert_eq!(count(cell::FREE) + count(cell::PENDING), 3, "{:?}", picture.cells);
    assert_eq!(picture.stats.current_usage, 10 * MIB + 256);
    assert_eq!(picture.stats.held, 18 * MIB);
    assert_eq!(picture.counters()[DeviceCounter::LargestFree as usize], 6 * MIB);
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

#[test]
fn the_recorder_hears_of_the_pools_end() {
    let (program, book) = program(1, 64 * MIB);
    drop(program);
    assert_eq!(book.closed.load(Ordering::Relaxed), 1);
}
