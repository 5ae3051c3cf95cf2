//! What a signal handler interrupted, as the kernel left it on the stack of a thread that sleeps.
//!
//! Before a handler runs, the kernel writes the registers of that moment to the stack that the handler runs on
//! (`struct rt_sigframe`): they are what the thread goes on with. They stand above everything that the handler puts on
//! the stack, and the kernel reads them from there when it returns. So a thread that sleeps in a handler, or in one
//! that interrupted another one, has them between its stack pointer and the end of its stack, whoever installed the
//! handler, by whatever way, and whatever is installed now.
//!
//! A frame is known by four words in a row: the stack pointer, the instruction pointer, the flags, and the segments, of
//! which the kernel knows one value for 64-bit programs. The pool's code is one module: the words of thread-local
//! storage that lead to a heap are hidden symbols, which nothing outside of it can name. So a frame with an instruction
//! pointer elsewhere interrupted no fast path, and the search goes on above it,
//! for the code that was interrupted to get there.
//!
//! What is on no stack is not found: a program that changes to another stack in a handler, and comes back to what it
//! interrupted later, must not have interrupted `malloc`, as with every other allocator.

use core::ops::Range;

use crate::kernel::os;

/// A stack is searched this far; what is deeper is unknown.
const STACK_MAX: usize = 64 << 20;
const KERNEL_PAGE: usize = 4096;
const WORD: usize = size_of::<usize>();

/// `__USER_CS`, in the lowest 16 bits of the word of segments; above it are two that are zero, and the stack's.
const CODE_SEGMENT: usize = 0x33;

/// Words before the segments: the stack pointer, the instruction pointer and the flags.
const BEFORE: usize = 3;

/// Whether a thread that sleeps with this stack pointer may go on in the pool's code when a signal handler returns.
/// True if nobody knows. `word` lies in its thread-local storage.
pub fn may_lead_into_the_pool(sp: usize, word: usize) -> bool {
    if !cfg!(target_arch = "x86_64") {
        return true;
    }
    let everywhere = 0..usize::MAX;
    let pool = poolscope_capture::module_range(may_lead_into_the_pool as *const () as usize).unwrap_or(everywhere);
    // The C library puts thread-local storage above the stack, but for the main thread's.
    let ends = [Some(word), poolscope_capture::main_stack_end()];
    let end = ends.into_iter().flatten().filter(|end| *end > sp).min();
    Search { pool, end: end.unwrap_or(usize::MAX) & !(WORD - 1), outermost: sp }.finds(sp, os::read_own_memory)
}

struct Search {
    /// The pool's code.
    pool: Range<usize>,
    /// Where the stack ends at the latest.
    end: usize,
    /// The highest stack pointer in a frame.
    outermost: usize,
}

impl Search {
    /// Whether there is a frame that leads into the pool, or may be one. `read` returns how many words it got.
    fn finds(&mut self, sp: usize, mut read: impl FnMut(usize, &mut [usize]) -> usize) -> bool {
        let mut words = [0; BEFORE + KERNEL_PAGE / WORD];
        let first = sp & !(WORD - 1);
        let mut at = first;
        while at < self.end {
            if at - first >= STACK_MAX {
                return true;
            }
            // Up to the next page's end, so that the last part of the stack is read whole.
            let next = ((at | (KERNEL_PAGE - 1)) + 1).min(self.end);
            let wanted = (next - at) / WORD;
            let got = read(at, &mut words[BEFORE..BEFORE + wanted]).min(wanted);
            if (BEFORE..BEFORE + got)
                .any(|i| self.leads_into_the_pool(at + (i - BEFORE) * WORD, &words[i - BEFORE..=i]))
            {
                return true;
            }
            at += got * WORD;
            if got < wanted {
                // The end of the stack; unless nothing could be read at all.
                return at == first || self.outermost > at;
            }
            words.copy_within(wanted..wanted + BEFORE, 0);
        }
        self.outermost > self.end
    }

    /// Whether these are the words of a frame, with the segments at `at`, which leads into the pool, or to a stack that
    /// is not searched.
    fn leads_into_the_pool(&mut self, at: usize, words: &[usize]) -> bool {
        let &[sp, ip, flags, segments] = words else { return false };
        if segments & 0xffff != CODE_SEGMENT {
            return false;
        }
        if self.pool.contains(&ip) {
            return true;
        }
        // Of the flags, one is always set, and none above the 21st is used.
        let is_frame = segments << 16 >> 16 == CODE_SEGMENT && flags & 2 != 0 && flags >> 22 == 0;
        if is_frame {
            self.outermost = self.outermost.max(sp);
        }
        is_frame && sp <= at
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    const BASE: usize = 0x7000_0000;
    const POOL: Range<usize> = 0x1000..0x2000;
    const SEGMENTS: usize = 0x2b << 48 | CODE_SEGMENT;
    const FLAGS: usize = 0x246;

    /// A stack of `pages` pages with these words at word `at`.
    fn stack(pages: usize, at: usize, frame: [usize; 4]) -> Vec<usize> {
        let mut words = vec![0x1234; pages * KERNEL_PAGE / WORD];
        words[at..at + 4].copy_from_slice(&frame);
        words
    }

    fn address(word: usize) -> usize {
        BASE + word * WORD
    }

    /// A search from word `from` on, on a stack that ends where it can't be read any more.
    fn finds(words: &[usize], from: usize, end: usize) -> bool {
        let mut search = Search { pool: POOL, end, outermost: address(from) };
        search.finds(address(from), |at, into| {
            let rest = words.get((at - BASE) / WORD..).unwrap_or_default();
            let got = rest.len().min(into.len());
            into[..got].copy_from_slice(&rest[..got]);
            got
        })
    }

    #[test]
    fn a_frame_that_leads_into_the_pool_is_found_wherever_it_lies() {
        // 512 words to a page: also across two of them, and far from the stack pointer.
        for at in [100, 508, 509, 510, 511, 512, 90 * 512] {
            let words = stack(100, at, [address(at + 200), 0x1800, FLAGS, SEGMENTS]);
            assert!(finds(&words, 5, usize::MAX), "{at}");
            assert!(!finds(&words, at + 4, usize::MAX), "{at}: it is not below the stack pointer");
        }
    }

    #[test]
    fn a_handler_that_interrupted_something_else_does_no_harm() {
        let words = stack(4, 100, [address(200), 0x9000, FLAGS, SEGMENTS]);
        assert!(!finds(&words, 0, usize::MAX));
        // On another stack there may be more.
        for sp in [address(50), address(5 * 512), 0x100] {
            let words = stack(4, 100, [sp, 0x9000, FLAGS, SEGMENTS]);
            assert!(finds(&words, 0, usize::MAX), "{sp:x}");
        }
    }

    #[test]
    fn addresses_of_the_pool_alone_are_no_frame() {
        for frame in [[0x1800; 4], [address(200), 0x1800, FLAGS, 0], [0, 0, FLAGS, SEGMENTS & !CODE_SEGMENT]] {
            assert!(!finds(&stack(4, 100, frame), 0, usize::MAX), "{frame:x?}");
        }
    }

    #[test]
    fn what_can_not_be_read_is_unknown_and_the_end_of_a_stack_is_not() {
        let words = vec![0; 4 * 512];
        assert!(finds(&words, 4 * 512, usize::MAX), "nothing could be read");
        assert!(!finds(&words, 4 * 512 - 1, usize::MAX));
        // What lies above the thread's own words is not its stack.
        let words = stack(4, 100, [address(200), 0x1800, FLAGS, SEGMENTS]);
        assert!(!finds(&words, 0, address(64)));
        let endless = Search { pool: POOL, end: usize::MAX, outermost: BASE }.finds(BASE, |_, words| words.len());
        assert!(endless, "a stack without end");
    }
}
