//! The profile model: call sites with symbols. Built once from a snapshot; pprof, SVG, text, JSON and the dashboard
//! only read it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::memory::{Memory, Place};
use crate::model::naming::Naming;
use crate::model::snapshot::{Amount, Module};

/// A heap profile: every call stack with what it allocated and what it holds.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Profile {
    /// Mean bytes between two samples; 1 when every allocation is recorded.
    pub period_bytes: u64,
    /// Figures are exact.
    pub exact: bool,
    /// When the snapshot was read, nanoseconds of `CLOCK_REALTIME`.
    pub time_realtime_ns: u64,
    /// The time that a difference spans, in nanoseconds; 0 for a profile of one moment.
    pub duration_ns: u64,
    /// What a reader should know: whose profile it is, what it misses.
    pub comments: Vec<String>,
    /// Names of threads by their kernel id; those that have ended have none.
    pub thread_names: BTreeMap<u32, String>,
    /// When the process had most host memory in use; [`Site::peak`] says who had it. `None` where nobody knows: in a
    /// pprof file, in a difference.
    pub peak: Option<Peak>,
    /// The same of each device's memory.
    pub device_peaks: Vec<(Memory, Peak)>,
    /// By which functions call sites are not to be named, beside those that come with a language.
    #[cfg_attr(feature = "reading", serde(skip))]
    pub naming: Arc<Naming>,
    /// Path of the executable, empty if it is not known. It may be none of the modules: no frame was in it then.
    pub main: String,
    /// Modules; a [`Location`] points into it.
    pub modules: Vec<Module>,
    /// Distinct code addresses with their symbols. Profiles of one kept builder share them.
    pub locations: Arc<Vec<Location>>,
    /// Call stacks, largest in-use first.
    pub sites: Vec<Site>,
}

/// When a process had most of a memory in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Peak {
    /// Bytes in use, estimated from samples unless the profile is exact. The true peak is higher by a 32nd at most,
    /// beside the error of the samples.
    pub bytes: f64,
    /// Nanoseconds after the start of the process's segment; `None` if it is now.
    pub after_ns: Option<u64>,
}

impl Peak {
    /// `12.5 s after the start`, or `now`.
    pub fn when(&self) -> String {
        match self.after_ns {
            Some(ns) => format!("{:.1} s after the start", ns as f64 / 1e9),
            None => "now".to_owned(),
        }
    }
}

/// A code address and what it is called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Location {
    /// The address of the call (the return address less one).
    pub address: u64,
    /// Index into [`Profile::modules`].
    pub module: Option<usize>,
    /// The functions there, innermost inlined one first. If no symbol is known it is one placeholder that is made of
    /// module and offset ([`Location::placeholder`]).
    pub frames: Vec<Frame>,
}

/// A function at a location.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Frame {
    /// Name as its programmer wrote it.
    pub name: String,
    /// The linker's symbol, if it is mangled.
    pub symbol: Option<Arc<str>>,
    /// Source file, if the debug information tells.
    pub file: Option<String>,
    /// Line in it, if known.
    pub line: Option<u32>,
    /// Inlined into the next frame.
    pub inlined: bool,
}

/// A call stack and its figures.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Site {
    /// Indices into [`Profile::locations`], innermost first; the pool's own frames are not in it.
    pub locations: Arc<[usize]>,
    /// Which memory.
    pub place: Place,
    /// Outer frames are missing.
    pub incomplete: bool,
    /// Allocated over the process's life.
    pub allocated: Amount,
    /// In use now.
    pub in_use: Amount,
    /// The variance of the bytes in use, bytes squared ([`LiveBlock::variance`](super::snapshot::LiveBlock::variance)).
    pub in_use_variance: f64,
    /// In use when most of its memory was in use.
    pub peak: Amount,
    /// When the oldest of the sampled blocks in use was allocated, nanoseconds of `CLOCK_MONOTONIC`;
    /// 0 if that is not known.
    pub oldest_ns: u64,
    /// The blocks in use by size and thread, ascending.
    pub held: Arc<[Held]>,
}

/// The blocks in use of one call site that have one size and were allocated by one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct Held {
    /// Bytes that the program asked for.
    pub size: u64,
    /// Kernel id of the thread.
    pub tid: u32,
    /// How many there are.
    pub amount: Amount,
}

/// A figure of a call site: what a table is sorted by, what the width of a flamegraph's box means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Bytes in use now.
    #[default]
    InUseBytes,
    /// Objects in use now.
    InUseObjects,
    /// Bytes allocated over the process's life.
    AllocatedBytes,
    /// Objects allocated over the process's life.
    AllocatedObjects,
}

impl Metric {
    /// Every metric, in the order in which they are offered.
    pub const ALL: [Metric; 4] =
        [Metric::InUseBytes, Metric::InUseObjects, Metric::AllocatedBytes, Metric::AllocatedObjects];

    /// The name by which pprof knows it.
    pub fn pprof_name(self) -> &'static str {
        match self {
            Metric::InUseBytes => "inuse_space",
            Metric::InUseObjects => "inuse_objects",
            Metric::AllocatedBytes => "alloc_space",
            Metric::AllocatedObjects => "alloc_objects",
        }
    }

    /// What it is, for titles: `bytes in use`.
    pub fn describe(self) -> &'static str {
        match self {
            Metric::InUseBytes => "bytes in use",
            Metric::InUseObjects => "objects in use",
            Metric::AllocatedBytes => "bytes allocated",
            Metric::AllocatedObjects => "objects allocated",
        }
    }

    /// `bytes` or `objects`.
    pub fn unit(self) -> &'static str {
        if self.is_bytes() { "bytes" } else { "objects" }
    }

    /// It counts bytes, not objects.
    pub fn is_bytes(self) -> bool {
        matches!(self, Metric::InUseBytes | Metric::AllocatedBytes)
    }

    /// It is about what is in use, not about what was ever allocated.
    pub fn is_in_use(self) -> bool {
        matches!(self, Metric::InUseBytes | Metric::InUseObjects)
    }

    /// This figure of some sites together.
    pub fn of_totals(self, totals: &Totals) -> f64 {
        match self {
            Metric::InUseBytes => totals.in_use.bytes,
            Metric::InUseObjects => totals.in_use.objects,
            Metric::AllocatedBytes => totals.allocated.bytes,
            Metric::AllocatedObjects => totals.allocated.objects,
        }
    }

    /// This figure of a site.
    pub fn of(self, site: &Site) -> f64 {
        match self {
            Metric::InUseBytes => site.in_use.bytes,
            Metric::InUseObjects => site.in_use.objects,
            Metric::AllocatedBytes => site.allocated.bytes,
            Metric::AllocatedObjects => site.allocated.objects,
        }
    }
}

impl Profile {
    /// The functions of a site, innermost first, inlined ones included. A location without a name is shown as
    /// `[libfoo.so+0x1234]`.
    pub fn frames<'a>(&'a self, site: &'a Site) -> impl DoubleEndedIterator<Item = &'a Frame> {
        site.locations.iter().filter_map(|&index| self.locations.get(index)).flat_map(|location| &location.frames)
    }

    /// The names of a site's functions as a folded line has them: outermost first, joined by semicolons, which no name
    /// keeps then.
    pub fn path(&self, site: &Site) -> String {
        let names: Vec<String> = self.frames(site).rev().map(|frame| frame.name.replace(';', ":")).collect();
        if names.is_empty() { "[no frames]".to_owned() } else { names.join(";") }
    }

    /// The label that a site's blocks were allocated under.
    pub fn label(&self, site: &Site) -> Option<&str> {
        self.locations.get(*site.locations.last()?)?.label()
    }

    /// The module of a location.
    pub fn module(&self, location: &Location) -> Option<&Module> {
        self.modules.get(location.module?)
    }

    /// In use and allocated, over all sites.
    pub fn totals(&self) -> Totals {
        self.totals_of(Memory::All)
    }

    /// The same over the sites of some memory.
    pub fn totals_of(&self, memory: Memory) -> Totals {
        let mut totals = Totals::default();
        for site in self.sites.iter().filter(|site| memory.has(site.place)) {
            totals.in_use += site.in_use;
            totals.allocated += site.allocated;
        }
        totals
    }
}

/// The figures of all sites together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// In use now.
    pub in_use: Amount,
    /// Allocated over the process's life.
    pub allocated: Amount,
}

/// How the name of a label's frame begins.
const LABEL: &str = "label:";

impl Location {
    /// A label that the program gave, as the outermost frame of the stacks that were captured under it.
    pub(crate) fn of_label(name: &str) -> Location {
        let frame = Frame { name: format!("{LABEL}{name}"), ..Frame::default() };
        Location { address: 0, module: None, frames: vec![frame] }
    }

    /// The label that it stands for, if it is one.
    pub fn label(&self) -> Option<&str> {
        self.frames.last()?.name.strip_prefix(LABEL).filter(|_| self.module.is_none())
    }

    /// Whether no symbol is known of it.
    pub fn has_no_name(&self) -> bool {
        self.frames.iter().all(Frame::is_placeholder)
    }

    /// A name for an address of which no symbol is known: `[libfoo.so+0x1234]`, with the offset that `objdump` and
    /// `addr2line` take.
    pub fn placeholder(module: Option<&Module>, address: u64) -> Frame {
        let name = match module {
            Some(module) => format!("[{}+{:#x}]", module.name(), address.wrapping_sub(module.load_bias)),
            None => format!("[{address:#x}]"),
        };
        Frame { name, ..Frame::default() }
    }
}

impl Frame {
    /// The name is an address, because no symbol is known.
    pub fn is_placeholder(&self) -> bool {
        self.name.starts_with('[') && self.name.ends_with(']')
    }

    /// Where in the source: `file:line`, `file`, or nothing.
    pub fn source(&self) -> Option<String> {
        Some(self.with_line(self.file.as_ref()?))
    }

    /// The same without the file's folders.
    pub fn short_source(&self) -> Option<String> {
        self.file.as_ref()?.rsplit('/').next().map(|file| self.with_line(file))
    }

    fn with_line(&self, file: &str) -> String {
        self.line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
    }
}
