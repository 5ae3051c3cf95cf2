//! Labels of stacks: a word of the program's for what it is doing, such as `cache`, which ends in profiles.
//!
//! A stack that was captured under a label has the label behind its outermost frame: the name's bytes, eight in a word,
//! and a last word that says how many they are. No code lies at such an address, so readers that know nothing of labels
//! see a frame without a name.

/// The most bytes of a name.
pub const LABEL_MAX: usize = 32;

/// The most words that a label takes.
pub const LABEL_WORDS: usize = LABEL_MAX / 8 + 1;

/// The upper half of the last word: beyond the addresses of user space.
const MARK: u64 = 0x4c61_6265_0000_0000;

/// A label's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelName {
    bytes: [u8; LABEL_MAX],
    len: usize,
}

impl LabelName {
    /// A name, cut to the bytes that there is room for; `None` if it is empty.
    pub fn new(name: &[u8]) -> Option<LabelName> {
        let len = name.len().min(LABEL_MAX);
        let mut bytes = [0; LABEL_MAX];
        bytes.iter_mut().zip(name).for_each(|(to, from)| *to = *from);
        (len > 0).then_some(LabelName { bytes, len })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The words that stand behind the frames, and how many they are.
    pub fn words(&self) -> ([u64; LABEL_WORDS], usize) {
        let mut words = [0; LABEL_WORDS];
        let (names, _) = self.bytes.as_chunks();
        words.iter_mut().zip(names).for_each(|(word, name)| *word = u64::from_le_bytes(*name));
        let used = self.len.div_ceil(8);
        if let Some(last) = words.get_mut(used) {
            *last = MARK | self.len as u64;
        }
        (words, used + 1)
    }
}

/// The frames of a stack, and its label.
pub fn split(frames: &[u64]) -> (&[u64], Option<LabelName>) {
    let found = || {
        let (&last, before) = frames.split_last()?;
        let len = usize::try_from(last ^ MARK).ok().filter(|len| (1..=LABEL_MAX).contains(len))?;
        let (frames, names) = before.split_at_checked(before.len().checked_sub(len.div_ceil(8))?)?;
        let mut bytes = [0; LABEL_MAX];
        let (places, _) = bytes.as_chunks_mut();
        places.iter_mut().zip(names).for_each(|(to, word)| *to = word.to_le_bytes());
        Some((frames, LabelName::new(bytes.get(..len)?)?))
    };
    found().map_or((frames, None), |(frames, label)| (frames, Some(label)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_read_as_it_was_written_and_no_frame_is_taken_for_one() {
        for name in [&b"a"[..], b"eight by", b"nine byte", &[b'x'; LABEL_MAX]] {
            let (words, used) = LabelName::new(name).expect("has a name").words();
            let mut stack = [0x40_1000; LABEL_WORDS + 2];
            stack[2..2 + used].copy_from_slice(&words[..used]);
            let (frames, label) = split(&stack[..2 + used]);
            assert_eq!((frames, label.expect("is there").bytes()), (&[0x40_1000, 0x40_1000][..], name));
        }
        assert_eq!(LabelName::new(&[b'y'; 99]).expect("is cut").bytes().len(), LABEL_MAX);
        assert!(LabelName::new(b"").is_none());
        for damaged in [&[MARK | 9, MARK | 9][..], &[MARK | 33], &[MARK], &[1, 2], &[]] {
            assert_eq!(split(damaged), (damaged, None));
        }
    }
}
