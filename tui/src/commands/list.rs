//! `poolscope list`: what there is to look at.

use std::io::{self, IsTerminal};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_profiler::discovery::{self, SegmentEntry};
use poolscope_profiler::snapshot::ProcessState;
use poolscope_profiler::{SegmentReader, Snapshot};
use serde_json::json;

use crate::dashboard::format;
use crate::failure::Failure;
use crate::sink;

/// List your processes that run on the pool, and what dead ones left behind
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  poolscope list --json | jq '.processes[] | select(.state == \"running\") | .pid'")]
pub(crate) struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

struct Row {
    entry: SegmentEntry,
    snapshot: Option<Snapshot>,
    age: Duration,
}

impl Row {
    fn new(entry: SegmentEntry) -> Row {
        let snapshot = SegmentReader::open(&entry.path).and_then(|mut reader| reader.snapshot()).ok();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let age = now.saturating_sub(Duration::from_nanos(entry.start_realtime_ns));
        Row { entry, snapshot, age }
    }

    fn live_bytes(&self) -> Option<f64> {
        self.snapshot.as_ref().map(|s| s.live.iter().map(|b| b.amount().bytes).sum())
    }

    fn rss(&self) -> Option<u64> {
        self.snapshot.as_ref().and_then(|s| s.memory).map(|m| m.rss)
    }

    fn command(&self) -> String {
        if self.entry.args.is_empty() { self.entry.exe.clone() } else { self.entry.args.join(" ") }
    }
}

fn state(state: ProcessState) -> &'static str {
    match state {
        ProcessState::Running => "running",
        ProcessState::Exited => "exited",
        ProcessState::Killed => "gone",
    }
}

impl List {
    pub(crate) fn run(self) -> Result<u8> {
        let listing = discovery::list().map_err(|e| Failure::usage(e.to_string()))?;
        for error in &listing.unreadable {
            sink::say(&format!("{error}"));
        }
        let rows: Vec<Row> = listing.entries.into_iter().map(Row::new).collect();
        sink::print(&if self.json { to_json(&rows)? } else { to_text(&rows) })?;
        Ok(0)
    }
}

fn to_json(rows: &[Row]) -> Result<String> {
    let processes: Vec<_> = rows
        .iter()
        .map(|row| {
            json!({
                "pid": row.entry.pid,
                "state": state(row.entry.state),
                "started_realtime_ns": row.entry.start_realtime_ns,
                "age_seconds": row.age.as_secs_f64(),
                "rss_bytes": row.rss(),
                "live_bytes": row.live_bytes(),
                "exact": row.entry.exact,
                "period_bytes": row.snapshot.as_ref().map(|s| s.period_bytes),
                "forked": row.entry.forked,
                "exe": row.entry.exe,
                "args": row.entry.args,
                "segment": row.entry.path,
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&json!({ "version": 1, "processes": processes }))? + "\n")
}

/// Lines are cut at the terminal's width, and not cut in a file or a pipe.
fn terminal_width() -> usize {
    if !io::stdout().is_terminal() {
        return usize::MAX;
    }
    crossterm::terminal::size().map_or(usize::MAX, |(width, _)| width.into())
}

fn to_text(rows: &[Row]) -> String {
    if rows.is_empty() {
        return format!(
            "No process runs on the pool (looked in {}).\nStart one: poolscope run -- COMMAND\n",
            discovery::segment_dir().display()
        );
    }
    let mut out = format!(
        "{:>8}  {:<8} {:>8} {:>10} {:>10} {:>8}  {}\n",
        "PID", "STATE", "STARTED", "RSS", "LIVE", "PERIOD", "COMMAND"
    );
    let size = |bytes: Option<f64>| bytes.map_or("-".to_owned(), format::bytes);
    let width = terminal_width();
    for row in rows {
        let period = match &row.snapshot {
            Some(snapshot) if snapshot.exact => "exact".to_owned(),
            Some(snapshot) => format::bytes(snapshot.period_bytes as f64),
            None => "-".to_owned(),
        };
        let line = format!(
            "{:>8}  {:<8} {:>8} {:>10} {:>10} {:>8}  {}{}",
            row.entry.pid,
            state(row.entry.state),
            format::duration(row.age),
            size(row.rss().map(|rss| rss as f64)),
            size(row.live_bytes()),
            period,
            if row.entry.forked { "(forked) " } else { "" },
            format::printable(&row.command()),
        );
        out += &format::clip(&line, width);
        out.push('\n');
    }
    out
}
