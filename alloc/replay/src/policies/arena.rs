//! An arena as RMM has it: first fit by address. Blocks over 1 MiB come from one range that all streams share; smaller
//! ones from superblocks of their stream, which go back to the range when they are empty.
//!
//! RMM takes half of the device's memory at the start and stays there. This one grows at its end, granule by granule,
//! so that what it needs can be seen; where the device has no virtual memory it does as RMM does.
//! The search is linear, as RMM's is.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::locked::{Books, Locked, Placement};
use super::owners::Owner;
use crate::playback::{PolicyError, PolicyResult as Result};
use poolscope_gpu::{Call, Device, DeviceError, Driver, Fault, GRANULE, Piece, Stream};

const ALIGNMENT: u64 = 256;
/// The largest block of a superblock.
const SMALL: u64 = 1 << 20;
const SUPERBLOCK: u64 = 2 << 20;

struct Superblock {
    owner: Owner,
    /// Free pieces: address and bytes.
    free: BTreeMap<u64, u64>,
}

/// The placement.
pub struct FirstFit {
    books: Books,
    /// The range: all of it, and where what is mapped ends.
    start: u64,
    bytes: u64,
    end: u64,
    /// What is mapped, from the start; empty where the range is plain memory.
    granules: Vec<Piece>,
    grows: bool,
    /// Free pieces of the range by address: bytes, and whose they are.
    free: BTreeMap<u64, (u64, Owner)>,
    superblocks: BTreeMap<u64, Superblock>,
    blocks: HashMap<u64, u64>,
}

impl FirstFit {
    /// A policy on a device.
    pub fn policy<D: Device>(device: Arc<D>) -> Result<Locked<D, FirstFit>> {
        let properties = device.properties();
        let driver = Driver::new(device);
        let grows = properties.virtual_memory;
        let (start, bytes) = if grows {
            // Holes are never closed: it may end beyond what the device has.
            let bytes = properties.memory.next_multiple_of(GRANULE) * 2;
            (driver.reserve(bytes)?, bytes)
        } else {
            let bytes = driver.device().memory_info()?.free / 2 / GRANULE * GRANULE;
            (driver.allocate(bytes)?, bytes)
        };
        let mut state = FirstFit {
            books: Books::default(),
            start,
            bytes,
            end: start,
            granules: Vec::new(),
            grows,
            free: BTreeMap::new(),
            superblocks: BTreeMap::new(),
            blocks: HashMap::new(),
        };
        if !grows {
            state.end = start + bytes;
            state.free.insert(start, (bytes, Owner::NOBODY));
            state.books.grow(bytes);
        }
        Ok(Locked::on(driver, state))
    }
}

/// What there is when the range is used up.
const USED_UP: DeviceError = DeviceError { call: Call::Map, fault: Fault::OutOfMemory };

impl FirstFit {
    /// Lists a free piece of the range, joined with its neighbours of the same owner or of nobody.
    fn settle(&mut self, mut address: u64, mut bytes: u64, owner: Owner) {
        let joins = |of: Owner| of == owner || of == Owner::NOBODY;
        if let Some((&before, &(length, of))) = self.free.range(..address).next_back()
            && before + length == address
            && joins(of)
        {
            self.free.remove(&before);
            address = before;
            bytes += length;
        }
        if let Some(&(length, of)) = self.free.get(&(address + bytes))
            && joins(of)
        {
            self.free.remove(&(address + bytes));
            bytes += length;
        }
        self.free.insert(address, (bytes, owner));
    }

    /// The first piece that is large enough, of those that `allowed` lets through.
    fn first(&self, bytes: u64, allowed: impl Fn(Owner) -> bool) -> Option<(u64, Owner)> {
        let fits = |(address, (have, owner)): (&u64, &(u64, Owner))| {
            (*have >= bytes && allowed(*owner)).then_some((*address, *owner))
        };
        self.free.iter().find_map(fits)
    }

    fn cut(&mut self, address: u64, bytes: u64) {
        if let Some((have, owner)) = self.free.remove(&address)
            && have > bytes
        {
            self.free.insert(address + bytes, (have - bytes, owner));
        }
    }

    /// A piece of the range for a stream.
    fn take<D: Device>(&mut self, bytes: u64, owner: Owner, stream: Stream, driver: &Driver<D>) -> Result<u64> {
        let own = |of| of == owner || of == Owner::NOBODY;
        if let Some((address, _)) = self.first(bytes, own) {
            self.cut(address, bytes);
            return Ok(address);
        }
        if let Some((address, other)) = self.first(bytes, |of| !own(of))
            && self.books.owners.hand_over(other, stream, driver)?
        {
            self.cut(address, bytes);
            return Ok(address);
        }
        self.take_over(owner, stream, driver)?;
        if self.first(bytes, own).is_none() {
            self.grow(bytes, owner, driver)?;
        }
        let (address, _) = self.first(bytes, own).ok_or(USED_UP)?;
        self.cut(address, bytes);
        Ok(address)
    }

    /// Puts all free pieces of the range into a stream's order.
    fn take_over<D: Device>(&mut self, owner: Owner, stream: Stream, driver: &Driver<D>) -> Result<()> {
        let others: Vec<Owner> = self.books.owners.all().filter(|other| *other != owner).collect();
        for other in others {
            let pieces: Vec<_> =
                self.free.iter().filter(|(_, (_, of))| *of == other).map(|(at, (bytes, _))| (*at, *bytes)).collect();
            if pieces.is_empty() || !self.books.owners.hand_over(other, stream, driver)? {
                continue;
            }
            for (address, bytes) in pieces {
                self.free.remove(&address);
                self.settle(address, bytes, owner);
            }
        }
        Ok(())
    }

    /// Maps what is missing behind the last piece, so that it fits.
    fn grow<D: Device>(&mut self, bytes: u64, owner: Owner, driver: &Driver<D>) -> Result<()> {
        let last = self.free.last_key_value().map(|(address, (have, of))| (*address, *have, *of));
        let have = match last {
            Some((address, have, of)) if address + have == self.end && (of == owner || of == Owner::NOBODY) => have,
            _ => 0,
        };
        let missing = (bytes - have).next_multiple_of(GRANULE);
        if !self.grows || missing > self.start + self.bytes - self.end {
            return Err(USED_UP.into());
        }
        let mut granules = Vec::new();
        let mapped = (0..missing / GRANULE).try_for_each(|at| {
            let granule = driver.create(GRANULE)?;
            driver.map(self.end + at * GRANULE, granule).inspect_err(|_| {
                let _ = driver.release(granule);
            })?;
            granules.push(granule);
            Ok(())
        });
        if let Err(error) = mapped.and_then(|()| driver.set_access(self.end, missing)) {
            if !granules.is_empty() {
                // What stays mapped now is not used again: the next growth would find it in its way, and fail.
                let _ = driver.unmap(self.end, granules.len() as u64 * GRANULE);
            }
            for granule in granules {
                let _ = driver.release(granule);
            }
            return Err(error.into());
        }
        self.granules.append(&mut granules);
        let end = self.end;
        self.end += missing;
        self.books.grow(missing);
        self.settle(end, missing, if have > 0 { owner } else { Owner::NOBODY });
        Ok(())
    }

    /// A piece of a superblock of the stream.
    fn take_small(&mut self, bytes: u64, owner: Owner) -> Option<u64> {
        let own = self.superblocks.values_mut().filter(|superblock| superblock.owner == owner);
        for superblock in own {
            let Some((&address, &have)) = superblock.free.iter().find(|(_, have)| **have >= bytes) else { continue };
            superblock.free.remove(&address);
            if have > bytes {
                superblock.free.insert(address + bytes, have - bytes);
            }
            return Some(address);
        }
        None
    }

    fn free_small<D: Device>(
        &mut self,
        mut address: u64,
        mut bytes: u64,
        by: Owner,
        stream: Stream,
        driver: &Driver<D>,
    ) -> Result<()> {
        let Some((&start, superblock)) = self.superblocks.range_mut(..=address).next_back() else {
            return Err(PolicyError::NotABlock(address));
        };
        let owner = superblock.owner;
        if by != owner {
            self.books.owners.put_behind(owner, stream, driver)?;
        }
        if let Some((&before, &length)) = superblock.free.range(..address).next_back()
            && before + length == address
        {
            superblock.free.remove(&before);
            address = before;
            bytes += length;
        }
        if let Some(length) = superblock.free.remove(&(address + bytes)) {
            bytes += length;
        }
        superblock.free.insert(address, bytes);
        if bytes == SUPERBLOCK {
            self.superblocks.remove(&start);
            self.settle(start, SUPERBLOCK, owner);
        }
        Ok(())
    }
}

impl Placement for FirstFit {
    const NAME: &'static str = "arena";

    fn books(&mut self) -> &mut Books {
        &mut self.books
    }

    fn allocate<D: Device>(&mut self, size: u64, owner: Owner, stream: Stream, driver: &Driver<D>) -> Result<u64> {
        let bytes = size.max(1).checked_next_multiple_of(ALIGNMENT).filter(|bytes| *bytes < 1 << 62);
        let (address, bytes) = match bytes {
            None => return Err(USED_UP.into()),
            Some(bytes) if bytes <= SMALL => match self.take_small(bytes, owner) {
                Some(address) => (address, bytes),
                None => {
                    let address = self.take(SUPERBLOCK, owner, stream, driver)?;
                    let free = BTreeMap::from([(address + bytes, SUPERBLOCK - bytes)]);
                    self.superblocks.insert(address, Superblock { owner, free });
                    (address, bytes)
                }
            },
            Some(bytes) => (self.take(bytes, owner, stream, driver)?, bytes),
        };
        self.blocks.insert(address, bytes);
        self.books.stats.in_use += bytes;
        Ok(address)
    }

    fn free<D: Device>(&mut self, address: u64, owner: Owner, stream: Stream, driver: &Driver<D>) -> Result<()> {
        let bytes = *self.blocks.get(&address).ok_or(PolicyError::NotABlock(address))?;
        if bytes <= SMALL {
            self.free_small(address, bytes, owner, stream, driver)?;
        } else {
            self.settle(address, bytes, owner);
        }
        self.blocks.remove(&address);
        self.books.stats.in_use -= bytes;
        Ok(())
    }

    /// Gives the granules at the end back that are free.
    fn release<D: Device>(&mut self, driver: &Driver<D>) -> Result<()> {
        while self.grows
            && let Some((&address, &(bytes, owner))) = self.free.last_key_value()
            && address + bytes == self.end
            && bytes >= GRANULE
        {
            if !self.books.owners.finish(owner, driver)? {
                return Ok(());
            }
            let cut = address.next_multiple_of(GRANULE);
            driver.unmap(cut, self.end - cut)?;
            self.free.remove(&address);
            if cut > address {
                self.free.insert(address, (cut - address, owner));
            }
            self.books.stats.reserved -= self.end - cut;
            self.end = cut;
            let kept = ((cut - self.start) / GRANULE) as usize;
            for granule in self.granules.drain(kept..) {
                driver.release(granule)?;
            }
        }
        Ok(())
    }

    fn end<D: Device>(&mut self, driver: &Driver<D>) {
        // What can't be given back now never can.
        if self.grows {
            let owners: Vec<Owner> = self.books.owners.all().collect();
            for owner in owners {
                let _ = self.books.owners.finish(owner, driver);
            }
            if self.end > self.start {
                let _ = driver.unmap(self.start, self.end - self.start);
            }
            for granule in self.granules.drain(..) {
                let _ = driver.release(granule);
            }
            let _ = driver.unreserve(self.start, self.bytes);
        } else {
            let _ = driver.free(self.start);
        }
    }
}
