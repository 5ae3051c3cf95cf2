//! Addresses, granules and plain memory, and who was given what.

use std::collections::{BTreeMap, HashMap};

use super::order::Order;
use crate::device::{Fault, GRANULE, Piece};

/// A piece of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Physical {
    /// A granule of a piece, by the piece's handle and its place there.
    Granule(u64, u64),
    /// Plain memory, by its address.
    Plain(u64),
}

/// An access that may still be under way.
#[derive(Clone, Debug)]
struct Touch {
    from: u64,
    to: u64,
    address: u64,
    stream: usize,
    number: u64,
    write: bool,
}

#[derive(Debug, Default)]
struct Content {
    touches: Vec<Touch>,
    /// Offsets that are lent, with the address under which they are.
    lent: Vec<(u64, u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    piece: u64,
    /// Which granule of the piece, and of how many.
    at: u64,
    of: u64,
    /// Devices that may use it, this one first.
    readers: usize,
}

#[derive(Debug, Default)]
struct PieceState {
    bytes: u64,
    /// Granules that are mapped, each as often as it is.
    mappings: u64,
    released: bool,
}

/// The memory of a device.
#[derive(Debug)]
pub struct Memory {
    pub limit: u64,
    pub used: u64,
    pub peak: u64,
    reservations: BTreeMap<u64, u64>,
    next_reservation: u64,
    next_plain: u64,
    next_piece: u64,
    made: HashMap<u64, PieceState>,
    mappings: BTreeMap<u64, Mapping>,
    plain: BTreeMap<u64, u64>,
    /// Locked host memory, which is none of the device's.
    host: BTreeMap<u64, u64>,
    pub host_used: u64,
    pub host_limit: u64,
    /// Whether locked host memory is there to be read and written.
    host_is_real: bool,
    contents: HashMap<Physical, Content>,
    lent: BTreeMap<u64, u64>,
}

/// A part of a range: what lies behind it.
type Part = (Physical, u64, u64);

impl Memory {
    pub fn new(limit: u64) -> Memory {
        Memory {
            limit,
            used: 0,
            peak: 0,
            reservations: BTreeMap::new(),
            next_reservation: 0x7000_0000_0000,
            next_plain: 0x2000_0000_0000,
            next_piece: 1,
            made: HashMap::new(),
            mappings: BTreeMap::new(),
            plain: BTreeMap::new(),
            host: BTreeMap::new(),
            host_used: 0,
            host_limit: u64::MAX,
            host_is_real: false,
            contents: HashMap::new(),
            lent: BTreeMap::new(),
        }
    }

    pub fn charge(&mut self, bytes: u64) -> Result<(), Fault> {
        if bytes > self.limit.saturating_sub(self.used) {
            return Err(Fault::OutOfMemory);
        }
        self.used += bytes;
        self.peak = self.peak.max(self.used);
        Ok(())
    }

    pub fn reserve(&mut self, bytes: u64) -> Result<u64, Fault> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) {
            return Err(Fault::Invalid("a reservation is a multiple of the granularity"));
        }
        let address = self.next_reservation;
        self.next_reservation += bytes + GRANULE;
        self.reservations.insert(address, bytes);
        Ok(address)
    }

    pub fn unreserve(&mut self, address: u64, bytes: u64) -> Result<(), Fault> {
        if self.reservations.get(&address) != Some(&bytes) {
            return Err(Fault::Invalid("not a reservation"));
        }
        if self.mappings.range(address..address + bytes).next().is_some() {
            return Err(Fault::Invalid("something is mapped in the reservation"));
        }
        self.reservations.remove(&address);
        Ok(())
    }

    pub fn create(&mut self, bytes: u64) -> Result<Piece, Fault> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) {
            return Err(Fault::Invalid("a piece is whole granules"));
        }
        self.charge(bytes)?;
        let handle = self.next_piece;
        self.next_piece += 1;
        self.made.insert(handle, PieceState { bytes, ..PieceState::default() });
        Ok(Piece { handle, bytes })
    }

    pub fn release(&mut self, piece: Piece) -> Result<(), Fault> {
        let state = self.made.get_mut(&piece.handle).filter(|state| !state.released && state.bytes == piece.bytes);
        let state = state.ok_or(Fault::Invalid("not a piece"))?;
        state.released = true;
        self.drop_if_unused(piece.handle);
        Ok(())
    }

    fn drop_if_unused(&mut self, handle: u64) {
        let Some(state) = self.made.get(&handle).filter(|state| state.released && state.mappings == 0) else { return };
        let bytes = state.bytes;
        self.made.remove(&handle);
        for at in 0..bytes / GRANULE {
            self.contents.remove(&Physical::Granule(handle, at));
        }
        self.used -= bytes;
    }

    /// How many pieces are mapped in a range.
    pub fn pieces_in(&self, address: u64, bytes: u64) -> u64 {
        self.mappings.range(address..address + bytes).filter(|(_, mapping)| mapping.at == 0).count() as u64
    }

    fn reserved(&self, address: u64, bytes: u64) -> bool {
        let range = self.reservations.range(..=address).next_back();
        range.is_some_and(|(&start, &length)| address + bytes <= start + length)
    }

    pub fn map(&mut self, address: u64, piece: Piece) -> Result<(), Fault> {
        if !address.is_multiple_of(GRANULE) || !self.reserved(address, piece.bytes) {
            return Err(Fault::Invalid("not granules of a reservation"));
        }
        if self.mappings.range(address..address + piece.bytes).next().is_some() {
            return Err(Fault::Invalid("something is mapped here"));
        }
        let state = self.made.get_mut(&piece.handle).filter(|state| !state.released && state.bytes == piece.bytes);
        let of = piece.bytes / GRANULE;
        state.ok_or(Fault::Invalid("not a piece"))?.mappings += of;
        for at in 0..of {
            self.mappings.insert(address + at * GRANULE, Mapping { piece: piece.handle, at, of, readers: 0 });
        }
        Ok(())
    }

    /// Whether a range begins and ends with pieces.
    fn cuts_no_piece(&self, address: u64, bytes: u64) -> bool {
        let begins = self.mappings.get(&address).is_some_and(|mapping| mapping.at == 0);
        begins && self.mappings.get(&(address + bytes - GRANULE)).is_some_and(|mapping| mapping.at + 1 == mapping.of)
    }

    /// What the host does not know to be over among the accesses to a mapped range under these addresses.
    pub fn busy(&self, address: u64, bytes: u64, host: &Order) -> Option<u64> {
        for mapping in self.mappings.range(address..address + bytes).map(|(_, mapping)| mapping) {
            let granule = Physical::Granule(mapping.piece, mapping.at);
            let touches = self.contents.get(&granule).map_or(&[][..], |it| &it.touches[..]);
            let pending = |touch: &&Touch| touch.number > host.of(touch.stream);
            let here = |touch: &&Touch| (address..address + bytes).contains(&touch.address);
            if let Some(touch) = touches.iter().filter(pending).find(here) {
                return Some(touch.address);
            }
        }
        None
    }

    /// The lent block, if there is one, that lies in a range.
    pub fn lent_in(&self, address: u64, bytes: u64) -> Option<u64> {
        let last = self.lent.range(..address + bytes).next_back();
        last.filter(|(start, length)| *start + *length > address).map(|(start, _)| *start)
    }

    pub fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), Fault> {
        if !address.is_multiple_of(GRANULE) || bytes == 0 || !bytes.is_multiple_of(GRANULE) {
            return Err(Fault::Invalid("a mapping is whole granules"));
        }
        if self.mappings.range(address..address + bytes).count() as u64 != bytes / GRANULE {
            return Err(Fault::Invalid("not all of it is mapped"));
        }
        if !self.cuts_no_piece(address, bytes) {
            return Err(Fault::Invalid("a piece can't be unmapped in part"));
        }
        for at in (address..address + bytes).step_by(GRANULE as usize) {
            let Some(mapping) = self.mappings.remove(&at) else { continue };
            if let Some(state) = self.made.get_mut(&mapping.piece) {
                state.mappings -= 1;
            }
            self.drop_if_unused(mapping.piece);
        }
        Ok(())
    }

    pub fn set_access(&mut self, address: u64, bytes: u64, readers: usize) -> Result<(), Fault> {
        if self.mappings.range(address..address + bytes).count() as u64 != bytes / GRANULE {
            return Err(Fault::Invalid("not all of it is mapped"));
        }
        if !self.cuts_no_piece(address, bytes) {
            return Err(Fault::Invalid("a piece is opened as a whole"));
        }
        for (_, mapping) in self.mappings.range_mut(address..address + bytes) {
            mapping.readers = readers;
        }
        Ok(())
    }

    pub fn allocate(&mut self, bytes: u64) -> Result<u64, Fault> {
        let held = bytes.max(1).next_multiple_of(GRANULE);
        self.charge(held)?;
        let address = self.next_plain;
        self.next_plain += held + GRANULE;
        self.plain.insert(address, held);
        Ok(address)
    }

    /// The plain memory in which an address lies: where it starts, and its bytes.
    pub fn plain_at(&self, address: u64) -> Option<(u64, u64)> {
        let (start, held) = self.plain.range(..=address).next_back()?;
        (address < start + held).then_some((*start, *held))
    }

    pub fn free(&mut self, address: u64) -> Result<(), Fault> {
        let held = self.plain.remove(&address).ok_or(Fault::Invalid("not allocated"))?;
        self.used -= held;
        self.contents.remove(&Physical::Plain(address));
        Ok(())
    }

    pub fn allocate_host(&mut self, bytes: u64) -> Result<u64, Fault> {
        let held = bytes.max(1).next_multiple_of(4096);
        if held > self.host_limit.saturating_sub(self.host_used) {
            return Err(Fault::OutOfMemory);
        }
        let address = if self.host_is_real {
            real_memory::map(held).ok_or(Fault::OutOfMemory)?
        } else {
            let address = self.next_plain;
            self.next_plain += held.next_multiple_of(GRANULE) + GRANULE;
            address
        };
        self.host_used += held;
        self.host.insert(address, held);
        Ok(address)
    }

    pub fn free_host(&mut self, address: u64) -> Result<(), Fault> {
        let held = self.host.remove(&address).ok_or(Fault::Invalid("not allocated"))?;
        if self.host_is_real {
            real_memory::unmap(address, held);
        }
        self.host_used -= held;
        self.contents.remove(&Physical::Plain(address));
        Ok(())
    }

    /// Takes its addresses from a place that depends on a number, and host memory from the host.
    pub fn be_in_process(&mut self, number: u32) {
        self.next_reservation = 0x3000_0000_0000 + (u64::from(number) << 40);
        self.host_is_real = true;
    }

    /// Whether at least so many devices may use all of a range.
    pub fn is_open_to(&self, address: u64, bytes: u64, readers: usize) -> bool {
        let first = address / GRANULE * GRANULE;
        let mapped = || self.mappings.range(first..address + bytes);
        !self.mappings.contains_key(&first) || mapped().all(|(_, mapping)| mapping.readers >= readers)
    }

    /// What lies behind a range; `None` where nothing, or nothing accessible, does.
    fn pieces(&self, address: u64, bytes: u64) -> Option<Vec<Part>> {
        let plain = [&self.plain, &self.host].into_iter().filter_map(|memory| memory.range(..=address).next_back());
        if let Some((start, _)) =
            plain.map(|(start, length)| (*start, *length)).find(|(start, length)| address + bytes <= start + length)
        {
            return Some(vec![(Physical::Plain(start), address - start, address - start + bytes)]);
        }
        let mut pieces = Vec::new();
        let mut at = address;
        while at < address + bytes {
            let base = at / GRANULE * GRANULE;
            let mapping = self.mappings.get(&base).filter(|mapping| mapping.readers > 0)?;
            let end = (base + GRANULE).min(address + bytes);
            pieces.push((Physical::Granule(mapping.piece, mapping.at), at - base, end - base));
            at = end;
        }
        Some(pieces)
    }

    /// Notes that a block was given to the program. An error names the block that has some of the memory already, or
    /// this one where there is no memory.
    pub fn lend(&mut self, address: u64, bytes: u64) -> Result<(), u64> {
        let pieces = self.pieces(address, bytes).ok_or(address)?;
        for (physical, from, to) in &pieces {
            let lent = self.contents.get(physical).map_or(&[][..], |content| &content.lent[..]);
            if let Some(taken) = lent.iter().find(|(start, end, _)| start < to && from < end) {
                return Err(taken.2);
            }
        }
        for (physical, from, to) in pieces {
            self.contents.entry(physical).or_default().lent.push((from, to, address));
        }
        self.lent.insert(address, bytes);
        Ok(())
    }

    /// Notes that the program gave a block back.
    pub fn take_back(&mut self, address: u64) -> bool {
        let Some(bytes) = self.lent.remove(&address) else { return false };
        for (physical, ..) in self.pieces(address, bytes).unwrap_or_default() {
            if let Some(content) = self.contents.get_mut(&physical) {
                content.lent.retain(|(_, _, block)| *block != address);
            }
        }
        true
    }

    /// Whether a range lies in one lent block.
    pub fn is_lent(&self, address: u64, bytes: u64) -> bool {
        let block = self.lent.range(..=address).next_back();
        block.is_some_and(|(&start, &length)| address + bytes <= start + length)
    }

    /// Whether there is accessible memory behind a range.
    pub fn is_accessible(&self, address: u64, bytes: u64) -> bool {
        self.pieces(address, bytes).is_some()
    }

    /// Notes an access; `seen` is what the work knows to be over, `host` what the host does. Returns the address of an
    /// access to the same memory that it is not ordered after.
    pub fn touch(&mut self, access: &super::Access, stream: usize, seen: &Order, host: &Order) -> Option<u64> {
        let number = seen.of(stream);
        let mut conflict = None;
        for (physical, from, to) in self.pieces(access.address, access.bytes)? {
            let content = self.contents.entry(physical).or_default();
            content.touches.retain(|touch| touch.number > host.of(touch.stream));
            for touch in &content.touches {
                let overlap = touch.from < to && from < touch.to;
                let ordered = touch.number <= seen.of(touch.stream);
                if overlap && !ordered && (touch.write || access.write) {
                    conflict = Some(touch.address);
                }
            }
            // What this one covers and comes after says nothing that this one does not.
            content.touches.retain(|touch| {
                let covered = from <= touch.from && touch.to <= to && touch.number <= seen.of(touch.stream);
                !(covered && (access.write || !touch.write))
            });
            content.touches.push(Touch { from, to, address: access.address, stream, number, write: access.write });
        }
        conflict
    }
}

/// Memory of the host for a device that is simulated in a program: not locked, and the kernel's own pages.
mod real_memory {
    pub(super) fn map(bytes: u64) -> Option<u64> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel finds a place for a mapping of its own.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, access, flags, -1, 0) };
        (address != libc::MAP_FAILED).then_some(address as u64)
    }

    pub(super) fn unmap(address: u64, bytes: u64) {
        // SAFETY: a mapping that `map` made, and nobody has it any more: its blocks were all given back.
        unsafe { libc::munmap(address as *mut libc::c_void, bytes as usize) };
    }
}
