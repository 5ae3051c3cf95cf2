//! The walk of a census over all pages: what each one is, and whether it has memory.
//!
//! Descriptors are read one by one, while threads and the page heap change them. A page is what its own descriptor
//! says: the first of a slab or of a large block speaks for as many pages as follow, any other one that has no owner is
//! free.

use core::sync::atomic::Ordering;

use poolscope_wire::stats::Unbacked;
use poolscope_wire::{GROUNDS, Ground};

use crate::kernel::os;
use crate::layout::arena::{self, ARENA_PAGE, Used};
use crate::layout::slab::{Kind, Seen, Slab, owner};
use crate::pages::apart;
use crate::segment::counters::{self, TierCounter};
use crate::tiers::thread_cache::heap_of;

/// Pages of the kernel's. Where they are larger, nobody is asked.
const KERNEL_PAGE: usize = 4096;
/// Bytes that the kernel is asked about at once.
const PIECE: usize = 16 << 20;

/// What the kernel says, piece by piece.
pub struct Pieces {
    /// For each kernel page of the latest piece, whether it has memory.
    has_memory: [u8; PIECE / KERNEL_PAGE],
    from: usize,
    to: usize,
    /// It did not say.
    unknown: bool,
}

impl Pieces {
    /// Nothing asked yet.
    pub const fn new() -> Self {
        Pieces { has_memory: [0; PIECE / KERNEL_PAGE], from: 0, to: 0, unknown: false }
    }

    /// Bytes with memory between two addresses, no more than a page apart and in one piece of those that end at
    /// `limit`.
    fn resident(&mut self, from: usize, to: usize, limit: usize) -> usize {
        if from < self.from || to > self.to {
            (self.from, self.to) = (from & !(KERNEL_PAGE - 1), (from + PIECE).min(limit));
            // SAFETY: the buffer has a byte for each kernel page of a piece.
            self.unknown |= !unsafe { os::resident(self.from, self.to - self.from, self.has_memory.as_mut_ptr()) };
        }
        let (mut at, mut bytes) = (from, 0);
        while at < to {
            let end = ((at | (KERNEL_PAGE - 1)) + 1).min(to);
            if self.has_memory.get((at - self.from) / KERNEL_PAGE).is_some_and(|byte| byte & 1 != 0) {
                bytes += end - at;
            }
            at = end;
        }
        bytes
    }

    /// Bytes with memory in a mapping outside of the arenas, which may go meanwhile: then it has none.
    fn resident_apart(&mut self, from: usize, len: usize) -> usize {
        (self.from, self.to) = (0, 0);
        let (mut at, mut bytes) = (from, 0);
        while at < from + len && !self.unknown {
            let piece = (from + len - at).min(PIECE);
            // SAFETY: the buffer has a byte for each kernel page of a piece.
            if unsafe { os::resident(at, piece, self.has_memory.as_mut_ptr()) } {
                let pages = self.has_memory.iter().take(piece / KERNEL_PAGE);
                bytes += pages.filter(|byte| **byte & 1 != 0).count() * KERNEL_PAGE;
            }
            at += piece;
        }
        bytes
    }
}

/// Bytes that should have memory, as the counters go, and that have.
#[derive(Clone, Copy, Default)]
struct Part {
    claimed: usize,
    resident: usize,
}

impl Part {
    fn add(&mut self, claimed: usize, resident: usize) {
        self.claimed += claimed;
        self.resident += resident;
    }
}

/// What the walk has found.
pub struct Found {
    parts: [Part; Unbacked::COUNT],
    grounds: [Ground; GROUNDS],
    places: usize,
    unknown: bool,
}

impl Found {
    /// Nothing.
    pub const fn new() -> Self {
        let nothing = Part { claimed: 0, resident: 0 };
        Found { parts: [nothing; Unbacked::COUNT], grounds: [Ground::ZERO; GROUNDS], places: 0, unknown: false }
    }

    /// For each [`Unbacked`], what has no memory, in two's complement.
    pub fn unbacked(&self) -> [u64; Unbacked::COUNT] {
        if self.unknown {
            return [0; Unbacked::COUNT];
        }
        let mut parts = self.parts;
        // Of free pages the page heap knows what it has given back.
        let released = counters::get(TierCounter::SystemReleased) as usize;
        let pages = &mut parts[Unbacked::PageHeap as usize];
        pages.claimed = pages.claimed.saturating_sub(released);
        parts.map(|part| (part.claimed as u64).wrapping_sub(part.resident as u64))
    }

    /// Addresses in use.
    pub fn grounds(&self) -> &[Ground] {
        &self.grounds[..self.places.min(GROUNDS)]
    }

    fn part(&mut self, part: Unbacked) -> &mut Part {
        &mut self.parts[part as usize]
    }

    fn note_ground(&mut self, from: usize, to: usize) {
        if let Some(place) = self.grounds.get_mut(self.places) {
            *place = Ground { from: from as u64, to: to as u64 };
            self.places += 1;
        }
    }

    /// There are more addresses than places for them: readers keep to what the census has found.
    fn note_more_grounds(&mut self) {
        self.grounds[self.places.min(GROUNDS)..].fill(Ground::ZERO);
        self.grounds[GROUNDS - 1] = Ground { from: 1, to: 1 };
        self.places = GROUNDS;
    }

    fn add_slab(&mut self, slab: &Read, before: usize, behind: usize) {
        let Seen { class, carved, in_use, ready, has_holes, .. } = slab.seen;
        let info = class.info();
        let uncut_with_memory = if has_holes { 0 } else { ready.saturating_sub(carved) as usize };
        let (block, carved, in_use) = (info.block as usize, carved as usize, in_use as usize);
        let all = info.capacity as usize * block;
        let missing = (carved * block).saturating_sub(before);
        // Which of the blocks they are in nobody knows.
        let missing_in_use = missing * in_use / carved.max(1);
        let in_use = (in_use * block, in_use * block - missing_in_use);
        self.part(Unbacked::InUse).add(in_use.0, in_use.1);
        let free = carved * block - in_use.0;
        let uncut = all - slab.seen.cut_bytes();
        let tier = if slab.tag > owner::LARGE { Unbacked::ThreadCaches } else { Unbacked::CentralCache };
        let claimed = free + uncut_with_memory * block;
        self.part(tier).add(claimed, before.saturating_sub(in_use.1) + behind.min(uncut));
        let rest = info.slab_pages as usize * ARENA_PAGE - all;
        self.part(Unbacked::CentralCache).add(rest, behind - behind.min(uncut));
    }
}

/// A slab, as it was read.
struct Read {
    tag: usize,
    seen: Seen,
    pages: usize,
}

impl Read {
    /// The slab that begins with this page, if one does.
    fn of(page: &'static Slab, tag: usize) -> Option<Read> {
        let is_slab = tag > owner::LARGE || tag == owner::CENTRAL || tag == owner::SAMPLED;
        let seen = page.look().filter(|seen| is_slab && seen.kind != Kind::Interior as u8)?;
        Some(Read { tag, seen, pages: seen.class.info().slab_pages as usize })
    }

    /// Tells the heap whose slab it is of blocks that its thread has freed and not counted.
    fn note_uncounted(&self) {
        let Seen { class, carved, in_use, counted, .. } = self.seen;
        if self.tag > owner::LARGE && !class.is_medium() {
            // SAFETY: any other tag is a heap's.
            let heap = unsafe { heap_of(self.tag) };
            heap.of(class).notes.add_uncounted((carved - in_use).saturating_sub(counted));
        }
    }
}

/// Walks over all pages. The stack may be small: what is found has a place elsewhere.
pub fn walk(pieces: &mut Pieces, found: &mut Found) {
    (pieces.from, pieces.to, pieces.unknown) = (0, 0, os::is_emulated());
    found.parts = [Part::default(); Unbacked::COUNT];
    found.places = 0;
    arena::for_each_used(|used| {
        walk_arena(found, pieces, &used);
        walk_table(found, pieces, &used);
    });
    if apart::is_used() {
        apart::for_each(|from, len| {
            let memory = pieces.resident_apart(from, len);
            found.part(Unbacked::InUse).add(len, memory);
        });
        found.note_more_grounds();
    }
    found.unknown = pieces.unknown;
}

fn walk_arena(found: &mut Found, pieces: &mut Pieces, used: &Used) {
    let limit = used.address(used.end);
    found.note_ground(used.address(used.first), used.address(used.usable));
    let mut page = used.first;
    while page < used.end {
        let descriptor = used.descriptor(page);
        let tag = descriptor.owner.load(Ordering::Acquire);
        let mut resident = |from: usize, to: usize| {
            let (mut at, mut bytes) = (from, 0);
            while at < to {
                let end = ((at | (ARENA_PAGE - 1)) + 1).min(to);
                bytes += pieces.resident(at, end, limit);
                at = end;
            }
            bytes
        };
        let from = used.address(page);
        if let Some(slab) = Read::of(descriptor, tag).filter(|slab| page + slab.pages <= used.end) {
            slab.note_uncounted();
            let cut = from + slab.seen.cut_bytes();
            let before = resident(from, cut);
            let behind = resident(cut, from + slab.pages * ARENA_PAGE);
            found.add_slab(&slab, before, behind);
            page += slab.pages;
            continue;
        }
        let is_large = tag == owner::LARGE;
        let pages = if is_large { (descriptor.pages_now() as usize).clamp(1, used.end - page) } else { 1 };
        let memory = resident(from, from + pages * ARENA_PAGE);
        found.part(if is_large { Unbacked::InUse } else { Unbacked::PageHeap }).add(pages * ARENA_PAGE, memory);
        page += pages;
    }
}

fn walk_table(found: &mut Found, pieces: &mut Pieces, used: &Used) {
    let (from, to) = used.table(used.first, used.end);
    // The descriptor of the page behind the last one is looked at, too.
    let (first, limit) = ((from - 1) & !(KERNEL_PAGE - 1), to.next_multiple_of(KERNEL_PAGE));
    found.note_ground(used.table(used.first, used.usable + 1).0 & !(KERNEL_PAGE - 1), limit);
    let (mut at, mut memory) = (first, 0);
    while at < limit {
        let end = (at + KERNEL_PAGE).min(limit);
        memory += pieces.resident(at, end, limit);
        at = end;
    }
    found.part(Unbacked::Metadata).add(to - from, memory);
}
