//! Arenas: reserved address ranges, cut into pages, with the table of page descriptors before them.
//!
//! The table is read from its end: the descriptor of page 0 lies right before that page, those of later pages before
//! it. So pages and descriptors in use lie side by side, however many are reserved, and nothing describes the table.
//!
//! One unsigned compare against the first arena's range tells the fast path whether an address can be a block's:
//! null, foreign and (under a small address-space limit) later arenas' addresses go to the slow path.
//!
//! Descriptors say by a number which arena they belong to. Memory that is not to be joined has numbers of its own, also
//! where it lies in one arena: that of another NUMA node, and that which the kernel never takes back.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::layout::slab::Slab;

/// Logarithm of the page size.
pub const PAGE_SHIFT: u32 = 15;
/// Bytes of an arena page: the unit of spans (not the kernel's page).
pub const ARENA_PAGE: usize = 1 << PAGE_SHIFT;
/// A descriptor has seven bits for the number.
const MAX_ARENAS: usize = 128;

struct Arena {
    /// 0 for a number that is not taken.
    base: AtomicUsize,
    /// Bytes whose pages have descriptors that can be read; 0 where another number says it of the same arena.
    len: AtomicUsize,
    /// Lane of the page heap, times two, plus one if the memory is permanent.
    ground: AtomicUsize,
    /// The first page that was ever handed to the page heap under this number, and the one behind the last.
    first_used: AtomicUsize,
    end_used: AtomicUsize,
    /// The one behind the last that may be touched.
    end_usable: AtomicUsize,
}

static ARENAS: [Arena; MAX_ARENAS] = [const {
    Arena {
        base: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        ground: AtomicUsize::new(0),
        first_used: AtomicUsize::new(0),
        end_used: AtomicUsize::new(0),
        end_usable: AtomicUsize::new(0),
    }
}; MAX_ARENAS];

/// Numbers that were ever taken are below this.
static NUMBERS: AtomicUsize = AtomicUsize::new(0);

/// Where the first arena lies: the one pair of words that every `free` reads. Less an address, the first one is as far
/// below 0 as the address lies in the arena, and so is the address's descriptor below the arena: one sum is both
/// compared and cut down to that.
#[repr(C)]
struct FastArena {
    /// The address before that of page 0.
    before: AtomicUsize,
    /// The usable pages' bytes below -1. Before there are some that is -1, and no address lies in them.
    bound: AtomicUsize,
}

impl FastArena {
    fn set_base(&self, base: usize) {
        self.before.store(base.wrapping_sub(1), Ordering::Relaxed);
    }

    fn set_len(&self, len: usize) {
        self.bound.store(!len, Ordering::Release);
    }
}

/// The words have a hidden symbol of their own: for a `static` of another crate the compiler would go through the
/// global offset table, with one more load for each.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod fast {
    use super::FastArena;
    use core::arch::{asm, global_asm};

    global_asm!(
        ".section .data.poolscope_arena_0_1,\"aw\",@progbits",
        ".globl poolscope_arena_0_1",
        ".hidden poolscope_arena_0_1",
        ".type poolscope_arena_0_1,@object",
        ".size poolscope_arena_0_1,16",
        ".p2align 4",
        "poolscope_arena_0_1:",
        ".quad -1, -1",
        ".text",
    );

    /// The first word, and how far `p` lies below it; `None` if that is no more than the second word. By hand, because the
    /// compiler loads a word that others may write before it compares it, which is an instruction more.
    #[inline(always)]
    pub(super) fn below(p: usize) -> Option<(usize, usize)> {
        let before: usize;
        // SAFETY: reads a word declared above.
        unsafe {
            asm!(
                "mov {before}, qword ptr [rip + poolscope_arena_0_1]",
                before = out(reg) before,
                options(nostack, preserves_flags, readonly, pure)
            );
        }
        let below = before.wrapping_sub(p);
        // SAFETY: as above.
        unsafe {
            asm!(
                "cmp {below}, qword ptr [rip + poolscope_arena_0_1 + 8]",
                "jbe {other}",
                below = in(reg) below,
                other = label { return None },
                options(nostack, readonly)
            );
        }
        Some((before, below))
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

    static WORDS: FastArena = FastArena { before: AtomicUsize::new(usize::MAX), bound: AtomicUsize::new(usize::MAX) };

    /// The first word, and how far `p` lies below it; `None` if that is no more than the second word.
    #[inline(always)]
    pub(super) fn below(p: usize) -> Option<(usize, usize)> {
        let (before, bound) = (WORDS.before.load(Ordering::Relaxed), WORDS.bound.load(Ordering::Relaxed));
        let below = before.wrapping_sub(p);
        (below > bound).then_some((before, below))
    }

    pub(super) fn words() -> &'static FastArena {
        &WORDS
    }
}

/// The descriptor of the page that `p` lies in, if that is in the first arena.
#[inline(always)]
pub fn fast_page_of(p: *mut u8) -> Option<&'static Slab> {
    let (before, below) = fast::below(p as usize)?;
    // Rounded down, the first page's is -1.
    let page = below as isize >> PAGE_SHIFT;
    let place = before.wrapping_add(1).wrapping_add_signed(page * size_of::<Slab>() as isize);
    // SAFETY: the table before the arena's pages has a descriptor for each of them; it never begins at 0.
    unsafe {
        core::hint::assert_unchecked(place != 0);
        Some(&*(place as *const Slab))
    }
}

/// The descriptor of the page that `p` lies in, in any arena.
pub fn page_of(p: *mut u8) -> Option<&'static Slab> {
    for arena in ARENAS.iter().take(NUMBERS.load(Ordering::Acquire)) {
        let base = arena.base.load(Ordering::Relaxed);
        let offset = (p as usize).wrapping_sub(base);
        if offset < arena.len.load(Ordering::Acquire) {
            // SAFETY: as above.
            return Some(unsafe { descriptor(base, offset) });
        }
    }
    None
}

/// Whether an address is one of a usable part of any arena.
pub fn is_of_arena(address: usize) -> bool {
    page_of(address as *mut u8).is_some()
}

/// Where the descriptor of page number `page` lies, in the arena whose page 0 lies at `base`.
#[inline(always)]
const fn place(base: usize, page: usize) -> usize {
    base.wrapping_sub(page * size_of::<Slab>()).wrapping_sub(size_of::<Slab>())
}

#[inline(always)]
unsafe fn descriptor(base: usize, offset: usize) -> &'static Slab {
    // SAFETY: the caller checked that `offset` lies in the arena at `base`.
    unsafe { &*(place(base, offset >> PAGE_SHIFT) as *const Slab) }
}

/// Pages of an arena, or of a part of it, that the page heap has had.
pub struct Used {
    base: usize,
    /// The first one.
    pub first: usize,
    /// The one behind the last.
    pub end: usize,
    /// The one behind the last that may be touched.
    pub usable: usize,
}

impl Used {
    /// A page's address.
    pub fn address(&self, page: usize) -> usize {
        self.base + page * ARENA_PAGE
    }

    /// A page's descriptor.
    pub fn descriptor(&self, page: usize) -> &'static Slab {
        debug_assert!(page < self.end);
        // SAFETY: descriptors of pages that the page heap has had can be read as long as the process lives.
        unsafe { descriptor(self.base, page << PAGE_SHIFT) }
    }

    /// Where the descriptors of the pages from `first` up to `end` lie: the first address, and the one behind the last.
    pub fn table(&self, first: usize, end: usize) -> (usize, usize) {
        (self.base - end * size_of::<Slab>(), self.base - first * size_of::<Slab>())
    }
}

/// Calls `f` with all pages that the page heap has had.
pub fn for_each_used(mut f: impl FnMut(Used)) {
    for arena in ARENAS.iter().take(NUMBERS.load(Ordering::Acquire)) {
        let end = arena.end_used.load(Ordering::Acquire);
        let (base, first) = (arena.base.load(Ordering::Relaxed), arena.first_used.load(Ordering::Relaxed));
        if base != 0 && first < end {
            f(Used { base, first, end, usable: arena.end_usable.load(Ordering::Relaxed).max(end) });
        }
    }
}

/// Address of the page that `slab` describes.
#[inline]
pub fn page_address(slab: &'static Slab) -> *mut u8 {
    let base = of(slab).base.load(Ordering::Relaxed);
    let index = (base - &raw const *slab as usize) / size_of::<Slab>() - 1;
    (base + index * ARENA_PAGE) as *mut u8
}

#[inline]
fn of(slab: &Slab) -> &'static Arena {
    &ARENAS[usize::from(slab.zero_and_arena.get() >> 1) % MAX_ARENAS]
}

/// The page heap's lane that a span belongs to.
pub fn lane_of(span: &Slab) -> usize {
    of(span).ground.load(Ordering::Relaxed) >> 1
}

/// Whether the kernel is never given a span's memory back.
pub fn is_permanent(span: &Slab) -> bool {
    of(span).ground.load(Ordering::Relaxed) & 1 != 0
}

/// Which arena a span belongs to, or which part of one that is not joined with others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaId(u8);

impl ArenaId {
    /// Before there is one.
    pub const NONE: ArenaId = ArenaId(0);

    /// Takes an id for memory of the arena whose page 0 lies at `base`. `None` if all are taken.
    pub fn take(base: usize, lane: usize, permanent: bool) -> Option<ArenaId> {
        let mut at = 0;
        while at < MAX_ARENAS {
            let free = ARENAS[at].base.compare_exchange(0, base, Ordering::AcqRel, Ordering::Relaxed);
            if free.is_ok() {
                ARENAS[at].ground.store(lane << 1 | usize::from(permanent), Ordering::Relaxed);
                NUMBERS.fetch_max(at + 1, Ordering::AcqRel);
                if at == 0 {
                    fast::words().set_base(base);
                }
                return Some(ArenaId(at as u8));
            }
            at += 1;
        }
        None
    }

    fn arena(self) -> &'static Arena {
        &ARENAS[usize::from(self.0) % MAX_ARENAS]
    }

    /// Address of page 0.
    pub fn base(self) -> usize {
        self.arena().base.load(Ordering::Relaxed)
    }

    /// Says that the descriptors of the arena's first `len` bytes can be read.
    pub fn set_len(self, len: usize) {
        self.arena().len.store(len, Ordering::Release);
        if self.0 == 0 {
            fast::words().set_len(len);
        }
    }

    /// Says that the page heap has had the pages from `first` up to `end`,
    /// and that those up to `usable` may be touched.
    pub fn set_used(self, first: usize, end: usize, usable: usize) {
        self.arena().first_used.store(first, Ordering::Relaxed);
        self.arena().end_usable.store(usable, Ordering::Relaxed);
        self.arena().end_used.store(end, Ordering::Release);
    }

    /// Gives it back. No descriptor has it.
    pub fn release(self) {
        self.set_len(0);
        self.set_used(0, 0, 0);
        self.arena().base.store(0, Ordering::Release);
    }

    /// The descriptor of page number `page`, whose memory reads as zero, as part of this.
    ///
    /// # Safety
    /// The descriptor is usable, and nobody else's.
    pub unsafe fn descriptor(self, page: usize) -> &'static Slab {
        // SAFETY: the caller's promise.
        let slab = unsafe { descriptor(self.base(), page << PAGE_SHIFT) };
        slab.zero_and_arena.set(self.0 << 1 | 1);
        slab
    }

    /// Whether a span is part of this.
    pub fn has(self, span: &Slab) -> bool {
        span.zero_and_arena.get() >> 1 == self.0
    }
}

/// Calls `f` with the addresses of each arena that may be in use, those of its descriptors among them: the first one and
/// the one behind the last.
pub fn for_each(mut f: impl FnMut(usize, usize)) {
    for arena in ARENAS.iter().take(NUMBERS.load(Ordering::Acquire)) {
        let (base, len) = (arena.base.load(Ordering::Relaxed), arena.len.load(Ordering::Acquire));
        if base != 0 && len != 0 {
            // The last page's comes first.
            f(base - (len >> PAGE_SHIFT) * size_of::<Slab>(), base + len);
        }
    }
}

/// Gives back the numbers of all arenas between these addresses.
#[cfg(test)]
pub fn release_between(from: usize, to: usize) {
    for (at, arena) in ARENAS.iter().enumerate() {
        if (from..to).contains(&arena.base.load(Ordering::Relaxed)) {
            ArenaId(at as u8).release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arenas_descriptors_lie_among_its_addresses() {
        // Nobody's, and none that a mapping of this process has.
        const BASE: usize = 0x10_0000_0000;
        let id = ArenaId::take(BASE, 0, false).expect("a number");
        id.set_len(40 * ARENA_PAGE);
        let mut found = None;
        for_each(|from, to| {
            if to == BASE + 40 * ARENA_PAGE {
                found = Some(from..to);
            }
        });
        id.release();
        let addresses = found.expect("the arena");
        assert_eq!(place(BASE, 39), addresses.start);
        assert!(addresses.contains(&place(BASE, 0)));
    }
}
