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
