//! How to leave a function at one address: from a frame's registers to its caller's.

/// What an offset counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// The stack pointer.
    Sp,
    /// The frame pointer.
    Fp,
}

/// The canonical frame address: on x86-64, the stack pointer after the return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cfa {
    /// A register and an offset in bytes.
    Offset(Base, i32),
    /// The word stored at a register and an offset, then an offset of its own. Functions that realign their stack
    /// keep the old one so.
    Stored(Base, i32, i32),
}

/// Where the caller's frame pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fp {
    /// Where it was: this function has not touched it.
    Same,
    /// Stored this many bytes from the canonical frame address.
    AtCfa(i32),
    /// Stored at a register of this frame and an offset.
    At(Base, i32),
}

/// How to leave a function at one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The outermost function of the thread: its tables say that it returns nowhere.
    Outermost,
    /// The kernel's frame of a signal handler: everything is in the saved context.
    Signal,
    /// The usual case; the return address lies just below the canonical frame address.
    Frame {
        /// Where the frame ends.
        cfa: Cfa,
        /// Where the caller's frame pointer is.
        fp: Fp,
    },
    /// No unwind table covers the address, or it says what no rule can.
    Unknown,
}

const KIND_SHIFT: u32 = 29;
const KIND_SP: u32 = 1;
const KIND_FP: u32 = 2;
const KIND_OUTERMOST: u32 = 3;
const KIND_SIGNAL: u32 = 4;
const KIND_UNKNOWN: u32 = 5;
const KIND_REALIGNED: u32 = 6;

const SAVED_BITS: u32 = 12;
const SAVED_MASK: u32 = (1 << SAVED_BITS) - 1;
const WORDS_MAX: u32 = (1 << (KIND_SHIFT - SAVED_BITS)) - 1;

/// `bytes` as words that fit into `max`.
fn words(bytes: i32, max: u32) -> Option<u32> {
    let bytes = u32::try_from(bytes).ok()?;
    (bytes % 8 == 0 && bytes / 8 <= max).then_some(bytes / 8)
}

/// `words` as bytes.
fn bytes(words: u32) -> i32 {
    // At most 17 bits of words come in here.
    (words as i32).wrapping_mul(8)
}

/// A frame of the usual kind, in whole bytes and without an enum to take apart: the walk spends its time here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsualFrame {
    /// The canonical frame address counts from the frame pointer, not from the stack pointer.
    pub(crate) from_fp: bool,
    /// Offset of the canonical frame address.
    pub(crate) cfa: usize,
    /// Where the caller's frame pointer is stored, counted down from there; 0 if it is still in its register.
    pub(crate) saved: usize,
}

/// A rule as [`crate::rule_cache`] keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed(pub(crate) u32);

impl Packed {
    /// Whether this is what `push rbp; mov rbp, rsp` leaves. The processor guesses the answer, and goes on to the
    /// caller's caller before the rule itself has been loaded: 3 ns a frame instead of 7.
    #[inline(always)]
    pub(crate) fn is_frame_pointer(self) -> bool {
        self.0 == KIND_FP << KIND_SHIFT | 2 << SAVED_BITS | 2
    }

    /// The frame, if it is of the usual kind.
    #[inline(always)]
    pub(crate) fn usual(self) -> Option<UsualFrame> {
        let kind = self.0 >> KIND_SHIFT;
        (kind == KIND_SP || kind == KIND_FP).then_some(UsualFrame {
            from_fp: kind == KIND_FP,
            cfa: ((self.0 >> SAVED_BITS) & WORDS_MAX) as usize * 8,
            saved: (self.0 & SAVED_MASK) as usize * 8,
        })
    }
}

impl Rule {
    /// The rule in 32 bits, never zero, if it is one of the usual kinds.
    pub(crate) fn pack(self) -> Option<Packed> {
        let (kind, cfa, fp) = match self {
            Rule::Outermost => (KIND_OUTERMOST, 0, 0),
            Rule::Signal => (KIND_SIGNAL, 0, 0),
            Rule::Unknown => (KIND_UNKNOWN, 0, 0),
            Rule::Frame { cfa: Cfa::Offset(base, offset), fp } => {
                let kind = match base {
                    Base::Sp => KIND_SP,
                    Base::Fp => KIND_FP,
                };
                let saved = match fp {
                    Fp::Same => 0,
                    Fp::AtCfa(offset) if offset < 0 => words(offset.checked_neg()?, SAVED_MASK)?,
                    _ => return None,
                };
                (kind, words(offset, WORDS_MAX)?, saved)
            }
            Rule::Frame { cfa: Cfa::Stored(Base::Fp, offset, 0), fp: Fp::At(Base::Fp, 0) } => {
                (KIND_REALIGNED, words(offset.checked_neg()?, WORDS_MAX)?, 0)
            }
            Rule::Frame { .. } => return None,
        };
        Some(Packed(kind << KIND_SHIFT | cfa << SAVED_BITS | fp))
    }

    /// The rule that [`Rule::pack`] made this of.
    pub(crate) fn unpack(packed: Packed) -> Option<Rule> {
        let packed = packed.0;
        let cfa = bytes((packed >> SAVED_BITS) & WORDS_MAX);
        let fp = match packed & SAVED_MASK {
            0 => Fp::Same,
            saved => Fp::AtCfa(-bytes(saved)),
        };
        Some(match packed >> KIND_SHIFT {
            KIND_SP => Rule::Frame { cfa: Cfa::Offset(Base::Sp, cfa), fp },
            KIND_FP => Rule::Frame { cfa: Cfa::Offset(Base::Fp, cfa), fp },
            KIND_OUTERMOST => Rule::Outermost,
            KIND_SIGNAL => Rule::Signal,
            KIND_UNKNOWN => Rule::Unknown,
            KIND_REALIGNED => Rule::Frame { cfa: Cfa::Stored(Base::Fp, -cfa, 0), fp: Fp::At(Base::Fp, 0) },
            _ => return None,
        })
    }
}
