//! Blocks that are not this pool's: device memory, recorded in the same segment as the host's.
//!
//! The device pools decide which of their blocks are sampled, and find the record again when such a block is freed.
//! Here the stack is captured, and the block is written into the live table and into the totals of its stack.

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use poolscope_wire::trace::DeviceEvent;

use crate::api::script::say_call;
use crate::entry::{self, Entry};
use crate::reach;
use crate::sampler;
use crate::settings;
use crate::tracer;

pub use poolscope_wire::holders::Sampled;
pub use poolscope_wire::kind;
pub use sampler::UNRECORDED;
pub use sampler::device_records::{Block, HOLDER_FRAMES, Holder, State};

/// A block of device memory that is traced.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TracedBlock {
    /// Where it lies, as the device knows it.
    pub address: u64,
    /// Bytes that the program asks for; nothing where it is freed.
    pub size: u64,
    /// Handle of the stream that it is allocated or freed on.
    pub stream: u64,
    /// Number of the device.
    pub device: u32,
    /// [`kind::DEVICE`] or [`kind::PINNED`].
    pub kind: u16,
}

impl TracedBlock {
    fn event(&self, size: Option<u64>) -> DeviceEvent {
        let TracedBlock { address, stream, device, kind, .. } = *self;
        DeviceEvent { kind, device, address, stream, size, slot: 0 }
    }
}

/// Mean bytes between two samples for the calling thread: 1 where every allocation is to be recorded.
pub fn period() -> u64 {
    match entry::enter() {
        Entry::Heap(entered) => {
            // As in [`publish`]: a program that allocates comes by here at each sample.
            tracer::poll(entered.slow);
            if entered.heap.records_all() { 1 } else { sampler::period() }
        }
        _ => sampler::period(),
    }
}

/// Samples a second that all threads together may take before their period rises; 0: as many as there are.
pub fn sample_rate() -> u64 {
    settings::current().sample_rate()
}

/// Records a block, with the calling thread's stack. The token is for [`freed`]; [`UNRECORDED`] if there is no room.
pub fn allocated(block: &Block) -> u32 {
    match entry::enter() {
        Entry::Heap(entered) => sampler::record_foreign(&entered, block),
        _ => UNRECORDED,
    }
}

/// Takes the record of a block out that is about to be freed. Its pool, whose place this is, has given out so many bytes
/// with the block, and without it.
pub fn freed(token: u32, address: u64, place: u32, in_use: [u64; 2]) {
    if let Entry::Heap(entered) = entry::enter() {
        sampler::forget_foreign(&entered, token, address, (place, in_use));
    }
}

/// A place for a pool's [`State`] in the segment. `None` if there are too many pools.
pub fn attach() -> Option<u32> {
    match entry::enter() {
        Entry::Heap(entered) => sampler::attach(&entered),
        _ => None,
    }
}

/// Takes what was published at a place away: the pool is gone.
pub fn detach(place: u32) {
    if let Entry::Heap(entered) = entry::enter() {
        sampler::detach(&entered, place);
    }
}

/// Publishes what a pool says of itself.
pub fn publish(place: u32, state: &State<'_>) {
    if let Entry::Heap(entered) = entry::enter() {
        // Nobody else may look, where the host's memory comes from another allocator.
        tracer::poll(entered.slow);
        sampler::publish_device(&entered, place, state);
    }
}

/// The stacks whose blocks hold the most bytes of a device's memory ([`kind::DEVICE`] or [`kind::PINNED`]), the largest
/// first, and in `all` what all stacks hold. Returns how many of `into` were filled.
pub fn holders(device: u32, kind: u16, all: &mut Sampled, into: &mut [Holder]) -> usize {
    match entry::enter() {
        Entry::Heap(entered) => sampler::device_holders(&entered, device, kind, all, into),
        _ => 0,
    }
}

/// Has the bit [`TRACED`](poolscope_wire::trace::TRACED) set in a pool's word while its blocks are to be traced, by
/// [`trace_allocated`] and [`trace_freed`]. False if there are too many pools.
///
/// # Safety
/// The word stays where it is until [`unwatch`].
pub unsafe fn watch(word: *const AtomicU64) -> bool {
    match entry::enter() {
        // SAFETY: the caller's.
        Entry::Heap(entered) => unsafe { tracer::add_pool(entered.slow, word) },
        _ => false,
    }
}

/// Leaves the word alone from now on.
pub fn unwatch(word: *const AtomicU64) {
    if let Entry::Heap(entered) = entry::enter() {
        tracer::remove_pool(entered.slow, word);
    }
}

/// Traces a block that was allocated, with the calling thread's stack, if a recorder listens.
#[inline(never)]
pub fn trace_allocated(block: &TracedBlock) {
    if let Entry::Heap(entered) = entry::enter() {
        tracer::device(entered.heap, entered.slow, block.event(Some(block.size)));
    }
}

/// Traces a block that is about to be freed, if a recorder listens.
#[inline(never)]
pub fn trace_freed(block: &TracedBlock) {
    if let Entry::Heap(entered) = entry::enter() {
        tracer::device(entered.heap, entered.slow, block.event(None));
    }
}

static ON_SCOPE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Has `f` called in every thread that enters or leaves a scope of the leak checker: its [`period`] changes.
pub fn on_scope(f: extern "C" fn()) {
    ON_SCOPE.store(f as *mut (), Ordering::Release);
    // What that library has of device addresses is the pools' own.
    reach::note_device_library(f as usize);
}

/// The calling thread has entered or left a scope.
pub(crate) fn scope_changed() {
    let f = ON_SCOPE.load(Ordering::Acquire);
    if !f.is_null() {
        // SAFETY: only `on_scope` stores there, and it takes just such a function.
        let f = unsafe { core::mem::transmute::<*mut (), extern "C" fn()>(f) };
        f();
    }
}

/// What [`Table`] looks like: a change of it, of [`Block`], of [`StateParts`], of [`TracedBlock`] or of [`Holder`] is a
/// new version.
pub const TABLE_VERSION: u32 = 8;

/// The functions above for another library of the process, which then records in this one's segment. `libpoolscope.so`
/// hands it out by `poolscope_device_table`.
#[repr(C)]
pub struct Table {
    /// [`TABLE_VERSION`].
    pub version: u32,
    /// [`period`].
    pub period: extern "C" fn() -> u64,
    /// [`sample_rate`].
    pub sample_rate: extern "C" fn() -> u64,
    /// [`allocated`].
    pub allocated: extern "C" fn(&Block) -> u32,
    /// [`freed`], with both numbers of bytes by themselves.
    pub freed: extern "C" fn(u32, u64, u32, u64, u64),
    /// [`attach`]; `u32::MAX` if there are too many pools.
    pub attach: extern "C" fn() -> u32,
    /// [`detach`].
    pub detach: extern "C" fn(u32),
    /// [`publish`].
    pub publish: for<'a> extern "C" fn(u32, &StateParts<'a>),
    /// [`on_scope`].
    pub on_scope: extern "C" fn(extern "C" fn()),
    /// [`holders`]: the slice as its beginning and its length.
    pub holders: unsafe extern "C" fn(u32, u16, &mut Sampled, *mut Holder, usize) -> usize,
    /// [`say_call`]: the text as its beginning and its length.
    pub say_call: unsafe extern "C" fn(u64, *mut u8, usize) -> usize,
    /// [`watch`].
    pub watch: unsafe extern "C" fn(*const AtomicU64) -> bool,
    /// [`unwatch`].
    pub unwatch: extern "C" fn(*const AtomicU64),
    /// [`trace_allocated`].
    pub trace_allocated: extern "C" fn(&TracedBlock),
    /// [`trace_freed`].
    pub trace_freed: extern "C" fn(&TracedBlock),
}

/// [`State`], as C can have it.
#[repr(C)]
pub struct StateParts<'a> {
    device: u32,
    kind: u16,
    name_len: usize,
    name: *const u8,
    memory_bytes: u64,
    counters_len: usize,
    counters: *const u64,
    cells_len: usize,
    cells: *const u8,
    cell_bytes: u64,
    places_len: usize,
    places: *const u64,
    streams_len: usize,
    streams: *const u64,
    state: core::marker::PhantomData<&'a ()>,
}

impl<'a> From<&State<'a>> for StateParts<'a> {
    fn from(state: &State<'a>) -> StateParts<'a> {
        StateParts {
            device: state.device,
            kind: state.kind,
            name_len: state.name.len(),
            name: state.name.as_ptr(),
            memory_bytes: state.memory_bytes,
            counters_len: state.counters.len(),
            counters: state.counters.as_ptr(),
            cells_len: state.cells.len(),
            cells: state.cells.as_ptr(),
            cell_bytes: state.cell_bytes,
            places_len: state.places.len(),
            places: state.places.as_ptr(),
            streams_len: state.streams.len(),
            streams: state.streams.as_ptr(),
            state: core::marker::PhantomData,
        }
    }
}

impl<'a> StateParts<'a> {
    fn state(&self) -> State<'a> {
        // SAFETY: the parts are those of the slices of a `State`, by the only way to make them.
        unsafe {
            State {
                device: self.device,
                kind: self.kind,
                name: core::slice::from_raw_parts(self.name, self.name_len),
                memory_bytes: self.memory_bytes,
                counters: core::slice::from_raw_parts(self.counters, self.counters_len),
                cells: core::slice::from_raw_parts(self.cells, self.cells_len),
                cell_bytes: self.cell_bytes,
                places: core::slice::from_raw_parts(self.places, self.places_len),
                streams: core::slice::from_raw_parts(self.streams, self.streams_len),
            }
        }
    }
}

/// The functions of this copy of the pool.
pub static TABLE: Table = Table {
    version: TABLE_VERSION,
    period: table::period,
    sample_rate: table::sample_rate,
    allocated: table::allocated,
    freed: table::freed,
    attach: table::attach,
    detach: table::detach,
    publish: table::publish,
    on_scope: table::on_scope,
    holders: table::holders,
    say_call: table::say_call,
    watch: table::watch,
    unwatch: table::unwatch,
    trace_allocated: table::trace_allocated,
    trace_freed: table::trace_freed,
};

mod table {
    use core::sync::atomic::AtomicU64;

    use super::{Block, Holder, Sampled, StateParts, TracedBlock};

    pub(super) extern "C" fn period() -> u64 {
        super::period()
    }

    pub(super) extern "C" fn sample_rate() -> u64 {
        super::sample_rate()
    }

    pub(super) extern "C" fn allocated(block: &Block) -> u32 {
        super::allocated(block)
    }

    pub(super) extern "C" fn freed(token: u32, address: u64, place: u32, with: u64, without: u64) {
        super::freed(token, address, place, [with, without]);
    }

    pub(super) extern "C" fn attach() -> u32 {
        super::attach().unwrap_or(u32::MAX)
    }

    pub(super) extern "C" fn detach(place: u32) {
        super::detach(place);
    }

    pub(super) extern "C" fn publish(place: u32, state: &StateParts<'_>) {
        super::publish(place, &state.state());
    }

    pub(super) extern "C" fn on_scope(f: extern "C" fn()) {
        super::on_scope(f);
    }

    pub(super) unsafe extern "C" fn holders(
        device: u32,
        kind: u16,
        all: &mut Sampled,
        into: *mut Holder,
        most: usize,
    ) -> usize {
        // SAFETY: the caller hands over a slice in two parts.
        super::holders(device, kind, all, unsafe { core::slice::from_raw_parts_mut(into, most) })
    }

    pub(super) unsafe extern "C" fn say_call(word: u64, into: *mut u8, room: usize) -> usize {
        // SAFETY: the caller hands over a slice in two parts.
        super::say_call(word, unsafe { core::slice::from_raw_parts_mut(into, room) })
    }

    pub(super) unsafe extern "C" fn watch(word: *const AtomicU64) -> bool {
        // SAFETY: the caller's.
        unsafe { super::watch(word) }
    }

    pub(super) extern "C" fn unwatch(word: *const AtomicU64) {
        super::unwatch(word);
    }

    pub(super) extern "C" fn trace_allocated(block: &TracedBlock) {
        super::trace_allocated(block);
    }

    pub(super) extern "C" fn trace_freed(block: &TracedBlock) {
        super::trace_freed(block);
    }
}
