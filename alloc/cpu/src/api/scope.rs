//! Scopes of the leak checker: a thread records every allocation while it is in one.

use crate::api::device;
use crate::entry::{self, Entry};
use crate::layout::arena;
use crate::reach::{Table, kept};
use crate::sampler::{self, scoped};
use crate::segment::counters::{self, TierCounter};

pub use crate::sampler::scopes::Counts;

/// A block that is allocated now and was allocated in a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// Where it lies.
    pub address: usize,
    /// Bytes asked for.
    pub size: u64,
    /// Kernel id of the thread that allocated it.
    pub thread_id: u32,
    /// Which memory: one of [`device::kind`].
    pub kind: u16,
    /// Number of the device; 0 for host memory.
    pub device: u32,
}

/// Whether anything was ever allocated from the pool in this process.
pub fn pool_is_in_use() -> bool {
    counters::get(TierCounter::ThreadsStarted) > 0
}

/// Opens a scope within the one that this thread is in, and does not enter it: its number. `None` if nothing was
/// allocated from the pool yet.
pub fn open() -> Option<u32> {
    if !pool_is_in_use() {
        return None;
    }
    let Entry::Heap(entered) = entry::enter() else { return None };
    Some(scoped::open_scope(entered.slow, entered.heap.sampling.scope.get()))
}

/// Begins a scope of this thread: its number, and that of the scope it was in.
pub fn begin() -> Option<(u32, u32)> {
    let outer = current();
    let id = open()?;
    set(id);
    Some((id, outer))
}

/// Begins a scope of all threads that are in none. Every allocation has to be recorded; `None` if not.
pub fn begin_for_all() -> Option<u32> {
    if device::period() > 1 {
        return None;
    }
    let id = open()?;
    if let Entry::Heap(entered) = entry::enter() {
        scoped::set_scope_of_all(entered.slow, id);
    }
    Some(id)
}

/// Closes a scope. Threads that are still in it leave it by themselves.
pub fn close(scope: u32) {
    if let Entry::Heap(entered) = entry::enter() {
        scoped::close_scope(entered.slow, scope);
    }
}

/// Gives the blocks of a scope that are in use to the scope around it, or to none.
pub fn hand_over(scope: u32) {
    if let Entry::Heap(entered) = entry::enter() {
        scoped::hand_over_scope(entered.slow, scope);
    }
}

/// The scope that this thread is in; 0 if it is in none.
pub fn current() -> u32 {
    match entry::enter() {
        Entry::Heap(entered) => entered.heap.sampling.scope.get(),
        _ => 0,
    }
}

/// Whether a scope has not been closed.
pub fn is_open(scope: u32) -> bool {
    match entry::enter() {
        Entry::Heap(entered) => scoped::scope_is_open(entered.slow, scope),
        _ => false,
    }
}

/// What was counted for a scope, and for those in it; `None` if it is closed, or one of more than 255 that are open.
pub fn counts(scope: u32) -> Option<Counts> {
    match entry::enter() {
        Entry::Heap(entered) => scoped::scope_counts(entered.slow, scope),
        _ => None,
    }
}

/// Whether an address is one of the pool's memory.
pub fn is_of_pool(address: usize) -> bool {
    arena::is_of_arena(address)
}

/// Puts this thread into a scope that is open, or into none (0).
pub fn set(scope: u32) {
    if let Entry::Heap(entered) = entry::enter() {
        entered.heap.sampling.scope.set(scope);
        if entered.heap.records_all() {
            entered.heap.begin_recording(entered.slow);
        } else {
            entered.heap.end_recording();
        }
    }
    device::scope_changed();
}

/// Calls `f` with each block of a scope that is not freed, and with the words of its stack: return addresses, and calls
/// of functions that an interpreter ran ([`with_call`](crate::interpreter::with_call)). `f` runs under
/// the sampler's lock: it must not allocate or free.
pub fn visit_live(scope: u32, mut f: impl FnMut(LiveBlock, &[u64])) {
    let Entry::Heap(entered) = entry::enter() else { return };
    scoped::visit_scope(entered.slow, scope, |record, frames| {
        let block = LiveBlock {
            address: record.address as usize,
            size: record.size,
            thread_id: record.tid,
            kind: record.kind,
            device: record.device,
        };
        f(block, frames);
    });
}

/// Notes what statics and this thread's locals hold, for [`left`] at the scope's end.
pub fn note_statics(scope: u32) {
    kept::note(scope);
}

/// The blocks of a scope that are in use, and their bytes, but for those that a static or a thread-local keeps which
/// held nothing when [`note_statics`] was called.
pub fn left(scope: u32) -> (u64, u64) {
    let (mut blocks, mut bytes) = (0usize, 0);
    visit_live(scope, |block, _| {
        blocks += 1;
        bytes += block.size;
    });
    let all = (blocks as u64, bytes);
    let Some(mut table) = Table::new(blocks).filter(|_| blocks > 0) else { return all };
    let mut fits = true;
    visit_live(scope, |block, _| {
        let size = if block.kind == device::kind::HOST { block.size as usize } else { 0 };
        fits &= table.push(kept::Block { address: block.address, size, bytes: block.size });
    });
    if fits { kept::left(scope, &mut table) } else { all }
}

/// Samples of this process that found no room in the live table.
pub fn dropped() -> u64 {
    let Entry::Heap(entered) = entry::enter() else { return 0 };
    sampler::dropped(entered.slow)
}
