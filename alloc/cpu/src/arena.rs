//! Arenas: reserved address ranges, cut into pages, with the table of page descriptors at the start.
//!
//! One unsigned compare against the first arena's range tells the fast path whether an address can be a block's:
//! null, foreign and (under a small address-space limit) later arenas' addresses go to the slow path. The first
//! reservation is `POOLSCOPE_ARENA` bytes if the system allows it, less under `ulimit -v` or valgrind; when an arena is used
//! up, another one is reserved. A process that limits its own address space gives back what it has only reserved.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::os;
use crate::settings;
use crate::slab::Slab;
use crate::stats::{self, TierCounter};

/// Logarithm of the page size.
pub const PAGE_SHIFT: u32 = 16;
/// Bytes of an arena page: the unit of spans (not the kernel's page).
pub const PAGE: usize = 1 << PAGE_SHIFT;
const MAX_ARENAS: usize = 64;
const GIB: usize = 1 << 30;
/// Sizes to try, largest first, after the size that was asked for.
const LADDER: [usize; 9] = [256 * GIB, 64 * GIB, 16 * GIB, 4 * GIB, GIB, GIB / 4, GIB / 16, GIB / 64, GIB / 256];

struct Arena {
    base: AtomicUsize,
    len: AtomicUsize,
}

static ARENAS: [Arena; MAX_ARENAS] =
    [const { Arena { base: AtomicUsize::new(0), len: AtomicUsize::new(0) } }; MAX_ARENAS];

/// Where the first arena lies: the one pair of words that every `free` reads.
#[repr(C)]
struct FastArena {
    /// Start of the arena, which is also the start of its descriptor table.
    base: AtomicUsize,
    /// Bytes of the arena that are usable. 0 before there is one, so that no address lies in it.
    len: AtomicUsize,
}

/// The words have a hidden symbol of their own: for a `static` of another crate the compiler would go through the
/// global offset table, with one more load for each.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod fast {
    use super::FastArena;
    use core::arch::{asm, global_asm};

    global_asm!(
        ".section .bss.poolscope_arena_0_1,\"aw\",@nobits",
        ".globl poolscope_arena_0_1",
        ".hidden poolscope_arena_0_1",
        ".type poolscope_arena_0_1,@object",
        ".size poolscope_arena_0_1,16",
        ".p2align 4",
        "poolscope_arena_0_1:",
        ".zero 16",
        ".text",
    );

    /// Base and length.
    #[inline(always)]
    pub(super) fn bounds() -> (usize, usize) {
        let (base, len): (usize, usize);
        // SAFETY: reads the words declared above.
        unsafe {
            asm!(
                "mov {base}, qword ptr [rip + poolscope_arena_0_1]",
                "mov {len}, qword ptr [rip + poolscope_arena_0_1 + 8]",
                base = out(reg) base,
                len = out(reg) len,
                options(nostack, preserves_flags, readonly, pure)
            );
        }
        (base, len)
    }

    pub(super) fn words() -> &'static FastArena {
        let words: *const FastArena;
        // SAFETY: the address of the words declared above.
        unsafe {
            asm!(
                "lea {p}, [rip + poolscope_arena_0_1]",
                p = out(reg) words,
                options(nostack, preserves_flags, nomem, pure)
            );
            &*words
        }
    }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
mod fast {
    use super::{AtomicUsize, FastArena, Ordering};

    static WORDS: FastArena = FastArena { base: AtomicUsize::new(0), len: AtomicUsize::new(0) };

    #[inline(always)]
    pub(super) fn bounds() -> (usize, usize) {
        (WORDS.base.load(Ordering::Relaxed), WORDS.len.load(Ordering::Relaxed))
    }

    pub(super) fn words() -> &'static FastArena {
        &WORDS
    }
}

/// The descriptor of the page that `p` lies in, if that is in the first arena.
#[inline(always)]
pub fn fast_page_of(p: *mut u8) -> Option<&'static Slab> {
    let (base, len) = fast::bounds();
    let offset = (p as usize).wrapping_sub(base);
    if offset >= len {
        return None;
    }
    // SAFETY: the table at the arena's start has a descriptor for each of its pages; an arena never begins at 0.
    unsafe {
        core::hint::assert_unchecked(base + (offset >> PAGE_SHIFT) * size_of::<Slab>() != 0);
        Some(descriptor(base, offset))
    }
}

/// The descriptor of the page that `p` lies in, in any arena.
pub fn page_of(p: *mut u8) -> Option<&'static Slab> {
    for arena in &ARENAS {
        let base = arena.base.load(Ordering::Relaxed);
        let offset = (p as usize).wrapping_sub(base);
        if offset < arena.len.load(Ordering::Acquire) {
            // SAFETY: as above.
            return Some(unsafe { descriptor(base, offset) });
        }
        if base == 0 {
            break;
        }
    }
    None
}

#[inline(always)]
unsafe fn descriptor(base: usize, offset: usize) -> &'static Slab {
    // SAFETY: the caller checked that `offset` lies in the arena at `base`.
    unsafe { &*((base + (offset >> PAGE_SHIFT) * size_of::<Slab>()) as *const Slab) }
}

/// Address of the page that `slab` describes.
#[inline]
pub fn page_address(slab: &'static Slab) -> *mut u8 {
    let arena = usize::from(slab.zero_and_arena.get() >> 1);
    let base = ARENAS[arena % MAX_ARENAS].base.load(Ordering::Relaxed);
    let index = (&raw const *slab as usize - base) / size_of::<Slab>();
    (base + index * PAGE) as *mut u8
}

/// Bytes of the largest arena in an address space of `limit` bytes: the rest is for stacks, libraries and files.
fn largest_arena(limit: usize) -> usize {
    limit / 4
}

/// Bytes of arena number `arena` if there is room, where the first one has `first`: each has twice as many as the one before,
/// so that the table of arenas is long enough, up to what is reserved when nobody asks for less.
fn arena_size(first: usize, arena: usize) -> usize {
    first.saturating_mul(1 << arena.min(16)).min(first.max(LADDER[0]))
}

/// Pages that are made usable at once, at least and at most; between them, as many as there are already.
const COMMIT_MIN: usize = (4 << 20) / PAGE;
const COMMIT_MAX: usize = GIB / PAGE;

/// Where never used pages come from: the arenas' unused ends, of which only the largest is kept.
pub struct Frontier {
    /// Arenas that there are.
    arenas: usize,
    end: UnusedEnd,
}

/// The unused end of an arena.
struct UnusedEnd {
    /// The arena's place in the table.
    arena: usize,
    next_page: usize,
    /// Pages before this one may be touched; so may their descriptors, and one more.
    committed: usize,
    /// Pages that the descriptor table takes, at the arena's start.
    table: usize,
    pages: usize,
}

impl Frontier {
    /// Before the first arena.
    pub const fn new() -> Self {
        Frontier { arenas: 0, end: UnusedEnd { arena: 0, next_page: 0, committed: 0, table: 0, pages: 0 } }
    }

    /// Takes `pages` never used pages; `None` without memory. Where that takes a new arena, the second value is what the
    /// smaller of the two unused ends comes to, if anything: it is free.
    pub fn take(&mut self, pages: usize) -> Option<(&'static Slab, Option<&'static Slab>)> {
        if pages <= self.end.left() {
            return self.end.take(pages).map(|span| (span, None));
        }
        let mut new = UnusedEnd::reserve(self.arenas, pages)?;
        let Some(span) = new.take(pages) else {
            new.give_back();
            return None;
        };
        self.arenas += 1;
        if new.left() > self.end.left() {
            core::mem::swap(&mut new, &mut self.end);
        }
        let rest = new.left();
        Some((span, if rest > 0 { new.take(rest) } else { None }))
    }

    /// Takes `pages` never used pages if they follow `span`; they are part of it afterwards.
    pub fn extend(&mut self, span: &'static Slab, pages: usize) -> bool {
        let end = span.address() as usize + span.bytes();
        if pages > self.end.left() || end != self.end.base() + self.end.next_page * PAGE {
            return false;
        }
        let Some(behind) = self.end.take(pages) else { return false };
        span.pages.set(span.pages.get() + behind.pages.get());
        true
    }

    /// Gives the addresses back that are reserved and were never made usable, if an address space of `limit` bytes has no
    /// place for them. The arena ends there.
    pub fn fit(&mut self, limit: usize) {
        if self.arenas > 0 && self.end.reserved_bytes() > largest_arena(limit) {
            self.end.close();
        }
    }
}

impl UnusedEnd {
    /// Reserves arena number `arena`, for at least `pages` pages.
    #[cold]
    fn reserve(arena: usize, pages: usize) -> Option<UnusedEnd> {
        let place = ARENAS.get(arena)?;
        let need = pages.checked_mul(PAGE + size_of::<Slab>())?.checked_add(3 * PAGE)?;
        let wanted = arena_size(settings::current().arena() as usize, arena);
        let bigger = need.checked_next_multiple_of(wanted.min(GIB)).unwrap_or(need);
        let largest = largest_arena(os::address_space_limit());
        let sizes = [wanted].into_iter().chain(LADDER.into_iter().filter(|&len| len < wanted));
        let sizes = sizes.filter(|&len| len >= need).chain([bigger]).filter(|&len| len <= largest);
        for len in sizes.chain([need]) {
            let Some(mapped) = len.checked_add(PAGE) else { continue };
            stats::add(TierCounter::SystemCalls, 1);
            let p = os::reserve(mapped) as usize;
            if p == 0 {
                continue;
            }
            let base = p.next_multiple_of(PAGE);
            let len = len & !(PAGE - 1);
            for (from, to) in [(p, base), (base + len, p + mapped)] {
                if from < to {
                    // SAFETY: just mapped, outside of the arena.
                    unsafe { os::unmap(from as *mut u8, to - from) };
                }
            }
            place.base.store(base, Ordering::Relaxed);
            if arena == 0 {
                fast::words().base.store(base, Ordering::Relaxed);
            }
            stats::add(TierCounter::SystemReserved, len as u64);
            // The table describes itself too; these descriptors stay unused. So does the last page: the page behind a
            // span always has a descriptor.
            let table = (len / PAGE * size_of::<Slab>()).div_ceil(PAGE);
            return Some(UnusedEnd { arena, next_page: table, committed: table, table, pages: len / PAGE - 1 });
        }
        None
    }

    /// Gives an arena back of which nothing was taken.
    fn give_back(self) {
        let place = &ARENAS[self.arena % MAX_ARENAS];
        place.len.store(0, Ordering::Release);
        if self.arena == 0 {
            fast::words().len.store(0, Ordering::Release);
        }
        stats::add(TierCounter::SystemCalls, 1);
        stats::sub(TierCounter::SystemReserved, self.reserved_bytes() as u64);
        // SAFETY: nobody has had a page of it.
        unsafe { os::unmap(self.base() as *mut u8, self.reserved_bytes()) };
        place.base.store(0, Ordering::Relaxed);
    }

    fn base(&self) -> usize {
        ARENAS[self.arena % MAX_ARENAS].base.load(Ordering::Relaxed)
    }

    fn reserved_bytes(&self) -> usize {
        (self.pages + 1) * PAGE
    }

    /// Pages in it.
    fn left(&self) -> usize {
        self.pages - self.next_page
    }

    /// Takes the next `pages` pages, which it has.
    fn take(&mut self, pages: usize) -> Option<&'static Slab> {
        self.commit(pages).then(|| self.cut(pages))
    }

    /// Makes the next `pages` pages usable.
    fn commit(&mut self, pages: usize) -> bool {
        let need = self.next_page + pages;
        if need <= self.committed {
            return true;
        }
        let step = (self.committed - self.table).clamp(COMMIT_MIN, COMMIT_MAX);
        // A limit of data or of all memory in the system may leave room for what is needed and for no more.
        self.commit_up_to(need.max(self.committed + step).min(self.pages)) || self.commit_up_to(need)
    }

    fn commit_up_to(&mut self, wanted: usize) -> bool {
        if !self.commit_table(wanted) {
            return false;
        }
        let from = (self.base() + self.committed * PAGE) as *mut u8;
        stats::add(TierCounter::SystemCalls, 2);
        // SAFETY: the pages are this arena's, and nobody has them yet.
        if !unsafe { os::commit(from, (wanted - self.committed) * PAGE) } {
            return false;
        }
        self.committed = wanted;
        ARENAS[self.arena % MAX_ARENAS].len.store(wanted * PAGE, Ordering::Release);
        if self.arena == 0 {
            fast::words().len.store(wanted * PAGE, Ordering::Release);
        }
        true
    }

    /// Makes the descriptors of the first `pages` pages usable, and that of the page behind them, which the page heap
    /// looks at when it searches a span's neighbours.
    fn commit_table(&self, pages: usize) -> bool {
        // SAFETY: the table is this arena's; what is usable already stays as it is.
        unsafe { os::commit(self.base() as *mut u8, self.table_bytes(pages)) }
    }

    fn table_bytes(&self, pages: usize) -> usize {
        ((pages + 1) * size_of::<Slab>()).next_multiple_of(4096).min(self.table * PAGE)
    }

    fn cut(&mut self, pages: usize) -> &'static Slab {
        // SAFETY: `next_page` is a page of this arena.
        let span = unsafe { descriptor(self.base(), self.next_page << PAGE_SHIFT) };
        for page in [0, pages - 1] {
            span.page(page as u32).zero_and_arena.set((self.arena << 1) as u8 | 1);
        }
        span.pages.set(pages as u32);
        self.next_page += pages;
        stats::add(TierCounter::SystemUsed, (pages * PAGE) as u64);
        stats::add(TierCounter::MetadataBytes, (pages * size_of::<Slab>()) as u64);
        span
    }

    /// Gives back what is reserved and was never made usable.
    fn close(&mut self) {
        let (base, committed) = (self.base(), self.committed);
        let table = self.table_bytes(committed);
        let behind = self.reserved_bytes() - committed * PAGE;
        // SAFETY: the pages behind the last usable one and the descriptors behind theirs are the arena's, and nobody
        // has had them.
        unsafe {
            os::unmap((base + committed * PAGE) as *mut u8, behind);
            if self.table * PAGE > table {
                os::unmap((base + table) as *mut u8, self.table * PAGE - table);
            }
        }
        self.pages = committed;
        stats::add(TierCounter::SystemCalls, 2);
        stats::sub(TierCounter::SystemReserved, behind as u64);
    }
}
