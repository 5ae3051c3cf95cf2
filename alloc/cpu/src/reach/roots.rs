//! The roots: memory that the program reaches without a pointer from a block.
//!
//! These are the registers of all threads, their stacks from 128 bytes below the stack pointer on (the red zone, System
//! V ABI, 3.2.2), and all other memory that can be read, is of this process or its forked children alone, and that
//! somebody has written: variables of modules, thread-local storage, the C library's records of threads, what the
//! program mapped itself, and rings of io_uring: what the program gave with a request that waits may lie nowhere else,
//! and stays in the ring until its place is used again. What is the pool's own is no root: its arenas, its threads'
//! heaps with what they remember of their stacks, the records of blocks, the segment, and what this search uses.
//!
//! Of a thread's stack, what lies below its stack pointer is dead. The stack's mapping is known by what the C library
//! keeps at its upper end, the thread's control block (`tcbhead_t`). Stacks of threads that have ended stay mapped for
//! later ones: of these, only the block itself counts.

use poolscope_wire::reach::holder;

use super::frame;
use super::maps::{self, Content, Mapping, PAGE, Pages};
use crate::kernel::os;

/// Bytes below a stack pointer that a function may use.
pub const RED_ZONE: usize = 128;
/// Bytes of the C library's record of a thread, from its control block on (`struct pthread`), with some to spare.
const THREAD_RECORD: usize = 0x1000;
/// Words of a control block: its own address, twice, and the stack protector's value.
const SELF_WORDS: [usize; 2] = [0, 2];
const GUARD_WORD: usize = 5;
/// Its pointer to the loader's vector of thread-local storage (`dtv`), which lies in a block and is so far from its
/// start.
const VECTOR_WORD: usize = 1;
const VECTOR_OFFSET: usize = 16;
const WORD: usize = size_of::<usize>();

/// A range of addresses, which ends with the second one.
pub type Range = (usize, usize);

/// What counts of a mapping, and what holds what it points to.
enum Part {
    /// The words between two addresses.
    Range(usize, usize, Held),
    /// A pointer that no word there has as it is, and what holds it.
    Word(usize, u64),
}

/// What holds what the words of a range point to.
#[derive(Clone, Copy)]
enum Held {
    /// Each word's own place.
    Here,
    /// A stack or what else a thread has ([`holder`]).
    By(u64),
}

impl Held {
    fn of_thread(kind: u64, tid: u32) -> Self {
        Held::By(holder::of_thread(kind, tid))
    }

    #[inline]
    fn at(self, place: usize) -> u64 {
        match self {
            Held::Here => place as u64,
            Held::By(thread) => thread,
        }
    }
}

/// A thread whose registers are known.
#[derive(Clone, Copy)]
pub struct Thread {
    /// Kernel id.
    pub tid: u32,
    /// Its stack pointer.
    pub sp: usize,
    /// Its control block.
    pub control: usize,
    /// Where the stack begins that it has named for its signals; 0 if it has none.
    pub signal_stack: usize,
}

/// What roots are to be found by.
pub struct Roots<'a> {
    /// The process's mappings, ascending.
    pub mappings: &'a [Mapping],
    /// All threads.
    pub threads: &'a [Thread],
    /// There are threads of which nothing is known: no control block is known to be a dead thread's.
    pub all_known: bool,
    /// Bytes below a control block that are thread-local storage, as far as that is known.
    pub static_storage: usize,
    /// What is no root, ascending and without overlaps.
    pub excluded: &'a [Range],
}

impl Roots<'_> {
    /// Calls `f` with each word of each root, and with what holds what it points to. Returns the bytes that were read;
    /// `None` if the kernel does not say what was written.
    pub fn read(&self, mut f: impl FnMut(usize, u64)) -> Option<usize> {
        let pages = Pages::open()?;
        let (mut bytes, mut known) = (0, true);
        for at in 0..self.mappings.len() {
            if !self.may_hold_pointers(at) {
                continue;
            }
            if self.is_excluded(at) {
                self.vectors_in(at, &mut f);
                continue;
            }
            self.for_each_live_part(at, &pages, &mut |part| {
                let (from, to, held) = match part {
                    Part::Range(from, to, held) => (from, to, held),
                    Part::Word(word, held_by) => return f(word, held_by),
                };
                let mut f = |place, word| f(word, held.at(place));
                without(self.excluded, from, to, &mut |from, to| {
                    let mut run = |first: usize, end: usize, content| {
                        let (from, to) = (first.max(from), end.min(to));
                        bytes += to.saturating_sub(from);
                        match content {
                            Content::Memory => words(from, to, &mut f),
                            _ => careful_words(from, to, &mut f),
                        }
                    };
                    if self.mappings[at].shared {
                        maps::for_each_shared_run(from, to, &mut run);
                    } else {
                        known &= pages.for_each_run(&self.mappings[at], from, to, &mut run);
                    }
                });
            });
        }
        known.then_some(bytes)
    }

    /// Whether a mapping may have been written by the program, and by its forked children or the kernel at most. One
    /// that can't be any more counts as well if it is memory of no file, which the program has closed to writing, or
    /// the part of a module that the loader closed after it had relocated it (`PT_GNU_RELRO`).
    fn may_hold_pointers(&self, at: usize) -> bool {
        let mapping = &self.mappings[at];
        let is_closed_part = || {
            let next = self.mappings.get(at + 1);
            mapping.inode != 0
                && next.is_some_and(|next| next.writable && next.inode == mapping.inode && next.start == mapping.end)
        };
        let is_ours = mapping.writable || mapping.inode == 0 || mapping.ours || is_closed_part();
        mapping.readable && (!mapping.shared || mapping.ours) && is_ours
    }

    /// Whether nothing of a mapping is a root, as of the pool's arenas.
    fn is_excluded(&self, at: usize) -> bool {
        let mapping = &self.mappings[at];
        self.excluded.iter().any(|&(from, to)| from <= mapping.start && mapping.end <= to)
    }

    /// Passes on what threads have whose control blocks lie in a mapping that is no root: on stacks that the program
    /// has allocated.
    fn vectors_in(&self, at: usize, f: &mut impl FnMut(usize, u64)) {
        let mapping = &self.mappings[at];
        for thread in self.threads.iter().filter(|it| (mapping.start..mapping.end).contains(&it.control)) {
            let (word, held_by) = vector_of(thread.control, thread.tid);
            f(word, held_by);
        }
    }

    /// Passes on what is not dead of a mapping.
    fn for_each_live_part(&self, at: usize, pages: &Pages, f: &mut impl FnMut(Part)) {
        let mapping = &self.mappings[at];
        let mut from = mapping.start;
        if mapping.is_stack {
            let here = self.threads.iter().filter(|thread| (from..mapping.end).contains(&thread.sp));
            let owner = here.min_by_key(|thread| thread.sp);
            let live = owner.map_or(from, |owner| live_from(owner.sp, from));
            let held = owner.map_or(Held::Here, |owner| Held::of_thread(holder::STACK, owner.tid));
            return f(Part::Range(live, mapping.end, held));
        }
        let has_guard = at > 0 && {
            let below = &self.mappings[at - 1];
            below.end == mapping.start && !below.readable
        };
        if has_guard && mapping.inode == 0 {
            for_each_control_block(mapping, pages, |control| {
                let owner = self.threads.iter().find(|thread| thread.control == control);
                let sp = owner.map(|owner| owner.sp).filter(|sp| (from..control).contains(sp));
                let end = (control + THREAD_RECORD).next_multiple_of(PAGE).min(mapping.end);
                let live = match (owner, sp) {
                    (_, Some(sp)) => live_from(sp, from),
                    // It runs on another stack, or something is there that runs unseen.
                    (Some(_), None) => from,
                    (None, None) if !self.all_known => from,
                    (None, None) => control,
                };
                let tid = owner.map_or(0, |owner| owner.tid);
                let own = (control - self.static_storage.min(control - live)).max(live);
                f(Part::Range(live, own, Held::of_thread(holder::STACK, tid)));
                f(Part::Range(own, end, Held::of_thread(holder::THREAD, tid)));
                let (vector, held_by) = vector_of(control, tid);
                f(Part::Word(vector, held_by));
                from = end;
            });
        }
        // The first thread's control block lies elsewhere.
        if let Some(thread) = self.threads.iter().find(|thread| (from..mapping.end).contains(&thread.control)) {
            let own = thread.control - self.static_storage.min(thread.control - from);
            let end = (thread.control + THREAD_RECORD).min(mapping.end);
            f(Part::Range(from, own, Held::Here));
            f(Part::Range(own, end, Held::of_thread(holder::THREAD, thread.tid)));
            from = end;
        }
        if from < mapping.end {
            f(Part::Range(from, mapping.end, Held::Here));
        }
    }
}

/// Where a live stack begins whose memory begins at `start`.
fn live_from(sp: usize, start: usize) -> usize {
    sp.saturating_sub(RED_ZONE).max(start) & !(WORD - 1)
}

/// Calls `f` with each thread's control block in a mapping, ascending.
fn for_each_control_block(mapping: &Mapping, pages: &Pages, mut f: impl FnMut(usize)) {
    let guard = guard_word(frame::thread_pointer());
    // The C library aligns them so.
    const ALIGN: usize = 64;
    let mut next = mapping.start;
    pages.for_each_run(mapping, mapping.start, mapping.end, |from, to, content| {
        if content != Content::Memory {
            return;
        }
        let mut at = from.max(next).next_multiple_of(ALIGN);
        while at + ALIGN <= to.min(mapping.end) {
            let word = |n: usize| read(at + n * WORD);
            if SELF_WORDS.into_iter().all(|n| word(n) == at) && guard.is_none_or(|guard| word(GUARD_WORD) == guard) {
                f(at);
                next = (at + THREAD_RECORD).next_multiple_of(PAGE);
                at = next;
            } else {
                at += ALIGN;
            }
        }
    });
}

/// A thread's vector of thread-local storage, by its control block.
fn vector_of(control: usize, tid: u32) -> (usize, u64) {
    let vector = read(control + VECTOR_WORD * WORD).wrapping_sub(VECTOR_OFFSET);
    (vector, holder::of_thread(holder::THREAD, tid))
}

/// The stack protector's value, which all threads of a process have.
fn guard_word(control: usize) -> Option<usize> {
    (control != 0).then(|| read(control + GUARD_WORD * WORD))
}

fn read(address: usize) -> usize {
    // SAFETY: the callers name words of readable pages that have memory.
    unsafe { (address as *const usize).read_volatile() }
}

/// Passes on the words of readable memory between two addresses, and where each lies.
pub fn words(from: usize, to: usize, f: &mut impl FnMut(usize, usize)) {
    let mut at = from.next_multiple_of(WORD);
    while at + WORD <= to {
        f(at, read(at));
        at += WORD;
    }
}

/// The same of memory that may be no more than a mark: the kernel reads it.
pub fn careful_words(from: usize, to: usize, f: &mut impl FnMut(usize, usize)) {
    let mut buffer = [0usize; 64];
    let mut at = from.next_multiple_of(WORD);
    while at + WORD <= to {
        let want = ((to - at) / WORD).min(buffer.len());
        let got = os::read_own_memory(at, &mut buffer[..want]);
        buffer[..got].iter().enumerate().for_each(|(n, &word)| f(at + n * WORD, word));
        at += want * WORD;
    }
}

/// Passes on what is not excluded of a range.
fn without(excluded: &[Range], mut from: usize, to: usize, f: &mut impl FnMut(usize, usize)) {
    for &(start, end) in excluded {
        if end <= from {
            continue;
        }
        if start >= to {
            break;
        }
        if from < start {
            f(from, start);
        }
        from = from.max(end);
    }
    if from < to {
        f(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(excluded: &[Range], from: usize, to: usize) -> Vec<Range> {
        let mut left = Vec::new();
        without(excluded, from, to, &mut |from, to| left.push((from, to)));
        left
    }

    #[test]
    fn excluded_ranges_are_cut_out() {
        assert_eq!(left(&[], 10, 20), [(10, 20)]);
        assert_eq!(left(&[(0, 5), (12, 14), (18, 30)], 10, 20), [(10, 12), (14, 18)]);
        assert_eq!(left(&[(10, 20)], 10, 20), []);
        assert_eq!(left(&[(5, 11), (11, 12), (19, 20), (20, 40)], 10, 20), [(12, 19)]);
        // What lies in another one is cut out once.
        assert_eq!(left(&[(5, 15), (6, 8)], 10, 20), [(15, 20)]);
    }

    /// A mapping of this process with these words at its start.
    fn mapped(words: &[usize]) -> Mapping {
        let start = os::map(PAGE) as usize;
        words.iter().enumerate().for_each(|(n, &word)| {
            // SAFETY: the page was just mapped.
            unsafe { (start as *mut usize).add(n).write(word) };
        });
        let end = start + PAGE;
        Mapping { start, end, readable: true, writable: true, shared: false, inode: 0, is_stack: false, ours: false }
    }

    fn found(mappings: &[Mapping], threads: &[Thread], excluded: &[Range]) -> Vec<usize> {
        let mut found = Vec::new();
        let roots = Roots { mappings, threads, all_known: true, static_storage: 0, excluded };
        roots.read(|word, _| found.push(word)).expect("pages");
        found.retain(|&word| word != 0);
        found
    }

    #[test]
    fn what_lies_below_a_stack_pointer_and_its_red_zone_is_dead() {
        let mut words = [0; 64];
        (words[10], words[20], words[40]) = (1, 2, 3);
        let stack = Mapping { is_stack: true, ..mapped(&words) };
        let thread = Thread { tid: 1, sp: stack.start + 36 * WORD, control: 0, signal_stack: 0 };
        assert_eq!(found(&[stack], &[thread], &[]), [2, 3]);
        assert_eq!(found(&[stack], &[], &[]), [1, 2, 3], "nobody is known to run there");
    }

    #[test]
    fn of_the_pools_memory_counts_what_a_thread_with_its_stack_there_has_of_thread_local_storage() {
        let memory = mapped(&[0, 0x5000 + VECTOR_OFFSET, 7]);
        let thread = Thread { tid: 1, sp: memory.start, control: memory.start, signal_stack: 0 };
        assert_eq!(found(&[memory], &[thread], &[(memory.start, memory.end)]), [0x5000]);
        assert_eq!(found(&[memory], &[], &[(memory.start, memory.end)]), []);
    }

    #[test]
    fn only_memory_of_the_process_is_a_root_and_of_a_file_what_can_be_written_or_a_module_has_closed() {
        let memory = mapped(&[7]);
        assert_eq!(found(&[memory], &[], &[]), [7]);
        assert_eq!(found(&[memory], &[], &[(memory.start, memory.end)]), []);
        assert_eq!(found(&[Mapping { shared: true, ..memory }], &[], &[]), []);
        assert_eq!(found(&[Mapping { shared: true, ours: true, inode: 5, ..memory }], &[], &[]), [7]);
        assert_eq!(found(&[Mapping { writable: false, ..memory }], &[], &[]), [7], "the program has closed it since");
        let closed = Mapping { writable: false, inode: 5, ..memory };
        assert_eq!(found(&[closed], &[], &[]), []);
        let (start, end) = (closed.end, closed.end + PAGE);
        let next = Mapping { start, end, writable: true, ..closed };
        assert_eq!(found(&[closed, next], &[], &[(start, end)]), [7]);
    }
}
