//! The segment's writing side: a file that is mapped, grown part by part, and left behind when the process is killed.
//!
//! The layout is `poolscope_wire`'s. When no file can be had (no `/dev/shm`, full, read-only) the same layout lies
//! in private memory: the pool works the same, only nobody else can look.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use poolscope_wire::{HEADER_LEN, Header, MAGIC, REGION_COUNT, Region, RegionEntry, VERSION, flags, state};

use crate::arena::PAGE;
use crate::message::{Message, decimal};
use crate::os;
use crate::settings;
use crate::size_class::CLASSES;
use crate::stats::{self, TierCounter};
use crate::tracer;

const PATH_MAX: usize = 512;
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

/// Path of the segment's file, for growing and removing it; empty if there is no file.
static mut PATH: [u8; PATH_MAX] = [0; PATH_MAX];
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
        // SAFETY: the caller holds the sampler's lock, as all who touch the path do.
        unsafe { PATH[0] = 0 };
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
        let segment = Segment { base: create_file(identity.generation, len)? };
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
        let path = &raw mut PATH;
        // SAFETY: the caller holds the sampler's lock; nobody else knows the mapping yet.
        unsafe {
            os::keep_errno(|| libc::unlink(path.cast()));
            (*path)[0] = 0;
            os::unmap(self.base, (last.offset + last.capacity) as usize);
        }
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
        if wanted < need || !allocate(entry.offset, wanted) || !usable(entry.offset, wanted) {
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
    let path = &raw const PATH;
    // SAFETY: the path is only changed under the sampler's lock, when a segment is made.
    unsafe {
        if !settings::current().keep() && (*path)[0] != 0 {
            os::keep_errno(|| libc::unlink(path.cast()));
        }
    }
}

/// Allocates the file's blocks up to `offset + len`, so that touching them can't fail.
fn allocate(offset: u64, len: u64) -> bool {
    let path = &raw const PATH;
    // SAFETY: the path is a string that ends with zero; the caller holds the sampler's lock.
    os::keep_errno(|| unsafe {
        if (*path)[0] == 0 {
            return true;
        }
        let fd = os::open(path.cast(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0);
        if fd < 0 {
            return false;
        }
        let done = libc::posix_fallocate(fd, offset as i64, len as i64) == 0;
        os::close(fd);
        done
    })
}

/// The path of a file beside the segment's, whose name ends with `suffix`. `None` if the segment has no file.
fn path_beside(suffix: &str) -> Option<PathBuffer> {
    let mut path = PathBuffer::new();
    let own = &raw const PATH;
    // SAFETY: the path is a string that ends with zero, and only changes when a segment is made.
    let own = unsafe { CStr::from_ptr((*own).as_ptr().cast()) };
    if own.is_empty() {
        return None;
    }
    path.push(own.to_bytes());
    path.push(suffix.as_bytes());
    (!path.overflow).then_some(path)
}

/// Makes a file of `len` bytes beside the segment's and maps it; one of this name that is there goes. `None` without a
/// folder or room.
pub fn create_beside(suffix: &str, len: usize) -> Option<*mut u8> {
    let path = path_beside(suffix)?;
    // SAFETY: as in `create_file`.
    os::keep_errno(|| unsafe {
        libc::unlink(path.as_ptr());
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        let fd = os::open(path.as_ptr(), flags, 0o600);
        map_part(fd, 0, len)
    })
}

/// Makes `len` bytes from `offset` on of a file beside the segment's exist, and maps them. `None` without room.
pub fn map_beside(suffix: &str, offset: u64, len: usize) -> Option<*mut u8> {
    let path = path_beside(suffix)?;
    // SAFETY: as above.
    os::keep_errno(|| unsafe {
        let fd = os::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0);
        map_part(fd, offset, len)
    })
}

/// Maps a part of a file, after its blocks were allocated so that touching them can't fail; closes the file. A forked
/// child does not get the mapping.
///
/// # Safety
/// `fd` is the caller's, or negative.
unsafe fn map_part(fd: libc::c_int, offset: u64, len: usize) -> Option<*mut u8> {
    if fd < 0 {
        return None;
    }
    // SAFETY: system calls on a descriptor of the caller's.
    unsafe {
        let allocated = libc::posix_fallocate(fd, offset as i64, len as i64) == 0;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let p = if allocated {
            libc::mmap(core::ptr::null_mut(), len, access, libc::MAP_SHARED, fd, offset as i64)
        } else {
            libc::MAP_FAILED
        };
        os::close(fd);
        if p == libc::MAP_FAILED {
            return None;
        }
        libc::madvise(p, len, libc::MADV_DONTFORK);
        Some(p.cast())
    }
}

/// Removes a file beside the segment's.
pub fn remove_beside(suffix: &str) {
    if let Some(path) = path_beside(suffix) {
        // SAFETY: a string that ends with zero.
        os::keep_errno(|| unsafe { libc::unlink(path.as_ptr()) });
    }
}

/// Whether another process has the segment's file locked (`flock`), as a recorder does as long as it lives.
pub fn is_locked() -> bool {
    let Some(path) = path_beside("") else { return false };
    // SAFETY: system calls on a string that ends with zero and on the descriptor that came of it.
    os::keep_errno(|| unsafe {
        let fd = os::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0);
        if fd < 0 {
            return false;
        }
        let locked = libc::flock(fd, libc::LOCK_SH | libc::LOCK_NB) != 0;
        os::close(fd);
        locked
    })
}

/// What tells this process from others that had its id: clock ticks after boot when it started, and the boot.
pub fn start_of_this_process() -> (u64, [u8; 16]) {
    let start = Start::of_this_process();
    (start.ticks, start.boot_id)
}

/// Makes and maps the file.
fn create_file(generation: u64, len: usize) -> Result<*mut u8, &'static str> {
    let mut path = PathBuffer::new();
    // SAFETY: system calls on strings that end with zero; the descriptor is closed on every way out.
    os::keep_errno(|| unsafe {
        let uid = libc::geteuid();
        match settings::current().dir() {
            Some(dir) => path.push(dir.to_bytes()),
            None => {
                path.push(b"/dev/shm/poolscope-");
                path.push_number(u64::from(uid));
            }
        }
        libc::mkdir(path.as_ptr(), 0o700);
        let mut info: libc::stat = core::mem::zeroed();
        if libc::lstat(path.as_ptr(), &raw mut info) != 0 || info.st_mode & libc::S_IFMT != libc::S_IFDIR {
            return Err("its folder can't be made");
        }
        if info.st_uid != uid || info.st_mode & 0o022 != 0 {
            return Err("its folder belongs to another user, or others may write to it");
        }
        let pid = os::process_id();
        remove_older(path.as_ptr(), pid, &Start::of_this_process());
        path.push(b"/");
        path.push_number(u64::from(pid));
        path.push(b".");
        path.push_hex(generation);
        if path.overflow {
            return Err("the path of its folder is too long");
        }
        let fd = os::open(
            path.as_ptr(),
            libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOFOLLOW,
            0o600,
        );
        if fd < 0 {
            return Err("its file can't be made");
        }
        let allocated = libc::posix_fallocate(fd, 0, HEADER_LEN as i64) == 0;
        let p = if allocated {
            libc::mmap(core::ptr::null_mut(), len, libc::PROT_NONE, libc::MAP_SHARED | libc::MAP_NORESERVE, fd, 0)
        } else {
            libc::MAP_FAILED
        };
        os::close(fd);
        if p == libc::MAP_FAILED || !os::commit(p.cast(), HEADER_LEN) {
            libc::unlink(path.as_ptr());
            return Err(if allocated { "it can't be mapped" } else { "its file system is full" });
        }
        (&raw mut PATH).write(path.bytes);
        Ok(p.cast())
    })
}

/// What tells a process from others that had its id before: from byte [`Start::OFFSET`] of a segment's header.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Start {
    ticks: u64,
    boot_id: [u8; 16],
}

impl Start {
    const OFFSET: libc::off_t = core::mem::offset_of!(Header, start_ticks) as libc::off_t;

    fn of_this_process() -> Start {
        Start { ticks: start_ticks(), boot_id: boot_id() }
    }

    /// What a segment says of its process. `None` if it can't be read.
    ///
    /// # Safety
    /// `dir` is an open folder.
    unsafe fn of_segment(dir: libc::c_int, name: &CStr) -> Option<Start> {
        let mut start = Start { ticks: 0, boot_id: [0; 16] };
        // SAFETY: the call writes to `start` at most its size, of which any bytes are a value. Not by the C library's
        // functions, at which a cancelled thread ends.
        let read = unsafe {
            let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
            let fd = libc::syscall(libc::SYS_openat, dir, name.as_ptr(), flags, 0) as libc::c_int;
            if fd < 0 {
                return None;
            }
            let read = libc::syscall(libc::SYS_pread64, fd, &raw mut start, size_of::<Start>(), Self::OFFSET);
            os::close(fd);
            read
        };
        (read == size_of::<Start>() as i64).then_some(start)
    }
}

const _: () = assert!(core::mem::offset_of!(Header, boot_id) == core::mem::offset_of!(Header, start_ticks) + 8);

/// Removes the segments of earlier images of this process (`exec` keeps the pid). Those of dead processes that had the same
/// id stay: somebody may still want to read them.
///
/// # Safety
/// `dir` is a string that ends with zero.
unsafe fn remove_older(dir: *const libc::c_char, pid: u32, start: &Start) {
    let mut prefix = PathBuffer::new();
    prefix.push_number(u64::from(pid));
    prefix.push(b".");
    // SAFETY: the buffer bounds what the kernel writes; records are walked within the length that it returned. The C
    // library's readdir would allocate.
    unsafe {
        let fd = os::open(dir, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0);
        if fd < 0 {
            return;
        }
        let mut buffer = [0u64; 512];
        loop {
            let n = libc::syscall(libc::SYS_getdents64, fd, buffer.as_mut_ptr(), size_of_val(&buffer));
            if n <= 0 {
                break;
            }
            let mut at = 0;
            while at < n as usize {
                let entry = buffer.as_ptr().cast::<u8>().add(at);
                // struct linux_dirent64: ino u64, off i64, reclen u16, type u8, name.
                let length = entry.add(16).cast::<u16>().read_unaligned();
                let name = CStr::from_ptr(entry.add(19).cast());
                if name.to_bytes().starts_with(&prefix.bytes[..prefix.len])
                    && Start::of_segment(fd, name).is_some_and(|found| found == *start)
                {
                    libc::unlinkat(fd, name.as_ptr(), 0);
                }
                at += usize::from(length.max(1));
            }
        }
        os::close(fd);
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
    header.start_ticks = start_ticks();
    header.boot_id = boot_id();
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

/// Field 22 of `/proc/self/stat`; the second field is in parentheses and may contain spaces.
fn start_ticks() -> u64 {
    let mut buffer = [0u8; 1024];
    let len = os::read_file(c"/proc/self/stat", &mut buffer);
    let text = &buffer[..len];
    let Some(close) = text.iter().rposition(|&b| b == b')') else { return 0 };
    let field = text[close..].split(|&b| b == b' ').nth(20).unwrap_or(&[]);
    field.iter().fold(0, |n, &b| n * 10 + u64::from(b.wrapping_sub(b'0').min(9)))
}

fn boot_id() -> [u8; 16] {
    let mut buffer = [0u8; 64];
    let len = os::read_file(c"/proc/sys/kernel/random/boot_id", &mut buffer);
    let mut id = [0; 16];
    let digits = buffer[..len].iter().filter_map(|&b| (b as char).to_digit(16));
    for (i, digit) in digits.take(32).enumerate() {
        id[i / 2] = id[i / 2] << 4 | digit as u8;
    }
    id
}

/// A path that ends with zero, under construction.
struct PathBuffer {
    bytes: [u8; PATH_MAX],
    len: usize,
    overflow: bool,
}

impl PathBuffer {
    fn new() -> Self {
        PathBuffer { bytes: [0; PATH_MAX], len: 0, overflow: false }
    }

    fn as_ptr(&self) -> *const libc::c_char {
        self.bytes.as_ptr().cast()
    }

    fn push(&mut self, part: &[u8]) {
        match self.bytes.get_mut(self.len..self.len + part.len()) {
            Some(place) if self.len + part.len() < PATH_MAX => {
                place.copy_from_slice(part);
                self.len += part.len();
            }
            _ => self.overflow = true,
        }
    }

    fn push_number(&mut self, value: u64) {
        let (digits, first) = decimal(value);
        self.push(&digits[first..]);
    }

    fn push_hex(&mut self, value: u64) {
        let digits: [u8; 16] = core::array::from_fn(|i| b"0123456789abcdef"[(value >> (60 - 4 * i) & 15) as usize]);
        self.push(&digits);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::format;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn segments_of_this_process_are_replaced_and_those_of_dead_ones_with_its_id_stay() {
        let folder = std::env::temp_dir().join(format!("psc-older-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let ours = Start::of_this_process();
        let write = |name: &str, ticks: u64, boot_id: [u8; 16]| {
            let mut bytes = std::vec![0; HEADER_LEN];
            bytes[40..48].copy_from_slice(&ticks.to_ne_bytes());
            bytes[48..64].copy_from_slice(&boot_id);
            std::fs::write(folder.join(name), bytes).unwrap();
        };
        write("77.0001", ours.ticks, ours.boot_id);
        write("77.0002", ours.ticks - 1, ours.boot_id);
        write("77.0003", ours.ticks, [0; 16]);
        write("771.0001", ours.ticks, ours.boot_id);
        std::fs::write(folder.join("77.0004"), "no segment").unwrap();
        let path = CString::new(folder.as_os_str().as_bytes()).unwrap();
        // SAFETY: a string that ends with zero.
        unsafe { remove_older(path.as_ptr(), 77, &ours) };
        let mut left: std::vec::Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(left, ["77.0002", "77.0003", "77.0004", "771.0001"]);
    }
}
