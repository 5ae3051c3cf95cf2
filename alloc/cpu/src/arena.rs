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
const LADDER: [usize; 9] =
    [256 * GIB, 64 * GIB, 16 * GIB, 4 * GIB, GIB, GIB / 4, GIB / 16, GIB / 64, GIB / 256];

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
    /// Bytes of the arena. 0 before there is one, so that no address lies in it.
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

/// The unused end of the newest arena.
pub struct Frontier {
    index: usize,
    next_page: usize,
    pages: usize,
}

impl Frontier {
    /// Before the first arena.
    pub const fn new() -> Self {
        Frontier { index: 0, next_page: 0, pages: 0 }
    }

    /// Takes `pages` never used pages, or the rest of this arena if it has too few: that rest is handed out first
    /// (as `Err`) so that it isn't lost, and the call is to be repeated. `Ok(None)` if no arena can be reserved.
    pub fn take(&mut self, pages: usize) -> Result<Option<&'static Slab>, &'static Slab> {
        if self.next_page + pages > self.pages {
            let left = self.pages - self.next_page;
            if left > 0 {
                return Err(self.cut(left));
            }
            if !self.reserve(pages) {
                return Ok(None);
            }
        }
        Ok(Some(self.cut(pages)))
    }

    fn cut(&mut self, pages: usize) -> &'static Slab {
        let base = ARENAS[self.index - 1].base.load(Ordering::Relaxed);
        // SAFETY: `next_page` is a page of this arena.
        let span = unsafe { descriptor(base, self.next_page << PAGE_SHIFT) };
        for page in [0, pages - 1] {
            span.page(page as u32).zero_and_arena.set(((self.index - 1) << 1) as u8 | 1);
        }
        span.pages.set(pages as u32);
        self.next_page += pages;
        stats::add(TierCounter::SystemUsed, (pages * PAGE) as u64);
        span
    }

    /// Reserves an arena for at least `pages` pages.
    #[cold]
    fn reserve(&mut self, pages: usize) -> bool {
        let Some(arena) = ARENAS.get(self.index) else { return false };
        let Some(need) = pages.checked_mul(PAGE + size_of::<Slab>()).and_then(|n| n.checked_add(2 * PAGE)) else {
            return false;
        };
        let bigger = need.checked_next_multiple_of(GIB).unwrap_or(need);
        for len in LADDER.into_iter().filter(|&len| len >= need).chain([bigger, need]) {
            let Some(mapped) = len.checked_add(PAGE) else { continue };
            stats::add(TierCounter::SystemCalls, 1);
            let p = os::map(mapped) as usize;
            if p == 0 {
                continue;
            }
            let base = p.next_multiple_of(PAGE);
            let len = len & !(PAGE - 1);
            arena.base.store(base, Ordering::Relaxed);
            arena.len.store(len, Ordering::Release);
            if self.index == 0 {
                fast::words().base.store(base, Ordering::Relaxed);
                fast::words().len.store(len, Ordering::Release);
            }
            self.index += 1;
            // The last page stays unused: looking at the page behind a span always finds a descriptor.
            self.pages = len / PAGE - 1;
            // The table describes itself too; these descriptors stay unused.
            self.next_page = (self.pages * size_of::<Slab>()).div_ceil(PAGE);
            stats::add(TierCounter::SystemReserved, len as u64);
            return self.next_page + pages <= self.pages;
        }
        false
    }
}
