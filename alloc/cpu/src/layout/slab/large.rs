//! A span that is one large block: what its descriptor says in the fields that a slab has for its blocks.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use super::{NO_SLOT, Slab, owner};
use crate::layout::arena::ARENA_PAGE;
use crate::layout::size_class::SizeClass;

impl Slab {
    /// Makes the span one block of `size` bytes, which is not sampled.
    pub fn begin_large(&self, size: usize) {
        self.class.set(SizeClass(0));
        self.aux.set(size);
        self.set_live_slot(NO_SLOT);
        self.set_exposed(0, 0.0);
        self.moved().set(0);
        self.set_followed(false);
        self.owner.store(owner::LARGE, Ordering::Release);
    }

    /// Ends it. Its other pages never had an owner.
    pub fn end_large(&self) {
        self.owner.store(owner::NONE, Ordering::Relaxed);
    }

    /// The block's slot in the live table, or [`NO_SLOT`].
    pub fn live_slot(&self) -> u32 {
        u32::from(self.counted_frees.get()) | u32::from(self.holes.get()) << 16
    }

    /// Notes the block's slot in the live table.
    pub fn set_live_slot(&self, slot: u32) {
        self.counted_frees.set(slot as u16);
        self.holes.set((slot >> 16) as u16);
    }

    /// Bytes of the block that no budget of samples has seen: those that it has got since.
    pub fn unexposed(&self) -> usize {
        self.bytes().saturating_sub(self.exposed_pages() as usize * ARENA_PAGE)
    }

    /// Notes that a budget of samples has seen all of its bytes, and how many samples it expects in the new ones.
    /// Bytes that a block had before and gets again are none: a block that shrinks and grows is not more likely to be
    /// sampled.
    pub fn expose(&self, samples: f64) {
        let pages = self.exposed_pages().max(self.pages.get());
        self.set_exposed(pages, (f64::from(self.exposure()) + samples) as f32);
    }

    /// Samples that were to be expected in the block, by the periods that its bytes came under. Read by the sampler,
    /// too, while the block's thread may be changing it.
    pub fn exposure(&self) -> f32 {
        // SAFETY: a word of a descriptor, which is never unmapped.
        f32::from_bits(unsafe { self.countdown.as_ptr().read_volatile() })
    }

    fn exposed_pages(&self) -> u32 {
        u32::from(self.live.get()) | u32::from(self.ready.get()) << 16
    }

    fn set_exposed(&self, pages: u32, samples: f32) {
        self.live.set(pages as u16);
        self.ready.set((pages >> 16) as u16);
        self.countdown.set(samples.to_bits());
    }

    /// The mappings that the block's memory was moved here in, as [`crate::pages::remap`] counts them; 0 if it was not
    /// moved.
    pub fn moved(&self) -> &Cell<u16> {
        &self.carved
    }

    /// Whether the block's record follows its size later ([`crate::sampler`]).
    #[inline]
    pub fn is_followed(&self) -> bool {
        self.remote.get() != 0
    }

    /// Notes whether it does.
    pub fn set_followed(&self, is_followed: bool) {
        self.remote.set(is_followed.into());
    }
}
