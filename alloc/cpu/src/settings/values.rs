//! The types of settings, and how each lies in one word.

use core::ffi::{CStr, c_char};
use core::fmt;

/// A value that is kept as one word.
pub trait Word: Copy {
    /// The value of a word that its setting's range allows.
    fn from_word(word: u64) -> Self;
    /// The word of a value.
    fn to_word(self) -> u64;
}

/// The word for a time that never comes.
pub const NEVER: u64 = u64::MAX;

impl Word for u64 {
    #[inline]
    fn from_word(word: u64) -> Self {
        word
    }
    fn to_word(self) -> u64 {
        self
    }
}

impl Word for bool {
    #[inline]
    fn from_word(word: u64) -> Self {
        word != 0
    }
    fn to_word(self) -> u64 {
        u64::from(self)
    }
}

/// Milliseconds; `None` is never.
impl Word for Option<u64> {
    #[inline]
    fn from_word(word: u64) -> Self {
        (word != NEVER).then_some(word)
    }
    fn to_word(self) -> u64 {
        self.unwrap_or(NEVER)
    }
}

/// The address of a text that stays.
impl Word for Option<&'static CStr> {
    fn from_word(word: u64) -> Self {
        let text: *const c_char = core::ptr::with_exposed_provenance(word as usize);
        // SAFETY: a word that is not 0 came from `to_word`, or is the address of a text that the settings keep.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
    }
    fn to_word(self) -> u64 {
        self.map_or(0, |text| text.as_ptr().expose_provenance() as u64)
    }
}

/// Which huge pages the pool asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Huge {
    /// What the system gives by itself.
    System = 0,
    /// None, also where the system would give some by itself.
    Off = 1,
    /// Transparent ones, with `madvise`.
    Madvise = 2,
    /// Those that the administrator has set aside (`MAP_HUGETLB`), and transparent ones when these run out.
    Explicit = 3,
}

impl Huge {
    /// As they are written, in the order of the words.
    pub const NAMES: &[&str] = &["system", "off", "madvise", "explicit"];
}

impl Word for Huge {
    #[inline]
    fn from_word(word: u64) -> Self {
        match word {
            1 => Huge::Off,
            2 => Huge::Madvise,
            3 => Huge::Explicit,
            _ => Huge::System,
        }
    }
    fn to_word(self) -> u64 {
        self as u64
    }
}

/// What the pool is to spare where it has the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Goal {
    /// Neither at any price.
    Balanced = 0,
    /// Memory, at the price of time.
    Memory = 1,
    /// Time, at the price of memory.
    Speed = 2,
}

impl Goal {
    /// As they are written, in the order of the words.
    pub const NAMES: &[&str] = &["balanced", "memory", "speed"];

    /// The parts of what is in use that may lie idle while the program grows: in free spans, and in slabs of which few
    /// blocks are in use, as divisors. `None` if all of it may.
    pub const fn idle_parts(self) -> Option<[usize; 2]> {
        match self {
            Goal::Balanced => Some([32, 16]),
            Goal::Memory => Some([128, 64]),
            Goal::Speed => None,
        }
    }

    /// Nanoseconds of the clock for each byte that may go back for large blocks. To take one again costs half of one.
    pub const fn exchange_ns(self) -> u64 {
        match self {
            Goal::Balanced | Goal::Speed => 4,
            Goal::Memory => 1,
        }
    }
}

impl Word for Goal {
    #[inline]
    fn from_word(word: u64) -> Self {
        match word {
            1 => Goal::Memory,
            2 => Goal::Speed,
            _ => Goal::Balanced,
        }
    }
    fn to_word(self) -> u64 {
        self as u64
    }
}

/// Which NUMA nodes memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numa {
    /// As the system has it.
    Off,
    /// The node that the allocating thread runs on, as long as it has memory.
    Local,
    /// All nodes in turn.
    Interleave,
    /// These nodes only.
    Bind(NodeSet),
}

/// A set of NUMA nodes that is not empty: bit n is node n, from 0 to [`NodeSet::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSet(u64);

impl NodeSet {
    /// The highest node. Two bits of the word say which policy it is.
    pub const MAX: u32 = 61;

    /// Node 0 alone: every machine has it.
    pub const FIRST: NodeSet = NodeSet(1);

    /// The set whose bits are `bits`; `None` if it is empty or has nodes that are too high.
    pub const fn from_bits(bits: u64) -> Option<NodeSet> {
        if bits == 0 || bits >> (Self::MAX + 1) != 0 { None } else { Some(NodeSet(bits)) }
    }

    /// Bit n is node n.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether it has this node.
    pub const fn has(self, node: usize) -> bool {
        node <= Self::MAX as usize && self.0 >> node & 1 != 0
    }

    /// Its highest node.
    pub const fn highest(self) -> usize {
        self.0.ilog2() as usize
    }

    /// Reads a list such as `0,2-3`.
    pub fn parse(text: &[u8]) -> Option<NodeSet> {
        let mut bits = 0u64;
        for part in text.split(|&byte| byte == b',') {
            let dash = part.iter().position(|&byte| byte == b'-');
            let (first, last) = match dash {
                Some(at) => (node(&part[..at])?, node(&part[at + 1..])?),
                None => (node(part)?, node(part)?),
            };
            if first > last {
                return None;
            }
            bits |= (!0 >> (63 - (last - first))) << first;
        }
        NodeSet::from_bits(bits)
    }
}

/// The number of a node.
fn node(text: &[u8]) -> Option<u32> {
    let number = poolscope_wire::quantity::decimal(text)?;
    u32::try_from(number).ok().filter(|&node| node <= NodeSet::MAX)
}

impl fmt::Display for NodeSet {
    /// As a list that [`NodeSet::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        let mut separator = "";
        while rest != 0 {
            let first = rest.trailing_zeros();
            let length = (rest >> first).trailing_ones();
            write!(f, "{separator}{first}")?;
            if length > 1 {
                write!(f, "-{}", first + length - 1)?;
            }
            separator = ",";
            rest &= !((!0 >> (64 - length)) << first);
        }
        Ok(())
    }
}

impl Word for Numa {
    fn from_word(word: u64) -> Self {
        match (word & 3, NodeSet::from_bits(word >> 2)) {
            (1, _) => Numa::Local,
            (2, _) => Numa::Interleave,
            (3, Some(nodes)) => Numa::Bind(nodes),
            _ => Numa::Off,
        }
    }
    fn to_word(self) -> u64 {
        match self {
            Numa::Off => 0,
            Numa::Local => 1,
            Numa::Interleave => 2,
            Numa::Bind(nodes) => nodes.0 << 2 | 3,
        }
    }
}

impl fmt::Display for Numa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Numa::Off => f.write_str("off"),
            Numa::Local => f.write_str("local"),
            Numa::Interleave => f.write_str("interleave"),
            Numa::Bind(nodes) => write!(f, "bind:{nodes}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes_are_read_and_written() {
        for (text, bits, written) in
            [("0", 1, "0"), ("0,2-3", 0b1101, "0,2-3"), ("3,1,2", 0b1110, "1-3"), ("61", 1 << 61, "61")]
        {
            let nodes = NodeSet::parse(text.as_bytes()).unwrap();
            assert_eq!((nodes.bits(), nodes.to_string().as_str()), (bits, written));
            assert_eq!(Numa::from_word(Numa::Bind(nodes).to_word()), Numa::Bind(nodes));
        }
        assert_eq!(NodeSet::parse(b"0-61").unwrap().to_string(), "0-61");
        for bad in ["", "62", "a", "1-", "-1", "3-2", "1,,2", "0 1"] {
            assert_eq!(NodeSet::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
