//! Labels: what a thread says that it is doing, and how much of what it allocated meanwhile is in use.
//!
//! A sample that a thread takes under a label has the label in its stack ([`poolscope_wire::label`]), so that labels
//! cost nothing where none is set, and nothing but a few words of the segment where one is. What a label has in use is
//! estimated from the samples, as everything is. A limit is looked at with each sample.

use core::ffi::{c_char, c_void};

use poolscope_wire::label::{LABEL_WORDS, LabelName};

use super::SAMPLER;
use crate::entry::capture;
use crate::kernel::message::Message;
use crate::kernel::os;
use crate::sync::spin_lock::SlowPath;
use crate::tiers::thread_cache::Heap;

/// Labels that a process can have.
const MOST: usize = u64::BITS as usize;
/// Stacks whose labels are remembered, for what is freed; beyond, they count as allocated only.
const STACKS: usize = 1 << 22;

/// A function that is told of a limit that was passed: the label's name, the bytes in use, the limit, and what was
/// given with it.
pub type Call = unsafe extern "C" fn(name: *const c_char, in_use: u64, limit: u64, context: *mut c_void);

/// What is done where a label has more in use than its limit.
#[derive(Clone, Copy, Debug)]
pub enum Over {
    /// It is said on standard error.
    Warn,
    /// Requests that are due to be sampled are refused until it has less.
    Refuse,
    /// The function is called, by the thread that passed the limit.
    Call(Call, *mut c_void),
}

#[derive(Clone, Copy)]
struct Label {
    /// None if the place is free.
    name: Option<LabelName>,
    words: ([u64; LABEL_WORDS], usize),
    in_use: u64,
    /// 0 if there is none.
    limit: u64,
    over: Over,
    is_over: bool,
}

/// A place without a label: zeroes, which take no room in the library's file, and no memory until they are written.
const FREE: Label =
    Label { name: None, words: ([0; LABEL_WORDS], 0), in_use: 0, limit: 0, over: Over::Warn, is_over: false };

/// A limit that was passed, and what the label had in use when it is told of.
#[derive(Clone, Copy)]
pub struct Passed {
    name: LabelName,
    in_use: u64,
    limit: u64,
    over: Over,
}

/// All labels of the process.
pub struct Labels {
    labels: [Label; MOST],
    /// For each stack the number of its label; null before the first labelled one.
    of_stacks: *mut u8,
    /// A bit for each label whose limit was passed of which nobody was told yet: several threads may pass one at once.
    passed: u64,
}

impl Labels {
    pub const fn new() -> Self {
        Labels { labels: [FREE; MOST], of_stacks: core::ptr::null_mut(), passed: 0 }
    }

    /// The number of a label, which is never 0; 0 if there are too many, or it has no name.
    pub fn number(&mut self, name: &[u8]) -> u32 {
        let Some(name) = LabelName::new(name) else { return 0 };
        let known = self.labels.iter().position(|label| label.name.is_none_or(|other| other == name));
        let Some(at) = known else { return 0 };
        if let Some(place) = self.labels.get_mut(at).filter(|label| label.name.is_none()) {
            *place = Label { name: Some(name), words: name.words(), ..FREE };
        }
        at as u32 + 1
    }

    fn get(&mut self, label: u32) -> Option<&mut Label> {
        self.labels.get_mut((label as usize).checked_sub(1)?).filter(|label| label.name.is_some())
    }

    /// What stands behind the frames of a stack under a label.
    #[cold]
    pub fn words(&self, label: u32) -> &[u64] {
        let label = (label as usize).checked_sub(1).and_then(|at| self.labels.get(at));
        label.and_then(|label| label.words.0.get(..label.words.1)).unwrap_or_default()
    }

    /// Sets a limit in bytes; 0 for none.
    pub fn limit(&mut self, label: u32, bytes: u64, over: Over) {
        if let Some(limited) = self.get(label) {
            (limited.limit, limited.over, limited.is_over) = (bytes, over, false);
            self.passed &= !(1 << (label - 1));
        }
    }

    /// Bytes in use under a label.
    pub fn in_use(&mut self, label: u32) -> u64 {
        self.get(label).map_or(0, |label| label.in_use)
    }

    /// Whether a request under a label is to be refused. The first one is told of, also where the limit was reached and
    /// not passed.
    pub fn refuses(&mut self, label: u32) -> bool {
        let refusing = |l: &&mut Label| l.limit > 0 && matches!(l.over, Over::Refuse) && l.in_use >= l.limit;
        let Some(refused) = self.get(label).filter(refusing) else { return false };
        if !refused.is_over {
            self.pass(label);
        }
        true
    }

    /// Notes that a label is beyond its limit.
    fn pass(&mut self, label: u32) {
        if let Some(passed) = self.get(label) {
            passed.is_over = true;
            self.passed |= 1 << (label - 1);
        }
    }

    /// Counts a sample from a stack under a label.
    #[cold]
    pub fn took(&mut self, label: u32, stack: u32, bytes: u64) {
        self.remember(label, stack);
        self.grew(label, bytes);
    }

    fn remember(&mut self, label: u32, stack: u32) {
        if self.of_stacks.is_null() {
            self.of_stacks = os::map(STACKS);
        }
        if !self.of_stacks.is_null() && (stack as usize) < STACKS {
            // SAFETY: a byte of the mapping, which is this struct's.
            unsafe { self.of_stacks.add(stack as usize).write(label as u8) };
        }
    }

    /// Whether what a stack has in use counts for a label.
    pub fn has(&self, stack: u32) -> bool {
        self.of_stack(stack) != 0
    }

    #[inline]
    fn of_stack(&self, stack: u32) -> u32 {
        if self.of_stacks.is_null() || stack as usize >= STACKS {
            return 0;
        }
        // SAFETY: as above.
        u32::from(unsafe { self.of_stacks.add(stack as usize).read() })
    }

    fn grew(&mut self, label: u32, bytes: u64) {
        let Some(grown) = self.get(label) else { return };
        grown.in_use = grown.in_use.saturating_add(bytes);
        if grown.limit > 0 && grown.in_use > grown.limit && !grown.is_over {
            self.pass(label);
        }
    }

    /// Counts that a sampled block of a stack is there no more, or has changed its size.
    #[inline]
    pub fn changed(&mut self, stack: u32, before: u64, after: u64) {
        let label = self.of_stack(stack);
        if label != 0 {
            self.shrank(label, before);
            if after > 0 {
                self.grew(label, after);
            }
        }
    }

    #[cold]
    fn shrank(&mut self, label: u32, bytes: u64) {
        if let Some(label) = self.get(label) {
            label.in_use = label.in_use.saturating_sub(bytes);
            // What goes up and down around the limit is said once.
            label.is_over &= label.in_use > label.limit - label.limit / 8;
        }
    }

    /// Whether a limit was passed of which nobody was told yet.
    #[inline]
    pub fn has_passed(&self) -> bool {
        self.passed != 0
    }

    /// That limit.
    pub fn take_passed(&mut self) -> Option<Passed> {
        let label = self.passed.trailing_zeros();
        self.passed &= self.passed.wrapping_sub(1);
        let Label { name, in_use, limit, over, .. } = *self.get(label + 1)?;
        Some(Passed { name: name?, in_use, limit, over })
    }
}

impl Passed {
    /// Does what was asked for, with no lock held.
    pub fn tell(&self) {
        match self.over {
            Over::Warn | Over::Refuse => {
                let message = Message::new("what is labelled ").bytes(self.name.bytes()).text(" has ");
                let message = message.number(self.in_use).text(" bytes in use, and its limit is ").number(self.limit);
                let refused = matches!(self.over, Over::Refuse);
                message.text(if refused { ": requests for more are refused" } else { "" }).print();
            }
            Over::Call(call, context) => {
                let mut name = [0u8; poolscope_wire::label::LABEL_MAX + 1];
                name.iter_mut().zip(self.name.bytes()).for_each(|(to, from)| *to = *from);
                // SAFETY: who set the limit promised that the function may be called so.
                unsafe { call(name.as_ptr().cast(), self.in_use, self.limit, context) };
            }
        }
    }
}

/// Tells of a limit that was passed. What is called may allocate, and takes no samples meanwhile. A function of its
/// own, so that no other sample has what is told on its stack.
#[cold]
#[inline(never)]
pub(super) fn tell(slow: SlowPath, heap: &'static Heap) {
    let next = || SAMPLER.lock(slow).labels.take_passed();
    while let Some(passed) = next() {
        capture::with_open_path(heap, || passed.tell());
    }
}

/// Calls `f` with the labels, under the sampler's lock.
pub fn with_labels<R>(slow: SlowPath, f: impl FnOnce(&mut Labels) -> R) -> R {
    f(&mut SAMPLER.lock(slow).labels)
}

/// Whether a request of the heap's thread is to be refused, because its label has too much.
#[inline]
pub fn is_refused(slow: SlowPath, heap: &'static Heap) -> bool {
    let label = heap.sampling.marks.label();
    label != 0 && refuses(slow, heap, label)
}

/// A function of its own, so that what has no label has none of it on its stack.
#[inline(never)]
fn refuses(slow: SlowPath, heap: &'static Heap, label: u32) -> bool {
    let mut sampler = SAMPLER.lock(slow);
    let (refused, passed) = (sampler.labels.refuses(label), sampler.labels.has_passed());
    drop(sampler);
    if passed {
        tell(slow, heap);
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_several_threads_pass_at_once_are_all_told_of() {
        let mut labels = Labels::new();
        let numbers: [u32; 3] = [b"one", b"two", b"six"].map(|name| labels.number(name));
        for label in numbers {
            labels.limit(label, 100, Over::Warn);
            labels.grew(label, 101);
        }
        // What was passed and not told of yet is not passed again.
        labels.grew(numbers[1], 101);
        let told = core::iter::from_fn(|| labels.take_passed()).map(|passed| (passed.name.bytes()[0], passed.in_use));
        assert!(told.eq([(b'o', 101), (b't', 202), (b's', 101)]));
        assert!(!labels.has_passed());
    }

    #[test]
    fn the_last_of_64_labels_has_a_limit_and_there_is_no_65th() {
        let mut labels = Labels::new();
        let last = (0..MOST as u8).map(|at| labels.number(&[b'a' + at])).last().unwrap_or(0);
        assert_eq!((last, labels.number(b"more")), (64, 0));
        labels.limit(last, 100, Over::Refuse);
        labels.grew(last, 100);
        assert!(labels.refuses(last) && labels.has_passed());
        assert!(labels.take_passed().is_some_and(|passed| passed.limit == 100));
        assert!(labels.take_passed().is_none());
    }
}
