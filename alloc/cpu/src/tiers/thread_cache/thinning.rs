//! Slabs of which few blocks are in use give the pages between them back to the kernel ([`crate::layout::holes`]).
//!
//! A program that goes on to blocks of other sizes leaves slabs behind that never empty. They are looked through while
//! the program allocates, about as many bytes as it allocates, and only if more than a part of what is in use lies
//! there.

use core::cell::Cell;

use super::Heap;
use super::limit;
use crate::layout::lean;
use crate::layout::slab::{Place, Slab};
use crate::segment::counters::{self, TierCounter};
use crate::settings::{self, Goal, Huge};

/// Bytes of thin slabs that stay however little is in use.
const THIN_MIN: usize = 1 << 20;
/// Bytes that went back after which it is weighed whether they should have.
const WEIGHED: usize = 1 << 20;
/// Of what is spared, one byte for each so many that are allocated is tried again.
const TRIED_EVERY: usize = 512;
/// Slabs that are looked through at most, for each as many bytes of them that were allocated.
const LOOKS: usize = 2;

/// What a thread has learnt of giving pages back: a program that goes on to blocks of other sizes does not need them any
/// more, and one that takes blocks of all sizes again and again has each of them back a moment later, with a page
/// fault. Zeroed memory has learnt nothing.
pub struct Regret {
    /// Bytes of pages that went back, and that were used again, since this was weighed last.
    released: Cell<usize>,
    refilled: Cell<usize>,
    /// Bytes of thin slabs that may stay, beyond those that may anyway.
    spare: Cell<usize>,
}

impl Regret {
    /// Weighs what went back against what came back of it. No more than `most` may be spared.
    fn weigh(&self, released: usize, most: usize) {
        let released = self.released.get() + released;
        self.released.set(released);
        if released >= WEIGHED {
            let spare = self.spare.get();
            let in_vain = self.refilled.replace(0) > released / 2;
            self.spare.set(if in_vain { (spare * 2).max(THIN_MIN) } else { spare / 2 }.min(most));
            self.released.set(0);
        }
    }

    /// Spares a little less when so many bytes were allocated: the program may have gone on to other sizes.
    fn try_again(&self, allocated: usize) {
        self.spare.set(self.spare.get().saturating_sub(allocated / TRIED_EVERY));
    }
}

impl Heap {
    /// Notes that blocks of so many bytes were cut anew from pages that had gone back.
    pub(super) fn count_refilled(&self, bytes: usize) {
        self.regret.refilled.set(self.regret.refilled.get() + bytes);
    }

    /// Gives pages of thin slabs back: `wanted` bytes or a little more. To be called by who has allocated as much.
    pub(super) fn thin_out(&self, wanted: usize) {
        if self.thin_bytes.get() <= THIN_MIN || lean::is_on() {
            return;
        }
        let settings = settings::current();
        let Some([_, part]) = settings.goal().idle_parts() else { return };
        let in_use = limit::in_use();
        let most = (in_use / part).max(limit::small_program_keeps()).max(THIN_MIN) + self.regret.spare.get();
        // The kernel would have to split huge pages.
        if settings.scavenge_ms().is_none() || settings.huge() != Huge::System {
            return;
        }
        self.regret.try_again(wanted);
        let (mut released, mut looked) = (0, 0);
        while released < wanted && looked < wanted * LOOKS && self.thin_bytes.get() > most {
            let Some(slab) = self.next_thin() else { break };
            looked += slab.bytes();
            released += self.look_through(slab);
        }
        let most = if settings.goal() == Goal::Memory { 0 } else { in_use / limit::threads() };
        self.regret.weigh(released, most);
    }

    /// The next slab to look through: one of the class that has most. The program is least likely to use them again.
    fn next_thin(&self) -> Option<&'static Slab> {
        self.classes.iter().max_by_key(|class| class.thin_bytes.get())?.thin.first()
    }

    /// Counts a thin slab that comes (1) or goes (-1).
    pub(super) fn count_thin(&self, slab: &'static Slab, change: isize) {
        for bytes in [&self.thin_bytes, &self.of(slab.class.get()).thin_bytes] {
            bytes.set(bytes.get().wrapping_add_signed(change * slab.bytes() as isize));
        }
    }

    /// Gives the pages of a thin slab back in which no block is in use. It then waits as a sparse one.
    fn look_through(&self, slab: &'static Slab) -> usize {
        let class = slab.class.get();
        self.credit_frees(slab);
        let untouched = slab.untouched();
        let released = slab.make_holes(&self.order.marks);
        if !class.is_medium() {
            slab.set_counted(u32::from(slab.carved.get()) - slab.in_use());
        }
        self.count_untouched(class, untouched, slab.untouched());
        counters::add(TierCounter::SystemCalls, released.calls);
        self.of(class).thin.remove(slab);
        self.count_thin(slab, -1);
        slab.place.set(Place::Sparse);
        slab.arm_again();
        self.of(class).sparse.push_back(slab);
        released.bytes
    }
}
