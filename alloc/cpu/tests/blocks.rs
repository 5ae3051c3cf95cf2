//! What every allocator owes its callers, on one thread: random programs against a plain model.

use std::collections::BTreeMap;

use poolscope_cpu::{free, malloc, malloc_aligned, malloc_zeroed, realloc, usable_size};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Malloc(usize),
    Aligned(usize, u32),
    Zeroed(usize),
    Realloc(usize, usize),
    Free(usize),
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 0usize..2048,
        2 => 0usize..300_000,
        1 => prop_oneof![Just(1024), Just(1025), Just(262_144), Just(262_145), Just(3_000_000)],
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => size().prop_map(Step::Malloc),
        1 => (size(), 0u32..18).prop_map(|(size, shift)| Step::Aligned(size, shift)),
        1 => size().prop_map(Step::Zeroed),
        2 => (any::<usize>(), size()).prop_map(|(which, size)| Step::Realloc(which, size)),
        4 => any::<usize>().prop_map(Step::Free),
    ]
}

/// Allocated blocks by address: their size and the byte that they are filled with.
#[derive(Default)]
struct Model(BTreeMap<usize, (usize, u8)>);

impl Model {
    fn add(&mut self, p: *mut u8, size: usize, fill: u8) {
        let start = p as usize;
        assert!(!p.is_null());
        assert_eq!(start % 16, 0);
        // SAFETY: the block was just allocated.
        let usable = unsafe { usable_size(p) };
        assert!(usable >= size, "{usable} for {size}");
        if let Some((&before, &(len, _))) = self.0.range(..start).next_back() {
            assert!(before + len <= start, "overlaps the block before");
        }
        if let Some((&after, _)) = self.0.range(start..).next() {
            assert!(start + usable <= after, "overlaps the block behind");
        }
        // SAFETY: the block holds `size` bytes.
        unsafe { p.write_bytes(fill, size) };
        self.0.insert(start, (size, fill));
    }

    fn pick(&self, which: usize) -> Option<usize> {
        (!self.0.is_empty()).then(|| *self.0.keys().nth(which % self.0.len()).unwrap())
    }

    fn remove(&mut self, start: usize) -> (usize, u8) {
        let (size, fill) = self.0.remove(&start).unwrap();
        check(start, size, fill);
        (size, fill)
    }
}

fn check(start: usize, size: usize, fill: u8) {
    // SAFETY: the model says that the block is allocated.
    let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, size) };
    assert!(bytes.iter().all(|&byte| byte == fill), "contents changed");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn blocks_keep_their_contents_and_never_overlap(steps in prop::collection::vec(step(), 1..300)) {
        let mut model = Model::default();
        for (n, step) in steps.into_iter().enumerate() {
            let fill = n as u8 | 1;
            match step {
                Step::Malloc(size) => model.add(malloc(size), size, fill),
                Step::Aligned(size, shift) => {
                    let p = malloc_aligned(size, 1 << shift);
                    prop_assert_eq!(p as usize % (1 << shift), 0);
                    model.add(p, size, fill);
                }
                Step::Zeroed(size) => {
                    let p = malloc_zeroed(size);
                    check(p as usize, size, 0);
                    model.add(p, size, fill);
                }
                Step::Realloc(which, size) => {
                    if let Some(start) = model.pick(which) {
                        let (old, old_fill) = model.remove(start);
                        // SAFETY: the block is allocated.
                        let p = unsafe { realloc(start as *mut u8, size, 16) };
                        check(p as usize, old.min(size), old_fill);
                        model.add(p, size, fill);
                    }
                }
                Step::Free(which) => {
                    if let Some(start) = model.pick(which) {
                        model.remove(start);
                        // SAFETY: the block is allocated.
                        unsafe { free(start as *mut u8) };
                    }
                }
            }
        }
        for (start, (size, fill)) in model.0 {
            check(start, size, fill);
            // SAFETY: the block is allocated.
            unsafe { free(start as *mut u8) };
        }
    }
}

#[test]
fn requests_that_no_memory_can_serve_fail() {
    for size in [usize::MAX, isize::MAX as usize, isize::MAX as usize - 100, 1 << 47] {
        assert!(malloc(size).is_null());
        assert!(malloc_zeroed(size).is_null());
        assert!(malloc_aligned(size, 4096).is_null());
    }
    let p = malloc(100);
    // SAFETY: the block is allocated; a failed realloc leaves it.
    unsafe {
        assert!(realloc(p, usize::MAX, 16).is_null());
        free(p);
    }
}

#[test]
fn freeing_null_does_nothing() {
    // SAFETY: null is allowed.
    unsafe { free(std::ptr::null_mut()) };
}

/// Fills a block's pages with their numbers, so that a page that is lost or swapped shows.
fn number_pages(p: *mut u8, from: usize, to: usize) {
    for at in (from.next_multiple_of(4096)..to).step_by(4096) {
        // SAFETY: the block holds `to` bytes.
        unsafe { p.add(at).cast::<usize>().write(at) };
    }
}

fn check_pages(p: *mut u8, to: usize) {
    for at in (0..to.saturating_sub(8)).step_by(4096) {
        // SAFETY: as above.
        assert_eq!(unsafe { p.add(at).cast::<usize>().read() }, at);
    }
}

#[test]
fn a_large_block_keeps_its_contents_as_it_grows_and_shrinks() {
    let mut size = 300_000;
    let mut p = malloc(size);
    number_pages(p, 0, size);
    // Another large block now and then is in the way of growing in place.
    let mut others = Vec::new();
    for step in 0..24 {
        let next = if step % 10 == 9 { size / 3 } else { size + size / 3 };
        // SAFETY: the block is allocated.
        p = unsafe { realloc(p, next, 16) };
        assert!(!p.is_null());
        check_pages(p, size.min(next));
        number_pages(p, size.min(next), next);
        size = next;
        if step % 3 == 0 {
            others.push((malloc(400_000), step as u8));
            // SAFETY: the block holds that many bytes.
            unsafe { others[others.len() - 1].0.write_bytes(step as u8, 400_000) };
        }
    }
    for (other, fill) in others {
        check(other as usize, 400_000, fill);
        // SAFETY: the block is allocated.
        unsafe { free(other) };
    }
    check_pages(p, size);
    // SAFETY: the block is allocated.
    unsafe { free(p) };
}

#[test]
fn memory_that_was_moved_away_reads_as_zero_when_it_is_asked_for() {
    for _ in 0..3 {
        let p = malloc(8 << 20);
        // SAFETY: the blocks are allocated and hold as many bytes.
        unsafe {
            p.write_bytes(7, 8 << 20);
            let in_the_way = malloc(300_000);
            let grown = realloc(p, 20 << 20, 16);
            check(grown as usize, 8 << 20, 7);
            let zeroed = malloc_zeroed(8 << 20);
            check(zeroed as usize, 8 << 20, 0);
            zeroed.write_bytes(9, 8 << 20);
            for block in [grown, in_the_way, zeroed] {
                free(block);
            }
        }
    }
}
