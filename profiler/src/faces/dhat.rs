//! Profiles in the format of DHAT, version 2 (valgrind's dhat/dh_main.c): JSON that dh_view.html and the Firefox
//! Profiler read.
//!
//! A *program point* is a stack with totals, what it held when the program held most (`t-gmax`) and what it holds at
//! the end. Lifetimes are not known of samples, and 0. What a point had at most is not known either: it is the larger
//! of what it had then and what it has now.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::model::profile::{Frame, Profile};
use crate::model::snapshot::Amount;

/// The version that is written and read.
pub const VERSION: u32 = 2;

/// A file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct File {
    #[serde(rename = "dhatFileVersion")]
    pub(crate) version: u32,
    pub(crate) mode: String,
    pub(crate) verb: String,
    /// There are lifetimes, peaks and what is in use at the end.
    pub(crate) bklt: bool,
    /// There are accesses.
    pub(crate) bkacc: bool,
    /// Units of time, and of a million of them.
    pub(crate) tu: String,
    #[serde(rename = "Mtu")]
    pub(crate) mtu: String,
    /// Blocks that live shorter are called so.
    #[serde(default)]
    pub(crate) tuth: u64,
    pub(crate) cmd: String,
    pub(crate) pid: u64,
    /// Time at the end, and when most was in use.
    pub(crate) te: u64,
    #[serde(default)]
    pub(crate) tg: u64,
    pub(crate) pps: Vec<Point>,
    pub(crate) ftbl: Vec<String>,
}

/// A program point: bytes and blocks in all, at most, at t-gmax and at the end; lifetimes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) tb: u64,
    pub(crate) tbk: u64,
    #[serde(default)]
    pub(crate) tl: u64,
    #[serde(default)]
    pub(crate) mb: u64,
    #[serde(default)]
    pub(crate) mbk: u64,
    #[serde(default)]
    pub(crate) gb: u64,
    #[serde(default)]
    pub(crate) gbk: u64,
    #[serde(default)]
    pub(crate) eb: u64,
    #[serde(default)]
    pub(crate) ebk: u64,
    /// Indices into the table of frames, innermost first.
    pub(crate) fs: Vec<usize>,
}

/// Writes all sites. The memory of devices is marked by an outermost frame of its own, because DHAT knows one heap.
/// `ran_ns` is how long the program had run, 0 if nobody knows.
pub fn write_dhat(profile: &Profile, command: &str, pid: u32, ran_ns: u64, mut out: impl Write) -> io::Result<()> {
    let mut frames = Frames::default();
    let whole = |value: f64| value.round().max(0.0) as u64;
    let mut points = Vec::with_capacity(profile.sites.len());
    for site in &profile.sites {
        let mut fs: Vec<usize> = site
            .locations
            .iter()
            .filter_map(|&at| profile.locations.get(at))
            .flat_map(|location| location.frames.iter().map(|frame| (location.address, frame)))
            .map(|(address, frame)| frames.id(described(address, frame)))
            .collect();
        if site.place.device().is_some() {
            fs.push(frames.id(format!("[{}]", site.memory().describe())));
        }
        // Of what is in use nobody knows that it was allocated where the profile is a difference.
        let most = |a: Amount, b: Amount| if a.bytes > b.bytes { a } else { b };
        let (peak, held) = (site.peak, site.in_use);
        let total = most(site.allocated, held);
        let max = most(peak, held);
        points.push(Point {
            tb: whole(total.bytes),
            tbk: whole(total.objects),
            tl: 0,
            mb: whole(max.bytes),
            mbk: whole(max.objects),
            gb: whole(peak.bytes),
            gbk: whole(peak.objects),
            eb: whole(held.bytes),
            ebk: whole(held.objects),
            fs,
        });
    }
    let end_ns = if profile.duration_ns > 0 { profile.duration_ns } else { ran_ns };
    // A peak without a time is what is held now.
    let most_ns = profile.peak.map_or(0, |peak| peak.after_ns.unwrap_or(end_ns));
    let file = File {
        version: VERSION,
        mode: "heap".to_owned(),
        verb: "Allocated".to_owned(),
        bklt: true,
        bkacc: false,
        tu: "µs".to_owned(),
        mtu: "s".to_owned(),
        tuth: 10,
        cmd: command.to_owned(),
        pid: pid.into(),
        te: end_ns / 1000,
        tg: most_ns.min(end_ns) / 1000,
        pps: points,
        ftbl: frames.table,
    };
    serde_json::to_writer(&mut out, &file)?;
    out.flush()
}

/// `0x401136: main (server.c:12)`.
fn described(address: u64, frame: &Frame) -> String {
    let source = frame.source().map_or_else(String::new, |source| format!(" ({source})"));
    format!("{address:#x}: {}{source}", frame.name)
}

/// The table of frames, whose first one stands for the root.
#[derive(Debug)]
struct Frames {
    table: Vec<String>,
    ids: HashMap<String, usize>,
}

impl Default for Frames {
    fn default() -> Self {
        Frames { table: vec!["[root]".to_owned()], ids: HashMap::new() }
    }
}

impl Frames {
    fn id(&mut self, frame: String) -> usize {
        let next = self.table.len();
        *self.ids.entry(frame).or_insert_with_key(|frame| {
            self.table.push(frame.clone());
            next
        })
    }
}
