//! The stacks that were new last, for what the next one has in common with them ([`poolscope_wire::outer`]).
//!
//! They are kept as a whole in private memory: a new stack is compared with them from its outermost frame on.

use core::ptr;

use poolscope_wire::stack_flags;

use super::stack_table::{CapturedStack, WORDS};
use crate::kernel::os;
use crate::threads::thread_pointer;

/// Stacks that a new one is compared with.
const KEPT: usize = 3;

/// So many threads have stacks of their own to compare theirs with where every allocation is recorded.
const SHELVES: usize = 16;

/// Of two stacks that were cut at the depth limit, one has at most so many outermost frames that the other one lacks.
const CUT_APART: usize = 32;

/// So many words at least that a stack shares are worth the word that says where they are.
const WORTH: usize = 4;

/// The shelf of what is like no other, and not kept.
pub const NO_SHELF: usize = usize::MAX;

/// A stack, without outermost words of its own that others can't share.
struct Kept {
    /// Its number; 0 if the place is free.
    stack: u32,
    len: u16,
    flags: u16,
    words: [u64; WORDS],
}

/// Those that one thread's, or all threads' new stacks are compared with: a page.
struct Shelf {
    kept: [Kept; KEPT],
    /// Which of them the next one takes the place of.
    next: usize,
}
const _: () = assert!(size_of::<Shelf>() <= 4096);

/// Words that a new stack has in common with one that was there before: its outermost, or those before its outermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// That one's number.
    pub stack: u32,
    /// The first of them, counted from that one's innermost frame.
    pub at: usize,
    /// How many they are.
    pub count: usize,
    /// Outermost words of the new one that that one lacks: both were cut at the depth limit.
    pub tail: usize,
}

/// The stacks that were new last.
pub struct RecentStacks {
    /// Zeroes at first; null before the first stack, and without memory.
    shelves: *mut Shelf,
    /// There are [`SHELVES`] of them, not one: what is mapped counts against a limit of data.
    by_thread: bool,
}

/// The shelf of this thread: its own stacks are the most like a new one.
pub fn shelf() -> usize {
    // SAFETY: a thread's heap is never unmapped.
    let heap = unsafe { thread_pointer::home().as_ref() };
    heap.map_or(0, |heap| heap.registration.index.get() as usize)
}

impl RecentStacks {
    /// Before the first stack.
    pub const fn new() -> Self {
        RecentStacks { shelves: ptr::null_mut(), by_thread: false }
    }

    /// Before the first stack of a process in which every allocation is recorded: threads have shelves of their own.
    pub fn by_thread(&mut self) {
        self.by_thread = true;
    }

    fn shelf(&mut self, number: usize) -> Option<&mut Shelf> {
        let shelves = if self.by_thread { SHELVES } else { 1 };
        if number == NO_SHELF {
            return None;
        }
        if self.shelves.is_null() {
            self.shelves = os::map(shelves * size_of::<Shelf>()).cast();
        }
        if self.shelves.is_null() {
            return None;
        }
        // SAFETY: there are so many shelves in what was mapped, zeroes are free places, and the sampler's lock is held.
        Some(unsafe { &mut *self.shelves.add(number % shelves) })
    }

    /// What a new stack has most in common with one of those on a shelf; `None` if it is not worth a word.
    pub fn common(&mut self, shelf: usize, stack: &CapturedStack<'_>) -> Option<Common> {
        let mut most: Option<Common> = None;
        for kept in self.shelf(shelf)?.kept.iter().filter(|kept| kept.stack != 0) {
            let words = kept.words.get(..usize::from(kept.len)).unwrap_or_default();
            let both_cut = stack.flags & kept.flags & stack_flags::TRUNCATED != 0;
            for apart in 0..if both_cut { 2 * CUT_APART } else { 1 } {
                // The new one lacks some of the other's outermost words, or the other way round.
                let by = apart.div_ceil(2);
                let (lacks, tail) = if apart % 2 == 0 { (by, 0) } else { (0, by) };
                let Some(words) = words.len().checked_sub(lacks).and_then(|len| words.get(..len)) else { continue };
                let count = in_common(words, stack, tail);
                if count >= most.map_or(WORTH, |most| most.count + 1) {
                    most = Some(Common { stack: kept.stack, at: words.len() - count, count, tail });
                }
            }
        }
        most
    }

    /// Keeps a stack that is new on a shelf, but for so many outermost words.
    pub fn keep(&mut self, shelf: usize, number: u32, stack: &CapturedStack<'_>, tail: usize) {
        let Some(shelf) = self.shelf(shelf).filter(|_| stack.len() <= WORDS) else { return };
        let Some(place) = shelf.kept.get_mut(shelf.next) else { return };
        (place.stack, place.len, place.flags) = (number, (stack.len() - tail) as u16, stack.flags);
        stack.copy_to(&mut place.words);
        shelf.next = (shelf.next + 1) % KEPT;
    }
}

/// How many of the outermost words of both are the same, but for the stack's last.
fn in_common(words: &[u64], stack: &CapturedStack<'_>, tail: usize) -> usize {
    let (frames, label) = stack.without_last(tail);
    let of_label = same_at_end(words, label);
    if of_label < label.len() {
        return of_label;
    }
    of_label + same_at_end(words.get(..words.len() - of_label).unwrap_or_default(), frames)
}

/// How many words at the end of both are the same.
fn same_at_end(a: &[u64], b: &[u64]) -> usize {
    const AT_ONCE: usize = 8;
    let (blocks_of_a, blocks_of_b) = (a.as_rchunks::<AT_ONCE>().1, b.as_rchunks::<AT_ONCE>().1);
    let blocks = blocks_of_a.iter().rev().zip(blocks_of_b.iter().rev()).take_while(|(a, b)| a == b).count();
    let rest = |words: &[u64]| words.len() - AT_ONCE * blocks;
    let (a, b) = (a.get(..rest(a)).unwrap_or_default(), b.get(..rest(b)).unwrap_or_default());
    AT_ONCE * blocks + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use poolscope_wire::kind;

    use super::*;

    fn stack(frames: &[u64], flags: u16) -> CapturedStack<'_> {
        CapturedStack { frames, label: &[], flags, kind: kind::HOST, device: 0, epoch: 0 }
    }

    fn common(recent: &mut RecentStacks, frames: &[u64], flags: u16) -> Option<(u32, usize, usize)> {
        let common = recent.common(0, &stack(frames, flags))?;
        assert!(common.tail == 0 || flags & stack_flags::TRUNCATED != 0);
        Some((common.stack, common.at, common.count))
    }

    #[test]
    fn a_new_stack_is_compared_with_the_last_ones_from_its_outermost_frame_on() {
        let mut recent = RecentStacks::new();
        recent.by_thread();
        assert_eq!(common(&mut recent, &[1, 2, 3, 4, 5], 0), None);
        recent.keep(0, 7, &stack(&[9, 2, 3, 4, 5, 6], 0), 0);
        recent.keep(0, 8, &stack(&[9, 8, 7, 3, 4, 5, 6], 0), 0);
        assert_eq!(common(&mut recent, &[1, 1, 1, 2, 3, 4, 5, 6], 0), Some((7, 1, 5)));
        assert_eq!(common(&mut recent, &[1, 7, 3, 4, 5, 6], 0), Some((8, 2, 5)));
        // All of it, or all of the other's.
        assert_eq!(common(&mut recent, &[3, 4, 5, 6], 0), Some((7, 2, 4)));
        assert_eq!(common(&mut recent, &[1, 9, 2, 3, 4, 5, 6], 0), Some((7, 0, 6)));
        // Three are not worth it, nor are frames that are the same further in.
        assert_eq!(common(&mut recent, &[0, 4, 5, 6], 0), None);
        assert_eq!(common(&mut recent, &[9, 2, 3, 4, 5, 1], 0), None);
        // Another thread's has none to be compared with.
        assert!(recent.common(1, &stack(&[9, 2, 3, 4, 5, 6], 0)).is_none());
    }

    #[test]
    fn of_stacks_that_were_cut_one_may_lack_frames_of_the_other() {
        let mut recent = RecentStacks::new();
        let cut = stack_flags::TRUNCATED;
        let frames: Vec<u64> = (100..300).collect();
        recent.keep(0, 7, &stack(&frames[..90], cut), 0);
        // Deeper by three calls.
        let deeper: Vec<u64> = [1, 2, 3].into_iter().chain(frames[..87].iter().copied()).collect();
        assert_eq!(common(&mut recent, &deeper, cut), Some((7, 0, 87)));
        assert_eq!(common(&mut recent, &deeper, 0), None);
        // Less deep: it has frames that the other one lacks, and that no later one goes on in.
        let less = stack(&frames[3..93], cut);
        let found = recent.common(0, &less);
        assert_eq!(found, Some(Common { stack: 7, at: 3, count: 87, tail: 3 }));
        recent.keep(0, 8, &less, 3);
        let found = recent.common(0, &stack(&frames[5..95], cut));
        assert_eq!(found, Some(Common { stack: 7, at: 5, count: 85, tail: 5 }));
        assert_eq!(recent.common(0, &stack(&frames[60..150], cut)), None);
    }

    #[test]
    fn the_oldest_one_goes() {
        let mut recent = RecentStacks::new();
        for number in 1..=4 {
            recent.keep(0, number, &stack(&[u64::from(number); 8], 0), 0);
        }
        assert_eq!(common(&mut recent, &[1; 8], 0), None);
        for number in 2..=4 {
            assert_eq!(common(&mut recent, &[u64::from(number); 8], 0), Some((number, 0, 8)));
        }
        let long = vec![5; WORDS + 1];
        recent.keep(0, 5, &stack(&long, 0), 0);
        assert_eq!(common(&mut recent, &long, 0), None);
    }
}
