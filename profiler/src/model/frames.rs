//! The words of a call stack, of which stacks of one process share the outer ones.

use std::fmt;
use std::sync::Arc;

/// Return addresses, innermost first, as captured, and behind them the words of a label, if there is one
/// ([`poolscope_wire::label`]).
///
/// Stacks of a process have most of their outer frames in common. These are in memory once, as they are in the segment
/// ([`poolscope_wire::outer`]); readings of one process share all of them.
#[derive(Clone, Default)]
pub struct Frames {
    /// None if there are no words.
    run: Option<Arc<Run>>,
    len: usize,
}

/// Words that a stack has of its own.
struct Run {
    /// Its inner ones, and behind them its outermost, which no other stack has from it.
    words: Box<[u64]>,
    inner: usize,
    /// Where it goes on between these: a run, and the first of its inner words.
    outer: Option<(Arc<Run>, usize)>,
}

impl Drop for Run {
    /// One after the other: a run may lead to as many others as there are stacks.
    fn drop(&mut self) {
        let mut outer = self.outer.take();
        while let Some(mut run) = outer.and_then(|(run, _)| Arc::try_unwrap(run).ok()) {
            outer = run.outer.take();
        }
    }
}

impl Frames {
    /// A stack of `len` words that has the first `inner` of its own ones, then those of another stack from its word
    /// `from` on, and at last the rest of its own. `None` if that one has not so many before its own last ones, or has
    /// the first of them from another one itself.
    pub fn shared(own: &[u64], inner: usize, outer: &Frames, from: usize, len: usize) -> Option<Frames> {
        let run = outer.run.as_ref().filter(|run| from < run.inner)?;
        let most = (outer.len - from).checked_sub(run.words.len() - run.inner)?;
        let left = len.checked_sub(own.len()).filter(|left| *left <= most && inner <= own.len())?;
        let outer = (left > 0).then(|| (Arc::clone(run), from));
        Some(Frames { run: Some(Arc::new(Run { words: own.into(), inner, outer })), len })
    }

    /// How many words there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words, innermost first.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.runs().flatten().copied()
    }

    /// The same, as many in a row as one stack has of its own.
    fn runs(&self) -> impl Iterator<Item = &[u64]> {
        let mut next = self.run.as_deref().map(|run| (run, 0));
        let runs = std::iter::from_fn(move || {
            let (run, from) = next?;
            next = run.outer.as_ref().map(|(run, from)| (&**run, *from));
            run.words.get(from..run.inner)
        });
        let last = self.run.as_deref().map_or(&[][..], |run| &run.words[run.inner..]);
        let before_last = runs.scan(self.len - last.len(), |left, run| {
            let run = run.get(..*left).unwrap_or(run);
            *left -= run.len();
            (!run.is_empty() || *left > 0).then_some(run)
        });
        before_last.chain([last])
    }

    /// Whether both are the same in memory, as [`Arc::ptr_eq`] says of others.
    pub fn ptr_eq(&self, other: &Frames) -> bool {
        self.len == other.len && self.run.as_ref().map(Arc::as_ptr) == other.run.as_ref().map(Arc::as_ptr)
    }

    /// The same as a vector.
    pub fn to_vec(&self) -> Vec<u64> {
        let mut words = Vec::with_capacity(self.len);
        words.extend(self.iter());
        words
    }

    /// The outermost `count` words, or all of them if they are fewer.
    pub fn outermost(&self, count: usize) -> Vec<u64> {
        let mut skipped = self.len.saturating_sub(count);
        let mut words = Vec::with_capacity(count.min(self.len));
        for run in self.runs() {
            let skip = skipped.min(run.len());
            words.extend(&run[skip..]);
            skipped -= skip;
        }
        words
    }
}

impl From<&[u64]> for Frames {
    fn from(words: &[u64]) -> Self {
        words.to_vec().into()
    }
}

impl From<Vec<u64>> for Frames {
    fn from(words: Vec<u64>) -> Self {
        let len = words.len();
        let run = (len > 0).then(|| Arc::new(Run { words: words.into(), inner: len, outer: None }));
        Frames { run, len }
    }
}

impl PartialEq for Frames {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_that_shares_its_outer_frames_has_all_of_them() {
        let whole = Frames::from(vec![1, 2, 3, 4, 5]);
        let shared = Frames::shared(&[8, 9], 2, &whole, 2, 5).unwrap();
        assert_eq!(shared.to_vec(), [8, 9, 3, 4, 5]);
        assert_eq!(shared, Frames::from(&[8, 9, 3, 4, 5][..]));
        // Not all of the other's outermost, and of three of them.
        let third = Frames::shared(&[7], 1, &shared, 1, 4).unwrap();
        assert_eq!((third.to_vec(), third.outermost(2)), (vec![7, 9, 3, 4], vec![3, 4]));
        assert_eq!(third.outermost(9), [7, 9, 3, 4]);
        // Nothing of its own, and nothing of the other's.
        assert_eq!(Frames::shared(&[], 0, &whole, 1, 4).unwrap().to_vec(), [2, 3, 4, 5]);
        assert_eq!(Frames::shared(&[6, 7], 2, &whole, 0, 2).unwrap().to_vec(), [6, 7]);
        assert_eq!(format!("{third:?}"), "[7, 9, 3, 4]");
    }

    #[test]
    fn a_stack_that_shares_frames_in_its_middle_has_its_own_before_and_behind() {
        let whole = Frames::from(vec![1, 2, 3, 4, 5]);
        let shared = Frames::shared(&[8, 60, 61], 1, &whole, 2, 6).unwrap();
        assert_eq!((shared.to_vec(), shared.outermost(3)), (vec![8, 3, 4, 5, 60, 61], vec![5, 60, 61]));
        // Another one has its inner frames and what it shares, and not those behind.
        let other = Frames::shared(&[9, 70], 1, &shared, 0, 6).unwrap();
        assert_eq!(other.to_vec(), [9, 8, 3, 4, 5, 70]);
        assert_eq!(Frames::shared(&[9], 1, &shared, 0, 6), None);
        assert_eq!(Frames::shared(&[9], 1, &shared, 1, 3), None);
    }

    #[test]
    fn what_the_other_stack_does_not_have_is_not_shared() {
        let whole = Frames::from(vec![1, 2, 3]);
        let shared = Frames::shared(&[8], 1, &whole, 1, 3).unwrap();
        for (outer, from, len) in [(&whole, 0, 5), (&whole, 2, 3), (&whole, 3, 2), (&shared, 1, 2), (&whole, 0, 0)] {
            assert_eq!(Frames::shared(&[9], 1, outer, from, len), None, "{from} {len}");
        }
        assert_eq!(Frames::shared(&[9], 2, &whole, 0, 2), None);
        assert_eq!(Frames::shared(&[9], 1, &Frames::default(), 0, 1), None);
        assert!(Frames::default().is_empty() && Frames::from(Vec::new()).is_empty() && !whole.is_empty());
    }

    #[test]
    fn a_long_row_of_stacks_goes_without_much_of_a_stack() {
        let mut last = Frames::from(vec![1, 2]);
        for _ in 0..1_000_000 {
            last = Frames::shared(&[3], 1, &last, 0, 2).unwrap();
        }
        assert_eq!(last.to_vec(), [3, 3]);
    }
}
