//! Memory that other processes can have: shared memory of the host. A slab is a file without a name (memfd_create(2)),
//! its descriptor is the export, and a mapping is one of that file: what one process writes the others read.
//!
//! A legacy handle names its process and the descriptor there, so that it opens where that process can be seen, and
//! ends with it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{Simulated, State};
use crate::device::{Call, DeviceError, Fault, GRANULE, Result, Sharing, Slab, Stream};

/// As `/proc/PID/fd` shows such a file.
const NAME: &str = "/memfd:poolscope-slab (deleted)";
/// The first bytes of a legacy handle.
const MAGIC: [u8; 8] = *b"poolsim1";
/// How long a stream waits for a word; then something is wrong that a real stream would wait for without an end.
const WAIT: Duration = Duration::from_secs(10);
/// `CUDA_ERROR_LAUNCH_TIMEOUT`.
const TIMEOUT: Fault = Fault::Driver(702);

/// What the process has of shared memory.
#[derive(Debug, Default)]
pub struct Shared {
    slabs: HashMap<u64, SlabState>,
    next: u64,
    mappings: BTreeMap<u64, Mapping>,
    /// Plain memory that has a legacy handle, and its file.
    plain: HashMap<u64, File>,
    /// Words that streams will write: when, where, what.
    words: Vec<(u64, u64, u64)>,
}

#[derive(Debug)]
struct SlabState {
    file: File,
    bytes: u64,
    /// Whether this process created it, so that its memory counts as the device's.
    is_charged: bool,
}

#[derive(Debug)]
struct Mapping {
    bytes: u64,
    file: File,
    is_legacy: bool,
}

/// A file of so many bytes that nobody can make shorter.
fn new_file(bytes: u64) -> io::Result<File> {
    // SAFETY: the name ends with a zero; the descriptor is new.
    let file = unsafe {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let descriptor = libc::memfd_create(c"poolscope-slab".as_ptr(), flags);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from_raw_fd(descriptor)
    };
    file.set_len(bytes)?;
    // SAFETY: plain numbers; a file that got shorter would end those who read what is gone.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a descriptor is one of those files.
fn is_slab(file: &File) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // SAFETY: plain numbers.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    link.is_ok_and(|link| link.as_os_str() == NAME) && seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

fn map(file: &File, bytes: u64) -> io::Result<u64> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let none = std::ptr::null_mut();
    // SAFETY: the kernel finds a place for a mapping of its own.
    let at = unsafe { libc::mmap(none, bytes as usize, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at as u64) }
}

fn word(address: u64) -> &'static AtomicU64 {
    // SAFETY: the caller has checked that the 8 bytes lie in a mapping, which is aligned to pages, and that the address
    // is a multiple of 8. The reference is used while the state is locked, and only `unmap` ends a mapping.
    unsafe { &*(address as usize as *const AtomicU64) }
}

impl Shared {
    /// Writes the words whose streams have come so far.
    pub fn write_due_words(&mut self, now: u64) {
        if self.words.is_empty() {
            return;
        }
        let mut words = std::mem::take(&mut self.words);
        words.retain(|&(due, address, value)| {
            if due <= now && self.find(address, 8).is_some() {
                word(address).store(value, Ordering::Release);
            }
            due > now
        });
        self.words = words;
    }

    /// Plain memory was freed: its legacy handle stands for nothing any more.
    pub fn forget_plain(&mut self, address: u64) {
        self.plain.remove(&address);
    }

    fn add(&mut self, state: SlabState) -> Slab {
        self.next += 1;
        self.slabs.insert(self.next, state);
        Slab(self.next)
    }

    /// The mapping in which all of a range lies, and where in it.
    fn find(&self, address: u64, bytes: u64) -> Option<(&Mapping, u64)> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        let end = address.checked_add(bytes)?;
        (end <= start + mapping.bytes).then_some((mapping, address - start))
    }

    fn unmap(&mut self, address: u64, bytes: u64, is_legacy: bool) -> std::result::Result<(), Fault> {
        let known = self.mappings.get(&address);
        if !known.is_some_and(|it| it.bytes == bytes && it.is_legacy == is_legacy) {
            return Err(Fault::Invalid("not a mapping"));
        }
        self.words.retain(|(_, at, _)| !(address..address + bytes).contains(at));
        self.mappings.remove(&address);
        // SAFETY: `map` made it; the caller says that nobody uses it any more.
        unsafe { libc::munmap(address as usize as *mut libc::c_void, bytes as usize) };
        Ok(())
    }
}

impl State {
    /// The file in which a range lies, and where in it.
    fn shared_file(&self, address: u64, bytes: u64) -> std::result::Result<(&File, u64), Fault> {
        if let Some((mapping, offset)) = self.shared.find(address, bytes) {
            return Ok((&mapping.file, offset));
        }
        let plain = self.memory.plain_at(address).filter(|(start, held)| address + bytes <= start + held);
        let file = plain.and_then(|(start, _)| Some((self.shared.plain.get(&start)?, address - start)));
        file.ok_or(Fault::Invalid("no shared memory, or not all of it"))
    }
}

fn failed(call: Call) -> impl Fn(Fault) -> DeviceError {
    move |fault| DeviceError { call, fault }
}

/// What the host refuses, as a fault of the device.
fn refused(call: Call) -> impl Fn(io::Error) -> DeviceError {
    move |error| {
        let fault = match error.raw_os_error() {
            Some(libc::ENOMEM | libc::ENOSPC) => Fault::OutOfMemory,
            // `CUDA_ERROR_OPERATING_SYSTEM`.
            _ => Fault::Driver(304),
        };
        DeviceError { call, fault }
    }
}

impl Sharing for Simulated {
    fn create_slab(&self, bytes: u64) -> Result<Slab> {
        let mut state = self.state();
        state.begin(Call::CreateSlab, bytes)?;
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) {
            let fault = Fault::Invalid("a slab is a multiple of the granularity");
            return Err(DeviceError { call: Call::CreateSlab, fault });
        }
        state.memory.charge(bytes).map_err(failed(Call::CreateSlab))?;
        match new_file(bytes) {
            Ok(file) => Ok(state.shared.add(SlabState { file, bytes, is_charged: true })),
            Err(error) => {
                state.memory.used -= bytes;
                Err(refused(Call::CreateSlab)(error))
            }
        }
    }

    fn release_slab(&self, slab: Slab) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::ReleaseSlab, GRANULE)?;
        let gone = state.shared.slabs.remove(&slab.0).ok_or(Fault::Invalid("not a slab"));
        let gone = gone.map_err(failed(Call::ReleaseSlab))?;
        if gone.is_charged {
            state.memory.used -= gone.bytes;
        }
        Ok(())
    }

    fn export_slab(&self, slab: Slab) -> Result<OwnedFd> {
        let mut state = self.state();
        state.begin(Call::ExportSlab, GRANULE)?;
        let slab = state.shared.slabs.get(&slab.0).ok_or(Fault::Invalid("not a slab"));
        let file = slab.map_err(failed(Call::ExportSlab))?.file.try_clone().map_err(refused(Call::ExportSlab))?;
        Ok(file.into())
    }

    fn import_slab(&self, descriptor: BorrowedFd<'_>) -> Result<Slab> {
        let mut state = self.state();
        state.begin(Call::ImportSlab, GRANULE)?;
        let file = File::from(descriptor.try_clone_to_owned().map_err(refused(Call::ImportSlab))?);
        if !is_slab(&file) {
            return Err(DeviceError { call: Call::ImportSlab, fault: Fault::Invalid("not an exported slab") });
        }
        let bytes = file.metadata().map_err(refused(Call::ImportSlab))?.len();
        Ok(state.shared.add(SlabState { file, bytes, is_charged: false }))
    }

    fn map_slab(&self, slab: Slab, bytes: u64) -> Result<u64> {
        let mut state = self.state();
        state.begin(Call::MapSlab, bytes)?;
        let known = state.shared.slabs.get(&slab.0).filter(|slab| bytes > 0 && bytes <= slab.bytes);
        let known = known.ok_or(Fault::Invalid("not a slab, or a shorter one")).map_err(failed(Call::MapSlab))?;
        let file = known.file.try_clone().map_err(refused(Call::MapSlab))?;
        let address = map(&file, bytes).map_err(refused(Call::MapSlab))?;
        state.shared.mappings.insert(address, Mapping { bytes, file, is_legacy: false });
        Ok(address)
    }

    fn unmap_slab(&self, address: u64, bytes: u64) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::UnmapSlab, bytes)?;
        state.shared.unmap(address, bytes, false).map_err(failed(Call::UnmapSlab))
    }

    fn retain_slab(&self, address: u64) -> Result<Slab> {
        let mut state = self.state();
        state.begin(Call::RetainSlab, 0)?;
        let found = state.shared.find(address, 1).filter(|(mapping, _)| !mapping.is_legacy);
        let (mapping, _) = found.ok_or(Fault::Invalid("nothing is mapped here")).map_err(failed(Call::RetainSlab))?;
        let file = mapping.file.try_clone().map_err(refused(Call::RetainSlab))?;
        let bytes = file.metadata().map_err(refused(Call::RetainSlab))?.len();
        Ok(state.shared.add(SlabState { file, bytes, is_charged: false }))
    }

    fn address_range(&self, address: u64) -> Result<(u64, u64)> {
        let mut state = self.state();
        state.begin(Call::AddressRange, 0)?;
        let mapped = state.shared.find(address, 1).map(|(mapping, offset)| (address - offset, mapping.bytes));
        let found = mapped.or_else(|| state.memory.plain_at(address));
        found.ok_or(Fault::Invalid("nothing is mapped here")).map_err(failed(Call::AddressRange))
    }

    fn legacy_handle(&self, address: u64) -> Result<[u8; 64]> {
        let mut state = self.state();
        state.begin(Call::LegacyHandle, 0)?;
        let plain = state.memory.plain_at(address).filter(|(start, _)| *start == address);
        let fault = Fault::Invalid("not the start of plain memory");
        let (_, bytes) = plain.ok_or(fault).map_err(failed(Call::LegacyHandle))?;
        let file = match state.shared.plain.entry(address) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(new_file(bytes).map_err(refused(Call::LegacyHandle))?),
        };
        let inode = file.metadata().map_err(refused(Call::LegacyHandle))?.ino();
        let mut handle = [0; 64];
        handle[..8].copy_from_slice(&MAGIC);
        handle[8..16].copy_from_slice(&u64::from(std::process::id()).to_le_bytes());
        handle[16..24].copy_from_slice(&(file.as_raw_fd() as u64).to_le_bytes());
        handle[24..32].copy_from_slice(&bytes.to_le_bytes());
        handle[32..40].copy_from_slice(&inode.to_le_bytes());
        Ok(handle)
    }

    fn open_legacy(&self, handle: [u8; 64]) -> Result<u64> {
        let mut state = self.state();
        state.begin(Call::OpenLegacy, 0)?;
        let call = Call::OpenLegacy;
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| handle[at + byte]));
        if handle[..8] != MAGIC {
            return Err(DeviceError { call, fault: Fault::Invalid("no handle of a simulated device") });
        }
        if number(8) == u64::from(std::process::id()) {
            return Err(DeviceError { call, fault: Fault::Invalid("a handle does not open where it was made") });
        }
        let path = format!("/proc/{}/fd/{}", number(8), number(16));
        let gone = Fault::Invalid("the process that made the handle is gone, or can't be seen");
        let opened = File::options().read(true).write(true).open(path);
        let file = opened.map_err(|_| DeviceError { call, fault: gone })?;
        let metadata = file.metadata().map_err(refused(call))?;
        if !is_slab(&file) || metadata.ino() != number(32) || metadata.len() != number(24) {
            return Err(DeviceError { call, fault: gone });
        }
        let bytes = metadata.len();
        let address = map(&file, bytes).map_err(refused(call))?;
        state.shared.mappings.insert(address, Mapping { bytes, file, is_legacy: true });
        Ok(address)
    }

    fn close_legacy(&self, address: u64) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::CloseLegacy, 0)?;
        let bytes = state.shared.mappings.get(&address).map_or(0, |mapping| mapping.bytes);
        state.shared.unmap(address, bytes, true).map_err(failed(Call::CloseLegacy))
    }

    fn copy_in(&self, address: u64, from: &[u8]) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::CopyIn, from.len() as u64)?;
        let found = state.shared_file(address, from.len() as u64);
        let (file, offset) = found.map_err(failed(Call::CopyIn))?;
        file.write_all_at(from, offset).map_err(refused(Call::CopyIn))
    }

    fn copy_out(&self, address: u64, to: &mut [u8]) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::CopyOut, to.len() as u64)?;
        let found = state.shared_file(address, to.len() as u64);
        let (file, offset) = found.map_err(failed(Call::CopyOut))?;
        file.read_exact_at(to, offset).map_err(refused(Call::CopyOut))
    }

    fn private_stream(&self) -> Result<Stream> {
        self.state().begin(Call::PrivateStream, 0)?;
        Ok(self.non_blocking_stream())
    }

    fn write_word(&self, stream: Stream, address: u64, value: u64) -> Result<()> {
        let mut state = self.state();
        state.begin(Call::WriteWord, 0)?;
        let at = state.streams.find(stream).map_err(failed(Call::WriteWord))?;
        if !address.is_multiple_of(8) || state.shared.find(address, 8).is_none() {
            return Err(DeviceError { call: Call::WriteWord, fault: Fault::Invalid("no shared word") });
        }
        let (due, now) = (state.streams.point(at).1, state.clock);
        state.shared.words.push((due, address, value));
        state.shared.write_due_words(now);
        Ok(())
    }

    /// It waits on the host, which is later than a real stream would, and never earlier.
    fn wait_word(&self, stream: Stream, address: u64, value: u64) -> Result<()> {
        let call = Call::WaitWord;
        {
            let mut state = self.state();
            state.begin(call, 0)?;
            state.streams.find(stream).map_err(failed(call))?;
        }
        let until = Instant::now() + WAIT;
        loop {
            {
                let state = self.state();
                if !address.is_multiple_of(8) || state.shared.find(address, 8).is_none() {
                    return Err(DeviceError { call, fault: Fault::Invalid("no shared word") });
                }
                if word(address).load(Ordering::Acquire) >= value {
                    return Ok(());
                }
            }
            if Instant::now() > until {
                return Err(DeviceError { call, fault: TIMEOUT });
            }
            thread::sleep(Duration::from_micros(100));
        }
    }
}
