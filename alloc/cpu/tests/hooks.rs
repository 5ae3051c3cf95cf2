//! Hooks see every call, as long as they are there.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use poolscope_cpu::hooks::{Event, Moment, add_hook, remove_hook};
use poolscope_cpu::{free, malloc, malloc_aligned, malloc_zeroed, realloc};

/// Hooks are the process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Counts {
    moments: [AtomicUsize; 4],
    bytes: AtomicUsize,
}

impl Counts {
    fn context(&self) -> *mut c_void {
        (&raw const *self).cast_mut().cast()
    }

    fn get(&self) -> [usize; 4] {
        self.moments.each_ref().map(|count| count.load(Ordering::SeqCst))
    }
}

extern "C" fn count(event: &Event, context: *mut c_void) {
    // SAFETY: every test passes its counts.
    let counts = unsafe { &*context.cast::<Counts>() };
    counts.moments[event.moment as usize].fetch_add(1, Ordering::SeqCst);
    if event.moment == Moment::AfterAlloc {
        counts.bytes.fetch_add(event.size, Ordering::SeqCst);
    }
}

fn pair(size: usize) {
    let p = malloc(size);
    assert!(!p.is_null());
    // SAFETY: just allocated.
    unsafe { free(p) };
}

#[test]
fn every_call_is_seen_before_and_after_and_none_without_a_hook() {
    let _alone = alone();
    pair(100);
    let counts = Counts::default();
    let id = add_hook(count, counts.context()).unwrap();
    for size in [0, 1, 100, 1000, 5000, 300_000] {
        pair(size);
    }
    // SAFETY: blocks of the pool, each freed once.
    unsafe {
        free(malloc_aligned(100, 4096));
        free(malloc_zeroed(2000));
        free(realloc(malloc(10), 10_000, 16));
        free(core::ptr::null_mut());
    }
    assert!(remove_hook(id));
    assert_eq!(counts.get(), [10; 4]);
    assert_eq!(counts.bytes.load(Ordering::SeqCst), 306_101 + 100 + 2000 + 10 + 10_000);
    pair(100);
    assert_eq!(counts.get(), [10; 4]);
    assert!(!remove_hook(id));
}

#[test]
fn blocks_from_before_the_hook_are_seen_when_they_are_freed() {
    let _alone = alone();
    let blocks: Vec<_> = (0..1000).map(|i| malloc(i * 7)).collect();
    let counts = Counts::default();
    let id = add_hook(count, counts.context()).unwrap();
    for p in blocks {
        // SAFETY: allocated above.
        unsafe { free(p) };
    }
    assert!(remove_hook(id));
    assert_eq!(counts.get(), [0, 0, 1000, 1000]);
}

/// Sets a word that other threads wait for, also when an assertion fails: else nobody would see that it did.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn threads_that_already_run_are_seen_from_the_moment_the_hook_is_there() {
    let _alone = alone();
    let (ready, go) = (AtomicUsize::new(0), AtomicBool::new(false));
    let counts = Counts::default();
    let id = thread::scope(|scope| {
        let _go = SetAtEnd(&go);
        for _ in 0..4 {
            scope.spawn(|| {
                // Lists are filled: without the detour these would be served unseen.
                (0..1000).for_each(|_| pair(64));
                ready.fetch_add(1, Ordering::SeqCst);
                while !go.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                (0..1000).for_each(|_| pair(64));
            });
        }
        while ready.load(Ordering::SeqCst) < 4 {
            thread::yield_now();
        }
        let id = add_hook(count, counts.context()).unwrap();
        // They go on now. The hook stays until they are done.
        id
    });
    assert!(remove_hook(id));
    assert_eq!(counts.get(), [4000; 4]);
}

#[test]
fn hooks_come_and_go_while_other_threads_allocate() {
    let _alone = alone();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = SetAtEnd(&stop);
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    (1..200).for_each(|i| pair(i * 11));
                }
            });
        }
        for _ in 0..300 {
            // What is gone after the removal: a hook that is still called would write to it.
            let counts: Vec<Box<Counts>> = (0..3).map(|_| Box::default()).collect();
            let ids: Vec<_> = counts.iter().map(|counts| add_hook(count, counts.context()).unwrap()).collect();
            pair(64);
            for (id, counts) in ids.into_iter().zip(counts) {
                assert!(remove_hook(id));
                let seen = counts.get();
                thread::yield_now();
                assert_eq!(counts.get(), seen);
            }
        }
    });
}

static LIVE: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);

extern "C" fn keep_books(event: &Event, _: *mut c_void) {
    // The map allocates from the system here; these calls go to the pool.
    pair(48);
    let mut live = LIVE.lock().unwrap();
    let live = live.get_or_insert_with(HashMap::new);
    match event.moment {
        Moment::AfterAlloc => assert_eq!(live.insert(event.block as usize, event.size), None),
        Moment::BeforeFree => assert!(live.remove(&(event.block as usize)).is_some_and(|size| size <= event.size)),
        _ => {}
    }
}

#[test]
fn a_hook_that_allocates_keeps_exact_books() {
    let _alone = alone();
    let id = add_hook(keep_books, core::ptr::null_mut()).unwrap();
    thread::scope(|scope| {
        for seed in 0..3usize {
            scope.spawn(move || {
                let mut blocks = vec![core::ptr::null_mut(); 50];
                for step in 0..3000usize {
                    let at = (step * 31 + seed) % blocks.len();
                    // SAFETY: a block of the pool or null, replaced at once.
                    unsafe { free(blocks[at]) };
                    blocks[at] = malloc(step * 13 % 3000);
                }
                // SAFETY: as above.
                blocks.into_iter().for_each(|p| unsafe { free(p) });
            });
        }
    });
    assert!(remove_hook(id));
    assert!(LIVE.lock().unwrap().take().unwrap().is_empty());
}

#[test]
fn there_may_be_more_hooks_than_anyone_needs() {
    let _alone = alone();
    let counts = Counts::default();
    let ids: Vec<_> = (0..300).map(|_| add_hook(count, counts.context()).unwrap()).collect();
    pair(100);
    assert_eq!(counts.get(), [300; 4]);
    for id in ids {
        assert!(remove_hook(id));
    }
    pair(100);
    assert_eq!(counts.get(), [300; 4]);
}
