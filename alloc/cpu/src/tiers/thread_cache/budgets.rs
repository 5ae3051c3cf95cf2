//! A heap's sampling budgets: when its next sample is due.

use crate::kernel::os;
use crate::layout::size_class::SizeClass;
use crate::sampling::budget::Budget;
use crate::settings;
use crate::tiers::thread_cache::Heap;

/// The period in force. 0 and 1 both record everything; a budget with 0 is one of which nothing was drawn.
fn period() -> u64 {
    settings::current().period().max(1)
}

impl Heap {
    /// Whether every allocation of this heap is to be recorded.
    #[inline]
    pub fn records_all(&self) -> bool {
        self.sampling.scope.get() != 0 || period() <= 1
    }

    /// Starts the budget of a class of which nothing was allocated yet. False if it was started.
    pub fn begin_class(&self, class: SizeClass) -> bool {
        let budget = self.budget(class);
        let is_new = budget.is_new();
        if is_new {
            if class.is_medium() {
                budget.divide(class.block());
            }
            self.begin_budget(budget);
        }
        is_new
    }

    /// Has the draws to come be others than those of any other heap, and of the same one in other processes.
    pub fn seed(&self) {
        self.sampling.random.set((os::random_seed() ^ self.tag() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    }

    /// Starts a budget.
    pub fn begin_budget(&self, budget: &Budget) {
        budget.draw(&self.sampling.random, period());
    }

    /// Follows a change of the period, in a class of which no sample is due.
    #[inline]
    pub fn follow_period(&self, class: SizeClass) {
        self.budget(class).follow(&self.sampling.random, period());
    }

    /// Lets a due sample of a class go: what capture allocates is not sampled, however short the period.
    pub fn skip_sample(&self, class: SizeClass) {
        let budget = self.budget(class);
        self.note_stocked();
        budget.draw(&self.sampling.random, period());
        budget.left.set(budget.left.get().max(2 * class.block() as i64));
    }

    /// The budget that a large block of `bytes` bytes from this place comes before.
    pub fn large_budget(&self, bytes: usize, place: (usize, usize)) -> &Budget {
        let budget = self.large_budgets.of(bytes, place);
        if budget.is_new() {
            self.begin_budget(budget);
        }
        budget
    }

    /// Whether a large block that this heap allocates now, or has more of, is to be sampled: `bytes` bytes of it come
    /// before this budget.
    pub fn large_is_due(&self, budget: &Budget, bytes: usize) -> bool {
        if self.sampling.in_sampler.get() {
            return false;
        }
        if self.records_all() {
            return true;
        }
        if !budget.is_due() {
            budget.follow(&self.sampling.random, period());
            budget.left.set(budget.left.get() - bytes as i64);
        }
        budget.is_due()
    }
}
