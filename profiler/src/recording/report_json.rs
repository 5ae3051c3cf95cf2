//! A recording's report as JSON.
//!
//! Field names are stable: a field is never renamed or given another meaning, and new ones may be added. Counts are objects
//! `{"objects": integer, "bytes": integer}`; times are microseconds since the recording began. `frames` are innermost first. A site's
//! `freed` is what was freed of what it allocated, its `freed_here` what it freed itself; that one is there if `free_stacks` is true.

use serde::Serialize;

use super::analysis::{Analysis, Count, PartFigures};
use super::reader::Tail;
use crate::profile::Frame;

/// The version of the JSON, in its field `version`.
const JSON_VERSION: u32 = 1;

/// The report as JSON.
pub fn json(analysis: &Analysis) -> serde_json::Result<String> {
    serde_json::to_string_pretty(&Report::new(analysis))
}

#[derive(Clone, Copy, Serialize)]
struct CountJson {
    objects: u64,
    bytes: u64,
}

impl From<Count> for CountJson {
    fn from(count: Count) -> Self {
        Self { objects: count.objects, bytes: count.bytes }
    }
}

#[derive(Serialize)]
struct Report<'a> {
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
    pages: PagesJson,
    sites: Vec<SiteJson<'a>>,
}

#[derive(Serialize)]
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
struct LostJson<'a> {
    events: u64,
    without_ring: u64,
    unknown_frees: u64,
    found_out_frees: u64,
    unfollowed: u64,
    refused_stacks: u64,
    threads: &'a [super::session::RingLosses],
}

#[derive(Serialize)]
struct PeakJson {
    #[serde(flatten)]
    count: CountJson,
    time_us: u64,
}

#[derive(Serialize)]
struct SizeJson {
    from: u64,
    #[serde(flatten)]
    count: CountJson,
}

#[derive(Serialize)]
struct CommonJson {
    size: u64,
    objects: u64,
}

#[derive(Serialize)]
struct LifetimeJson {
    below_us: u64,
    #[serde(flatten)]
    count: CountJson,
}

#[derive(Serialize)]
struct TimelineJson {
    span_us: u64,
    most_bytes: Vec<u64>,
    most_objects: Vec<u64>,
    allocations: Vec<u64>,
    frees: Vec<u64>,
}

#[derive(Serialize)]
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
struct PagesJson {
    page_bytes: u64,
    pages: u64,
    nearly_empty: u64,
    held_free_bytes: u64,
    tenths: [u64; 10],
    unplaced_blocks: u64,
}

#[derive(Serialize)]
struct SiteJson<'a> {
    frames: Vec<FrameJson<'a>>,
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

#[derive(Serialize)]
struct FrameJson<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl<'a> From<&'a Frame> for FrameJson<'a> {
    fn from(frame: &'a Frame) -> Self {
        Self { name: &frame.name, file: frame.file.as_deref(), line: frame.line }
    }
}

impl<'a> Report<'a> {
    fn new(analysis: &'a Analysis) -> Self {
        let session = &analysis.session;
        let summary = &analysis.summary;
        let sites = analysis.sites.iter().zip(&analysis.profile.sites).map(|(figures, site)| SiteJson {
            frames: analysis.profile.frames(site).map(FrameJson::from).collect(),
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
        let threads = analysis.threads.iter().enumerate().map(|(at, figures)| {
            let known = summary.threads.get(at);
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
        let sizes = analysis.sizes.iter().enumerate();
        let lifetimes = analysis.lifetimes.iter().enumerate();
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
                unknown_frees: analysis.unknown_frees,
                found_out_frees: analysis.lost_frees,
                unfollowed: analysis.unfollowed,
                refused_stacks: summary.refused_stacks,
                threads: &summary.losses,
            },
            parts: analysis.parts.iter().map(PartJson::from).collect(),
            end_us: analysis.end_us,
            from_us: analysis.question.from_us,
            to_us: analysis.question.to_us.min(analysis.end_us),
            allocated: analysis.total.allocated.into(),
            freed: analysis.total.freed.into(),
            temporary: analysis.total.temporary.into(),
            in_use: analysis.total.at_end.into(),
            peak: PeakJson { count: analysis.peak.count.into(), time_us: analysis.peak.time_us },
            sizes: sizes.map(|(at, count)| SizeJson { from: from(at), count: (*count).into() }).collect(),
            common_sizes: analysis.common_sizes.iter().map(|&(size, objects)| CommonJson { size, objects }).collect(),
            lifetimes: lifetimes
                .map(|(at, count)| LifetimeJson { below_us: 10u64.saturating_pow(at as u32), count: (*count).into() })
                .collect(),
            timeline: TimelineJson {
                span_us: analysis.span_us,
                most_bytes: analysis.timeline.iter().map(|span| span.most_bytes).collect(),
                most_objects: analysis.timeline.iter().map(|span| span.most_objects).collect(),
                allocations: analysis.timeline.iter().map(|span| span.allocs).collect(),
                frees: analysis.timeline.iter().map(|span| span.frees).collect(),
            },
            threads: threads.collect(),
            pages: PagesJson {
                page_bytes: analysis.pages.page_bytes,
                pages: analysis.pages.pages,
                nearly_empty: analysis.pages.sparse,
                held_free_bytes: analysis.pages.held_free,
                tenths: analysis.pages.tenths,
                unplaced_blocks: analysis.pages.unplaced,
            },
            sites: sites.collect(),
        }
    }
}
