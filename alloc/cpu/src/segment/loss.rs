//! What is done when a file of the pool's is cut off while it is mapped: zeroed private memory takes its place, at the
//! same addresses, and other processes see no more of it.
//!
//! Nothing that the process needs to know stands in the files alone: where the regions of a segment lie is in private
//! memory ([`super::Private`]), and so are the live table, the index of stacks, and where a thread is in its ring.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::Segment;
use crate::kernel::os;
use crate::settings;

/// The last two segments: a forked child copies from its parent's.
static SEGMENTS: [AtomicPtr<u8>; 2] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 2];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Has a segment watched.
pub(super) fn watch(segment: &Segment) {
    let at = NEXT.fetch_add(1, Ordering::Relaxed) % SEGMENTS.len();
    SEGMENTS[at].store(segment.base, Ordering::Release);
}

/// Forgets a segment that is about to be unmapped.
pub(super) fn forget(segment: &Segment) {
    for place in &SEGMENTS {
        let _ = place.compare_exchange(segment.base, core::ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Where a mapping of a file beside the segment's begins, and its bytes, for an address in one.
type Around = fn(usize) -> Option<(usize, usize)>;

/// What says so; null before there are any.
static AROUND: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Has the mappings of other files watched that are the pool's: `around` says where they lie.
pub fn also_watch(around: Around) {
    AROUND.store(around as *mut (), Ordering::Release);
}

fn other_around(address: usize) -> Option<(usize, usize)> {
    let around = AROUND.load(Ordering::Acquire);
    if around.is_null() {
        return None;
    }
    // SAFETY: only `also_watch` stores there, and it takes just such a function.
    let around = unsafe { core::mem::transmute::<*mut (), Around>(around) };
    around(address)
}

/// What became of a segment's file.
#[derive(Default)]
pub(super) struct Loss {
    /// 0: it is there. [`HEALING`], then [`LOST`].
    state: AtomicU32,
}

const HEALING: u32 = 1;
const LOST: u32 = 2;

impl Loss {
    /// Whether private memory is in the place of the file.
    pub(super) fn is_lost(&self) -> bool {
        self.state.load(Ordering::Acquire) != 0
    }

    /// Begins to put it there, or says how far another thread is.
    fn begin(&self) -> Result<(), u32> {
        self.state.compare_exchange(0, HEALING, Ordering::AcqRel, Ordering::Acquire).map(|_| ())
    }
}

/// Called by a thread that touched the file's page at `address`, in its signal handler. Whether it was one of the
/// pool's, and there is memory now.
pub fn heal(address: usize) -> bool {
    for place in &SEGMENTS {
        let base = place.load(Ordering::Acquire);
        if base.is_null() {
            continue;
        }
        let segment = Segment { base };
        if address.wrapping_sub(base as usize) < segment.len() {
            return heal_segment(&segment, address);
        }
    }
    let Some((from, len)) = other_around(address) else { return false };
    // SAFETY: the range is a mapping of the trace's, of which nothing is needed any more.
    let healed = unsafe { os::map_zeroes_over(from as *mut u8, len) };
    if healed && !TRACE_LOST.swap(true, Ordering::AcqRel) {
        say("the trace was cut off, and the recording ends");
    }
    healed
}

/// Puts private memory in the place of a segment's file, which was found to be cut off. Whether it is there.
pub(super) fn lose(segment: &Segment) -> bool {
    segment.private().loss.begin().is_err() || replace(segment)
}

fn heal_segment(segment: &Segment, address: usize) -> bool {
    match segment.private().loss.begin() {
        Ok(()) => replace(segment),
        // Another thread is at it: this one touches the page again, until it is there.
        Err(HEALING) => true,
        // A part that was just growing.
        Err(_) => {
            let page = (address & !4095) as *mut u8;
            // SAFETY: the page is the segment's, and was not there.
            unsafe { os::map_zeroes_over(page, 4096) }
        }
    }
}

fn replace(segment: &Segment) -> bool {
    let healed = segment.committed_parts().all(|(part, len)| {
        // SAFETY: the part is the segment's own; other processes have the file, and this one what it needs.
        len == 0 || unsafe { os::map_zeroes_over(part, len) }
    });
    segment.private().loss.state.store(LOST, Ordering::Release);
    if healed {
        say("the segment was cut off, other processes can't see this heap any more");
    }
    healed
}

fn say(what: &str) {
    if settings::current().verbose() {
        crate::kernel::message::Message::new(what).print();
    }
}

/// The file of the trace was cut off: to be ended by the next thread that looks.
static TRACE_LOST: AtomicBool = AtomicBool::new(false);

/// Whether the trace's file was cut off since the last call.
pub fn trace_was_lost() -> bool {
    TRACE_LOST.load(Ordering::Relaxed) && TRACE_LOST.swap(false, Ordering::AcqRel)
}
