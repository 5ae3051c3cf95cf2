//! Workloads by the names that `bench-cpu` gives them.

use crate::calls::Calls;
use crate::fixed::{Aligned, Batch, Lifo, Plain};
use crate::random::Replacement;
use crate::single::Workload;

/// The workloads of one thread that can be run on any [`Calls`].
pub fn one_thread<C: Calls + 'static>(workload: &[&str]) -> Option<Box<dyn Workload>> {
    let bytes = |text: &str| text.parse::<usize>().ok();
    Some(match *workload {
        ["lifo", size] => Box::new(Lifo::<_, C>::new(Plain { size: bytes(size)? })),
        ["batch", size] => Box::new(Batch::<_, C>::new(Plain { size: bytes(size)? })),
        ["lifo", size, align] => Box::new(Lifo::<_, C>::new(Aligned { size: bytes(size)?, align: bytes(align)? })),
        ["batch", size, align] => Box::new(Batch::<_, C>::new(Aligned { size: bytes(size)?, align: bytes(align)? })),
        ["random", live, least, most] => Box::new(Replacement::<C>::new(bytes(live)?, bytes(least)?, bytes(most)?, 0)),
        _ => return None,
    })
}
