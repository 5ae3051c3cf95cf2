//! A slab as others see it than its owner, who changes it meanwhile.

use super::Slab;
use crate::layout::size_class::{CLASSES, SizeClass};
use crate::sync;

/// What a slab says of itself to others than its owner.
#[derive(Clone, Copy)]
pub struct Seen {
    /// Its class.
    pub class: SizeClass,
    /// One of [`Kind`](super::Kind).
    pub kind: u8,
    /// Blocks that are cut from it.
    pub carved: u32,
    /// Blocks handed out of these.
    pub in_use: u32,
    /// Free ones of these that are in the counters already.
    pub counted: u32,
    /// Blocks, the first ones, that had memory behind them when it began.
    pub ready: u32,
    /// See [`Slab::has_holes`].
    pub has_holes: bool,
}

impl Seen {
    /// Bytes from the slab's start in which the blocks lie that are cut.
    pub fn cut_bytes(&self) -> usize {
        let blocks = if self.has_holes { self.class.info().capacity } else { self.carved };
        blocks as usize * self.class.block()
    }
}

impl Slab {
    /// Where the words lie that [`Slab::look`] reads.
    const COUNTDOWN: usize = core::mem::offset_of!(Slab, countdown);
    const COUNTED: usize = core::mem::offset_of!(Slab, counted_frees);
    const PAGES: usize = core::mem::offset_of!(Slab, pages);

    /// Reads what its owner may be changing: as of one moment, or about. `None` if it is no slab.
    pub fn look(&self) -> Option<Seen> {
        const _: () = assert!(core::mem::offset_of!(Slab, armed) == Slab::COUNTDOWN + 4);
        const _: () = assert!(core::mem::offset_of!(Slab, holes) == Slab::COUNTED + 2);
        const _: () = assert!(core::mem::offset_of!(Slab, carved) == Slab::COUNTED + 4);
        const _: () = assert!(core::mem::offset_of!(Slab, live) == Slab::COUNTED + 6);
        const _: () = assert!(core::mem::offset_of!(Slab, class) == Slab::PAGES + 4);
        const _: () = assert!(core::mem::offset_of!(Slab, kind) == Slab::PAGES + 5);
        const _: () = assert!(core::mem::offset_of!(Slab, ready) == Slab::PAGES + 6);
        let words = || [Self::COUNTDOWN, Self::COUNTED, Self::PAGES].map(|at| self.word(at));
        let [countdown, counted, pages] = sync::look(words).map(u64::to_le_bytes);
        let half = |word: [u8; 8], at: usize| u32::from(u16::from_le_bytes([word[at], word[at + 1]]));
        let whole = |word: [u8; 8], at: usize| half(word, at) | half(word, at + 2) << 16;
        let size_class = SizeClass(pages[4]);
        let capacity = if size_class.index() < CLASSES { size_class.info().capacity } else { 0 };
        let carved = half(counted, 4).min(capacity);
        let in_use = half(counted, 6).wrapping_sub(half(countdown, 4).wrapping_sub(whole(countdown, 0)));
        (capacity > 0).then_some(Seen {
            class: size_class,
            kind: pages[5],
            carved,
            in_use: in_use.min(carved),
            counted: half(counted, 0),
            ready: half(pages, 6).min(capacity),
            has_holes: half(counted, 2) != 0,
        })
    }

    /// Pages of the span, which may be changing.
    pub fn pages_now(&self) -> u32 {
        self.word(Self::PAGES) as u32
    }

    /// A word of the descriptor.
    fn word(&self, at: usize) -> u64 {
        // SAFETY: the descriptor has 128 bytes, aligned to as many, and is never unmapped. Its owner writes its cells
        // meanwhile: the words are read whole, and checked for what they say.
        unsafe { (&raw const *self).cast::<u64>().add(at / 8).read_volatile() }
    }
}
