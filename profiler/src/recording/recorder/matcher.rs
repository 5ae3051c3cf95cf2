//! Brings the events of all threads together: which free is of which allocation.
//!
//! Each thread's events come in its own order, and what happens between threads is only known by addresses and roughly
//! by time. A block's allocation is told after it was made and its free before it happens, so that at each address
//! allocations and frees take turns in truth. Where they do not take turns as they arrive, the missing one is still in
//! another thread's ring: it comes with the next reading of all rings at the latest.
//!
//! A program notes the time anew before it frees a block that another thread may have allocated, and before it
//! allocates one that another thread may have freed, so that batches in the order of their times are in order. What can
//! still come too early is the allocation of a block whose last owner moved it by `realloc`, which is told after it
//! happened.
//!
//! - A free of an address at which there is no block waits for that. Then it is a free of a block that was allocated
//!   before the recording, or by an event that was lost.
//! - An allocation at an address at which there is a block waits behind it. If nobody frees the first one,
//!   its free was lost.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::recording::events::call_paths::CallPaths;
use crate::recording::events::live_table::LiveTable;
use crate::recording::events::place::Lane;
use crate::recording::file::writer::Writer;

/// A free that found no block.
#[derive(Clone, Copy, Debug)]
struct Early {
    ring: u32,
    /// Allocations of batches that began later can't have come before it.
    until_ns: u64,
    reading: u64,
    stack: Option<u32>,
    lane: Option<Lane>,
}

/// An allocation where there was a block already.
#[derive(Clone, Copy, Debug)]
struct Second {
    ring: u32,
    number: u32,
    reading: u64,
}

/// Where an event comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// The thread's ring.
    pub ring: u32,
    /// When its batch began, nanoseconds since the start.
    pub from_ns: u64,
    /// If it is of a device's memory: which, and on what stream.
    pub lane: Option<Lane>,
}

/// Follows blocks by their addresses.
#[derive(Debug, Default)]
pub struct Matcher {
    /// Blocks in use.
    pub live: LiveTable,
    early: HashMap<u64, Vec<Early>>,
    /// Addresses of those of the batch that is being recorded, of which it is not known yet when it ended.
    early_of_batch: Vec<u64>,
    seconds: HashMap<u64, Vec<Second>>,
    /// Readings of all rings so far.
    reading: u64,
    /// Allocations that were not followed, because there were too many.
    pub unfollowed: u64,
    /// Frees of blocks that are not known.
    pub unknown: u64,
    /// Frees that were lost.
    pub lost: u64,
}

impl Matcher {
    /// A block was allocated.
    #[inline(always)]
    pub fn alloc<W: Write>(&mut self, writer: &mut Writer<W>, address: u64, size: u64, stack: u32, origin: Origin) {
        if self.live.is_full() {
            self.unfollowed += 1;
            return writer.alloc(size, stack, false, origin.lane);
        }
        let number = self.live.take_number();
        writer.alloc(size, stack, true, origin.lane);
        if !self.early.is_empty() && self.is_freed_early(writer, address, number, origin) {
            return;
        }
        if let Some(first) = self.live.insert(address, number) {
            self.wait_behind(first, address, number, origin);
        }
    }

    /// There is a block already where one was allocated.
    #[cold]
    #[inline(never)]
    fn wait_behind(&mut self, first: u32, address: u64, number: u32, origin: Origin) {
        self.live.insert(address, first);
        let second = Second { ring: origin.ring, number, reading: self.reading };
        self.seconds.entry(address).or_default().push(second);
    }

    /// Whether another thread's free that came before is of this block.
    #[cold]
    #[inline(never)]
    fn is_freed_early<W: Write>(&mut self, writer: &mut Writer<W>, address: u64, number: u32, origin: Origin) -> bool {
        let Some(waiting) = self.early.get_mut(&address) else { return false };
        let fits = |early: &Early| early.ring != origin.ring && origin.from_ns <= early.until_ns;
        let Some(at) = waiting.iter().position(fits) else { return false };
        let early = waiting.remove(at);
        if waiting.is_empty() {
            self.early.remove(&address);
        }
        writer.free(number, early.stack, early.lane);
        self.live.give_number(number);
        true
    }

    /// A block is freed.
    #[inline(always)]
    pub fn free<W: Write>(&mut self, writer: &mut Writer<W>, address: u64, stack: Option<u32>, origin: Origin) {
        if !self.seconds.is_empty() && self.free_one_of_several(writer, address, stack, origin) {
            return;
        }
        match self.live.remove(address) {
            Some(number) => {
                writer.free(number, stack, origin.lane);
                self.live.give_number(number);
            }
            None => self.wait_for_block(address, stack, origin),
        }
    }

    /// There is no block where one is freed.
    #[cold]
    #[inline(never)]
    fn wait_for_block(&mut self, address: u64, stack: Option<u32>, origin: Origin) {
        let Origin { ring, lane, .. } = origin;
        let early = Early { ring, until_ns: u64::MAX, reading: self.reading, stack, lane };
        self.early.entry(address).or_default().push(early);
        self.early_of_batch.push(address);
    }

    /// The batch has ended, at `until_ns` at the latest.
    #[inline]
    pub fn end_batch(&mut self, until_ns: u64) {
        for address in self.early_of_batch.drain(..) {
            let of_batch =
                self.early.get_mut(&address).into_iter().flatten().filter(|early| early.until_ns == u64::MAX);
            of_batch.for_each(|early| early.until_ns = until_ns);
        }
    }

    #[cold]
    #[inline(never)]
    fn free_one_of_several<W: Write>(
        &mut self,
        writer: &mut Writer<W>,
        address: u64,
        stack: Option<u32>,
        origin: Origin,
    ) -> bool {
        let Some(waiting) = self.seconds.get_mut(&address) else { return false };
        // A thread's own block goes before the older one of another thread, whose free is still to come.
        let own = waiting.iter().position(|second| second.ring == origin.ring);
        let freed = match own {
            Some(at) => waiting.remove(at).number,
            None => {
                let next = waiting.remove(0).number;
                self.live.insert(address, next).unwrap_or(next)
            }
        };
        if waiting.is_empty() {
            self.seconds.remove(&address);
        }
        writer.free(freed, stack, origin.lane);
        self.live.give_number(freed);
        true
    }

    /// All rings were read once more, up to where they were when this was last called: what has waited since before
    /// then waits in vain. That may be more than one block of the file holds, so that full ones are written out.
    pub fn all_rings_read<W: Write>(&mut self, writer: &mut Writer<W>, paths: &CallPaths) -> io::Result<()> {
        let reading = self.reading;
        self.reading += 1;
        let mut written = Ok(());
        let mut flush_full = |writer: &mut Writer<W>| {
            if writer.is_due() && written.is_ok() {
                written = writer.flush(paths);
            }
        };
        let mut unknown = 0;
        self.early.retain(|_, waiting| {
            waiting.retain(|early| {
                let waits = early.reading >= reading;
                if !waits {
                    writer.free_unknown(early.stack, early.lane);
                    flush_full(writer);
                    unknown += 1;
                }
                waits
            });
            !waiting.is_empty()
        });
        self.unknown += unknown;
        let live = &mut self.live;
        let lost = &mut self.lost;
        self.seconds.retain(|&address, waiting| {
            while let Some(second) = waiting.first().copied().filter(|second| second.reading < reading) {
                waiting.remove(0);
                if let Some(first) = live.insert(address, second.number) {
                    writer.free_lost(first);
                    flush_full(writer);
                    live.give_number(first);
                    *lost += 1;
                }
            }
            !waiting.is_empty()
        });
        written
    }

    /// The recording ends: nothing more will come.
    pub fn end<W: Write>(&mut self, writer: &mut Writer<W>, paths: &CallPaths) -> io::Result<()> {
        self.all_rings_read(writer, paths)?;
        self.all_rings_read(writer, paths)
    }
}
