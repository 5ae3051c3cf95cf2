//! Which slab serves a sample. Alone in its process: what other threads leave behind would serve it as well.

use poolscope_cpu::{free, malloc};

/// A slab of these has two, and two pages.
const WIDE: usize = 32 << 10;

#[test]
fn pages_of_a_wide_sample_wait_for_the_next_one() {
    // SAFETY: no other thread runs that looks at the environment. Every block is sampled.
    unsafe { std::env::set_var("POOLSCOPE_PERIOD", "1") };
    let first = malloc(WIDE) as usize;
    for size in (1..40).map(|step| 16 * step) {
        // SAFETY: a block of this pool that nothing points at any more.
        unsafe { free(first as *mut u8) };
        // Has a slab of one page, which would be one of those.
        assert!(!malloc(size).is_null());
        assert_eq!(malloc(WIDE) as usize, first, "after a sample of {size} bytes");
    }
}
