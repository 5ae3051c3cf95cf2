//! A block of the tiers, or a sample: where both meet.

use core::sync::atomic::Ordering;

use poolscope_capture::Caller;

use crate::layout::arena;
use crate::layout::block::BlockPtr;
use crate::layout::lean;
use crate::layout::misuse;
use crate::layout::size_class::{MEDIUM_MAX, SizeClass};
use crate::layout::slab::{Slab, owner};
use crate::sampler;
use crate::segment::counters::{self, TierCounter};
use crate::serve::{heartbeat, large, reclaim};
use crate::sync::spin_lock::SlowPath;
use crate::tiers::large::usable;
use crate::tiers::thread_cache::Heap;

/// A block of the tiers for the program's call at `caller`, and whether it is known to read as zero.
/// `None` without memory.
pub fn allocate(
    slow: SlowPath,
    heap: &'static Heap,
    size: usize,
    align: usize,
    caller: &Caller,
) -> Option<(*mut u8, bool)> {
    heartbeat::poll(slow);
    // Without the divisions of the general case: this is what every refill goes through.
    let class =
        if align <= 16 && size <= MEDIUM_MAX { Some(SizeClass::of(size)) } else { SizeClass::of_aligned(size, align) };
    let class = class.filter(|_| !(lean::is_on() && size > lean::IN_SLABS));
    let mut got = try_once(slow, heap, class, size, align, caller);
    // What is free is no answer to a label that has too much.
    if got.is_none() && sampler::is_refused(slow, heap) {
        return None;
    }
    if got.is_none() && reclaim(slow, heap, size) {
        got = try_once(slow, heap, class, size, align, caller);
    }
    // A slab takes up to 2 MiB. Where there is no room for one, there may still be some for the block alone.
    if got.is_none() && class.is_some_and(SizeClass::is_medium) {
        got = large::alloc(slow, heap, size, align, caller);
    }
    got
}

/// A block, if there is one without more being done for it.
fn try_once(
    slow: SlowPath,
    heap: &'static Heap,
    class: Option<SizeClass>,
    size: usize,
    align: usize,
    caller: &Caller,
) -> Option<(*mut u8, bool)> {
    let Some(class) = class else { return large::alloc(slow, heap, size, align, caller) };
    let got = allocate_block(slow, heap, class, size, caller);
    // Taken whatever came: it is true of a block that nobody had, and a search for unreachable blocks is to find no
    // pointer to it here.
    let zero = if class.is_medium() { heap.medium.zero.replace(BlockPtr::NULL) } else { BlockPtr::NULL };
    got.map(|p| (p, zero.address() == p))
}

/// Brings together what is free, where the system has no more: spans that others cache, and neighbours that were apart
/// because one of them had memory behind it. False if there is nothing, or less than `size` bytes in all.
#[cold]
fn reclaim(slow: SlowPath, heap: &'static Heap, size: usize) -> bool {
    // What is freed under a narrow limit of data goes back at once, and is in no span that could be counted.
    size as u64 <= counters::get(TierCounter::SystemUsed) && (reclaim::release(slow, heap) > 0 || lean::is_on())
}

fn allocate_block(
    slow: SlowPath,
    heap: &'static Heap,
    class: SizeClass,
    size: usize,
    caller: &Caller,
) -> Option<*mut u8> {
    // What has no memory for a slab of sampled blocks may still have an ordinary block.
    let mut may_sample = !heap.sampling.in_sampler.get();
    loop {
        if may_sample && heap.records_all() {
            if sampler::is_refused(slow, heap) {
                return None;
            }
            if let Some(p) = sampler::sample_block(slow, heap, class, size, caller) {
                return Some(p);
            }
            may_sample = false;
        }
        if let Some(p) = if class.is_medium() { heap.pop_medium(class) } else { heap.pop(class) } {
            heap.unvisit();
            heap.settle_medium(class);
            heap.count_call(class);
            return Some(p);
        }
        if heap.begin_next_part(class) {
            continue;
        }
        if heap.is_sample_due(class) {
            if heap.begin_class(class) {
                continue;
            }
            if may_sample {
                if sampler::is_refused(slow, heap) {
                    return None;
                }
                if let Some(p) = sampler::sample_block(slow, heap, class, size, caller) {
                    return Some(p);
                }
                may_sample = false;
            }
            heap.skip_sample(class);
            continue;
        }
        heap.follow_period(class);
        if !heartbeat::refill(slow, heap, class) {
            return None;
        }
    }
}

/// The slab of an allocated block; `None` for a mapping that a signal handler got.
pub fn slab_of(p: *mut u8) -> Option<&'static Slab> {
    let slab = arena::page_of(p)?.head();
    if slab.owner.load(Ordering::Acquire) == owner::NONE {
        misuse::invalid(p);
    }
    Some(slab)
}

/// Bytes of the tiers' block at `p`; `None` if it is none.
pub fn block_bytes(p: *mut u8) -> Option<usize> {
    let slab = slab_of(p)?;
    Some(if slab.owner.load(Ordering::Relaxed) == owner::LARGE { usable(slab) } else { slab.class.get().block() })
}
