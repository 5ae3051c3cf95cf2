//! A recording's report as JSON.
//!
//! Field names are stable: a field is never renamed or given another meaning, and new ones may be added. Counts are
//! objects `{"objects": integer, "bytes": integer}`; times are microseconds since the recording began. A site's
//! `function` and `frames` are as in [`json`](crate::faces::json). Its `freed` is what was freed of what it
//! allocated, its `freed_here` what it freed itself; that one is there if `free_stacks` is true. `sites_left_out` is 0
//! unless somebody asked for the first sites alone.
//!
//! What stands at the top is of host memory. `devices` has an object for the memory of each device, and for that which
//! is pinned for one, with the same fields and its `streams`.

use std::io::{self, Write};

use serde::Serialize;

use crate::faces::json::StackJson;
use crate::faces::json::first::{Figure, among_first};
use crate::model::profile::Site;
use crate::recording::faces::labels::View;
use crate::recording::file::reader::Tail;
use crate::recording::replay::analysis::{Analysis, Count, Figures, PartFigures, StreamFigures};

/// The version of the JSON, in its field `version`.
const JSON_VERSION: u32 = 2;

/// Writes the report as JSON. With `rows`, of each memory the stacks that are among so many by a figure that tables have.
pub fn write_json(analysis: &Analysis, rows: Option<usize>, mut out: impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, &Report::new(analysis, rows))?;
    out.write_all(b"\n")
}

#[derive(Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct CountJson {
    objects: u64,
    bytes: u64,
}

impl From<Count> for CountJson {
    fn from(count: Count) -> Self {
        Self { objects: count.objects, bytes: count.bytes }
    }
}

/// What is written of a recording.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report<'a> {
    version: u32,
    pid: u32,
    exe: &'a str,
    args: &'a [String],
    recorded_realtime_ns: u64,
    from_start: bool,
    lossless: bool,
    free_stacks: bool,
    file_bytes: u64,
    recorder_bytes: u64,
    finished: bool,
    ended: &'a str,
    cautions: &'a [String],
    lost: LostJson<'a>,
    parts: Vec<PartJson<'a>>,
    end_us: u64,
    from_us: u64,
    to_us: u64,
    #[serde(flatten)]
    host: MemoryJson<'a>,
    pages: PagesJson,
    devices: Vec<DeviceJson<'a>>,
}

/// What was done with one memory.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct MemoryJson<'a> {
    allocated: CountJson,
    freed: CountJson,
    temporary: CountJson,
    in_use: CountJson,
    peak: PeakJson,
    sizes: Vec<SizeJson>,
    common_sizes: Vec<CommonJson>,
    lifetimes: Vec<LifetimeJson>,
    timeline: TimelineJson,
    threads: Vec<ThreadJson<'a>>,
    sites: Vec<SiteJson<'a>>,
    /// Sites of this memory that are not written.
    sites_left_out: usize,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct DeviceJson<'a> {
    kind: &'static str,
    device: u32,
    unknown_frees: u64,
    found_out_frees: u64,
    unfollowed: u64,
    parts: Vec<PartJson<'a>>,
    #[serde(flatten)]
    memory: MemoryJson<'a>,
    streams: Vec<StreamJson>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct StreamJson {
    handle: u64,
    allocated: CountJson,
    frees: u64,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct PartJson<'a> {
    pid: u32,
    exe: &'a str,
    args: &'a [String],
    recorded_realtime_ns: u64,
    from_us: u64,
    to_us: u64,
    from_start: bool,
    lossless: bool,
    ended: &'a str,
    allocated: CountJson,
    frees: u64,
    peak: CountJson,
    in_use: CountJson,
}

impl<'a> From<&'a PartFigures> for PartJson<'a> {
    fn from(part: &'a PartFigures) -> Self {
        let session = &part.session;
        Self {
            pid: session.pid,
            exe: &session.exe,
            args: &session.args,
            recorded_realtime_ns: session.recorded_realtime_ns,
            from_us: session.begins_us,
            to_us: part.end_us,
            from_start: session.from_start,
            lossless: session.lossless,
            ended: &part.ended,
            allocated: part.allocated.into(),
            frees: part.frees,
            peak: part.peak.into(),
            in_use: part.at_end.into(),
        }
    }
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LostJson<'a> {
    events: u64,
    without_ring: u64,
    unknown_frees: u64,
    found_out_frees: u64,
    unfollowed: u64,
    refused_stacks: u64,
    threads: &'a [crate::recording::events::session::RingLosses],
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct PeakJson {
    #[serde(flatten)]
    count: CountJson,
    time_us: u64,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct SizeJson {
    from: u64,
    #[serde(flatten)]
    count: CountJson,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct CommonJson {
    size: u64,
    objects: u64,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct LifetimeJson {
    below_us: u64,
    #[serde(flatten)]
    count: CountJson,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct TimelineJson {
    span_us: u64,
    most_bytes: Vec<u64>,
    most_objects: Vec<u64>,
    allocations: Vec<u64>,
    frees: Vec<u64>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct ThreadJson<'a> {
    tid: u32,
    name: &'a str,
    allocated: CountJson,
    frees: u64,
    frees_of_others: u64,
    temporary: CountJson,
    in_use: CountJson,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct PagesJson {
    page_bytes: u64,
    pages: u64,
    nearly_empty: u64,
    held_free_bytes: u64,
    tenths: [u64; 10],
    unplaced_blocks: u64,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct SiteJson<'a> {
    #[serde(flatten)]
    stack: StackJson<'a>,
    incomplete: bool,
    allocated: CountJson,
    freed: CountJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    freed_here: Option<CountJson>,
    temporary: CountJson,
    peak: CountJson,
    at_start: CountJson,
    at_end: CountJson,
    lifetime_us: u64,
    nearly_empty_pages: CountJson,
    held_free_bytes: u64,
}

impl<'a> MemoryJson<'a> {
    /// With those sites of the memory that are `written`.
    fn new(view: View<'a>, written: &[usize]) -> Self {
        let View { analysis, memory } = view;
        // Each stack, as whoever reads it by a program may put them together by other names.
        let of_memory = |site: &Site| site.place == memory.place;
        let written = written.iter().map(|&at| (&analysis.profile.sites[at], &analysis.sites[at]));
        let sites = written.filter(|(site, _)| of_memory(site));
        let sites = sites.map(|(site, figures)| SiteJson {
            stack: StackJson::new(&analysis.profile, site),
            incomplete: site.incomplete,
            allocated: figures.allocated.into(),
            freed: figures.freed.into(),
            freed_here: analysis.has_free_stacks().then(|| figures.freed_here.into()),
            temporary: figures.temporary.into(),
            peak: figures.peak.into(),
            at_start: figures.at_start.into(),
            at_end: figures.at_end.into(),
            lifetime_us: figures.lifetime_us,
            nearly_empty_pages: figures.sparse.into(),
            held_free_bytes: figures.held_free,
        });
        let sites: Vec<SiteJson<'_>> = sites.collect();
        let all = analysis.profile.sites.iter().filter(|site| of_memory(site)).count();
        let threads = memory.threads.iter().enumerate().map(|(at, figures)| {
            let known = analysis.summary.threads.get(at);
            ThreadJson {
                tid: known.map_or(0, |thread| thread.tid),
                name: known.map_or("", |thread| &thread.name),
                allocated: figures.allocated.into(),
                frees: figures.frees,
                frees_of_others: figures.frees_of_others,
                temporary: figures.temporary.into(),
                in_use: figures.at_end.into(),
            }
        });
        let from = |class: usize| if class == 0 { 0 } else { 1u64 << (class - 1) };
        let sizes = memory.sizes.iter().enumerate();
        let lifetimes = memory.lifetimes.iter().enumerate();
        MemoryJson {
            allocated: memory.total.allocated.into(),
            freed: memory.total.freed.into(),
            temporary: memory.total.temporary.into(),
            in_use: memory.total.at_end.into(),
            peak: PeakJson { count: memory.peak.count.into(), time_us: memory.peak.time_us },
            sizes: sizes.map(|(at, count)| SizeJson { from: from(at), count: (*count).into() }).collect(),
            common_sizes: memory.common_sizes.iter().map(|&(size, objects)| CommonJson { size, objects }).collect(),
            lifetimes: lifetimes
                .map(|(at, count)| LifetimeJson { below_us: 10u64.saturating_pow(at as u32), count: (*count).into() })
                .collect(),
            timeline: TimelineJson {
                span_us: memory.span_us,
                most_bytes: memory.timeline.iter().map(|span| span.most_bytes).collect(),
                most_objects: memory.timeline.iter().map(|span| span.most_objects).collect(),
                allocations: memory.timeline.iter().map(|span| span.allocs).collect(),
                frees: memory.timeline.iter().map(|span| span.frees).collect(),
            },
            threads: threads.collect(),
            sites_left_out: all - sites.len(),
            sites,
        }
    }
}

impl<'a> DeviceJson<'a> {
    fn new(view: View<'a>, written: &[usize]) -> Self {
        let memory = view.memory;
        let stream =
            |it: &StreamFigures| StreamJson { handle: it.handle, allocated: it.allocated.into(), frees: it.frees };
        DeviceJson {
            kind: memory.place.kind().name(),
            device: memory.place.device().unwrap_or(0),
            unknown_frees: memory.unknown_frees,
            found_out_frees: memory.lost_frees,
            unfollowed: memory.unfollowed,
            parts: memory.parts.iter().map(PartJson::from).collect(),
            memory: MemoryJson::new(view, written),
            streams: memory.streams.iter().map(stream).collect(),
        }
    }
}

impl<'a> Report<'a> {
    fn new(analysis: &'a Analysis, rows: Option<usize>) -> Self {
        let of = |count: fn(&Figures) -> u64| move |at: usize| count(&analysis.sites[at]) as f64;
        let figures = [
            of(|site| site.peak.bytes),
            of(|site| site.allocated.bytes),
            of(|site| site.temporary.bytes),
            of(|site| site.at_end.bytes),
            of(|site| site.at_end.bytes.saturating_sub(site.at_start.bytes)),
            of(|site| site.freed_here.bytes),
            of(|site| site.held_free),
        ];
        let written = &among_first(&analysis.profile.sites, rows, &figures.each_ref().map(|of| of as Figure<'_>));
        let session = &analysis.session;
        let summary = &analysis.summary;
        let host = analysis.host();
        Report {
            version: JSON_VERSION,
            pid: session.pid,
            exe: &session.exe,
            args: &session.args,
            recorded_realtime_ns: session.recorded_realtime_ns,
            from_start: session.from_start,
            lossless: session.lossless,
            free_stacks: analysis.has_free_stacks(),
            file_bytes: analysis.file_bytes,
            recorder_bytes: summary.recorder_bytes,
            finished: analysis.tail == Tail::Finished,
            ended: &summary.ended,
            cautions: analysis.cautions(),
            lost: LostJson {
                events: summary.lost(),
                without_ring: summary.lost_without_ring,
                unknown_frees: host.unknown_frees,
                found_out_frees: host.lost_frees,
                unfollowed: host.unfollowed,
                refused_stacks: summary.refused_stacks,
                threads: &summary.losses,
            },
            parts: host.parts.iter().map(PartJson::from).collect(),
            end_us: analysis.end_us,
            from_us: analysis.question.from_us,
            to_us: analysis.question.to_us.min(analysis.end_us),
            host: MemoryJson::new(View { analysis, memory: host }, written),
            pages: PagesJson {
                page_bytes: analysis.pages.page_bytes,
                pages: analysis.pages.pages,
                nearly_empty: analysis.pages.sparse,
                held_free_bytes: analysis.pages.held_free,
                tenths: analysis.pages.tenths,
                unplaced_blocks: analysis.pages.unplaced,
            },
            devices: analysis
                .devices()
                .iter()
                .map(|memory| DeviceJson::new(View { analysis, memory }, written))
                .collect(),
        }
    }
}
