//! A program that has no `#[global_allocator]` line.

#[poolscope_heapcheck::test]
#[should_panic(expected = "#[global_allocator]\nstatic POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;")]
fn says_which_line_is_missing() {}
