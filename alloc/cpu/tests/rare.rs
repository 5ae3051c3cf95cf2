//! Which block serves a size that a small program asks for now and then. Alone in its process: what other tests ask for
//! would count as well.

use poolscope_cpu::{malloc, usable_size};

/// How many requests of this size in a row are served by a larger block than its class has, and by which.
fn served(size: usize) -> (usize, Vec<usize>) {
    // SAFETY: blocks that were just allocated, and that nobody frees.
    let mut blocks: Vec<usize> = (0..40).map(|_| unsafe { usable_size(malloc(size)) }).collect();
    let larger = blocks.iter().take_while(|block| **block != size).count();
    blocks.dedup();
    (larger, blocks)
}

#[test]
fn the_first_requests_of_a_class_are_served_by_a_larger_one() {
    // SAFETY: no other thread runs that looks at the environment.
    unsafe { std::env::set_var("POOLSCOPE_PERIOD", "1T") };
    assert_eq!(served(64), (0, vec![64]));
    assert_eq!(served(624), (32, vec![640, 624]));
    assert_eq!(served(640), (0, vec![640]));
    // Eleven waste a page.
    assert_eq!(served(1152), (11, vec![1536, 1152]));
    // The end of each lies in pages of its own.
    assert_eq!(served(9216), (32, vec![12_288, 9216]));
    // In a program that is not small.
    (0..5).for_each(|_| assert!(!malloc(1 << 20).is_null()));
    assert_eq!(served(1008), (0, vec![1008]));
}
