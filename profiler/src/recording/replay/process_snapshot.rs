//! A recording as the rest of the profiler knows processes: a snapshot of how its process was at the end of the replay,
//! from which the same profile is built as from a segment.

use std::collections::BTreeMap;

use poolscope_wire::stack_flags;

use crate::model::memory::Place;
use crate::model::snapshot::{Amount, DevicePeak, LiveBlock, Module, PeakMoment, ProcessInfo, Snapshot, Stack};
use crate::recording::events::call_paths::frames;
use crate::recording::events::session::Summary;
use crate::recording::replay::figures::{Count, Figures, PeakFound};
use crate::recording::replay::{Part, Replay, place_of};

fn amount(count: Count) -> Amount {
    Amount { objects: count.objects as f64, bytes: count.bytes as f64, samples: count.objects }
}

/// The recording as the rest of the profiler knows processes: as it is at the end of the replay.
///
/// `figures` are those of its stacks; of each memory most was in use at its peak, in the part with this number, and the
/// last event was at `end_us`.
pub(crate) fn snapshot(
    replay: &Replay,
    summary: &Summary,
    figures: &[Figures],
    peaks: &[(Place, PeakFound, usize)],
    end_us: u64,
) -> Snapshot {
    let session = &replay.last().session;
    let stacks = replay.paths.iter().enumerate().map(|(at, path)| {
        let figures = figures.get(at).copied().unwrap_or_default();
        Stack {
            frames: frames(&replay.nodes, path.node).into(),
            place: path.place,
            incomplete: path.flags & (stack_flags::TRUNCATED | stack_flags::INCOMPLETE) != 0,
            allocated: amount(figures.allocated),
            freed: amount(figures.freed),
            peak: amount(figures.peak),
        }
    });
    let mut live: BTreeMap<(u32, u64, u32), u64> = BTreeMap::new();
    for (_, block) in replay.state.in_use() {
        *live.entry((block.stack, block.size, block.thread)).or_default() += 1;
    }
    let tid = |thread: u32| summary.threads.get(thread as usize).map_or(0, |thread| thread.tid);
    let live = live.into_iter().map(|((stack, size, thread), count)| {
        let place = place_of(&replay.paths, stack);
        let (weight, tid) = (count as f64, tid(thread));
        LiveBlock { stack, size, weight, tid, place, ..LiveBlock::default() }
    });
    let moment = |peak: &PeakFound, part: usize| {
        let of_peak = &replay.parts[part].session;
        // Counted from the start of the process that had it.
        let since_start = of_peak.monotonic_ns(peak.time_us).saturating_sub(of_peak.start_monotonic_ns);
        PeakMoment { bytes: peak.count.bytes, time_ns: since_start.saturating_add(session.start_monotonic_ns) }
    };
    let (of_host, of_devices): (Vec<_>, Vec<_>) = peaks.iter().partition(|(place, ..)| *place == Place::Host);
    let device_peaks =
        of_devices.into_iter().map(|(place, peak, part)| DevicePeak { place, moment: moment(&peak, part) });
    Snapshot {
        process: session.process(),
        former: former(&replay.parts),
        taken_ns: session.monotonic_ns(end_us),
        taken_realtime_ns: session.realtime_ns(end_us),
        period_bytes: 1,
        exact: true,
        page_bytes: session.page_bytes,
        peak: of_host.first().map(|(_, peak, part)| moment(peak, *part)),
        device_peaks: device_peaks.collect(),
        stacks: stacks.collect(),
        modules: replay
            .parts
            .iter()
            .enumerate()
            .flat_map(|(at, part)| modules(part, replay.parts.get(at + 1)))
            .collect(),
        live: live.collect(),
        functions: replay.functions.clone(),
        ..Snapshot::default()
    }
}

/// The modules of a part, for the stacks of all parts.
fn modules(part: &Part, next: Option<&Part>) -> impl Iterator<Item = Module> {
    // Stack 0 is the unknown one, and the first of a part is 1.
    let end = next.map_or(u32::MAX, |next| next.first_stack + 1);
    part.modules.iter().map(move |module| {
        let mut module = module.module();
        let moved = |stack: u32| stack.max(1).saturating_add(part.first_stack).min(end);
        module.stacks = moved(module.stacks.start)..moved(module.stacks.end);
        module
    })
}

/// The processes of all parts but the last, each with the stack after its last.
fn former(parts: &[Part]) -> Vec<(u32, ProcessInfo)> {
    parts.windows(2).map(|pair| (pair[1].first_stack + 1, pair[0].session.process())).collect()
}
