//! [`Pool`] against the contract of `Allocator`.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec as PoolVec;
use poolscope_alloc::Pool;

/// One test at a time, and no memory that goes back meanwhile: some tests look at where blocks lie.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    poolscope_alloc::config().scavenge_ms(None).apply().expect("never is a valid value");
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a layout of the test")
}

/// A block full of bytes that count up.
fn filled(layout: Layout) -> NonNull<u8> {
    let block = Pool.allocate(layout).expect("there is memory");
    assert_eq!(block.len(), layout.size());
    let p = block.cast::<u8>();
    assert!(p.addr().get().is_multiple_of(layout.align()), "{p:?} for {layout:?}");
    for i in 0..layout.size() {
        // SAFETY: within the block.
        unsafe { p.add(i).write(i as u8) };
    }
    p
}

fn assert_filled(p: NonNull<u8>, len: usize) {
    // SAFETY: the test wrote so many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(p.as_ptr(), len) };
    assert!(bytes.iter().enumerate().all(|(i, byte)| *byte == i as u8), "contents were lost");
}

fn free(p: NonNull<u8>, layout: Layout) {
    // SAFETY: each caller frees its own block, once.
    unsafe { Pool.deallocate(p, layout) }
}

#[test]
fn blocks_have_the_alignment_that_was_asked_for_up_to_a_mebibyte() {
    let _alone = alone();
    for shift in 0..=20 {
        let align = 1 << shift;
        let sizes = [1, align - 1, align, align + 1, 5000, 300_000];
        let layouts = sizes.map(|size| layout(size.max(1), align));
        let blocks = layouts.map(filled);
        for (p, layout) in blocks.into_iter().zip(layouts) {
            assert_filled(p, layout.size());
            free(p, layout);
        }
    }
}

#[test]
fn zeroed_blocks_read_as_zero_when_their_memory_was_used_before() {
    let _alone = alone();
    for align in [1, 16, 64, 4096, 1 << 17] {
        for size in [1, 100, 5000, 70_000, 600_000] {
            let layout = layout(size, align);
            free(filled(layout), layout);
            let block = Pool.allocate_zeroed(layout).expect("there is memory");
            // SAFETY: zeroed means initialised.
            assert!(unsafe { block.as_ref() }.iter().all(|byte| *byte == 0), "{layout:?}");
            free(block.cast(), layout);
        }
    }
}

/// Pages of this process that are in memory.
fn resident_pages() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("proc is mounted");
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("the second number is there")
}

#[test]
fn zeroed_pages_fresh_from_the_kernel_are_not_touched() {
    let _alone = alone();
    let layouts = [16, 64, 1 << 20].map(|align| layout(256 << 20, align));
    let before = resident_pages();
    let blocks = layouts.map(|layout| Pool.allocate_zeroed(layout).expect("there is memory"));
    let grown = resident_pages().saturating_sub(before);
    for (block, layout) in blocks.into_iter().zip(layouts) {
        free(block.cast(), layout);
    }
    assert!(grown < 4096, "{grown} pages were touched");
}

#[test]
fn resized_blocks_keep_their_contents_and_get_the_new_alignment() {
    let _alone = alone();
    let sizes = [0, 1, 40, 1000, 5000, 90_000, 400_000, 3_000_000];
    let aligns = [1, 16, 64, 4096, 1 << 17];
    for (old_align, new_align) in aligns.iter().flat_map(|old| aligns.map(|new| (*old, new))) {
        for (i, small) in sizes.into_iter().enumerate() {
            for large in sizes.into_iter().skip(i) {
                let (low, high) = (layout(small, old_align), layout(large, new_align));
                let p = filled(low);
                // SAFETY: the block has the old layout, and the new one is not smaller.
                let grown = unsafe { Pool.grow(p, low, high) }.expect("there is memory");
                assert_eq!(grown.len(), large);
                assert!(grown.cast::<u8>().addr().get().is_multiple_of(new_align), "{low:?} to {high:?}");
                assert_filled(grown.cast(), small);
                // SAFETY: back again.
                let shrunk = unsafe { Pool.shrink(grown.cast(), high, low) }.expect("there is memory");
                assert_eq!(shrunk.len(), small);
                assert!(shrunk.cast::<u8>().addr().get().is_multiple_of(old_align), "{high:?} to {low:?}");
                assert_filled(shrunk.cast(), small);
                free(shrunk.cast(), low);
            }
        }
    }
}

#[test]
fn what_a_block_grows_by_reads_as_zero_on_request() {
    let _alone = alone();
    for (small, large) in [(0, 50), (10, 16), (100, 112), (1000, 9000), (300_000, 320_000), (300_000, 4_000_000)] {
        // The bytes behind the old contents are not zero, whether the block moves or stays.
        let whole = layout(large, 8);
        free(filled(whole), whole);
        let old = layout(small, 8);
        let p = filled(old);
        // SAFETY: the block has the old layout.
        let grown = unsafe { Pool.grow_zeroed(p, old, whole) }.expect("there is memory");
        assert_filled(grown.cast(), small);
        // SAFETY: all of it is initialised.
        assert!(unsafe { grown.as_ref() }[small..].iter().all(|byte| *byte == 0), "{small} to {large}");
        free(grown.cast(), whole);
    }
}

#[test]
fn a_block_with_room_is_resized_in_place() {
    let _alone = alone();
    // Small: both sizes are served by blocks of 112 bytes. Large: the pages given up are there to be taken back.
    for (low, high) in [(100, 112), (600 << 10, 1 << 20), (2 << 20, 8 << 20)] {
        let (low, high) = (layout(low, 16), layout(high, 16));
        let p = filled(high);
        // SAFETY: the layouts are the block's, one after the other.
        let (shrunk, grown) = unsafe {
            let shrunk = Pool.shrink(p, high, low).expect("there is memory");
            (shrunk, Pool.grow(shrunk.cast(), low, high).expect("there is memory"))
        };
        assert_eq!([shrunk.cast(), grown.cast()], [p, p], "{low:?} and {high:?}");
        assert_filled(p, low.size());
        free(p, high);
    }
}

#[test]
fn a_request_that_cannot_be_served_is_an_error_and_leaves_the_old_block() {
    let _alone = alone();
    let impossible = layout(isize::MAX as usize - 4096, 4096);
    assert!(Pool.allocate(impossible).is_err());
    assert!(Pool.allocate_zeroed(impossible).is_err());
    let small = layout(100, 16);
    let p = filled(small);
    // SAFETY: the block has the old layout; after a refusal, it still is the caller's.
    assert!(unsafe { Pool.grow(p, small, impossible) }.is_err());
    // SAFETY: as above.
    assert!(unsafe { Pool.grow_zeroed(p, small, impossible) }.is_err());
    assert_filled(p, 100);
    free(p, small);

    let mut refused = PoolVec::<u8, Pool>::new_in(Pool);
    assert!(refused.try_reserve(isize::MAX as usize).is_err());
    refused.push(1);
}

#[test]
fn containers_are_freed_by_the_thread_that_has_them_last() {
    let _alone = alone();
    let threads: Vec<_> = (0..4)
        .map(|n: usize| {
            std::thread::spawn(move || {
                let mut rows = PoolVec::new_in(Pool);
                for row in 0..1000 {
                    let mut cells = PoolVec::new_in(Pool);
                    cells.resize(row, n);
                    rows.push(cells);
                }
                rows
            })
        })
        .collect();
    for (n, thread) in threads.into_iter().enumerate() {
        let rows = thread.join().expect("the thread ends well");
        assert!(rows.iter().enumerate().all(|(row, cells)| cells.len() == row && cells.iter().all(|cell| *cell == n)));
    }
}
