//! Blocks that cross threads, and threads that come and go.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use poolscope_cpu::{TierCounter, counter, free, malloc};

/// The counters are the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A block with a pattern in it, to be checked by whoever frees it.
struct Block {
    start: usize,
    size: usize,
}

impl Block {
    fn new(size: usize) -> Self {
        let p = malloc(size);
        assert!(!p.is_null());
        for at in 0..size {
            // SAFETY: the block holds `size` bytes.
            unsafe { p.add(at).write(pattern(p as usize, at)) };
        }
        Block { start: p as usize, size }
    }

    fn check_and_free(self) {
        let p = self.start as *mut u8;
        for at in 0..self.size {
            // SAFETY: as above.
            assert_eq!(unsafe { p.add(at).read() }, pattern(self.start, at));
        }
        // SAFETY: the block is allocated.
        unsafe { free(p) };
    }
}

fn pattern(start: usize, at: usize) -> u8 {
    (start / 16 + at) as u8
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    fn size(&mut self) -> usize {
        match self.below(20) {
            0 => self.below(40_000),
            1..4 => self.below(4096),
            _ => self.below(400),
        }
    }
}

#[test]
fn each_thread_frees_what_the_next_one_allocated() {
    let _alone = alone();
    const THREADS: usize = 6;
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::channel::<Block>()).unzip();
    let threads: Vec<_> = receivers
        .into_iter()
        .enumerate()
        .map(|(n, receiver)| {
            let next = senders[(n + 1) % THREADS].clone();
            thread::spawn(move || {
                let mut random = Random(n as u64);
                let mut mine = Vec::new();
                for _ in 0..20_000 {
                    let block = Block::new(random.size());
                    match random.below(3) {
                        0 => mine.push(block),
                        1 => next.send(block).unwrap(),
                        _ => block.check_and_free(),
                    }
                    if mine.len() > 200 {
                        let at = random.below(mine.len());
                        mine.swap_remove(at).check_and_free();
                    }
                    while let Ok(block) = receiver.try_recv() {
                        block.check_and_free();
                    }
                }
                drop(next);
                for block in mine {
                    block.check_and_free();
                }
                receiver
            })
        })
        .collect();
    drop(senders);
    let receivers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    for receiver in receivers {
        for block in receiver {
            block.check_and_free();
        }
    }
}

/// Frees blocks that are others' and replaces each: how many it got that they had had.
fn replace(others: &[usize]) -> usize {
    let replaced = |block: &usize| {
        // SAFETY: the block is allocated, and nobody uses it.
        unsafe { free(*block as *mut u8) };
        malloc(64) as usize
    };
    let mine: Vec<_> = others.iter().map(replaced).collect();
    let others: HashSet<_> = others.iter().collect();
    let again = mine.iter().filter(|block| others.contains(block)).count();
    // SAFETY: they are allocated.
    mine.into_iter().for_each(|block| unsafe { free(block as *mut u8) });
    again
}

/// They are still in its processor's caches, and their owner would have to fetch them.
#[test]
fn a_thread_that_replaces_others_blocks_uses_those_again_that_it_freed() {
    let _alone = alone();
    let (to_owner, from_taker) = mpsc::channel::<()>();
    let (to_taker, from_owner) = mpsc::channel();
    let owner = thread::spawn(move || {
        to_taker.send((0..40_000).map(|_| malloc(64) as usize).collect::<Vec<_>>()).unwrap();
        // Until then the blocks are another thread's.
        from_taker.recv().unwrap();
    });
    let again = replace(&from_owner.recv().unwrap());
    to_owner.send(()).unwrap();
    owner.join().unwrap();
    assert!(again > 30_000, "{again} of 40,000");
}

/// Blocks of 16 bytes share a line of the processor's caches with three others, which are another thread's.
#[test]
fn a_thread_that_was_given_one_block_keeps_none_of_its_neighbours() {
    let _alone = alone();
    let allocate = || -> Vec<_> { (0..10_000).map(|_| malloc(16) as usize).collect() };
    // SAFETY: they are allocated.
    let free_all = |blocks: Vec<usize>| blocks.into_iter().for_each(|block| unsafe { free(block as *mut u8) });
    let mut given = allocate();
    let (to_taker, from_giver) = mpsc::channel();
    let (to_giver, from_taker) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let taker = scope.spawn(move || {
            free_all(allocate());
            let given: usize = from_giver.recv().unwrap();
            free_all(vec![given]);
            let mine = allocate();
            to_giver.send(()).unwrap();
            let beside = mine.iter().filter(|block| **block / 64 == given / 64).count();
            free_all(mine);
            beside
        });
        to_taker.send(given.swap_remove(5000)).unwrap();
        from_taker.recv().unwrap();
        assert_eq!(taker.join().unwrap(), 0);
    });
    free_all(given);
}

/// A producer and a consumer: blocks that are only ever freed elsewhere come back to their owner.
#[test]
fn a_producers_memory_does_not_grow_with_what_a_consumer_frees() {
    let _alone = alone();
    let (sender, receiver) = mpsc::sync_channel::<Block>(1000);
    let consumer = thread::spawn(move || receiver.into_iter().for_each(Block::check_and_free));
    let producer = thread::spawn(move || {
        let used = |blocks: usize| {
            for _ in 0..blocks {
                sender.send(Block::new(512)).unwrap();
            }
            counter(TierCounter::SystemUsed)
        };
        let before = used(20_000);
        let after = used(400_000);
        // 400,000 blocks are 200 MiB.
        assert!(after - before < 64 << 20, "{} MiB", (after - before) >> 20);
    });
    producer.join().unwrap();
    consumer.join().unwrap();
}

#[test]
fn short_lived_threads_leave_no_growth() {
    let _alone = alone();
    let run = |threads: usize| {
        for _ in 0..threads / 10 {
            let batch: Vec<_> = (0..10)
                .map(|n| {
                    thread::spawn(move || {
                        let mut random = Random(n);
                        let blocks: Vec<_> = (0..50).map(|_| Block::new(random.size())).collect();
                        blocks.into_iter().for_each(Block::check_and_free);
                    })
                })
                .collect();
            batch.into_iter().for_each(|thread| thread.join().unwrap());
        }
        counter(TierCounter::SystemUsed)
    };
    let before = run(200);
    let after = run(4000);
    assert!(after - before < 64 << 20, "{} MiB", (after - before) >> 20);
}

#[test]
fn blocks_outlive_their_thread() {
    let _alone = alone();
    let blocks: Vec<Block> = (0..50)
        .flat_map(|n| {
            thread::spawn(move || {
                let mut random = Random(n);
                (0..100).map(|_| Block::new(random.size())).collect::<Vec<_>>()
            })
            .join()
            .unwrap()
        })
        .collect();
    let more: Vec<Block> = (0..5000).map(|n| Block::new(n % 700)).collect();
    blocks.into_iter().for_each(Block::check_and_free);
    more.into_iter().for_each(Block::check_and_free);
}

/// A thread that starts others and frees what they leave would keep a slab of each, which it has no use for.
#[test]
fn slabs_of_ended_threads_go_back_when_who_inherits_them_has_freed_their_blocks() {
    let _alone = alone();
    let allocate = |count: usize, size: usize| -> Vec<_> { (0..count).map(|_| malloc(size) as usize).collect() };
    // SAFETY: they are allocated.
    let free_all = |blocks: Vec<usize>| blocks.into_iter().for_each(|block| unsafe { free(block as *mut u8) });
    // A thread that needs much may keep much.
    let own = [allocate(10_000, 1000), allocate(100, 48)].concat();
    let before = counter(TierCounter::SlabBytes);
    for _ in 0..4 {
        let left = thread::spawn(move || allocate(20_000, 48)).join().unwrap();
        free_all(left);
    }
    let kept = counter(TierCounter::SlabBytes) - before;
    assert!(kept < 128 << 10, "{kept} bytes");
    free_all(own);
}
