//! Which slab serves a class. Alone in its process: what other threads leave behind would serve it as well.

use std::collections::{BTreeMap, BTreeSet};

use poolscope_cpu::{free, malloc};

/// Bytes of a slab of small blocks, at a multiple of as many; 32 of these blocks fill it.
const SLAB: usize = 32 << 10;
const BLOCK: usize = SLAB / 32;

fn slab_of(block: *mut u8) -> usize {
    block as usize / SLAB
}

#[test]
fn an_eighth_of_a_slab_is_used_before_another_slab_is_taken() {
    // SAFETY: no other thread runs that looks at the environment. A sampled block would have a slab of its own.
    unsafe { std::env::set_var("POOLSCOPE_PERIOD", "1T") };
    let mut slabs: BTreeMap<usize, Vec<*mut u8>> = BTreeMap::new();
    while slabs.len() < 3 || slabs.values().any(|blocks| blocks.len() < SLAB / BLOCK) {
        let block = malloc(BLOCK);
        slabs.entry(slab_of(block)).or_default().push(block);
    }
    let known: BTreeSet<usize> = slabs.keys().copied().collect();
    // A quarter each: less than what a class with so few slabs waits for, and more than an eighth.
    let quarter = SLAB / BLOCK / 4;
    for block in slabs.values_mut().flat_map(|blocks| blocks.split_off(3 * quarter)) {
        // SAFETY: a block of this pool that nothing points at any more.
        unsafe { free(block) };
    }
    let again: BTreeSet<usize> = (0..known.len() * quarter).map(|_| slab_of(malloc(BLOCK))).collect();
    assert_eq!(again, known, "there was room in all slabs");
    // There is none left.
    assert!(!known.contains(&slab_of(malloc(BLOCK))));
}
