//! The modules that frames were seen in: an append-only table, read without a lock.
//!
//! An entry is written once, under a lock that is only ever tried, then published by the count (release). A module
//! that another one replaced keeps its entry, marked; the other one gets an entry of its own. So an index means one
//! module forever, and what framehop makes of a module's tables stays true. What it made for a replaced one is never
//! used again. It is not given back either, 0.4 KiB at most: a capture may be just leaving it, and takes no lock.
//!
//! Nothing is allocated under the lock: a thread that forks may hold locks of the allocator when it takes this one.
//! Where the table is full or the lock taken, a capture does without the module's tables.

use crate::elf::{self, BUILD_ID_MAX, Headers};
use crate::loader::{self, Object};
use crate::symbols::{self, Symbol};
use crate::system::{self, FileState};
use crate::unwind_tables::Tables;
use crate::unwinder::Unwinder;
use crate::workbench;
use core::ffi::CStr;
use core::hint;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU16, AtomicU64, AtomicUsize, Ordering};

/// Modules that the table can hold, those replaced included.
pub const MAX_MODULES: usize = 2048;

/// Bytes of a path that are kept.
pub const PATH_MAX: usize = 432;

/// An executable or library in which a frame was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleInfo {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// What the loader added to the file's addresses.
    pub load_bias: u64,
    /// The note `NT_GNU_BUILD_ID`, cut to 32 bytes; empty if there is none.
    pub build_id: &'static [u8],
    /// The file, cut to [`PATH_MAX`] bytes; empty if it has no name.
    pub path: &'static [u8],
    /// The file as it was when the module was first seen, if it has no build id; `None` if that is not known.
    pub file: Option<FileState>,
    /// It was there before the first capture, and is never unloaded.
    pub stays: bool,
    /// Another module has been seen at some of these addresses since.
    pub replaced: bool,
}

/// What the walk needs of a module.
#[derive(Clone, Copy)]
pub(crate) struct Module {
    /// Index in the table, or [`UNLISTED`].
    pub(crate) index: u16,
    /// First address.
    pub(crate) start: usize,
    /// Address after the last.
    pub(crate) end: usize,
    /// Its code, as far as it can be read.
    pub(crate) code: (usize, usize),
    /// It is never unloaded.
    pub(crate) stays: bool,
    /// Steps by its unwind tables, if it has any and is in the table.
    pub(crate) unwinder: Option<&'static Unwinder>,
}

/// The index of a module that is not in the table.
pub(crate) const UNLISTED: u16 = u16::MAX;

impl Module {
    /// Whether `address` lies in it.
    #[inline]
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.start <= address && address < self.end
    }

    /// Whether it is in the table: else nothing is known of it but where it lies.
    #[inline]
    pub(crate) fn is_listed(&self) -> bool {
        self.index != UNLISTED
    }
}

/// One entry, complete before it is published and never written again but for `replaced`.
struct Entry {
    index: u16,
    object: Object,
    code: (usize, usize),
    tables: Option<Tables>,
    unwinder: Option<Unwinder>,
    load_bias: usize,
    fingerprint: u64,
    build_id: [u8; BUILD_ID_MAX],
    build_id_at: usize,
    build_id_len: u8,
    /// Is never unloaded, so that it need not be confirmed.
    stays: bool,
    replaced: AtomicBool,
    path: [u8; PATH_MAX],
    path_len: u16,
    file: Option<FileState>,
}

/// Slots of the index by start address, each an entry's number plus one.
const SLOTS: usize = MAX_MODULES * 2;

struct Table {
    locked: AtomicBool,
    count: AtomicUsize,
    generation: AtomicU64,
    /// Changes whenever a module is found to have replaced others.
    epoch: AtomicU64,
    /// The newest entry for each start address, by open addressing.
    slots: [AtomicU16; SLOTS],
    /// Where the entries lie. Entries below `count` are only read,
    /// those above are written by the holder of `locked` only.
    chunks: [AtomicPtr<Entry>; MAX_MODULES / CHUNK],
}

/// Entries of a chunk, which is mapped when the first of them is written: programs with a limit of data or of locked
/// memory, or which are never sampled, have no memory for modules that they don't have.
const CHUNK: usize = 32;

static TABLE: Table = Table {
    locked: AtomicBool::new(false),
    count: AtomicUsize::new(0),
    generation: AtomicU64::new(0),
    epoch: AtomicU64::new(0),
    slots: [const { AtomicU16::new(0) }; SLOTS],
    chunks: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_MODULES / CHUNK],
};

/// Times that the lock is tried: under a tenth of a millisecond. Its holder runs for less, unless it was interrupted or
/// forks.
const LOCK_TRIES: usize = 4096;

impl Table {
    fn try_lock(&self) -> bool {
        for _ in 0..LOCK_TRIES {
            if self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return true;
            }
            hint::spin_loop();
        }
        false
    }

    fn unlock(&self) {
        self.locked.store(false, Ordering::Release);
    }

    fn entry(&self, index: usize) -> Option<&Entry> {
        let chunk = self.chunks.get(index / CHUNK).filter(|_| index < self.count.load(Ordering::Acquire))?;
        let chunk = chunk.load(Ordering::Relaxed);
        // SAFETY: entries below `count` are complete, their chunks stay mapped, and `count` was read with acquire.
        Some(unsafe { &*chunk.wrapping_add(index % CHUNK) })
    }

    /// Where the entry at `index` is to be written. `None` without memory, and where the table ends.
    ///
    /// # Safety
    ///
    /// The caller holds the lock.
    unsafe fn place(&self, index: usize) -> Option<*mut Entry> {
        let chunk = self.chunks.get(index / CHUNK)?;
        let mut start = chunk.load(Ordering::Relaxed);
        if start.is_null() {
            start = system::map(CHUNK.wrapping_mul(size_of::<Entry>()))?.cast();
            chunk.store(start, Ordering::Relaxed);
        }
        Some(start.wrapping_add(index % CHUNK))
    }

    fn all(&self) -> impl Iterator<Item = &Entry> {
        (0..self.count.load(Ordering::Acquire)).map_while(|index| self.entry(index))
    }

    fn probe(&self, start: usize) -> impl Iterator<Item = &AtomicU16> {
        let first = (start >> 12).wrapping_mul(0x9e37_79b9) >> 7;
        (0..SLOTS).map_while(move |step| self.slots.get(first.wrapping_add(step) % SLOTS))
    }

    /// The newest entry that starts at `start`.
    fn newest(&self, start: usize) -> Option<&Entry> {
        for slot in self.probe(start) {
            let index = usize::from(slot.load(Ordering::Acquire)).checked_sub(1)?;
            let entry = self.entry(index)?;
            if entry.object.start == start {
                return Some(entry);
            }
        }
        None
    }

    /// Appends `entry`, marks what it replaces, and returns its index. If the table is full,
    /// or there is no memory, `entry` stays.
    ///
    /// # Safety
    ///
    /// The caller holds the lock.
    unsafe fn append(&self, entry: &mut Option<Entry>) -> u16 {
        let count = self.count.load(Ordering::Relaxed);
        // SAFETY: the caller's promise.
        let (Some(place), Ok(index)) = (unsafe { self.place(count) }, u16::try_from(count)) else {
            return UNLISTED;
        };
        let Some(mut entry) = entry.take() else {
            return UNLISTED;
        };
        entry.index = index;
        let (start, end) = (entry.object.start, entry.object.end);
        let mut replaces = false;
        for old in self.all().filter(|old| old.object.start < end && start < old.object.end) {
            old.replaced.store(true, Ordering::Relaxed);
            replaces = true;
        }
        if replaces {
            // Before the entry is there, so that who finds it by its address believes no rule of the module that it
            // replaces.
            self.epoch.fetch_add(1, Ordering::Release);
        }
        // SAFETY: the place is mapped, and entries from `count` on are the lock holder's.
        unsafe { place.write(entry) };
        self.count.store(count.wrapping_add(1), Ordering::Release);
        for slot in self.probe(start) {
            let taken = usize::from(slot.load(Ordering::Relaxed)).checked_sub(1);
            if taken.is_none_or(|taken| self.entry(taken).is_none_or(|old| old.object.start == start)) {
                slot.store(index.wrapping_add(1), Ordering::Release);
                break;
            }
        }
        self.generation.fetch_add(1, Ordering::Release);
        index
    }
}

/// A word made of what differs between two files of one size: the ELF header, which has the place of the section
/// headers, the build id, and the head of the unwind index.
fn fingerprint(object: &Object, tables: Option<&Tables>, build_id_at: usize, build_id_len: u8) -> u64 {
    let mut hash = tables.map_or(0, Tables::fingerprint);
    let mut mix = |word: u64| hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    // Without tables the headers may not even be an ELF file's, or not be readable. The executable never changes, and a
    // piece of it may begin without the header.
    if tables.is_some() && !object.is_executable() {
        for offset in (16..64).step_by(8) {
            // SAFETY: tables were found through the ELF header, which is readable and 64 bytes long.
            mix(unsafe { (object.start.wrapping_add(offset) as *const u64).read_unaligned() });
        }
        for offset in (0..usize::from(build_id_len) & !7).step_by(8) {
            // SAFETY: the note was found in a readable segment, `build_id_len` bytes long, and the headers that led
            // there are the same if the words mixed in above are.
            mix(unsafe { (build_id_at.wrapping_add(offset) as *const u64).read_unaligned() });
        }
    }
    hash
}

/// The module that `address` lies in, confirmed by the loader now or earlier in this capture.
pub(crate) fn find(address: usize, confirmed: &mut Confirmed) -> Option<Module> {
    for index in confirmed.iter() {
        if let Some(entry) = TABLE.entry(usize::from(index))
            && entry.module().holds(address)
        {
            return Some(entry.module());
        }
    }
    let object = loader::find(address)?;
    let module = match TABLE.newest(object.start) {
        Some(entry) if entry.object == object && (entry.stays || entry.is_still_there()) => entry.module(),
        _ => add(&object),
    };
    if module.is_listed() {
        confirmed.push(module.index);
    }
    Some(module)
}

/// Where the module begins and ends that `address` lies in, if it is in the table, and is still the one that is there.
/// Nothing is added.
pub(crate) fn find_listed(address: usize, confirmed: &mut Confirmed) -> Option<(usize, usize)> {
    let holds = |entry: &&Entry| entry.object.start <= address && address < entry.object.end;
    let known = confirmed.iter().filter_map(|index| TABLE.entry(usize::from(index))).find(holds);
    let entry = match known {
        Some(entry) => entry,
        None => {
            let object = loader::find(address)?;
            let entry = TABLE.newest(object.start)?;
            if entry.object != object || !(entry.stays || entry.is_still_there()) {
                return None;
            }
            confirmed.push(entry.index);
            entry
        }
    };
    Some((entry.object.start, entry.object.end))
}

/// What framehop allocates for one module, at most.
const UNWINDER_MAX: usize = 1024;

impl Entry {
    #[inline]
    fn module(&'static self) -> Module {
        Module {
            index: self.index,
            start: self.object.start,
            end: self.object.end,
            code: self.code,
            stays: self.stays,
            unwinder: self.unwinder.as_ref(),
        }
    }

    /// Whether the module that the loader has at these addresses is this one.
    fn is_still_there(&self) -> bool {
        !self.replaced.load(Ordering::Relaxed)
            && self.fingerprint == fingerprint(&self.object, self.tables.as_ref(), self.build_id_at, self.build_id_len)
    }
}

/// Reads the headers of a module and lists it.
#[cold]
#[inline(never)]
fn add(object: &Object) -> Module {
    let headers = elf::headers(object);
    let unlisted = Module {
        index: UNLISTED,
        start: object.start,
        end: object.end,
        code: headers.code,
        stays: false,
        unwinder: None,
    };
    if module_count() >= MAX_MODULES {
        return unlisted;
    }
    let tables = Tables::of(object, &headers);
    let unwinder = tables.filter(|_| workbench::can_allocate(UNWINDER_MAX));
    let mut entry = Entry {
        index: UNLISTED,
        object: *object,
        code: headers.code,
        tables,
        unwinder: unwinder.and_then(|tables| Unwinder::new(object, &tables)),
        load_bias: object.load_bias(),
        fingerprint: fingerprint(object, tables.as_ref(), headers.build_id_at, headers.build_id_len),
        build_id: headers.build_id,
        build_id_at: headers.build_id_at,
        build_id_len: headers.build_id_len,
        stays: object.is_executable() || unlisted.holds(find as *const () as usize) || loader::is_of_the_start(object),
        replaced: AtomicBool::new(false),
        path: [0; PATH_MAX],
        path_len: 0,
        file: None,
    };
    (entry.path_len, entry.file) = file(object, &headers, &mut entry.path);
    if !TABLE.try_lock() {
        return unlisted;
    }
    // Another thread may have been faster; and the same file may be back at its place with another record.
    let same = TABLE.newest(object.start).filter(|other| {
        !other.replaced.load(Ordering::Relaxed)
            && other.object == *object
            && other.fingerprint == entry.fingerprint
            && other.path.get(..usize::from(other.path_len)) == entry.path.get(..usize::from(entry.path_len))
    });
    let mut left = Some(entry);
    let index = match same {
        Some(other) => other.index,
        // SAFETY: the lock is held.
        None => unsafe { TABLE.append(&mut left) },
    };
    TABLE.unlock();
    let is_new = left.is_none();
    // Only now: this may free.
    drop(left);
    let Some(entry) = TABLE.entry(usize::from(index)) else { return unlisted };
    if is_new {
        tell_of(index);
    }
    entry.module()
}

/// What is called with the index of each module; null for nothing.
static ON_MODULE: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Has `see` be called with the index of each module that frames are seen in from now on: once, by a thread that has a
/// frame in it. No lock is held; what `see` allocates is a capture's.
pub fn on_module(see: fn(usize)) {
    ON_MODULE.store(see as *mut (), Ordering::Release);
}

#[cold]
fn tell_of(index: u16) {
    let see = ON_MODULE.load(Ordering::Acquire);
    if !see.is_null() {
        // SAFETY: what `on_module` has stored.
        let see = unsafe { core::mem::transmute::<*mut (), fn(usize)>(see) };
        see(usize::from(index));
    }
}

/// Writes the file's name to `path`; returns its length, and which file it is if nothing else tells it from another
/// one.
fn file(object: &Object, headers: &Headers, path: &mut [u8; PATH_MAX]) -> (u16, Option<FileState>) {
    const EXE: &CStr = c"/proc/self/exe";
    let has_build_id = headers.build_id_len > 0;
    if object.is_executable() {
        let length = system::read_link(EXE, path).unwrap_or(0);
        return (length as u16, if has_build_id { None } else { system::file_state(EXE) });
    }
    let name = object.name().to_bytes();
    let mut length = 0;
    // The loader has the name that the program gave it, which may count from a folder that the program has left; and
    // there may be another file under that name by now.
    if name.first() != Some(&b'/') || !has_build_id {
        length = mapped_file(headers.first, path);
    }
    let is_known = length > 0;
    if !is_known {
        length = path.iter_mut().zip(name).map(|(byte, from)| *byte = *from).count();
    }
    let state = if has_build_id || !is_known { None } else { path.get(..length).and_then(state_of) };
    (length as u16, state)
}

/// The state of the file at a path that the kernel gave.
fn state_of(path: &[u8]) -> Option<FileState> {
    let mut text = [0; PATH_MAX + 1];
    // What was deleted has a mark behind its name, and is not found. A name that fills its place may be cut.
    if path.len() >= PATH_MAX {
        return None;
    }
    text.iter_mut().zip(path).for_each(|(byte, from)| *byte = *from);
    system::file_state(CStr::from_bytes_until_nul(&text).ok()?)
}

/// Writes the path of the file that is mapped there, as the kernel knows it (`/proc/PID/map_files`, proc(5)); returns
/// its length, 0 if the kernel does not say.
fn mapped_file((start, end): (usize, usize), path: &mut [u8; PATH_MAX]) -> usize {
    const PAGE: usize = 4096;
    let mut link = [0u8; 64];
    let mut at = 0;
    let mut put = |text: &[u8]| {
        for byte in text {
            if let Some(place) = link.get_mut(at) {
                *place = *byte;
                at += 1;
            }
        }
    };
    let hexadecimal = |address: usize, put: &mut dyn FnMut(&[u8])| {
        let digits = (usize::BITS - address.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            put(&[b"0123456789abcdef"[address >> (4 * digit) & 0xf]]);
        }
    };
    put(b"/proc/self/map_files/");
    hexadecimal(start & !(PAGE - 1), &mut put);
    put(b"-");
    hexadecimal(end.wrapping_add(PAGE - 1) & !(PAGE - 1), &mut put);
    CStr::from_bytes_until_nul(&link).ok().and_then(|link| system::read_link(link, path)).unwrap_or(0)
}

/// The modules that were confirmed during one capture.
#[derive(Debug)]
pub(crate) struct Confirmed {
    indices: [u16; Self::MAX],
    next: usize,
}

impl Confirmed {
    /// More modules than this on one stack are confirmed again.
    const MAX: usize = 8;

    pub(crate) fn new() -> Self {
        Self { indices: [UNLISTED; Self::MAX], next: 0 }
    }

    pub(crate) fn push(&mut self, index: u16) {
        if let Some(place) = self.indices.get_mut(self.next % Self::MAX) {
            *place = index;
            self.next = self.next.wrapping_add(1);
        }
    }

    fn iter(&self) -> impl Iterator<Item = u16> {
        self.indices.into_iter().take_while(|index| *index != UNLISTED)
    }

    /// The same, for one that may be among them.
    pub(crate) fn note(&mut self, index: u16) {
        if !self.iter().any(|noted| noted == index) {
            self.push(index);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next == 0
    }
}

/// Entries in the table of modules; they are complete.
pub fn module_count() -> usize {
    TABLE.count.load(Ordering::Acquire)
}

/// The module at `index`, below [`module_count`]. An index means one module for the life of the process.
pub fn module(index: usize) -> Option<ModuleInfo> {
    let entry = TABLE.entry(index)?;
    Some(ModuleInfo {
        start: entry.object.start as u64,
        end: entry.object.end as u64,
        load_bias: entry.load_bias as u64,
        build_id: entry.build_id.get(..usize::from(entry.build_id_len)).unwrap_or_default(),
        path: entry.path.get(..usize::from(entry.path_len)).unwrap_or_default(),
        file: entry.file,
        stays: entry.stays,
        replaced: entry.replaced.load(Ordering::Relaxed),
    })
}

/// Whether the module at `index` is the one that the loader has at its addresses now. It stays so for as long as the
/// calling thread has a frame in it.
pub fn is_loaded(index: usize) -> bool {
    let is_there = |entry: &Entry| loader::find(entry.object.start) == Some(entry.object) && entry.is_still_there();
    TABLE.entry(index).is_some_and(|entry| entry.stays || is_there(entry))
}

/// What a name is in the module at `index`. `None` if the module does not define it, or is no longer loaded.
///
/// # Safety
/// The calling thread has a frame in the module, or it stays.
pub unsafe fn symbol(index: usize, name: &CStr) -> Option<Symbol> {
    let entry = TABLE.entry(index).filter(|_| is_loaded(index))?;
    // SAFETY: the caller's promise: as long as there is such a frame it is not unloaded.
    unsafe { symbols::find(&entry.object, name) }
}

/// Changes whenever a module is added or found replaced.
pub fn module_generation() -> u64 {
    TABLE.generation.load(Ordering::Acquire)
}

/// Changes whenever a module is found to have replaced others: what was learned of addresses is void.
#[inline(always)]
pub(crate) fn epoch() -> u64 {
    TABLE.epoch.load(Ordering::Relaxed)
}

/// The addresses of the unwind tables of the modules that were confirmed, of those to which nobody is to write.
pub(crate) fn tables(confirmed: &Confirmed) -> impl Iterator<Item = core::ops::Range<usize>> {
    let entries = confirmed.iter().filter_map(|index| TABLE.entry(usize::from(index)));
    entries.filter_map(|entry| entry.tables.as_ref()?.constant())
}

/// Takes the table's lock.
pub(crate) fn lock_for_fork(give_way: impl Fn(u32)) {
    let mut tries = 0;
    while !TABLE.try_lock() {
        tries += 1;
        give_way(tries);
    }
}

/// Gives it back.
pub(crate) fn unlock_after_fork() {
    TABLE.unlock();
}
