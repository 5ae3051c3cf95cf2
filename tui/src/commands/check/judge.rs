//! What became of each process of a run.

use std::path::Path;

use color_eyre::eyre::Result;
use poolscope_profiler::leaks::LeakReport;
use poolscope_profiler::leaks::suppressions::Suppressions;
use poolscope_profiler::leaks::unreachable::{self, Checked};
use poolscope_profiler::model::reach::Verdict as BlockVerdict;
use poolscope_profiler::model::snapshot::{ProcessState, Snapshot};
use poolscope_profiler::segment::discovery::{self, SegmentEntry};
use poolscope_profiler::{ProfileBuilder, ReadError, SegmentReader};

use super::{Question, folder};
use crate::failure::Failure;
use crate::launch::executable;
use crate::{sink, target};

/// What is asked of all processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) question: Question,
    /// Bytes of the block that each process was to lose, if it was.
    pub(super) planted: Option<u64>,
    pub(super) suppressions: &'a Suppressions,
}

/// What is said of one process.
pub(super) struct Process {
    pub(super) entry: SegmentEntry,
    pub(super) verdict: Verdict,
}

pub(super) enum Verdict {
    Judged(LeakReport),
    NotJudged(String),
}

impl Process {
    pub(super) fn has_leaks(&self) -> bool {
        matches!(&self.verdict, Verdict::Judged(report) if report.has_leaks())
    }

    /// Why leaks of it may be missing from the report.
    pub(super) fn doubt(&self) -> Option<String> {
        match &self.verdict {
            Verdict::NotJudged(why) => Some(why.clone()),
            Verdict::Judged(report) if report.missed > 0 => {
                Some(with_remedy("not all its blocks found room in the records", &self.entry))
            }
            Verdict::Judged(report) if !report.exact => Some("it turned the recording of every allocation off".into()),
            Verdict::Judged(report) => {
                report.without_stacks().or_else(|| report.checked.as_ref().and_then(Checked::doubt))
            }
        }
    }

    pub(super) fn command(&self) -> String {
        target::command_of(&self.entry.args, &self.entry.exe)
    }
}

/// What came of a run.
pub(super) struct Judged {
    pub(super) processes: Vec<Process>,
    /// Segments that could not be read.
    pub(super) unreadable: Vec<ReadError>,
}

/// The last image of each process, the program's own first.
pub(super) fn judge_all(folder: &Path, own: u32, asked: Asked<'_>) -> Result<Judged> {
    let listing = discovery::list_in(folder).map_err(|e| Failure::usage(e.to_string()))?;
    for error in &listing.unreadable {
        sink::say(&format!("{error}"));
    }
    let mut last: Vec<SegmentEntry> = Vec::new();
    for entry in listing.entries {
        match last.iter_mut().find(|e| e.pid == entry.pid) {
            Some(known) if known.start_realtime_ns < entry.start_realtime_ns => *known = entry,
            Some(_) => {}
            None => last.push(entry),
        }
    }
    last.sort_by_key(|e| (e.pid != own, e.start_realtime_ns));
    // One for all: what it has read of a file it keeps, by the file's build id.
    let mut builder = crate::symbols::profile_builder();
    let processes = last.into_iter().map(|entry| {
        // What the program itself says of its leaks (__lsan_default_suppressions).
        let own = folder.join(format!("suppressions-{}", entry.pid));
        let mut all = asked.suppressions.clone();
        let verdict = match own.exists().then(|| all.add_file(&own)) {
            Some(Err(error)) => Verdict::NotJudged(error.to_string()),
            _ => judge(&entry, Asked { suppressions: &all, ..asked }, &mut builder),
        };
        Process { verdict, entry }
    });
    Ok(Judged { processes: processes.collect(), unreadable: listing.unreadable })
}

fn judge(entry: &SegmentEntry, asked: Asked<'_>, builder: &mut ProfileBuilder) -> Verdict {
    let snapshot = SegmentReader::open(&entry.path).and_then(|mut reader| reader.snapshot());
    let mut snapshot = match snapshot {
        Ok(snapshot) => snapshot,
        Err(error) => return Verdict::NotJudged(error.to_string()),
    };
    match snapshot.process.state {
        ProcessState::Exited => {}
        ProcessState::Running => return Verdict::NotJudged("it still runs".into()),
        ProcessState::Killed => {
            let is_of_go = executable::section(Path::new(&entry.exe), b".go.buildinfo").is_some();
            let how = if is_of_go {
                "it is a Go program, which leaves by a system call of its own"
            } else {
                "it was killed, or left by quick_exit or by a system call of its own, or became a program that did not run \
                 on the pool (exec)"
            };
            let why = format!("{how}: it had no end at which its blocks could be called leaks");
            return Verdict::NotJudged(why);
        }
    }
    if snapshot.process.forked {
        // Blocks from before the fork are its parent's to free. Those of its own are none older than its segment.
        let start = snapshot.process.start_monotonic_ns;
        snapshot.live.retain(|block| block.time_ns >= start);
    }
    let has_room = snapshot.dropped.total() == 0;
    let looked = snapshot.search.is_some_and(|search| search.failed.is_none());
    let found = asked.planted.is_none_or(|bytes| take_planted(&mut snapshot, bytes));
    let report = match asked.question {
        Question::Growth => {
            let profile = builder.build(&snapshot);
            Ok(LeakReport::new(&snapshot, &profile, asked.suppressions))
        }
        Question::Leaks => unreachable::report(snapshot, builder, asked.suppressions),
        Question::All => unreachable::report_with_reachable(snapshot, builder, asked.suppressions),
    };
    match report {
        Ok(_) if !found && (looked || asked.question == Question::Growth) => {
            Verdict::NotJudged("the leak that was planted in it was not found: what was looked at says nothing".into())
        }
        Ok(report) => Verdict::Judged(report),
        Err(why) if has_room => Verdict::NotJudged(why),
        Err(why) => Verdict::NotJudged(with_remedy(&why, entry)),
    }
}

/// Why a process with too many blocks can't be judged, and what to do.
fn with_remedy(why: &str, entry: &SegmentEntry) -> String {
    folder::remedy(&entry.path).map_or_else(|| why.to_owned(), |remedy| format!("{why}. {remedy}"))
}

/// Takes the block out that the process was to lose, if it was found to be lost.
fn take_planted(snapshot: &mut Snapshot, bytes: u64) -> bool {
    let is_lost = |verdict| matches!(verdict, BlockVerdict::Direct | BlockVerdict::Unknown);
    let planted = snapshot.live.iter().position(|block| block.size == bytes && is_lost(block.verdict));
    planted.map(|at| snapshot.live.swap_remove(at)).is_some()
}
