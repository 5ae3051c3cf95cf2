//! Where never used pages come from: the unused ends of arenas.
//!
//! The first reservation has `POOLSCOPE_ARENA` bytes if the system allows it, less under `ulimit -v` or valgrind; when
//! an arena is used up, another one is reserved. A process that limits its own address space gives back what it has
//! only reserved.
//!
//! Pages are taken in the order of their addresses and made usable a step ahead, so that the kernel sees few calls and
//! few mappings:
//!
//! - **Transparent huge pages** are asked for behind the first [`PLAIN`] bytes. A heap grows by the parts of huge pages
//!   that it never touches: one at its end, and those in slabs that are not cut up yet, about a twentieth of what lies
//!   in huge pages. A small heap is spared both.
//! - **Explicit huge pages** take the place of reserved pages from the arena's start on, until the system has no more.
//!   They are permanent: were they given back, nobody would promise that there is one when they are touched again, and
//!   the program would end by `SIGBUS`. So they have an id of their own ([`ArenaId`]), and are joined with nothing
//!   else.
//! - **NUMA nodes** that memory is taken from by the thread that asks have a lane each. The lanes' ends are parts of
//!   one arena, so that the fast path's one compare finds the blocks of all.

use crate::layout::arena::{self, ARENA_PAGE, ArenaId};
use crate::layout::lean;
use crate::layout::slab::Slab;
use crate::pages::placement::Ground;
use crate::pages::system::{Explicit, HUGE_PAGE, System};
use crate::segment::counters::{self, TierCounter};
use crate::segment::publish;
use crate::settings::{DEFAULT_ARENA, Huge};

const GIB: usize = 1 << 30;
/// Sizes to try, largest first, after the size that was asked for.
const LADDER: [usize; 10] =
    [DEFAULT_ARENA as usize, 64 * GIB, 16 * GIB, 4 * GIB, GIB, GIB / 4, GIB / 16, GIB / 64, GIB / 256, GIB / 1024];

/// Pages of a huge page.
pub const HUGE_PAGES: usize = HUGE_PAGE / ARENA_PAGE;
/// Arenas from this size on begin where a huge page does; for smaller ones that would be a waste of addresses.
const ALIGNED_FROM: usize = 64 << 20;
/// The least that a lane gets of an arena for all.
const SHARE_MIN: usize = 16 << 20;
/// Bytes at an arena's start for which no transparent huge pages are asked.
pub const PLAIN: usize = 64 << 20;

/// Pages that are made usable at once, at least and at most; between them, as many as there are already.
const COMMIT_MIN: usize = (1 << 20) / ARENA_PAGE;
const COMMIT_MAX: usize = GIB / ARENA_PAGE;
/// At most this part of a limit of data is made usable ahead.
const COMMIT_SHARE: usize = 32;

/// The unused end of an arena, or of a lane's part of one. Of two ends the larger is kept.
pub struct Frontier {
    id: ArenaId,
    /// The id of its explicit huge pages; that of the arena as long as there are none.
    permanent_id: ArenaId,
    lane: usize,
    /// The first page that is no lane's before this one. Page 0 is nobody's.
    first: usize,
    next_page: usize,
    /// Pages before this one are explicit huge pages; `first` if there are none.
    permanent: usize,
    /// Pages before this one may be touched; so may their descriptors, and one more.
    committed: usize,
    /// Pages before this one have been advised on.
    advised: usize,
    /// Pages before this one can be had.
    pages: usize,
    /// Pages before this one are reserved, and nobody else's.
    reserved: usize,
    /// Bytes that are reserved for the table of descriptors, before page 0.
    table: usize,
    /// Whether the arena has other lanes: then the whole table can be read from the start.
    shared: bool,
}

/// What [`Frontier::take`] found.
pub struct Taken {
    /// The pages that were asked for. Without them and without `free` there is no memory.
    pub span: Option<&'static Slab>,
    /// Pages that became free on the way: what is left of an end that is not kept.
    pub free: Option<&'static Slab>,
}

impl Taken {
    const NOTHING: Taken = Taken { span: None, free: None };
}

/// Once a process has limited itself, the next arena is small, so that it need not give back addresses again; each one
/// after it may have so many times as many, for the limit may be gone by then.
const AFTER_LIMIT_GROWTH: usize = 4;
const AFTER_LIMIT_MIN: usize = GIB / 1024;

/// A reserved range.
struct Reserved {
    /// Address of page 0.
    base: usize,
    /// Bytes, those of the table before page 0 among them.
    len: usize,
}

impl Reserved {
    /// Reserves an arena with `need` bytes at least.
    fn new<S: System>(ground: &mut Ground<S>, need: usize) -> Option<Reserved> {
        let wanted = arena_size(ground.arena_bytes, ground.arenas);
        let bigger = need.checked_next_multiple_of(wanted.min(GIB)).unwrap_or(need);
        let largest = largest_arena(ground.system.address_space_limit()).min(ground.next_arena);
        let sizes = [wanted].into_iter().chain(LADDER.into_iter().filter(|&len| len < wanted));
        let sizes = sizes.filter(|&len| len >= need).chain([bigger]).filter(|&len| len <= largest);
        for len in sizes.chain([need]) {
            let len = len & !(ARENA_PAGE - 1);
            let align = if len >= ALIGNED_FROM { HUGE_PAGE } else { ARENA_PAGE };
            let Some(mapped) = len.checked_add(align) else { continue };
            counters::add(TierCounter::SystemCalls, 1);
            let p = ground.system.reserve(mapped) as usize;
            if p == 0 {
                continue;
            }
            let base = (p + table_of(len)).next_multiple_of(align);
            let (start, end) = (base - table_of(len), base - table_of(len) + len);
            for (from, to) in [(p, start), (end, p + mapped)] {
                if from < to {
                    // SAFETY: just mapped, outside of the arena.
                    unsafe { ground.system.unmap(from as *mut u8, to - from) };
                }
            }
            ground.arenas += 1;
            ground.next_arena = ground.next_arena.saturating_mul(AFTER_LIMIT_GROWTH);
            counters::add(TierCounter::SystemReserved, len as u64);
            if ground.huge == Huge::Off {
                counters::add(TierCounter::SystemCalls, 1);
                // What the kernel does not know it does not do.
                // SAFETY: the range is the arena's.
                let _ = unsafe { ground.system.advise_huge(start as *mut u8, len, false) };
            }
            return Some(Reserved { base, len });
        }
        None
    }

    /// Where it begins, which is where its table does.
    fn start(&self) -> *mut u8 {
        (self.base - table_of(self.len)) as *mut u8
    }

    /// Pages in it.
    fn pages(&self) -> usize {
        (self.len - table_of(self.len)) / ARENA_PAGE
    }

    fn give_back<S: System>(self, ground: &mut Ground<S>) {
        counters::add(TierCounter::SystemCalls, 1);
        counters::sub(TierCounter::SystemReserved, self.len as u64);
        ground.arenas -= 1;
        // SAFETY: nobody has had a page of it.
        unsafe { ground.system.unmap(self.start(), self.len) };
    }
}

/// Bytes of an arena of `len` bytes that are for its table of descriptors: whole pages.
fn table_of(len: usize) -> usize {
    (len / ARENA_PAGE * size_of::<Slab>()).next_multiple_of(ARENA_PAGE)
}

/// Bytes of the largest arena in an address space of `limit` bytes: the rest is for stacks, libraries and files.
fn largest_arena(limit: usize) -> usize {
    limit / 4
}

/// Bytes of arena number `arena` if there is room, where the first one has `first`: each has twice as many as the one
/// before, so that the table of arenas is long enough, up to what is reserved when nobody asks for less.
fn arena_size(first: usize, arena: u32) -> usize {
    first.saturating_mul(1 << arena.min(16)).min(first.max(LADDER[0]))
}

impl Frontier {
    /// Before the first arena.
    pub const fn new() -> Self {
        Frontier {
            id: ArenaId::NONE,
            permanent_id: ArenaId::NONE,
            lane: 0,
            first: 0,
            next_page: 0,
            permanent: 0,
            committed: 0,
            advised: 0,
            pages: 0,
            reserved: 0,
            table: 0,
            shared: false,
        }
    }

    /// Takes `pages` never used pages.
    pub fn take<S: System>(&mut self, ground: &mut Ground<S>, lane: usize, pages: usize) -> Taken {
        if pages <= self.left() {
            if self.pin(ground, pages) {
                return Taken { span: Some(self.cut(pages)), free: None };
            }
            if self.next_page < self.permanent {
                return Taken { span: None, free: Some(self.cut(self.permanent - self.next_page)) };
            }
            // Unless the arena has come to its end there.
            if pages <= self.left() {
                return Taken { span: self.commit(ground, pages).then(|| self.cut(pages)), free: None };
            }
        }
        let Some(mut new) = Frontier::reserve(ground, lane, pages) else { return Taken::NOTHING };
        let usable = new.pin(ground, pages) || new.commit(ground, pages);
        if !usable {
            new.give_back(ground);
            return Taken::NOTHING;
        }
        let span = new.cut(pages);
        if new.left() > self.left() {
            core::mem::swap(&mut new, self);
        }
        // What is left of the smaller end is free, as far as it can be made usable.
        let usable = if new.next_page < new.permanent { new.permanent - new.next_page } else { new.left() };
        let free = (usable > 0 && new.commit(ground, usable)).then(|| new.cut(usable));
        Taken { span: Some(span), free }
    }

    /// The last page that was taken.
    pub fn last(&self) -> Option<&'static Slab> {
        if self.next_page > self.first { arena::page_of(self.address(self.next_page - 1)) } else { None }
    }

    /// Takes `pages` never used pages if they follow `span`; they are part of it afterwards.
    pub fn extend<S: System>(&mut self, ground: &mut Ground<S>, span: &'static Slab, pages: usize) -> bool {
        if pages > self.left() || span.address() as usize + span.bytes() != self.address(self.next_page) as usize {
            return false;
        }
        // One id goes on, or the span would be of two kinds of memory.
        let fits = if self.pin(ground, pages) {
            self.permanent_id.has(span)
        } else {
            self.next_page >= self.permanent && self.id.has(span) && self.commit(ground, pages)
        };
        if fits {
            let behind = self.cut(pages);
            span.pages.set(span.pages.get() + behind.pages.get());
        }
        fits
    }

    /// Gives the addresses back that are reserved and that nobody has had, if an address space of `limit` bytes has no
    /// place for them. The arena ends there.
    pub fn fit<S: System>(&mut self, ground: &mut Ground<S>, limit: usize) {
        if self.reserved > self.next_page && (self.reserved - self.first) * ARENA_PAGE > largest_arena(limit) {
            self.close(ground);
            ground.next_arena = (largest_arena(limit) / 2).max(AFTER_LIMIT_MIN);
        }
    }

    /// Reserves an arena for this lane alone, with at least `pages` pages.
    #[cold]
    fn reserve<S: System>(ground: &mut Ground<S>, lane: usize, pages: usize) -> Option<Frontier> {
        // With room for the table, which has a descriptor for each of its own pages, too; for pages up to where a huge
        // page begins; for the first and the last page, and for what is rounded.
        let ahead = if ground.huge == Huge::Explicit { 2 * HUGE_PAGE } else { 0 };
        let need = pages.checked_mul(ARENA_PAGE + size_of::<Slab>() + 1)?.checked_add(6 * ARENA_PAGE + ahead)?;
        let reserved = Reserved::new(ground, need)?;
        let Some(id) = ArenaId::take(reserved.base, lane, false) else {
            reserved.give_back(ground);
            return None;
        };
        // SAFETY: the range is the arena's.
        unsafe { ground.bind(reserved.start(), reserved.len, lane) };
        Some(Frontier::of(ground, &reserved, id, lane, 1, reserved.pages()))
    }

    /// Reserves one arena for all of these lanes. Whether it worked.
    #[cold]
    pub fn reserve_for_all<'a, S: System>(
        ground: &mut Ground<S>,
        lanes: usize,
        frontiers: impl Iterator<Item = &'a mut Frontier>,
    ) -> bool {
        let Some(reserved) = Reserved::new(ground, lanes * SHARE_MIN) else { return false };
        counters::add(TierCounter::SystemCalls, 1);
        // SAFETY: the table is the arena's, and nobody has written to it.
        if !unsafe { ground.system.make_readable(reserved.start(), table_of(reserved.len)) } {
            reserved.give_back(ground);
            return false;
        }
        let end = reserved.pages();
        let part = end / lanes / HUGE_PAGES * HUGE_PAGES;
        for (lane, frontier) in frontiers.take(lanes).enumerate() {
            let from = HUGE_PAGES + lane * part;
            let Some(id) = ArenaId::take(reserved.base, lane, false) else { return false };
            // SAFETY: the range is the arena's.
            unsafe { ground.bind((reserved.base + from * ARENA_PAGE) as *mut u8, part * ARENA_PAGE, lane) };
            *frontier = Frontier::of(ground, &reserved, id, lane, from, (from + part).min(end));
            frontier.shared = true;
            if lane == 0 {
                id.set_len(end * ARENA_PAGE);
            }
        }
        true
    }

    /// An end from page `first` to page `reserved`.
    fn of<S: System>(
        ground: &Ground<S>,
        arena: &Reserved,
        id: ArenaId,
        lane: usize,
        first: usize,
        reserved: usize,
    ) -> Frontier {
        let explicit = ground.huge == Huge::Explicit && arena.len >= ALIGNED_FROM;
        let first = if explicit { first.next_multiple_of(HUGE_PAGES) } else { first };
        Frontier {
            id,
            permanent_id: id,
            lane,
            first,
            next_page: first,
            permanent: first,
            committed: first,
            advised: first,
            // The last page stays unused: the page behind a span always has a descriptor.
            pages: reserved - 1,
            reserved,
            table: table_of(arena.len),
            shared: false,
        }
    }

    /// Pages of this arena that were taken for this lane.
    #[cfg(test)]
    pub fn taken_pages(&self) -> usize {
        self.next_page - self.first
    }

    /// Gives an arena back of which nothing was taken.
    fn give_back<S: System>(self, ground: &mut Ground<S>) {
        let arena = Reserved { base: self.id.base(), len: self.table + self.reserved * ARENA_PAGE };
        if self.permanent_id != self.id {
            self.permanent_id.release();
        }
        self.id.release();
        arena.give_back(ground);
    }

    fn address(&self, page: usize) -> *mut u8 {
        (self.id.base() + page * ARENA_PAGE) as *mut u8
    }

    /// Pages in it.
    fn left(&self) -> usize {
        self.pages - self.next_page
    }

    /// Makes the next `pages` pages explicit huge pages. False where they are not asked for, or when there are no more.
    #[inline]
    fn pin<S: System>(&mut self, ground: &mut Ground<S>, pages: usize) -> bool {
        let need = self.next_page + pages;
        need <= self.permanent || (ground.huge == Huge::Explicit && self.grow_permanent(ground, need))
    }

    #[cold]
    fn grow_permanent<S: System>(&mut self, ground: &mut Ground<S>, need: usize) -> bool {
        let last = self.pages / HUGE_PAGES * HUGE_PAGES;
        let exact = need.next_multiple_of(HUGE_PAGES);
        // Behind what is usable already, there is no room for others; nor in an arena that does not begin with one.
        if self.permanent != self.committed || !self.permanent.is_multiple_of(HUGE_PAGES) || exact > last {
            return false;
        }
        if self.permanent_id == self.id {
            let Some(id) = ArenaId::take(self.id.base(), self.lane, true) else { return false };
            self.permanent_id = id;
        }
        let step = (self.permanent - self.first).clamp(HUGE_PAGES, COMMIT_MAX);
        let generous = exact.max((self.permanent + step).min(last));
        for wanted in [generous, exact] {
            match self.pin_up_to(ground, wanted) {
                Explicit::Mapped => return true,
                Explicit::Refused(error) if wanted == exact => {
                    ground.refuse_explicit(error);
                    return false;
                }
                Explicit::Refused(_) => {}
                Explicit::Lost(error) => {
                    // The arena ends here, and these addresses are not touched again.
                    counters::sub(TierCounter::SystemReserved, ((self.reserved - self.permanent) * ARENA_PAGE) as u64);
                    (self.pages, self.reserved) = (self.permanent, self.permanent);
                    ground.refuse_explicit(error);
                    return false;
                }
            }
        }
        false
    }

    fn pin_up_to<S: System>(&mut self, ground: &mut Ground<S>, wanted: usize) -> Explicit {
        if !self.commit_table(ground, wanted) {
            return Explicit::Refused(libc::ENOMEM);
        }
        let (from, len) = (self.address(self.permanent), (wanted - self.permanent) * ARENA_PAGE);
        counters::add(TierCounter::SystemCalls, 2);
        // SAFETY: the pages are this arena's, nobody has them yet, and both ends are where a huge page begins.
        let result = unsafe { ground.system.map_huge(from, len) };
        if result == Explicit::Mapped {
            // The mapping is a new one: it has no policy yet.
            // SAFETY: as above.
            unsafe { ground.bind(from, len, self.lane) };
            counters::add(TierCounter::HugeExplicit, len as u64);
            (self.permanent, self.committed, self.advised) = (wanted, wanted, wanted);
            self.publish();
        }
        result
    }

    /// Makes the next `pages` pages usable.
    fn commit<S: System>(&mut self, ground: &mut Ground<S>, pages: usize) -> bool {
        let need = self.next_page + pages;
        if need <= self.committed {
            return true;
        }
        if need > self.pages {
            return false;
        }
        let step = (self.committed - self.first).clamp(COMMIT_MIN, COMMIT_MAX);
        // What is made usable ahead of a limit of data is missing to the program's own mappings.
        let step = step.min(ground.system.data_limit() / ARENA_PAGE / COMMIT_SHARE);
        // A limit of data or of all memory in the system may leave room for what is needed and for no more.
        self.commit_up_to(ground, need.max(self.committed + step).min(self.pages)) || self.commit_up_to(ground, need)
    }

    fn commit_up_to<S: System>(&mut self, ground: &mut Ground<S>, wanted: usize) -> bool {
        if !self.commit_table(ground, wanted) {
            return false;
        }
        counters::add(TierCounter::SystemCalls, 2);
        let (from, len) = (self.address(self.committed), (wanted - self.committed) * ARENA_PAGE);
        // SAFETY: the pages are this arena's, and nobody has them yet.
        if !lean::is_on() && !unsafe { ground.system.commit(from, len) } {
            return false;
        }
        self.committed = wanted;
        self.publish();
        publish::extend_ground(self.address(self.first) as usize, self.address(wanted) as usize);
        let (table, behind) = self.table_up_to(wanted);
        publish::extend_ground(table, behind);
        self.advise(ground);
        true
    }

    /// Lets blocks of the usable pages be found.
    fn publish(&self) {
        if !self.shared {
            self.id.set_len(self.committed * ARENA_PAGE);
        }
    }

    /// Asks for transparent huge pages in what was made usable, as far as they are whole.
    fn advise<S: System>(&mut self, ground: &mut Ground<S>) {
        let from = self.advised.max((self.first + PLAIN / ARENA_PAGE).next_multiple_of(HUGE_PAGES));
        let to = self.committed / HUGE_PAGES * HUGE_PAGES;
        if matches!(ground.huge, Huge::System | Huge::Off) || from >= to {
            return;
        }
        self.advised = to;
        counters::add(TierCounter::SystemCalls, 1);
        let len = (to - from) * ARENA_PAGE;
        // SAFETY: the pages are this arena's.
        match unsafe { ground.system.advise_huge(self.address(from), len, true) } {
            0 => {
                ground.has_huge = true;
                counters::add(TierCounter::HugeAdvised, len as u64);
            }
            error => ground.refuse_transparent(error),
        }
    }

    /// Makes the descriptors of the pages before `pages` usable, and that of the page behind them, which the page heap
    /// looks at when it searches a span's neighbours.
    fn commit_table<S: System>(&self, ground: &Ground<S>, pages: usize) -> bool {
        let (from, end) = self.table_up_to(pages);
        // Those of pages before the first are read only, and all can be where there are other lanes.
        let end = if self.shared { end } else { self.id.base() };
        // SAFETY: the table is this arena's; what is usable already stays as it is.
        unsafe { ground.system.commit(from as *mut u8, end - from) }
    }

    /// Where the descriptors of this end's pages before `pages` lie, and that of the page behind them, in whole pages
    /// of the kernel's: the first address, and the one behind the last.
    fn table_up_to(&self, pages: usize) -> (usize, usize) {
        let (base, before) = (self.id.base(), self.first * size_of::<Slab>() / 4096 * 4096);
        let bytes = ((pages + 1) * size_of::<Slab>()).next_multiple_of(4096).min(self.table);
        (base - bytes, base - before)
    }

    /// The next `pages` pages, which are usable, and of one kind.
    fn cut(&mut self, pages: usize) -> &'static Slab {
        let id = if self.next_page < self.permanent { self.permanent_id } else { self.id };
        // SAFETY: the descriptors are usable, and so far nobody's.
        let span = unsafe {
            id.descriptor(self.next_page + pages - 1);
            id.descriptor(self.next_page)
        };
        span.pages.set(pages as u32);
        self.next_page += pages;
        self.id.set_used(self.first, self.next_page, self.committed);
        counters::add(TierCounter::SystemUsed, (pages * ARENA_PAGE) as u64);
        counters::add(TierCounter::MetadataBytes, (pages * size_of::<Slab>()) as u64);
        span
    }

    /// Gives back what is reserved and nobody has: also what was made usable ahead.
    fn close<S: System>(&mut self, ground: &mut Ground<S>) {
        let end = self.next_page.max(self.permanent);
        let start = self.id.base() - self.table;
        let unused = self.table_up_to(end).0 - start;
        let behind = (self.reserved - end) * ARENA_PAGE;
        // SAFETY: the pages behind the last one that was taken and, where no other lane has them, their descriptors
        // are the arena's, and nobody has had them.
        unsafe {
            ground.system.unmap(self.address(end), behind);
            if !self.shared && unused > 0 {
                ground.system.unmap(start as *mut u8, unused);
            }
        }
        (self.pages, self.reserved, self.committed, self.advised) = (end, end, end, self.advised.min(end));
        if !self.shared {
            self.table -= unused;
        }
        self.publish();
        counters::add(TierCounter::SystemCalls, 2);
        counters::sub(TierCounter::SystemReserved, behind as u64);
    }
}
