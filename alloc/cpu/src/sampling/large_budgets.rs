//! The budgets of a thread's large blocks: one for each place of the program and size, more or less.
//!
//! A loop that does nothing but allocate and free a large buffer has its period raised ([`super::governor`]). With one
//! budget for all large blocks that would be the period of those, too, that the same thread keeps: tens of them would
//! not be in the profile, or be said to be many more. Each call of theirs is a slow one anyway, so it is known where it
//! comes from: the return address, how deep the stack is, which tells callers of one wrapper apart, and the size to a
//! quarter of its doubling, since all that an interpreter allocates comes from one place. A place that is met for the
//! first time takes over the budget whose period is raised least, of a few: what brings most samples stays by itself.
//! Each budget is a Poisson process of its own, so that nothing is biased by which one a block comes before.

use core::cell::Cell;

use super::budget::Budget;

/// Budgets, in sets: 1 KiB for each thread.
const SETS: usize = 8;
const WAYS: usize = 4;

/// Budgets that are drawn when they are first needed: zeroed memory is a table.
#[derive(Default)]
pub struct LargeBudgets([Set; SETS]);

#[derive(Default)]
struct Set {
    budgets: [Budget; WAYS],
    /// Which place each is for.
    places: [Cell<u16>; WAYS],
}

/// The quarter of its doubling in which a size lies: one number for all sizes that have it.
fn quarter(bytes: usize) -> usize {
    let bits = usize::BITS - bytes.max(8).leading_zeros();
    (bits as usize) << 3 | bytes >> (bits - 3)
}

impl LargeBudgets {
    /// The budget of a block of `bytes` bytes that comes from `place`, any two words that say where.
    pub fn of(&self, bytes: usize, place: (usize, usize)) -> &Budget {
        let words = place.0 ^ place.1.rotate_left(32) ^ quarter(bytes);
        let mixed = (words as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (set, place) = (&self.0[(mixed >> 61) as usize % SETS], (mixed >> 40) as u16);
        let is_here = |way: &usize| set.places[*way].get() == place;
        let ease = |way: &usize| (set.budgets[*way].level.get(), set.places[*way].get() != 0);
        let way = (0..WAYS).find(is_here).or_else(|| (0..WAYS).min_by_key(ease)).unwrap_or(0);
        set.places[way].set(place);
        &set.budgets[way]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOT: (usize, usize) = (0x5555_5555_1234, 0x7fff_ffff_e000);

    #[test]
    fn a_place_keeps_the_budget_whose_period_is_raised_and_others_have_another() {
        assert_eq!([0, 8, 1 << 20, 5 << 18, (5 << 18) - 1].map(quarter), [32, 36, 172, 173, 172]);
        let budgets = LargeBudgets::default();
        let hot = budgets.of(1 << 20, HOT);
        hot.level.set(3);
        for at in 1..=1000_usize {
            let others =
                [(1 << 20, (HOT.0 + 5 * at, HOT.1)), (1 << 20, (HOT.0, HOT.1 - 16 * at)), (1 << (at % 16 + 21), HOT)];
            for (bytes, place) in others {
                assert!(!core::ptr::eq(budgets.of(bytes, place), hot), "{bytes} {place:x?}");
            }
            assert!(core::ptr::eq(budgets.of((1 << 20) + 4096 * (at % 64), HOT), hot));
        }
    }
}
