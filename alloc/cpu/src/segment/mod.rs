//! The segment's writing side: a file that is mapped, grown part by part, and left behind when the process is killed.
//!
//! The layout is `poolscope_wire`'s. When no file can be had (no `/dev/shm`, full, read-only) the same layout lies
//! in private memory: the pool works the same, only nobody else can look.

pub mod bell;
mod blocks;
pub mod bus_error;
mod copy;
pub mod counters;
mod file;
pub mod history;
mod loss;
pub mod modules;
pub mod ownership;
mod process_start;
pub mod publish;
pub mod request;
mod room;
pub mod sequence;

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use poolscope_wire::{
    HEADER_LEN, HISTORY_LEN, Header, MAGIC, REGION_COUNT, Region, RegionEntry, VERSION, flags, state,
};

use crate::kernel::message::Message;
use crate::kernel::os;
use crate::layout::arena::ARENA_PAGE;
use crate::layout::size_class::CLASSES;
use crate::settings;
use counters::TierCounter;
use file::File;
use loss::Loss;
use room::Room;

pub use copy::copy;
pub use file::{
    create_beside, empty_beside, is_in_a_file, is_locked, keep_open, map_beside, remove_beside, room_beside,
};
pub use loss::{also_watch, heal, trace_was_lost};
pub use process_start::Start;
pub use room::PAUSE_NS as NO_ROOM_PAUSE_NS;

/// Bytes of what every segment begins with: the header and the history.
const HEAD_LEN: usize = HEADER_LEN + HISTORY_LEN;

/// Bytes that a region grows by at first; a quarter of what it has later on.
const GROWTH_MIN: u64 = 16 * 1024;

/// Most records in each region: when samples are taken, and when every allocation is recorded.
const CAPACITY: [(Region, u64, u64); REGION_COUNT] = [
    (Region::Tiers, 512, 512),
    (Region::Classes, 256, 256),
    (Region::Threads, 4096, 4096),
    (Region::Stacks, 1 << 16, 1 << 23),
    (Region::Frames, 1 << 21, 1 << 26),
    (Region::Modules, 2048, 2048),
    (Region::Live, 1 << 20, 1 << 24),
    (Region::Devices, 32, 32),
    (Region::DeviceMaps, 32, 32),
    (Region::Peaks, 1 << 16, 1 << 23),
];

/// What tells a segment from others.
#[derive(Clone, Copy)]
pub struct Identity {
    /// Random number in the file's name.
    pub generation: u64,
    /// Every allocation is recorded.
    pub exact: bool,
    /// It is a forked child's.
    pub forked: bool,
}

/// A mapped segment. Copies refer to the same mapping, which is never unmapped.
#[derive(Clone, Copy)]
pub struct Segment {
    /// The header. Before it lies a page of [`Private`].
    base: *mut u8,
}

/// What this process knows of its segment, in private memory:
/// a file that others can write to is not asked where things lie.
struct Private {
    regions: [RegionEntry; REGION_COUNT],
    /// Whose it is.
    pid: u32,
    /// What became of its file.
    loss: Loss,
    /// Whether there is room for more of it.
    room: Room,
    /// Nanoseconds of a span of its history; 0 before the first total.
    span_ns: AtomicU64,
}

/// Bytes before the header.
const PRIVATE_LEN: usize = 4096;
const _: () = assert!(size_of::<Private>() <= PRIVATE_LEN);

/// The segment that counters are published to.
static CURRENT: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());

impl Segment {
    /// The process's segment, once it has one.
    pub fn current() -> Option<Segment> {
        let base = CURRENT.load(Ordering::Acquire);
        (!base.is_null()).then_some(Segment { base })
    }

    /// Forgets the segment: this process is a forked child, and it is the parent's.
    pub fn detach() {
        CURRENT.store(core::ptr::null_mut(), Ordering::Release);
        file::forget();
    }

    /// Makes a segment for this process: in a file, or in private memory where no file can be had. `None` only without
    /// address space for one.
    pub fn create(identity: Identity) -> Option<Segment> {
        if settings::current().plain() {
            return Self::in_memory(identity);
        }
        let why = match Self::in_file(identity) {
            Ok(segment) => return Some(segment),
            Err(why) => why,
        };
        // A forked child inherits the verdict, and a second line would say nothing new.
        if settings::current().verbose() && !identity.forked {
            Message::new("no segment, other processes can't see this heap: ").text(why).print();
        }
        Self::in_memory(identity)
    }

    fn in_file(identity: Identity) -> Result<Segment, &'static str> {
        let (regions, len) = layout(identity.exact);
        let segment = Segment::reserve(regions, len).ok_or("there is no address space for it")?;
        let start = Start::of_this_process();
        // SAFETY: the addresses were just reserved for it.
        let file = match unsafe { file::create(identity.generation, &start, segment.base, len) } {
            Ok(file) => file,
            Err(why) => {
                // SAFETY: nobody else knows the mapping.
                unsafe { os::unmap(segment.base.sub(PRIVATE_LEN), PRIVATE_LEN + len) };
                return Err(why);
            }
        };
        bus_error::watch();
        loss::watch(&segment);
        if segment.begin(identity, start, Some(&file)) {
            return Ok(segment);
        }
        segment.discard();
        Err(file::NO_ROOM)
    }

    /// Makes a segment that only this process sees.
    pub fn in_memory(identity: Identity) -> Option<Segment> {
        let (regions, len) = layout(identity.exact);
        let segment = Segment::reserve(regions, len)?;
        // SAFETY: the header lies in what was just reserved.
        let usable = unsafe { os::commit(segment.base, HEAD_LEN) };
        (usable && segment.begin(identity, Start::of_this_process(), None)).then_some(segment)
    }

    /// Addresses for a segment of `len` bytes, and what is private of it.
    fn reserve(regions: [RegionEntry; REGION_COUNT], len: usize) -> Option<Segment> {
        let memory = os::reserve(PRIVATE_LEN + len);
        // SAFETY: the page lies in what was just reserved.
        if memory.is_null() || !unsafe { os::commit(memory, PRIVATE_LEN) } {
            return None;
        }
        let private = Private {
            regions,
            pid: os::process_id(),
            loss: Loss::default(),
            room: Room::default(),
            span_ns: AtomicU64::new(0),
        };
        // SAFETY: the page is usable, aligned, and nobody else's.
        unsafe { memory.cast::<Private>().write(private) };
        // SAFETY: the segment follows the page.
        Some(Segment { base: unsafe { memory.add(PRIVATE_LEN) } })
    }

    /// Fills the header and what every segment has from the start, in its file if that is still open. False if there is
    /// no room for that.
    fn begin(&self, identity: Identity, start: Start, file: Option<&File>) -> bool {
        fill_header(self.header(), identity, start, self.private().regions);
        let from_the_start = [(Region::Tiers, 1), (Region::Classes, CLASSES as u32), (Region::Stacks, 1)];
        if !from_the_start.into_iter().all(|(region, count)| self.grow(region, count, file)) {
            return false;
        }
        // Without room for it, threads are not told apart.
        self.grow(Region::Threads, 1, file);
        self.header().state = state::LIVE;
        core::sync::atomic::fence(Ordering::SeqCst);
        self.header().magic = MAGIC;
        true
    }

    /// Removes a segment that was just made and has no room for what it must hold.
    pub fn discard(self) {
        file::remove();
        file::forget();
        loss::forget(&self);
        // SAFETY: nobody else knows the mapping yet.
        unsafe { os::unmap(self.base.sub(PRIVATE_LEN), PRIVATE_LEN + self.len()) };
    }

    fn private(&self) -> &Private {
        // SAFETY: the page before the header is the segment's, as long as the process; what is changed in it is changed
        // through raw pointers or by atomics.
        unsafe { &*self.base.sub(PRIVATE_LEN).cast::<Private>() }
    }

    /// Bytes of addresses that it has, from the header on.
    fn len(&self) -> usize {
        let last = self.entry(Region::Peaks);
        // SAFETY: the entry is part of the private page.
        unsafe { ((*last).offset + (*last).capacity) as usize }
    }

    /// Where it lies: the first address and the one behind the last.
    pub fn addresses(&self) -> (usize, usize) {
        (self.base as usize - PRIVATE_LEN, self.base as usize + self.len())
    }

    /// The header with the history, and what exists of each region: address and bytes.
    fn committed_parts(&self) -> impl Iterator<Item = (*mut u8, usize)> {
        let (base, regions) = (self.base, self.private().regions);
        let parts = regions.into_iter().map(move |entry| {
            // SAFETY: regions lie in the mapping.
            (unsafe { base.add(entry.offset as usize) }, entry.committed as usize)
        });
        core::iter::once((base, HEAD_LEN)).chain(parts)
    }

    /// Makes this the segment that counters are published to.
    pub fn publish(&self) {
        CURRENT.store(self.base, Ordering::Release);
        request::watch(self);
        bell::watch(self);
    }

    /// The header. The caller holds the sampler's lock.
    #[allow(clippy::mut_from_ref, reason = "the header is shared memory behind a raw pointer, not part of self")]
    pub fn header(&self) -> &mut Header {
        // SAFETY: the header exists as long as the process; writers hold the sampler's lock.
        unsafe { &mut *self.base.cast::<Header>() }
    }

    /// The header, for words that are not only the sampler's.
    pub fn raw_header(&self) -> *mut Header {
        self.base.cast()
    }

    /// The word by which a recorder asks for a trace.
    pub fn trace_request(&self) -> *mut u64 {
        // SAFETY: a field of the header, which is mapped.
        unsafe { &raw mut (*self.raw_header()).trace_request }
    }

    fn entry(&self, region: Region) -> *mut RegionEntry {
        // SAFETY: the page before the header is the segment's, and the index is below the number of regions.
        unsafe {
            let private = self.base.sub(PRIVATE_LEN).cast::<Private>();
            (&raw mut (*private).regions).cast::<RegionEntry>().add(region as usize)
        }
    }

    /// Shows readers what is known of a region.
    fn show(&self, region: Region) {
        // SAFETY: both are the segment's, and the caller holds the sampler's lock; readers take whole words.
        unsafe {
            let shown = (&raw mut (*self.raw_header()).regions).cast::<RegionEntry>().add(region as usize);
            shown.write_volatile(self.entry(region).read());
        }
    }

    /// Most records of a region.
    pub fn capacity(&self, region: Region) -> usize {
        // SAFETY: the entry is part of the header.
        (unsafe { (*self.entry(region)).capacity } / region.record_len() as u64) as usize
    }

    /// Address of a record. Only records below a committed count may be touched.
    pub fn record<T>(&self, region: Region, index: u32) -> *mut T {
        // SAFETY: the offset lies in the mapping for every index below the region's capacity.
        unsafe {
            let offset = (*self.entry(region)).offset as usize + index as usize * region.record_len();
            self.base.add(offset).cast()
        }
    }

    /// Whether the first `count` records exist.
    pub fn is_committed(&self, region: Region, count: u32) -> bool {
        // SAFETY: as in `capacity`.
        u64::from(count) * region.record_len() as u64 <= unsafe { (*self.entry(region)).committed }
    }

    /// Records of a region that readers look at.
    pub fn count(&self, region: Region) -> u32 {
        // SAFETY: as in `capacity`.
        unsafe { (*self.entry(region)).count as u32 }
    }

    /// Records that exist.
    pub fn committed(&self, region: Region) -> u32 {
        // SAFETY: as in `capacity`.
        (unsafe { (*self.entry(region)).committed } / region.record_len() as u64) as u32
    }

    /// Offset and bytes of records.
    fn range(&self, region: Region, first: u32, count: u32) -> (u64, u64) {
        // SAFETY: as in `capacity`.
        let offset = unsafe { (*self.entry(region)).offset };
        (offset + u64::from(first) * region.record_len() as u64, u64::from(count) * region.record_len() as u64)
    }

    /// Whether other processes can have it.
    fn is_shared(&self) -> bool {
        file::is_there() && !self.private().loss.is_lost()
    }

    /// Gives the memory of whole pages of records back, which nobody touches before they are restored. To readers they
    /// are zero. Returns whether it worked.
    pub fn release(&self, region: Region, first: u32, count: u32) -> bool {
        let (offset, len) = self.range(region, first, count);
        // SAFETY: private memory of the segment's, whose pages nobody needs.
        let decommit = || unsafe { os::decommit(self.base.add(offset as usize), len as usize) };
        let done = if self.is_shared() { file::release(offset, len) } else { decommit() };
        if done {
            counters::sub(TierCounter::MetadataBytes, len);
        }
        done
    }

    /// Has whole pages of records exist again that were released: `count` records or, where the file system has no
    /// room for them, fewer, but no fewer than `least`. Returns how many do; 0 if it is full.
    pub fn restore(&self, region: Region, first: u32, count: u32, least: u32) -> u32 {
        let (offset, len) = self.range(region, first, count);
        let (_, least) = self.range(region, first, least);
        let had = if self.is_shared() { self.has_file_grow(offset, len, least).unwrap_or(0) } else { len };
        counters::add(TierCounter::MetadataBytes, had);
        (had / region.record_len() as u64) as u32
    }

    /// Makes the first `count` records exist. False if the region or the file system is full.
    pub fn commit(&self, region: Region, count: u32) -> bool {
        self.is_committed(region, count) || self.grow(region, count, None)
    }

    /// Has the file blocks from `offset` on: as many as there is room for of `most` bytes, and `least` at least. Says
    /// how many. A file that was cut off is left: then private memory takes its place.
    fn has_file_grow(&self, offset: u64, most: u64, least: u64) -> Option<u64> {
        if self.private().loss.is_lost() {
            return Some(most);
        }
        let ends = self.private().regions.into_iter().filter(|entry| entry.committed > 0);
        let file_len = ends.map(|entry| entry.offset + entry.committed).fold(HEAD_LEN as u64, u64::max);
        self.private().room.find(most, least, |len| match file::allocate(offset, len, file_len) {
            file::Allocated::Yes => true,
            file::Allocated::No => false,
            file::Allocated::CutOff => loss::lose(self),
        })
    }

    /// The same for more than there are, in the file if it is open.
    #[cold]
    #[inline(never)]
    fn grow(&self, region: Region, count: u32, file: Option<&File>) -> bool {
        // SAFETY: the caller holds the sampler's lock: one writer.
        let entry = unsafe { &mut *self.entry(region) };
        let need = (u64::from(count) * region.record_len() as u64).next_multiple_of(4096);
        let step = match region {
            Region::Tiers | Region::Classes => 4096,
            _ => GROWTH_MIN.max(entry.committed / 4).next_multiple_of(4096),
        };
        let wanted = need.max(entry.committed + step).min(entry.capacity);
        if wanted < need {
            return false;
        }
        let from = entry.offset + entry.committed;
        let (most, least) = (wanted - entry.committed, need - entry.committed);
        let more = match file {
            Some(file) => file.allocate(from, most).then_some(most),
            None => self.has_file_grow(from, most, least),
        };
        let Some(more) = more else { return false };
        let wanted = entry.committed + more;
        // SAFETY: the range lies in the mapping; what is usable already stays as it is.
        let usable = || unsafe { os::commit(self.base.add(entry.offset as usize), wanted as usize) };
        // SAFETY: nobody has been told of the range.
        let zeroes = || unsafe { os::map_zeroes_over(self.base.add(from as usize), more as usize) };
        let lost = self.private().loss.is_lost();
        if !(if lost { zeroes() } else { usable() }) {
            return false;
        }
        core::sync::atomic::fence(Ordering::Release);
        counters::add(TierCounter::MetadataBytes, more);
        entry.committed = wanted;
        self.show(region);
        true
    }

    /// Whether it was made by this process, and not by one that it was forked from.
    pub fn is_of(&self, pid: u32) -> bool {
        self.private().pid == pid
    }

    /// Gives back the addresses that a segment in an address space of `limit` bytes would not have. What exists stays.
    pub fn fit(&self, limit: usize) {
        let exact = self.header().flags & flags::EXACT != 0;
        let halvings = halvings(exact, limit);
        HALVINGS.fetch_max(halvings + 1, Ordering::Relaxed);
        for (region, small) in Region::ALL.into_iter().zip(layout_halved(exact, halvings).0) {
            // SAFETY: the caller holds the sampler's lock.
            let entry = unsafe { &mut *self.entry(region) };
            let keep = small.capacity.max(entry.committed);
            if keep < entry.capacity {
                // SAFETY: nothing behind the committed part is in use.
                unsafe { os::unmap(self.base.add((entry.offset + keep) as usize), (entry.capacity - keep) as usize) };
                entry.capacity = keep;
                self.show(region);
            }
        }
    }

    /// Tells readers that the first `count` records are there; the count never falls.
    pub fn raise_count(&self, region: Region, count: u32) {
        core::sync::atomic::fence(Ordering::Release);
        // SAFETY: as above.
        let entry = unsafe { &mut *self.entry(region) };
        if u64::from(count) > entry.count {
            entry.count = u64::from(count);
            self.show(region);
        }
    }
}

/// Halvings of the regions' capacities, plus one; 0 before the first segment. A child's segment has its parent's, so
/// that there is room for what it copies.
static HALVINGS: AtomicU32 = AtomicU32::new(0);

/// With this, the live table still has 1024 records, and the other large regions have 256.
const MAX_HALVINGS: u32 = 10;

/// Where the regions lie, and the bytes of the whole.
fn layout(exact: bool) -> ([RegionEntry; REGION_COUNT], usize) {
    if HALVINGS.load(Ordering::Relaxed) == 0 {
        HALVINGS.store(1 + halvings(exact, os::address_space_limit().min(os::data_limit())), Ordering::Relaxed);
    }
    layout_halved(exact, HALVINGS.load(Ordering::Relaxed) - 1)
}

/// Halvings with which a segment takes a 32nd of a limited address space. Under a limit of data it takes none of that,
/// but what the sampler has beside it does.
fn halvings(exact: bool, limit: usize) -> u32 {
    (0..MAX_HALVINGS).find(|&halvings| layout_halved(exact, halvings).1 <= limit / 32).unwrap_or(MAX_HALVINGS)
}

fn layout_halved(exact: bool, halvings: u32) -> ([RegionEntry; REGION_COUNT], usize) {
    let mut entries = [RegionEntry::ZERO; REGION_COUNT];
    let mut end = HEAD_LEN as u64;
    for (region, sampled, recorded) in CAPACITY {
        let records = if exact { recorded } else { sampled };
        let records = match region {
            Region::Tiers | Region::Classes => records,
            // These are few, and large.
            Region::Devices | Region::DeviceMaps => (records >> (halvings / 2)).max(2),
            Region::Threads => (records >> halvings).max(32),
            // Where all blocks are recorded, one without its stack is better than none.
            Region::Stacks | Region::Frames | Region::Peaks if exact && halvings > 0 => {
                (records >> (halvings + 2)).max(256)
            }
            _ => (records >> halvings).max(256),
        };
        let capacity = (records * region.record_len() as u64).next_multiple_of(4096);
        entries[region as usize] =
            RegionEntry { offset: end, capacity, record_len: region.record_len() as u32, ..RegionEntry::ZERO };
        end += capacity;
    }
    (entries, end as usize)
}

/// At a normal exit: removes the file, or says in it that the program ended if it is to be kept.
pub fn finish() {
    if let Some(segment) = Segment::current() {
        segment.header().state = state::EXITED;
    }
    if !settings::current().keep() {
        file::remove();
    }
}

/// Whether a function of the process is part of what the pool is part of. Where nobody says which libraries there are
/// (before glibc 2.35), a library that has the pool is taken to have it, too.
fn has_in_its_module(function: *const ()) -> bool {
    let own = fill_header as *const ();
    match poolscope_capture::module_range(own.addr()) {
        Some(module) => module.contains(&function.addr()),
        None => !os::is_in_executable(own),
    }
}

fn fill_header(header: &mut Header, identity: Identity, start: Start, regions: [RegionEntry; REGION_COUNT]) {
    header.version = VERSION;
    header.header_len = HEADER_LEN as u32;
    header.state = state::STARTING;
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    header.flags = flag(identity.exact, flags::EXACT)
        | flag(identity.forked, flags::FORKED)
        | flag(os::is_in_executable(fill_header as *const ()), flags::IN_EXECUTABLE)
        | flag(has_in_its_module(libc::malloc as *const ()), flags::SERVES_MALLOC);
    header.pid = os::process_id();
    header.generation = identity.generation;
    header.start_realtime_ns = os::clock_ns(libc::CLOCK_REALTIME);
    header.start_monotonic_ns = os::clock_ns(libc::CLOCK_MONOTONIC);
    header.page_bytes = ARENA_PAGE as u64;
    header.period_bytes = settings::current().period().max(1);
    header.regions = regions;
    header.history = HEADER_LEN as u64;
    if settings::current().plain() {
        return;
    }
    (header.parent_pid, header.uid) = (os::parent_id(), os::user_id());
    Start { ticks: header.start_ticks, boot_id: header.boot_id } = start;
    header.cmdline_len = os::read_file(c"/proc/self/cmdline", &mut header.cmdline) as u32;
    // SAFETY: the length bounds the write.
    let exe = os::keep_errno(|| unsafe {
        libc::readlink(c"/proc/self/exe".as_ptr(), header.exe.as_mut_ptr().cast(), header.exe.len())
    });
    header.exe_len = exe.max(0) as u32;
    header.recorder = settings::current().recorder() as u32;
}
