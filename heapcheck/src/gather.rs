//! From the pool's records of a scope to a leak report.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use poolscope_alloc::scope::{self, Scope};
use poolscope_profiler::leaks::suppressions::Suppressions;
use poolscope_profiler::leaks::{Claim, LeakReport, Suppressed};
use poolscope_profiler::model::memory::Place;
use poolscope_profiler::model::snapshot::{
    Dropped, LiveBlock, Module, ProcessInfo, ProcessState, Snapshot, Stack, file_number,
};

use crate::names;
use crate::roots::{self, Block, Held};

/// Blocks and frames, in memory that was allocated beforehand: the pool's lock is held while they are read.
#[derive(Default)]
struct Records {
    blocks: Vec<(scope::LiveBlock, std::ops::Range<usize>)>,
    frames: Vec<u64>,
}

fn read(scope: &Scope) -> Records {
    let (mut blocks, mut frames) = (0, 0);
    scope.visit_live(|_, stack| {
        blocks += 1;
        frames += stack.len();
    });
    let mut records = Records { blocks: Vec::with_capacity(blocks), frames: Vec::with_capacity(frames) };
    // Recording is paused, so there can only be fewer by now; should there be more, they are left out.
    scope.visit_live(|block, stack| {
        let start = records.frames.len();
        if records.blocks.len() < blocks && start + stack.len() <= frames {
            records.frames.extend_from_slice(stack);
            records.blocks.push((block, start..start + stack.len()));
        }
    });
    records
}

/// Why a block that is left is no leak.
const KEPT: &str = "a static or a thread-local keeps it that held nothing before";

/// What the scope allocated and nobody freed. What statics keep that held nothing before is told of apart.
pub(crate) fn leaks(scope: &Scope, suppressions: &Suppressions, held: Option<&Held>) -> LeakReport {
    let mut records = read(scope);
    let kept = held.and_then(|held| take_kept(&mut records, held));
    let mut report = of_records(scope, suppressions, &records);
    report.suppressed.extend(kept);
    report
}

/// Takes out of the records what statics keep that held nothing before.
fn take_kept(records: &mut Records, held: &Held) -> Option<Suppressed> {
    let block = |record: &scope::LiveBlock| match Place::of_record(record.kind, record.device) {
        Place::Host => Block { address: record.address, size: record.size as usize },
        // Nothing is read of the memory of devices.
        _ => Block { address: record.address, size: 0 },
    };
    let blocks: Vec<Block> = records.blocks.iter().map(|(record, _)| block(record)).collect();
    let mut retained = roots::retained(&blocks, held).into_iter();
    let mut kept = Suppressed { reason: KEPT.into(), ..Suppressed::default() };
    records.blocks.retain(|(record, _)| {
        let is_kept = retained.next().unwrap_or(false);
        kept.bytes += if is_kept { record.size } else { 0 };
        kept.objects += u64::from(is_kept);
        !is_kept
    });
    (kept.objects > 0).then_some(kept)
}

fn of_records(scope: &Scope, suppressions: &Suppressions, records: &Records) -> LeakReport {
    let missed = scope.dropped();
    if records.blocks.is_empty() && missed == 0 {
        return LeakReport { exact: true, ..LeakReport::default() };
    }
    let mut ids = HashMap::new();
    let mut stacks: Vec<Stack> = Vec::new();
    let mut live = Vec::new();
    for (block, range) in &records.blocks {
        let frames = &records.frames[range.clone()];
        let place = Place::of_record(block.kind, block.device);
        let id = *ids.entry((frames, place)).or_insert_with(|| {
            stacks.push(Stack { frames: frames.into(), place, ..Stack::default() });
            stacks.len() as u32 - 1
        });
        live.push(LiveBlock {
            stack: id,
            address: block.address as u64,
            size: block.size,
            weight: 1.0,
            tid: block.thread_id,
            place,
            ..LiveBlock::default()
        });
    }
    let snapshot = Snapshot {
        process: this_process(),
        taken_realtime_ns: now(),
        period_bytes: 1,
        exact: true,
        dropped: Dropped { live: missed, ..Dropped::default() },
        stacks,
        modules: modules(),
        live,
        ..Snapshot::default()
    };
    let (snapshot, profile) = names::profile(snapshot);
    LeakReport::with_claim(&snapshot, &profile, suppressions, Claim::Leaked)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

fn this_process() -> ProcessInfo {
    ProcessInfo {
        pid: std::process::id(),
        state: ProcessState::Running,
        exe: std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default(),
        args: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        start_realtime_ns: now(),
        start_monotonic_ns: 0,
        forked: false,
    }
}

fn modules() -> Vec<Module> {
    scope::modules()
        .filter(|module| !module.replaced)
        .map(|module| Module {
            start: module.start,
            end: module.end,
            load_bias: module.load_bias,
            build_id: module.build_id.to_vec(),
            file: module.file.map_or(0, |file| file_number(file.inode, file.bytes, file.modified)),
            path: String::from_utf8_lossy(module.path).into_owned(),
            stacks: 0..u32::MAX,
        })
        .collect()
}
