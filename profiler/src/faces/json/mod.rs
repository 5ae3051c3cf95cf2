//! A snapshot and its profile as JSON.
//!
//! Field names are stable: a field is never renamed or given another meaning, and new ones may be added. Amounts are
//! objects `{"bytes": number, "objects": number, "samples": number}`; the first two are fractions if they are
//! estimated. Times are integers in nanoseconds, sizes in bytes. A call site's `frames` are innermost first, each with
//! `function`, `file`, `line` and `inlined`; its `function` is the one of them that asked for the memory, by which
//! tables name it. `tiers` has a field for each of [`poolscope_wire::TIER_COUNTERS`]; `memory` is null for a process
//! that is gone; `hit_rate` is null before the first allocation. `sites_left_out` is 0 unless somebody asked for the
//! first sites alone.
//!
//! `in_use` and `allocated` are those of host memory. Each site says of which `kind` its memory is (`host`, `device`,
//! `pinned`) and the number of its `device`, null for the host's. `devices` has the pools of device memory, with a
//! field of `counters` for each of [`poolscope_wire::DEVICE_COUNTERS`], and with what was sampled of them:
//! `period_bytes` is the mean distance of their samples now, `sampled_bytes` what the samples estimate to be in use, as
//! the pool counts blocks. A site of a device has what it `held` in line with the pool's `current_usage`, and the
//! standard error of that; what no site accounts for is the pool's `unattributed_bytes`.
//!
//! `accounting` says where the memory of the process is: its `parts` come to `memory_bytes`, the resident set with what
//! is swapped out or in explicit huge pages. `peak` is the most that was in use, by the pool's own counter. `growth` is
//! a slope with its standard error ([`crate::model::growth`]); `grows` says that it is more than three of these.
//! `findings` are what a person should know, each with its `sentence`.

pub mod devices;
pub mod difference;
pub mod facts;
pub(crate) mod first;
#[cfg(feature = "schema")]
pub mod schema;

use std::io::{self, Write};

use poolscope_wire::{TIER_COUNTERS, TierCounter};
use serde::{Serialize, Serializer};

use crate::build::site_name::SiteName;
use crate::faces::json::devices::PoolJson;
use crate::faces::json::facts::{FactsJson, GrowthJson};
use crate::faces::json::first::among_first;
use crate::findings::Facts;
use crate::model::holders::Holders;
use crate::model::memory::Memory;
use crate::model::profile::{Frame, Profile, Site};
use crate::model::snapshot::{Amount, DevicePool};

/// The version of the JSON, in its field `version`.
const JSON_VERSION: u32 = 1;

/// Writes a snapshot and its profile as JSON, with what was learnt by watching the process: `facts` are of this profile.
/// With `rows`, of each memory the sites that are among so many by what is in use, by what was allocated or by how they
/// grow.
pub fn write_json(facts: &Facts<'_>, profile: &Profile, rows: Option<usize>, mut out: impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, &ProcessReport::new(facts, profile, rows))?;
    out.write_all(b"\n")
}

/// What is written of a process, for those that write more beside it.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessReport<'a> {
    version: u32,
    process: ProcessJson<'a>,
    time_realtime_ns: u64,
    period_bytes: u64,
    exact: bool,
    dropped: DroppedJson,
    in_use: AmountJson,
    allocated: AmountJson,
    memory: Option<MemoryJson>,
    #[serde(flatten)]
    facts: FactsJson,
    #[cfg_attr(feature = "schema", schemars(schema_with = "schema::tier_counters"))]
    tiers: serde_json::Map<String, serde_json::Value>,
    classes: Vec<ClassJson>,
    threads: Vec<ThreadJson>,
    devices: Vec<DeviceJson<'a>>,
    sites: Vec<SiteJson<'a>>,
    /// Sites that are not written.
    sites_left_out: usize,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct DeviceJson<'a> {
    #[serde(flatten)]
    pool: PoolJson<'a>,
    in_use: AmountJson,
    allocated: AmountJson,
    period_bytes: u64,
    sampled_bytes: f64,
    sampled_error_bytes: f64,
    unattributed_bytes: f64,
}

impl<'a> DeviceJson<'a> {
    fn new(pool: &'a DevicePool, profile: &Profile) -> Self {
        let totals = profile.totals_of(pool.place.memory());
        let holders = Holders::of(profile, pool);
        Self {
            pool: pool.into(),
            in_use: totals.in_use.into(),
            allocated: totals.allocated.into(),
            period_bytes: pool.period_bytes(),
            sampled_bytes: holders.sampled.bytes,
            sampled_error_bytes: holders.sampled.error(),
            unattributed_bytes: holders.unattributed(),
        }
    }
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ProcessJson<'a> {
    pid: u32,
    state: &'static str,
    exe: &'a str,
    args: &'a [String],
    start_realtime_ns: u64,
    forked: bool,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct DroppedJson {
    live: u64,
    stacks: u64,
    modules: u64,
    truncated: u64,
    torn: u64,
    invalid: u64,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct MemoryJson {
    rss_bytes: u64,
    peak_rss_bytes: u64,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct AmountJson {
    bytes: f64,
    objects: f64,
    samples: u64,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ClassJson {
    block_bytes: u64,
    slab_bytes: u64,
    allocs: u64,
    frees: u64,
    refills: u64,
    hit_rate: Option<f64>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ThreadJson {
    tid: u32,
    live: bool,
    allocs: u64,
    frees: u64,
    alloc_bytes: u64,
    /// Large blocks and samples among the allocations, which come past the thread cache.
    uncached_allocs: u64,
    uncached_bytes: u64,
    refills: u64,
    samples: u64,
    remote_frees: u64,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct SiteJson<'a> {
    kind: &'static str,
    /// Null for host memory.
    device: Option<u32>,
    in_use: AmountJson,
    allocated: AmountJson,
    /// Of devices: in line with what the pool has counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<HeldJson>,
    incomplete: bool,
    /// When the oldest of its samples in use was allocated, seconds ago; null if that is not known.
    oldest_seconds: Option<f64>,
    /// Only where somebody watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    growth: Option<GrowthJson>,
    #[serde(flatten)]
    stack: StackJson<'a>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct HeldJson {
    bytes: f64,
    error_bytes: f64,
}

/// A stack in every JSON.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct StackJson<'a> {
    /// The function that asked for memory, as tables name the site.
    function: Option<&'a str>,
    /// Innermost first.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<FrameJson<'a>>"))]
    frames: FramesJson<'a>,
}

/// Frames, which are looked up as they are written: many stacks have more of them than fit in memory.
enum FramesJson<'a> {
    OfSite(&'a Profile, &'a Site),
    These(&'a [Frame]),
}

impl Serialize for FramesJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            FramesJson::OfSite(profile, site) => serializer.collect_seq(profile.frames(site).map(FrameJson::from)),
            FramesJson::These(frames) => serializer.collect_seq(frames.iter().map(FrameJson::from)),
        }
    }
}

impl<'a> StackJson<'a> {
    pub(crate) fn new(profile: &'a Profile, site: &'a Site) -> Self {
        Self {
            function: SiteName::of(profile, site).map(|name| name.function.name.as_str()),
            frames: FramesJson::OfSite(profile, site),
        }
    }

    /// Of what is no profile's any more: the functions, and which of them asked for memory.
    pub(crate) fn of_frames(frames: &'a [Frame], asked: usize) -> Self {
        Self { function: frames.get(asked).map(|frame| frame.name.as_str()), frames: FramesJson::These(frames) }
    }
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct FrameJson<'a> {
    function: &'a str,
    file: Option<&'a str>,
    line: Option<u32>,
    inlined: bool,
}

impl<'a> From<&'a Frame> for FrameJson<'a> {
    fn from(frame: &'a Frame) -> Self {
        Self { function: &frame.name, file: frame.file.as_deref(), line: frame.line, inlined: frame.inlined }
    }
}

impl From<Amount> for AmountJson {
    fn from(amount: Amount) -> Self {
        Self { bytes: amount.bytes, objects: amount.objects, samples: amount.samples }
    }
}

impl<'a> ProcessReport<'a> {
    /// Of what is known of a process and its profile, with the first `rows` sites or with all ([`write_json`]).
    pub fn new(facts: &Facts<'a>, profile: &'a Profile, rows: Option<usize>) -> Self {
        let snapshot = facts.snapshot;
        let written = among_first(
            &profile.sites,
            rows,
            &[&|at| profile.sites[at].in_use.bytes, &|at| profile.sites[at].allocated.bytes, &|at| {
                facts.growths.get(at).map_or(0.0, |growth| growth.slope.per_minute())
            }],
        );
        let age = |site: &Site| {
            let moment_ns = snapshot.moment_ns().filter(|_| site.oldest_ns > 0)?;
            Some(moment_ns.saturating_sub(site.oldest_ns) as f64 / 1e9)
        };
        let (process, dropped, totals) = (&snapshot.process, &snapshot.dropped, profile.totals_of(Memory::Host));
        let tiers = TIER_COUNTERS.iter().zip(TierCounter::ALL);
        let tiers = tiers.map(|(info, counter)| (info.name.to_owned(), snapshot.tiers.get(*counter).into())).collect();
        let pools: Vec<(&DevicePool, Holders)> =
            snapshot.devices.iter().map(|pool| (pool, Holders::of(profile, pool))).collect();
        let held = |site: &Site| {
            let (_, holders) = pools.iter().find(|(pool, _)| pool.place == site.place)?;
            let held = holders.held(site);
            Some(HeldJson { bytes: held.bytes, error_bytes: held.error })
        };
        Self {
            version: JSON_VERSION,
            process: ProcessJson {
                pid: process.pid,
                state: process.state.word(),
                exe: &process.exe,
                args: &process.args,
                start_realtime_ns: process.start_realtime_ns,
                forked: process.forked,
            },
            time_realtime_ns: snapshot.taken_realtime_ns,
            period_bytes: snapshot.period_bytes,
            exact: snapshot.exact,
            dropped: DroppedJson {
                live: dropped.live,
                stacks: dropped.stacks,
                modules: dropped.modules,
                truncated: dropped.truncated,
                torn: dropped.torn,
                invalid: dropped.invalid,
            },
            in_use: totals.in_use.into(),
            allocated: totals.allocated.into(),
            memory: snapshot.memory.map(|m| MemoryJson { rss_bytes: m.rss, peak_rss_bytes: m.peak_rss }),
            facts: FactsJson::new(facts),
            tiers,
            classes: snapshot
                .classes
                .iter()
                .map(|class| ClassJson {
                    block_bytes: class.block_bytes,
                    slab_bytes: class.slab_bytes,
                    allocs: class.allocs(),
                    frees: class.frees(),
                    refills: class.misses(),
                    hit_rate: class.hit_rate(),
                })
                .collect(),
            threads: snapshot
                .threads
                .iter()
                .map(|thread| ThreadJson {
                    tid: thread.tid,
                    live: thread.live,
                    allocs: thread.allocs,
                    frees: thread.frees,
                    alloc_bytes: thread.alloc_bytes,
                    uncached_allocs: thread.uncached_allocs,
                    uncached_bytes: thread.uncached_bytes,
                    refills: thread.refills,
                    samples: thread.samples,
                    remote_frees: thread.remote_frees,
                })
                .collect(),
            devices: snapshot.devices.iter().map(|pool| DeviceJson::new(pool, profile)).collect(),
            sites_left_out: profile.sites.len() - written.len(),
            sites: written
                .into_iter()
                .map(|at| (at, &profile.sites[at]))
                .map(|(at, site)| SiteJson {
                    kind: site.place.kind().name(),
                    device: site.place.device(),
                    in_use: site.in_use.into(),
                    allocated: site.allocated.into(),
                    held: held(site),
                    incomplete: site.incomplete,
                    oldest_seconds: age(site),
                    growth: facts.growths.get(at).map(GrowthJson::new),
                    stack: StackJson::new(profile, site),
                })
                .collect(),
        }
    }
}
