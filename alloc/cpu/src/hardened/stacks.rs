//! Stacks by number: each is kept once, however many blocks have it.

use core::ptr::null_mut;

use poolscope_capture::Caller;

use crate::entry::capture;
use crate::kernel::os;
use crate::segment::counters::{self, TierCounter};
use crate::tiers::thread_cache::Heap;

/// Return addresses that are kept of a stack, innermost first.
pub const DEPTH: usize = 32;

/// A stack: return addresses, and how many there are.
#[derive(Clone, Copy)]
pub struct Stack {
    frames: [u64; DEPTH],
    depth: usize,
}

impl Stack {
    /// No stack.
    pub const NONE: Stack = Stack { frames: [0; DEPTH], depth: 0 };

    /// The return addresses, innermost first.
    pub fn frames(&self) -> &[u64] {
        self.frames.get(..self.depth).unwrap_or_default()
    }
}

impl Stack {
    /// The part that a signal interrupted at `pc`. That is no return address: 1 is added, which a report subtracts.
    pub fn interrupted_at(&self, pc: u64) -> Stack {
        let mut stack = Stack::NONE;
        let handler = self.frames().iter().position(|frame| *frame == pc).map_or(self.depth, |at| at + 1);
        let rest = self.frames().get(handler..).unwrap_or_default();
        for (to, from) in stack.frames.iter_mut().zip([pc + 1].iter().chain(rest)) {
            *to = *from;
            stack.depth += 1;
        }
        stack
    }
}

/// The stack of `caller`; none while this thread is capturing one already: what that allocates is not captured.
#[inline(never)]
pub fn of_caller(heap: &'static Heap, caller: &Caller) -> Stack {
    let mut stack = Stack::NONE;
    if heap.sampling.in_sampler.get() {
        return stack;
    }
    let captured = capture::of(heap, caller);
    for (to, from) in stack.frames.iter_mut().zip(captured.frames()) {
        *to = *from;
        stack.depth += 1;
    }
    stack
}

/// The stack from here on.
#[inline(never)]
pub fn here(heap: &'static Heap) -> Stack {
    of_caller(heap, &Caller::here())
}

/// Words of a chunk: 1 MiB.
const CHUNK: usize = 128 * 1024;
/// Chunks: 64 MiB of stacks at most. What finds no room has no stack.
const CHUNKS: usize = 64;
const BUCKETS: usize = 64 * 1024;

/// The stacks. A stack's number is the place of its first word: the number of the next stack of its bucket and its
/// depth; then its hash; then its frames.
pub struct Stacks {
    chunks: [*mut u64; CHUNKS],
    used: usize,
    buckets: *mut u32,
}

impl Stacks {
    /// None yet.
    pub const fn new() -> Self {
        // Number 0 is no stack.
        Stacks { chunks: [null_mut(); CHUNKS], used: 1, buckets: null_mut() }
    }

    /// The number of a stack; 0 for one without frames, and where there is no memory.
    pub fn intern(&mut self, stack: &Stack) -> u32 {
        let frames = stack.frames();
        if frames.is_empty() || !self.start() {
            return 0;
        }
        let hash =
            frames.iter().fold(0u64, |hash, frame| (hash.rotate_left(5) ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        // SAFETY: the table has so many entries.
        let bucket = unsafe { &mut *self.buckets.add((hash >> 40) as usize % BUCKETS) };
        let mut number = *bucket;
        while number != 0 {
            let Some(words) = self.words(number) else { return 0 };
            // SAFETY: a stack's words were written before its number was given.
            unsafe {
                let head = *words;
                let depth = ((head >> 32) as usize).min(DEPTH);
                if *words.add(1) == hash && core::slice::from_raw_parts(words.add(2), depth) == frames {
                    return number;
                }
                number = head as u32;
            }
        }
        let words = 2 + frames.len();
        // A stack lies in one chunk.
        if self.used % CHUNK + words > CHUNK {
            self.used = self.used.next_multiple_of(CHUNK);
        }
        let Some(chunk) = self.chunks.get_mut(self.used / CHUNK) else { return 0 };
        if chunk.is_null() {
            *chunk = os::map(CHUNK * size_of::<u64>()).cast();
            if chunk.is_null() {
                return 0;
            }
            counters::add(TierCounter::MetadataBytes, (CHUNK * size_of::<u64>()) as u64);
        }
        number = self.used as u32;
        // SAFETY: `words` words follow in the chunk, and nobody has them.
        unsafe {
            let place = chunk.add(self.used % CHUNK);
            place.write(u64::from(*bucket) | (frames.len() as u64) << 32);
            place.add(1).write(hash);
            place.add(2).copy_from_nonoverlapping(frames.as_ptr(), frames.len());
        }
        self.used += words;
        *bucket = number;
        number
    }

    /// The stack with a number.
    pub fn get(&self, number: u32) -> Stack {
        let mut stack = Stack::NONE;
        let Some(words) = self.words(number) else { return stack };
        // SAFETY: `intern` wrote the words before it gave the number.
        unsafe {
            stack.depth = ((*words >> 32) as usize).min(DEPTH);
            stack.frames.as_mut_ptr().copy_from_nonoverlapping(words.add(2), stack.depth);
        }
        stack
    }

    fn words(&self, number: u32) -> Option<*const u64> {
        let number = number as usize;
        let chunk = self.chunks.get(number / CHUNK).filter(|chunk| !chunk.is_null() && number > 0)?;
        // SAFETY: a chunk has so many words.
        Some(unsafe { chunk.add(number % CHUNK) })
    }

    fn start(&mut self) -> bool {
        if self.buckets.is_null() {
            self.buckets = os::map(BUCKETS * size_of::<u32>()).cast();
            if !self.buckets.is_null() {
                counters::add(TierCounter::MetadataBytes, (BUCKETS * size_of::<u32>()) as u64);
            }
        }
        !self.buckets.is_null()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(seed: u64, depth: usize) -> Stack {
        let mut stack = Stack { frames: [0; DEPTH], depth };
        stack.frames.iter_mut().zip(1..).take(depth).for_each(|(frame, n)| *frame = seed * 1000 + n);
        stack
    }

    #[test]
    fn equal_stacks_have_one_number_and_others_have_others() {
        let mut stacks = Stacks::new();
        let numbers: Vec<u32> = (0..10_000).map(|n| stacks.intern(&stack(n, 1 + n as usize % DEPTH))).collect();
        for (n, number) in (0..).zip(&numbers) {
            assert_eq!(stacks.intern(&stack(n, 1 + n as usize % DEPTH)), *number);
            assert_eq!(stacks.get(*number).frames(), stack(n, 1 + n as usize % DEPTH).frames());
        }
        let mut distinct = numbers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), numbers.len());
        assert!(!distinct.contains(&0));
    }

    #[test]
    fn no_frames_are_no_stack() {
        assert_eq!(Stacks::new().intern(&Stack::NONE), 0);
        assert!(Stacks::new().get(0).frames().is_empty());
    }
}
