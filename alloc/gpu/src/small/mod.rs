//! Small blocks: 13 classes from 256 B to 1 MiB, cut from slabs in chunks that the large blocks' tier gives out.
//!
//! thread cache <-> global cache <-> reserve (the free blocks of slabs) <-> large blocks
//!
//! A slab belongs to one stream's lane as long as it exists, and its blocks go through the tiers in the order of that
//! stream: none of them needs an event or a call to the driver. Only a block that was used on another stream too leaves
//! that order; it waits in a list of its own until the work is over. What is empty goes back as a large block does, and
//! is then everybody's. Beside the tiers a mark says of each block whether the program has it: none is freed twice.
//!
//! In a small pool, blocks of more than 64 KiB come from slabs as long as these are few, and while many threads ask at
//! once. Otherwise they are placed as large ones.

mod barrier;
mod classes;
mod counters;
mod current;
mod fitted;
mod list;
mod pages;
mod slabs;
mod thread_cache;
mod words;

pub use barrier::pass_by_all_threads;
pub use classes::{CLASSES, LARGEST, PAGE, class_of, is_medium, size_of};
pub use counters::Counters;
pub use fitted::FittedBlock;
pub use list::{Limits, take_last};
pub use pages::{FittedMark, FittedState, Mark, Page, Pages};
pub use slabs::{CHUNK, SAMPLED, Slabs};
pub use thread_cache::{
    CurrentCache, Drained, Lists, PoolHandle, StreamCache, ThreadCache, for_each_stream_cache, with_cache,
};
