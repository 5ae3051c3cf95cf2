//! `poolscope bench dashboard`: what the dashboard costs on a process.

use std::fmt::Write;
use std::time::Duration;

use clap::Args;
use color_eyre::eyre::{Result, WrapErr};
use ratatui::layout::Size;

use super::top::view_parser;
use crate::args::parse_size;
use crate::dashboard::events::watched::Watched;
use crate::dashboard::measure::{self, Cost, Times};
use crate::words::numbers;
use crate::{sink, target};

/// Measure what the dashboard costs on a process
///
/// The dashboard runs on a screen that nobody sees: first in one view and without keys, for its processor time and its
/// memory; then with sixteen keys a second in every view, for the time that a frame takes and that passes from a key to
/// its frame.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  poolscope bench dashboard 1234 --interval 0.1 --size 200x60")]
pub(super) struct Dashboard {
    /// Process id, name of a program, or the file of a segment
    #[arg(value_name = "PID|NAME|SEGMENT")]
    target: String,
    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = crate::dashboard::options::parse_interval)]
    interval: Duration,
    /// Size of the screen
    #[arg(long, value_name = "COLUMNSxROWS", default_value = "200x60", value_parser = parse_size)]
    size: Size,
    /// View while there are no keys
    #[arg(long, value_name = "VIEW", default_value = "sites", value_parser = view_parser())]
    view: usize,
    /// Seconds without keys, and again with keys
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = clap::value_parser!(u16).range(1..=600))]
    seconds: u16,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Dashboard {
    pub(super) fn run(self) -> Result<u8> {
        let watched = Watched::Segment(target::find(&self.target)?.path);
        let time = Duration::from_secs(self.seconds.into());
        let cost = measure::measure(&watched, self.view, self.size, self.interval, time).wrap_err("cannot measure")?;
        let text = if self.json { serde_json::to_string_pretty(&cost)? + "\n" } else { to_text(&cost) };
        sink::print(&text)?;
        Ok(0)
    }
}

fn to_text(cost: &Cost) -> String {
    let mut out = format!(
        "{} call sites, {} blocks, {} by {} cells, a reading each {:.2} s\n",
        numbers::grouped(cost.sites as u64),
        numbers::grouped(cost.blocks as u64),
        cost.columns,
        cost.rows,
        cost.interval_seconds
    );
    let _ = writeln!(
        out,
        "{:.1} % of a core, {:.1} ms for each of {} readings, {} resident",
        cost.cpu * 100.0,
        cost.cpu_ms_per_reading,
        cost.readings,
        numbers::bytes(cost.rss_bytes as f64)
    );
    let _ = writeln!(out, "\n{:<10} {:>7} {:>9} {:>9} {:>9}", "frame", "count", "median ms", "ninth ms", "most ms");
    table(&mut out, cost.frames.iter());
    let _ = writeln!(out, "\n{:<10} {:>7} {:>9} {:>9} {:>9}", "key", "count", "median ms", "ninth ms", "most ms");
    table(&mut out, cost.keys.iter());
    out
}

fn table<'a>(out: &mut String, rows: impl Iterator<Item = (&'a &'static str, &'a Times)>) {
    for (view, times) in rows {
        let Times { count, median_ms, ninth_ms, most_ms } = times;
        let _ = writeln!(out, "{view:<10} {count:>7} {median_ms:>9.2} {ninth_ms:>9.2} {most_ms:>9.2}");
    }
}
