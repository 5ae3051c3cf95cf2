//! The segment's writing side: a file that is mapped, grown part by part, and left behind when the process is killed.
//!
//! The layout is `poolscope_wire`'s. When no file can be had (no `/dev/shm`, full, read-only) the same layout lies
//! in private memory: the pool works the same, only nobody else can look.

mod file;
mod process_start;

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use poolscope_wire::{HEADER_LEN, Header, MAGIC, REGION_COUNT, Region, RegionEntry, VERSION, flags, state};

use crate::arena::PAGE;
use crate::message::Message;
use crate::os;
use crate::settings;
use crate::size_class::CLASSES;
use crate::stats::{self, TierCounter};
use crate::tracer;

pub use file::{create_beside, is_locked, map_beside, remove_beside};
pub use process_start::Start;

/// Bytes that a region grows by at first; a quarter of what it has later on.
const GROWTH_MIN: u64 = 16 * 1024;

/// Most records in each region: when samples are taken, and when every allocation is recorded.
const CAPACITY: [(Region, u64, u64); REGION_COUNT] = [
    (Region::Tiers, 512, 512),
    (Region::Classes, 256, 256),
    (Region::Threads, 4096, 4096),
    (Region::Stacks, 1 << 16, 1 << 20),
    (Region::Frames, 1 << 21, 1 << 25),
    (Region::Modules, 2048, 2048),
    (Region::Live, 1 << 20, 1 << 24),
    (Region::Devices, 32, 32),
    (Region::DeviceMaps, 32, 32),
    (Region::Peaks, 1 << 16, 1 << 20),
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
    base: *mut u8,
}

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
        let (entries, len) = layout(identity.exact);
        let segment = Segment { base: file::create(identity.generation, len)? };
        if segment.begin(identity, entries) {
            return Ok(segment);
        }
        segment.discard();
        Err("its file system is full")
    }

    /// Makes a segment that only this process sees.
    pub fn in_memory(identity: Identity) -> Option<Segment> {
        let (entries, len) = layout(identity.exact);
        let segment = Segment { base: os::reserve(len) };
        // SAFETY: the header lies in what was just reserved.
        if segment.base.is_null() || !unsafe { os::commit(segment.base, HEADER_LEN) } {
            return None;
        }
        segment.begin(identity, entries).then_some(segment)
    }

    /// Fills the header and what every segment has from the start. False if there is no room for that.
    fn begin(&self, identity: Identity, entries: [RegionEntry; REGION_COUNT]) -> bool {
        fill_header(self.header(), identity, entries);
        let from_the_start = [(Region::Tiers, 1), (Region::Classes, CLASSES as u32), (Region::Stacks, 1)];
        if !from_the_start.into_iter().all(|(region, count)| self.commit(region, count)) {
            return false;
        }
        self.header().state = state::LIVE;
        core::sync::atomic::fence(Ordering::SeqCst);
        self.header().magic = MAGIC;
        true
    }

    /// Removes a segment that was just made and has no room for what it must hold.
    pub fn discard(self) {
        let last = self.header().regions[REGION_COUNT - 1];
        file::remove();
        file::forget();
        // SAFETY: nobody else knows the mapping yet.
        unsafe { os::unmap(self.base, (last.offset + last.capacity) as usize) };
    }

    /// Makes this the segment that counters are published to.
    pub fn publish(&self) {
        CURRENT.store(self.base, Ordering::Release);
        tracer::session::watch(self);
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
        // SAFETY: the index is below the number of regions.
        unsafe { (&raw mut (*self.base.cast::<Header>()).regions).cast::<RegionEntry>().add(region as usize) }
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

    /// Makes the first `count` records exist. False if the region or the file system is full.
    pub fn commit(&self, region: Region, count: u32) -> bool {
        self.is_committed(region, count) || self.grow(region, count)
    }

    #[cold]
    fn grow(&self, region: Region, count: u32) -> bool {
        // SAFETY: the caller holds the sampler's lock: one writer.
        let entry = unsafe { &mut *self.entry(region) };
        let need = (u64::from(count) * region.record_len() as u64).next_multiple_of(4096);
        let step = match region {
            Region::Tiers | Region::Classes => 4096,
            _ => GROWTH_MIN.max(entry.committed / 4).next_multiple_of(4096),
        };
        let wanted = need.max(entry.committed + step).min(entry.capacity);
        // SAFETY: the range lies in the mapping; what is usable already stays as it is.
        let usable = |from: u64, len: u64| unsafe { os::commit(self.base.add(from as usize), len as usize) };
        if wanted < need || !file::allocate(entry.offset, wanted) || !usable(entry.offset, wanted) {
            return false;
        }
        core::sync::atomic::fence(Ordering::Release);
        stats::add(TierCounter::MetadataBytes, wanted - entry.committed);
        entry.committed = wanted;
        true
    }

    /// Gives back the addresses that a segment in an address space of `limit` bytes would not have. What exists stays.
    pub fn fit(&self, limit: usize) {
        let exact = self.header().flags & flags::EXACT != 0;
        let halvings = halvings(exact, limit);
        HALVINGS.fetch_max(halvings + 1, Ordering::Relaxed);
        for (entry, small) in self.header().regions.iter_mut().zip(layout_halved(exact, halvings).0) {
            let keep = small.capacity.max(entry.committed);
            if keep < entry.capacity {
                // SAFETY: nothing behind the committed part is in use.
                unsafe { os::unmap(self.base.add((entry.offset + keep) as usize), (entry.capacity - keep) as usize) };
                entry.capacity = keep;
            }
        }
    }

    /// Tells readers that the first `count` records are there; the count never falls.
    pub fn raise_count(&self, region: Region, count: u32) {
        core::sync::atomic::fence(Ordering::Release);
        // SAFETY: as above.
        let entry = unsafe { &mut *self.entry(region) };
        entry.count = entry.count.max(u64::from(count));
    }
}

/// Halvings of the regions' capacities, plus one; 0 before the first segment. A child's segment has its parent's, so that
/// there is room for what it copies.
static HALVINGS: AtomicU32 = AtomicU32::new(0);

/// With this, the region of stacks still has 256 records.
const MAX_HALVINGS: u32 = 8;

/// Where the regions lie, and the bytes of the whole.
fn layout(exact: bool) -> ([RegionEntry; REGION_COUNT], usize) {
    if HALVINGS.load(Ordering::Relaxed) == 0 {
        HALVINGS.store(1 + halvings(exact, os::address_space_limit()), Ordering::Relaxed);
    }
    layout_halved(exact, HALVINGS.load(Ordering::Relaxed) - 1)
}

/// Halvings with which a segment takes a 32nd of a limited address space.
fn halvings(exact: bool, limit: usize) -> u32 {
    (0..MAX_HALVINGS).find(|&halvings| layout_halved(exact, halvings).1 <= limit / 32).unwrap_or(MAX_HALVINGS)
}

fn layout_halved(exact: bool, halvings: u32) -> ([RegionEntry; REGION_COUNT], usize) {
    let mut entries = [RegionEntry::ZERO; REGION_COUNT];
    let mut end = HEADER_LEN as u64;
    for (region, sampled, recorded) in CAPACITY {
        let records = if exact { recorded } else { sampled };
        let records = if records > 512 { (records >> halvings).max(256) } else { records };
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

fn fill_header(header: &mut Header, identity: Identity, regions: [RegionEntry; REGION_COUNT]) {
    header.version = VERSION;
    header.header_len = HEADER_LEN as u32;
    header.state = state::STARTING;
    header.flags = if identity.exact { flags::EXACT } else { 0 } | if identity.forked { flags::FORKED } else { 0 };
    header.pid = os::process_id();
    // SAFETY: system calls without arguments.
    unsafe {
        header.parent_pid = libc::getppid() as u32;
        header.uid = libc::geteuid();
    }
    Start { ticks: header.start_ticks, boot_id: header.boot_id } = Start::of_this_process();
    header.generation = identity.generation;
    header.start_realtime_ns = os::clock_ns(libc::CLOCK_REALTIME);
    header.start_monotonic_ns = os::clock_ns(libc::CLOCK_MONOTONIC);
    header.page_bytes = PAGE as u64;
    header.period_bytes = settings::current().period().max(1);
    header.regions = regions;
    header.cmdline_len = os::read_file(c"/proc/self/cmdline", &mut header.cmdline) as u32;
    // SAFETY: the length bounds the write.
    let exe = os::keep_errno(|| unsafe {
        libc::readlink(c"/proc/self/exe".as_ptr(), header.exe.as_mut_ptr().cast(), header.exe.len())
    });
    header.exe_len = exe.max(0) as u32;
}
