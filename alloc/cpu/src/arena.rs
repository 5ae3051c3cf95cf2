//! Arenas: reserved address ranges, cut into pages, with the table of page descriptors at the start.
//!
//! One unsigned compare against the first arena's range tells the fast path whether an address can be a block's:
//! null, foreign and (under a small address-space limit) later arenas' addresses go to the slow path. The first
//! reservation is 256 GiB if the system allows it, less under `ulimit -v` or valgrind; when an arena is used up,
//! another one is reserved.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::os;
use crate::slab::Slab;
use crate::stats::{self, TierCounter};

/// Logarithm of the page size.
pub const PAGE_SHIFT: u32 = 16;
/// Bytes of an arena page: the unit of spans (not the kernel's page).
pub const PAGE: usize = 1 << PAGE_SHIFT;
const MAX_ARENAS: usize = 64;
const GIB: usize = 1 << 30;
/// Sizes to try, largest first.
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

/// Pages that are made usable at once, at least and at most; between them, as many as there are already.
const COMMIT_MIN: usize = (4 << 20) / PAGE;
const COMMIT_MAX: usize = GIB / PAGE;

/// The unused end of the newest arena.
pub struct Frontier {
    /// Arenas that there are.
    arenas: usize,
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
        Frontier { arenas: 0, next_page: 0, committed: 0, table: 0, pages: 0 }
    }

    /// Takes `pages` never used pages, or the rest of this arena if it has too few: that rest is handed out first
    /// (as `Err`) so that it isn't lost, and the call is to be repeated. `Ok(None)` without memory.
    pub fn take(&mut self, pages: usize) -> Result<Option<&'static Slab>, &'static Slab> {
        if self.next_page + pages > self.pages {
            let left = self.pages - self.next_page;
            if left > 0 && self.commit(left) {
                return Err(self.cut(left));
            }
            if !self.reserve(pages) {
                return Ok(None);
            }
        }
        Ok(self.commit(pages).then(|| self.cut(pages)))
    }

    /// Takes `pages` never used pages if they follow `span`; they are part of it afterwards.
    pub fn extend(&mut self, span: &'static Slab, pages: usize) -> bool {
        if self.arenas == 0 || self.next_page + pages > self.pages {
            return false;
        }
        let end = span.address() as usize + span.bytes();
        if end != self.base() + self.next_page * PAGE || !self.commit(pages) {
            return false;
        }
        let behind = self.cut(pages);
        span.pages.set(span.pages.get() + behind.pages.get());
        true
    }

    fn base(&self) -> usize {
        ARENAS[self.arenas - 1].base.load(Ordering::Relaxed)
    }

    /// Makes the next `pages` pages usable.
    fn commit(&mut self, pages: usize) -> bool {
        let need = self.next_page + pages;
        if need <= self.committed {
            return true;
        }
        let step = (self.committed - self.table).clamp(COMMIT_MIN, COMMIT_MAX);
        let wanted = need.max(self.committed + step).min(self.pages);
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
        let arena = &ARENAS[self.arenas - 1];
        arena.len.store(wanted * PAGE, Ordering::Release);
        if self.arenas == 1 {
            fast::words().len.store(wanted * PAGE, Ordering::Release);
        }
        true
    }

    /// Makes the descriptors of the first `pages` pages usable, and that of the page behind them, which the page heap
    /// looks at when it searches a span's neighbours.
    fn commit_table(&self, pages: usize) -> bool {
        let bytes = ((pages + 1) * size_of::<Slab>()).next_multiple_of(4096).min(self.table * PAGE);
        // SAFETY: the table is this arena's; what is usable already stays as it is.
        unsafe { os::commit(self.base() as *mut u8, bytes) }
    }

    fn cut(&mut self, pages: usize) -> &'static Slab {
        // SAFETY: `next_page` is a page of this arena.
        let span = unsafe { descriptor(self.base(), self.next_page << PAGE_SHIFT) };
        for page in [0, pages - 1] {
            span.page(page as u32).zero_and_arena.set(((self.arenas - 1) << 1) as u8 | 1);
        }
        span.pages.set(pages as u32);
        self.next_page += pages;
        stats::add(TierCounter::SystemUsed, (pages * PAGE) as u64);
        span
    }

    /// Reserves an arena for at least `pages` pages.
    #[cold]
    fn reserve(&mut self, pages: usize) -> bool {
        let Some(arena) = ARENAS.get(self.arenas) else { return false };
        let Some(need) = pages.checked_mul(PAGE + size_of::<Slab>()).and_then(|n| n.checked_add(3 * PAGE)) else {
            return false;
        };
        let bigger = need.checked_next_multiple_of(GIB).unwrap_or(need);
        for len in LADDER.into_iter().filter(|&len| len >= need).chain([bigger, need]) {
            let Some(mapped) = len.checked_add(PAGE) else { continue };
            stats::add(TierCounter::SystemCalls, 1);
            let p = os::reserve(mapped) as usize;
            if p == 0 {
                continue;
            }
            let base = p.next_multiple_of(PAGE);
            let len = len & !(PAGE - 1);
            arena.base.store(base, Ordering::Relaxed);
            if self.arenas == 0 {
                fast::words().base.store(base, Ordering::Relaxed);
            }
            self.arenas += 1;
            // The last page stays unused: the page behind a span always has a descriptor.
            self.pages = len / PAGE - 1;
            // The table describes itself too; these descriptors stay unused.
            self.table = (len / PAGE * size_of::<Slab>()).div_ceil(PAGE);
            self.next_page = self.table;
            self.committed = self.table;
            stats::add(TierCounter::SystemReserved, len as u64);
            return self.next_page + pages <= self.pages;
        }
        false
    }
}
