//! Containers on the pool, in a program that stays on its own allocator. A file of its own: the program's allocator
//! counts here, and nothing else may run beside the one test.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use allocator_api2::boxed::Box as PoolBox;
use allocator_api2::vec::Vec as PoolVec;
use hashbrown::HashMap;
use poolscope_alloc::{Pool, stats};

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, which counts this thread's calls.
struct Counting;

fn count() {
    CALLS.with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: everything is the system allocator's answer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(p, layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(p, layout, size) }
    }
}

#[global_allocator]
static PROGRAM: Counting = Counting;

fn system_calls(f: impl FnOnce()) -> usize {
    let before = CALLS.with(Cell::get);
    f();
    CALLS.with(Cell::get) - before
}

/// Every counter of the pool.
fn pool_counters() -> Vec<(&'static str, u64)> {
    stats::counters().map(|(info, value)| (info.name, value)).collect()
}

/// Ends the process unless the pool allocated this.
fn assert_from_pool<T>(p: *const T) {
    // SAFETY: that it is a block of the pool is the claim. For anything else the pool ends the process with a message.
    assert!(unsafe { poolscope_cpu::usable_size(p.cast_mut().cast()) } > 0);
}

#[test]
fn containers_use_the_pool_and_the_rest_of_the_program_its_own_allocator() {
    // The stack of a sample is captured with the program's allocator: at one sample in a tebibyte there is none. And
    // nothing is given back in the background, which the counters would show.
    let quiet = poolscope_alloc::config().period(1 << 40).scavenge_ms(None).gc_ms(None);
    quiet.apply().expect("these are valid values");
    // The pool starts with its first block, and asks the C library for things meanwhile.
    drop(PoolBox::new_in(0_u64, Pool));

    let calls = system_calls(|| {
        let mut squares = PoolVec::new_in(Pool);
        squares.extend((0..100_000_u64).map(|n| n * n));
        assert_from_pool(squares.as_ptr());
        assert!((0..100_000).all(|n: u64| squares[n as usize] == n * n));

        let mut index = HashMap::new_in(Pool);
        for (number, square) in squares.iter().enumerate() {
            let mut digits = PoolVec::new_in(Pool);
            digits.extend_from_slice(&square.to_le_bytes());
            index.insert(number, digits);
        }
        assert_from_pool(index[&77].as_ptr());
        index.retain(|number, _| number % 3 == 0);
        index.shrink_to_fit();
        assert_eq!(index.len(), 33_334);
        assert_eq!(index[&99_999][..], (99_999_u64 * 99_999).to_le_bytes());

        let boxed = PoolBox::new_in([7_u8; 300], Pool);
        assert_from_pool(&raw const *boxed);
    });
    assert_eq!(calls, 0, "containers on the pool called the program's allocator");

    let before = pool_counters();
    let calls = system_calls(|| {
        // Small, large and growing blocks.
        let strings: Vec<String> = (0..10_000).map(|n| format!("number {n}")).collect();
        let mut large = vec![1_u8; 3 << 20];
        large.extend_from_slice(&[2; 5 << 20]);
        assert_eq!(large.len() + strings[9_999].len(), (8 << 20) + 11);
    });
    assert!(calls > 20_000, "{calls}");
    assert_eq!(pool_counters(), before, "the rest of the program reached the pool");
}
