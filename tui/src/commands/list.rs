//! `poolscope list`: what there is to look at.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_profiler::model::snapshot::ProcessState;
use poolscope_profiler::process::{
    self,
    ending::{Ending, KernelLog},
};
use poolscope_profiler::segment::discovery::{self, SegmentEntry};
use poolscope_profiler::segment::folders;
use poolscope_profiler::words::figures;
use poolscope_profiler::{Memory, ReadError, SegmentReader, Snapshot};
use serde::Serialize;

use crate::failure::Failure;
use crate::words::{clip, numbers, users};
use crate::{sink, target};

/// List your processes that run on the pool, and say how many dead ones left something behind
///
/// For root it is those of all users. Running processes are found wherever they have their segments, also with another
/// POOLSCOPE_DIR and in containers; but where POOLSCOPE_DIR is set here, that folder is all that is looked through.
///
/// The dead are listed with --all, and in JSON. STATE of a dead process: exited (by exit, with POOLSCOPE_KEEP=1),
/// replaced (by exec, while the new program runs), rebooted (the machine was started again since), oom (the kernel
/// killed it for want of memory), fault (a signal that it did not handle), gone (killed, aborted or left by _exit;
/// nothing tells which). What the kernel did is read from its log, which users other than root may read where
/// kernel.dmesg_restrict is 0.
///
/// LIVE is what is in use, by the pool's counter. PERIOD is exact if every allocation is recorded, and "too low" if
/// some records were lost: what profiles say is then too low. ENDED is how long ago; <3m means that it still lived 3
/// minutes ago.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  poolscope list --all\n  poolscope list --json | jq '.processes[] | select(.state == \"running\") | .pid'"
)]
pub(crate) struct List {
    /// List the dead as well: when and how each ended, and what it had in use
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

struct Row {
    entry: SegmentEntry,
    /// The user that the process is now; of a dead one the user that it began as.
    uid: u32,
    snapshot: Option<Snapshot>,
    ending: Option<Ending>,
    now: Duration,
}

impl Row {
    fn new(entry: SegmentEntry, log: &KernelLog) -> Row {
        let mut reader = SegmentReader::open(&entry.path).ok();
        let snapshot = reader.as_mut().and_then(|reader| reader.snapshot().ok());
        let ending = reader.as_mut().and_then(|reader| reader.ending(log));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Row { uid: entry.user(), entry, snapshot, ending, now }
    }

    fn since(&self, realtime_ns: u64) -> Duration {
        self.now.saturating_sub(Duration::from_nanos(realtime_ns))
    }

    /// `CLOCK_MONOTONIC` of the process as `CLOCK_REALTIME`.
    fn realtime_ns(&self, monotonic_ns: u64) -> Option<u64> {
        let start = self.snapshot.as_ref()?.process.start_monotonic_ns;
        Some(self.entry.start_realtime_ns.saturating_add(monotonic_ns.saturating_sub(start)))
    }

    /// The last time at which it was alive for certain.
    fn alive_realtime_ns(&self) -> u64 {
        let blocks = self.snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.live);
        let newest = blocks.iter().map(|block| block.time_ns).max().and_then(|ns| self.realtime_ns(ns));
        self.entry.alive_realtime_ns.max(newest.unwrap_or(0)).min(self.now.as_nanos() as u64)
    }

    /// When it ended, if the kernel says so.
    fn ended_realtime_ns(&self) -> Option<u64> {
        self.realtime_ns(self.ending.as_ref()?.kernel()?.monotonic_ns)
    }

    /// How long ago it ended: at most so long, if all that is known is when it still lived.
    fn ended(&self) -> String {
        match (&self.ending, self.ended_realtime_ns()) {
            (None, _) => "-".to_owned(),
            (Some(_), Some(at)) => figures::duration(self.since(at)),
            (Some(_), None) => format!("<{}", figures::duration(self.since(self.alive_realtime_ns()))),
        }
    }

    fn state(&self) -> &'static str {
        self.ending.as_ref().map_or("running", Ending::word)
    }

    /// Bytes in use, by the pool's counters. What has no counter is estimated from samples.
    fn live_bytes(&self, memory: Memory) -> Option<f64> {
        let snapshot = self.snapshot.as_ref()?;
        let sampled = || snapshot.live.iter().filter(|b| memory.has(b.place)).map(|b| b.amount().bytes);
        // The sum of no numbers is -0.0.
        Some(
            snapshot.in_use(memory).map_or_else(|| sampled().fold(0.0, |sum, bytes| sum + bytes), |bytes| bytes as f64),
        )
    }

    /// Samples that the segment could not hold: profiles miss them.
    fn lost(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.dropped.total())
    }

    fn rss(&self) -> Option<u64> {
        self.snapshot.as_ref().and_then(|s| s.memory).map(|m| m.rss)
    }

    fn command(&self) -> String {
        target::command_of(&self.entry.args, &self.entry.exe)
    }
}

impl List {
    pub(crate) fn run(self) -> Result<u8> {
        let listing = discovery::list().map_err(|e| Failure::usage(e.to_string()))?;
        let mut unfinished = Vec::new();
        for error in &listing.unreadable {
            match left_unfinished(error).filter(|_| !self.all) {
                Some(bytes) => unfinished.push(bytes),
                None => sink::say(&format!("{error}")),
            }
        }
        let (running, dead): (Vec<SegmentEntry>, Vec<SegmentEntry>) =
            listing.entries.into_iter().partition(|entry| entry.state == ProcessState::Running);
        // What others left is theirs to remove.
        let own = dead.iter().filter(|entry| entry.uid == process::own_uid());
        let left = Left {
            processes: own.clone().count() + unfinished.len(),
            bytes: own.map(|entry| entry.file_bytes).chain(unfinished).sum(),
        };
        // After a run of tests there may be hundreds.
        let listed = if self.all || self.json { dead } else { Vec::new() };
        let log = if listed.is_empty() { KernelLog::default() } else { KernelLog::read() };
        let rows: Vec<Row> = running.into_iter().chain(listed).map(|entry| Row::new(entry, &log)).collect();
        sink::print(&if self.json { to_json(&rows)? } else { to_text(&rows, &left, self.all) })?;
        Ok(0)
    }
}

/// Bytes of a segment that a process of this user left as it died while it started. Nothing else is known of it.
fn left_unfinished(error: &ReadError) -> Option<u64> {
    let ReadError::Starting { path, pid } = error else { return None };
    let metadata = fs::metadata(path).ok().filter(|metadata| metadata.uid() == process::own_uid())?;
    let is_at_work = Path::new(&format!("/proc/{pid}")).exists() && discovery::writes_to(*pid, path);
    (!is_at_work).then_some(metadata.blocks() * 512)
}

/// What `list --json` writes.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ListJson<'a> {
    version: u32,
    /// Running processes first, the latest first.
    processes: Vec<ProcessJson<'a>>,
}

/// One process, or what it left. Sizes are in bytes, times in nanoseconds since 1970.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProcessJson<'a> {
    pid: u32,
    /// The user that it is; of a dead one the user that it began as.
    uid: u32,
    /// `running`; of a dead one `exited`, `replaced`, `rebooted`, `oom`, `fault` or `gone`.
    state: &'static str,
    started_realtime_ns: u64,
    age_seconds: f64,
    /// The last time at which it was alive for certain.
    alive_realtime_ns: u64,
    /// When it ended, if the kernel says so.
    ended_realtime_ns: Option<u64>,
    /// The line of the kernel's log about its end.
    kernel: Option<&'a str>,
    /// Null for a process that is gone, as the next ones where the segment can't be read.
    rss_bytes: Option<u64>,
    live_bytes: Option<f64>,
    device_live_bytes: Option<f64>,
    /// Every allocation is recorded, and no record was lost.
    exact: bool,
    lost_samples: u64,
    /// Mean bytes between two samples.
    period_bytes: Option<u64>,
    /// A forked child that did not become another program.
    forked: bool,
    exe: &'a str,
    args: &'a [String],
    /// Path of the file.
    segment: &'a Path,
}

impl<'a> From<&'a Row> for ProcessJson<'a> {
    fn from(row: &'a Row) -> Self {
        ProcessJson {
            pid: row.entry.pid,
            uid: row.uid,
            state: row.state(),
            started_realtime_ns: row.entry.start_realtime_ns,
            age_seconds: row.since(row.entry.start_realtime_ns).as_secs_f64(),
            alive_realtime_ns: row.alive_realtime_ns(),
            ended_realtime_ns: row.ended_realtime_ns(),
            kernel: row.ending.as_ref().and_then(Ending::kernel).map(|word| word.line.as_str()),
            rss_bytes: row.rss(),
            live_bytes: row.live_bytes(Memory::Host),
            device_live_bytes: row.live_bytes(Memory::Device(None)),
            exact: row.entry.exact && row.lost() == 0,
            lost_samples: row.lost(),
            period_bytes: row.snapshot.as_ref().map(|s| s.period_bytes),
            forked: row.entry.forked,
            exe: &row.entry.exe,
            args: &row.entry.args,
            segment: &row.entry.path,
        }
    }
}

fn to_json(rows: &[Row]) -> Result<String> {
    let list = ListJson { version: 1, processes: rows.iter().map(ProcessJson::from).collect() };
    Ok(serde_json::to_string_pretty(&list)? + "\n")
}

/// Lines are cut at the terminal's width, and not cut in a file or a pipe.
fn terminal_width() -> usize {
    if !io::stdout().is_terminal() {
        return usize::MAX;
    }
    crossterm::terminal::size().map_or(usize::MAX, |(width, _)| width.into())
}

/// What dead processes left.
struct Left {
    processes: usize,
    bytes: u64,
}

impl Left {
    /// A line about it; none if there is nothing.
    fn line(&self, are_listed: bool) -> String {
        let (who, left) = match self.processes {
            0 => return String::new(),
            1 => ("One dead process".to_owned(), "a segment"),
            count => (format!("{} dead processes", numbers::grouped(count as u64)), "segments"),
        };
        let list = if are_listed { "" } else { "poolscope list --all shows what is known, " };
        let what = if self.processes == 1 { "it" } else { "them" };
        format!("\n{who} left {left} of {}: {list}poolscope gc removes {what}.\n", numbers::bytes(self.bytes as f64))
    }
}

/// The column of users by their names; none if there is nobody but oneself.
struct Users(BTreeMap<u32, String>);

impl Users {
    fn of(rows: &[Row]) -> Users {
        let uids: BTreeSet<u32> = rows.iter().map(|row| row.uid).collect();
        let others = uids.iter().any(|&uid| uid != process::own_uid());
        Users(uids.into_iter().filter(|_| others).map(|uid| (uid, users::name(uid))).collect())
    }

    /// The column's head, or what it says of a row.
    fn column(&self, row: Option<&Row>) -> String {
        const HEAD: &str = "USER";
        let Some(longest) = self.0.values().map(|name| name.chars().count()).max() else { return String::new() };
        let text = row.and_then(|row| self.0.get(&row.uid)).map_or(HEAD, String::as_str);
        format!("  {text:<0$}", longest.max(HEAD.len()))
    }
}

fn to_text(rows: &[Row], left: &Left, all: bool) -> String {
    if rows.is_empty() {
        let hint = folders::of_others().map_or_else(String::new, |hint| format!("{hint}.\n"));
        return format!(
            "No process runs on the pool (looked in {}).\n{hint}Start one: poolscope run -- COMMAND\n",
            folders::looked_in()
        ) + &left.line(all);
    }
    let users = Users::of(rows);
    let heads = format!(
        "{:>8}{}  {:<9} {:>8} {:>9} {:>10} {:>10} {:>8}  {}",
        "PID",
        users.column(None),
        "STATE",
        "STARTED",
        "ENDED",
        "RSS",
        "LIVE",
        "PERIOD",
        "COMMAND"
    );
    let width = terminal_width();
    let mut out = clip(&heads, width) + "\n";
    let size = |bytes: Option<f64>| bytes.map_or("-".to_owned(), numbers::bytes);
    for row in rows {
        let period = match &row.snapshot {
            Some(snapshot) if snapshot.exact && snapshot.dropped.total() == 0 => "exact".to_owned(),
            // Blocks are missing, so that more is in use than a profile says.
            Some(snapshot) if snapshot.exact => "too low".to_owned(),
            Some(snapshot) => numbers::bytes(snapshot.period_bytes as f64),
            None => "-".to_owned(),
        };
        let line = format!(
            "{:>8}{}  {:<9} {:>8} {:>9} {:>10} {:>10} {:>8}  {}{}",
            row.entry.pid,
            users.column(Some(row)),
            row.state(),
            figures::duration(row.since(row.entry.start_realtime_ns)),
            row.ended(),
            size(row.rss().map(|rss| rss as f64)),
            size(row.live_bytes(Memory::Host)),
            period,
            if row.entry.forked { "(forked) " } else { "" },
            row.command(),
        );
        out += &clip(&line, width);
        out.push('\n');
        // Why is worth a line of its own.
        if let Some(word) = row.ending.as_ref().and_then(Ending::kernel) {
            out += &clip(&format!("          kernel: {}", word.line), width);
            out.push('\n');
        }
    }
    out + &left.line(all)
}
