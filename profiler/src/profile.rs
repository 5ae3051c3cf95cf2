//! The profile model: call sites with symbols. Built once from a snapshot; pprof, SVG, text, JSON and the dashboard
//! only read it.

use crate::snapshot::{Amount, Module};

/// A heap profile: every call stack with what it allocated and what it holds.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// Mean bytes between two samples; 1 when every allocation is recorded.
    pub period_bytes: u64,
    /// Figures are exact.
    pub exact: bool,
    /// When the snapshot was read, nanoseconds of `CLOCK_REALTIME`.
    pub time_realtime_ns: u64,
    /// Modules; a [`Location`] points into it.
    pub modules: Vec<Module>,
    /// Distinct code addresses with their symbols.
    pub locations: Vec<Location>,
    /// Call stacks, largest in-use first.
    pub sites: Vec<Site>,
}

/// A code address and what it is called.
#[derive(Clone, Debug, PartialEq)]
pub struct Location {
    /// The address of the call (the return address less one).
    pub address: u64,
    /// Index into [`Profile::modules`].
    pub module: Option<usize>,
    /// The functions there, innermost inlined one first; empty if nothing is known.
    pub frames: Vec<Frame>,
}

/// A function at a location.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Demangled name.
    pub name: String,
    /// Source file, if the debug information tells.
    pub file: Option<String>,
    /// Line in it, if known.
    pub line: Option<u32>,
    /// Inlined into the next frame.
    pub inlined: bool,
}

/// A call stack and its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// Indices into [`Profile::locations`], innermost first; the pool's own frames are not in it.
    pub locations: Vec<usize>,
    /// Which memory: one of [`poolscope_wire::kind`].
    pub kind: u16,
    /// Outer frames are missing.
    pub incomplete: bool,
    /// Allocated over the process's life.
    pub allocated: Amount,
    /// In use now.
    pub in_use: Amount,
    /// The blocks in use by requested size: (size, amount), ascending.
    pub in_use_by_size: Vec<(u64, Amount)>,
}
