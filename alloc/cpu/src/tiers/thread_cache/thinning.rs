//! Slabs of which few blocks are in use give the pages between them back to the kernel ([`crate::layout::holes`]).
//!
//! A program that goes on to blocks of other sizes leaves slabs behind that never empty. They are looked through while
//! the program allocates, about as many bytes as it allocates, and only if more than a part of what is in use lies
//! there.

use super::Heap;
use super::limit;
use crate::layout::lean;
use crate::layout::slab::{Place, Slab};
use crate::segment::counters::{self, TierCounter};
use crate::settings::{self, Huge};

/// Bytes of thin slabs that stay however little is in use.
const THIN_MIN: usize = 1 << 20;
/// Slabs that are looked through at most, for each as many bytes of them that were allocated.
const LOOKS: usize = 2;

impl Heap {
    /// Gives pages of thin slabs back: `wanted` bytes or a little more. To be called by who has allocated as much.
    pub(super) fn thin_out(&self, wanted: usize) {
        if self.thin_bytes.get() <= THIN_MIN || lean::is_on() {
            return;
        }
        let settings = settings::current();
        let Some([_, part]) = settings.goal().idle_parts() else { return };
        let most = (limit::in_use() / part).max(limit::small_program_keeps()).max(THIN_MIN);
        // The kernel would have to split huge pages.
        if settings.scavenge_ms().is_none() || settings.huge() != Huge::System {
            return;
        }
        let (mut released, mut looked) = (0, 0);
        while released < wanted && looked < wanted * LOOKS && self.thin_bytes.get() > most {
            let Some(slab) = self.next_thin() else { return };
            looked += slab.bytes();
            released += self.look_through(slab);
        }
    }

    /// The next slab to look through: one of the class that has most. The program is least likely to use them again.
    fn next_thin(&self) -> Option<&'static Slab> {
        let (thin, _) = self.thin.iter().zip(&self.thin_bytes_of).max_by_key(|(_, bytes)| bytes.get())?;
        thin.first()
    }

    /// Counts a thin slab that comes (1) or goes (-1).
    pub(super) fn count_thin(&self, slab: &'static Slab, change: isize) {
        for bytes in [&self.thin_bytes, &self.thin_bytes_of[slab.class.get().index()]] {
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
        self.thin[class.index()].remove(slab);
        self.count_thin(slab, -1);
        slab.place.set(Place::Sparse);
        slab.arm_again();
        self.sparse[class.index()].push_back(slab);
        released.bytes
    }
}
