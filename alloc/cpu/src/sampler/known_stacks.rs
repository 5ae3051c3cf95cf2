//! Stacks in which an interpreter ran functions, known again by what was captured: a program allocates in the same calls
//! again and again, and where their words are known, nobody has to ask what each function is, nor put them in order.

use super::stack_table::UNKNOWN;
use crate::kernel::os;

/// Places at first, a power of two: a page.
const FIRST: usize = 1 << 8;

/// The most that there are.
const MOST: usize = 1 << 14;

/// What tells a capture from others, but for chance, and its stack. Zeroes are a free place.
#[derive(Clone, Copy)]
struct Known {
    key: u64,
    stack: u32,
}

/// Those that were looked up last, each in the one place that its key has.
pub struct KnownStacks {
    known: *mut Known,
    places: usize,
    /// How many took another one's place since there were so many places.
    ousted: usize,
}

impl KnownStacks {
    /// Before the first.
    pub const fn new() -> Self {
        KnownStacks { known: core::ptr::null_mut(), places: 0, ousted: 0 }
    }

    /// The stack of a key.
    #[inline]
    pub fn find(&self, key: u64) -> Option<u32> {
        // SAFETY: below the number of places; under the sampler's lock.
        let known = unsafe { *self.known.add(self.place(key)?) };
        (known.key == key && known.stack != UNKNOWN).then_some(known.stack)
    }

    /// Keeps a stack, perhaps in the place of another one.
    #[cold]
    pub fn keep(&mut self, key: u64, stack: u32) {
        if self.places == 0 || 2 * self.ousted >= self.places && self.places < MOST {
            self.make_room();
        }
        let Some(at) = self.place(key) else { return };
        // SAFETY: as above.
        let place = unsafe { &mut *self.known.add(at) };
        self.ousted += usize::from(place.stack != UNKNOWN);
        *place = Known { key, stack };
    }

    fn place(&self, key: u64) -> Option<usize> {
        let mask = self.places.checked_sub(1)?;
        Some((key >> 32) as usize & mask)
    }

    /// Twice as many places, all of them free: what is needed comes again. Without memory there are as many as before.
    fn make_room(&mut self) {
        let places = (2 * self.places).max(FIRST);
        let known: *mut Known = os::map(places * size_of::<Known>()).cast();
        if known.is_null() {
            return;
        }
        let before = core::mem::replace(self, KnownStacks { known, places, ousted: 0 });
        if !before.known.is_null() {
            // SAFETY: nobody has it any more.
            unsafe { os::unmap(before.known.cast(), before.places * size_of::<Known>()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn as_many_stacks_are_known_as_a_program_has() {
        let mut stacks = KnownStacks::new();
        assert_eq!(stacks.find(key(1)), None);
        // Each round looks up all of them, as a program does that goes round.
        let mut found = 0;
        for _ in 0..10 {
            found = 0;
            for number in 1..=3000 {
                match stacks.find(key(number)) {
                    Some(stack) => {
                        assert_eq!(u64::from(stack), number);
                        found += 1;
                    }
                    None => stacks.keep(key(number), number as u32),
                }
            }
        }
        assert!(found > 2000, "{found} of 3000 in {} places", stacks.places);
        assert!(stacks.places <= MOST);
    }
}
