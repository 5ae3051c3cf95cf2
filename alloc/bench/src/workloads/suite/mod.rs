//! Programs of the kind that allocators are usually compared with, written anew after their published descriptions.
//! The one of Larson and Krishnan is [`crate::handover`].

mod apart;
mod crossing;
mod sizes;
mod transfers;
mod waves;

use crate::clock::Stretch;
use crate::concurrent::{self, Run};

/// Nanoseconds of wall time per malloc and free of all threads together; `None` if there is no such program.
pub fn time(name: &str, threads: usize, stretch: Stretch) -> Option<f64> {
    Some(match name {
        "xmalloc" => crossing::time(threads, stretch),
        "rptest" => transfers::neighbours(threads, stretch),
        "mstress" => transfers::anybody(threads, stretch),
        "cache-scratch" => apart::time(threads, stretch),
        "sh6" => each(threads, stretch, waves::uneven),
        "glibc-simple" => each(threads, stretch, waves::growing),
        "glibc-thread" => each(threads, stretch, sizes::power),
        "alloc-test" => each(threads, stretch, sizes::switching),
        "espresso" => each(threads, stretch, waves::vectors),
        _ => return None,
    })
}

/// Threads that share nothing.
fn each(threads: usize, stretch: Stretch, work: fn(usize, Run<'_>)) -> f64 {
    concurrent::time(threads, stretch, work)
}
