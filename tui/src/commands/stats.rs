//! `poolscope stats`: where the bytes of the pool are, tier by tier.

use std::fmt::Write as _;

use clap::Args;
use color_eyre::eyre::Result;
use poolscope_profiler::SegmentReader;
use poolscope_profiler::faces::devices::devices_text;
use poolscope_profiler::faces::json::devices::devices_json;
use poolscope_profiler::faces::json::facts::facts_json;
use poolscope_profiler::faces::process::process_text;
use poolscope_profiler::findings::Facts;
use poolscope_wire::stats::{json, text};

use crate::failure::Failure;
use crate::{sink, target};

/// Print the pool's statistics, in the layout of tcmalloc or as JSON
///
/// Then comes where the memory of the whole process is, the most that was in use and when, its growth, and findings:
/// what a person should know, in words. As JSON these are in the field `process`. Pools of device memory come last,
/// each with all of its counters; as JSON they are in the field `devices`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope stats 1234 | grep MALLOC:\n  \
    poolscope stats 1234 --json | jq .usage.in_use\n  \
    poolscope stats 1234 --json | jq -r '.process.findings[].sentence'")]
pub(crate) struct Stats {
    /// Process id, name of a program, or the file of a segment
    #[arg(value_name = "PID|NAME|SEGMENT")]
    target: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Stats {
    pub(crate) fn run(self) -> Result<u8> {
        let entry = target::find(&self.target)?;
        let fail = |e: poolscope_profiler::ReadError| Failure::usage(e.to_string());
        let snapshot = SegmentReader::open(&entry.path).map_err(fail)?.snapshot().map_err(fail)?;
        let (stats, devices) = (snapshot.stats(), &snapshot.devices);
        let children = target::children(&snapshot.process);
        let facts = Facts { children: &children, ..Facts::of(&snapshot, None) };
        let mut out = String::new();
        if self.json {
            json::write(&stats, &mut out)?;
            // More fields of the object.
            out.truncate(out.trim_end().len() - 1);
            write!(out, ",\"process\":{}", facts_json(&facts)?)?;
            if !devices.is_empty() {
                write!(out, ",\"devices\":{}", devices_json(devices)?)?;
            }
            out.push_str("}\n");
        } else {
            text::write(&stats, &mut out)?;
            out += &process_text(&facts);
            out += &devices_text(devices);
        }
        sink::print(&out)?;
        Ok(0)
    }
}
