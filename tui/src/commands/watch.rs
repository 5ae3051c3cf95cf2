//! `poolscope watch`: writes profiles of a process while it grows.
//!
//! It looks at the resident set, which is what the kernel kills for, and which costs the process nothing to read. For
//! `poolscope run` it runs as a process of its own, detached, so that the program keeps its number, has no child that
//! it does not know, and is watched to its end.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use color_eyre::eyre::{Result, WrapErr};
use poolscope_profiler::faces::pprof;
use poolscope_profiler::process::{self, ProcStat};
use poolscope_profiler::segment::discovery;
use poolscope_profiler::{Metric, SegmentReader};

use crate::args::parse_bytes;
use crate::failure::Failure;
use crate::words::numbers;
use crate::{sink, target};

/// Time between two looks at the resident set.
const INTERVAL: Duration = Duration::from_millis(100);

/// Time in which a program that was started is on the pool, if it ever is.
const STARTING: Duration = Duration::from_secs(5);

/// Growth by less is none, whatever the percentage: small programs double by opening a file.
const LEAST_GROWTH: u64 = 16 << 20;

/// The threshold of `--dump-at-rss` counts again after the resident set has fallen below this part of it.
const REARM: (u64, u64) = (7, 8);

/// When to write profiles, and where to.
#[derive(Clone, Debug, Args)]
pub(crate) struct Triggers {
    /// Write a heap profile each time the resident set comes to so much: 800M, 2GiB
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    dump_at_rss: Option<u64>,
    /// Write a heap profile each time the resident set has grown by so much since the last one (by 16 MiB at least)
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    dump_on_growth: Option<u64>,
    /// Folder of these profiles, heap-PID-NUMBER.pb.gz
    #[arg(long, value_name = "DIR", default_value = ".")]
    dump_dir: PathBuf,
}

/// Write heap profiles of a process each time it has grown
///
/// The options are those of `poolscope run`, for a process that runs already. It ends when the process ends.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  poolscope watch 1234 --dump-at-rss 2G --dump-on-growth 50 --dump-dir /var/tmp")]
pub(crate) struct Watch {
    /// Process id, or name of a program
    #[arg(value_name = "PID|NAME")]
    target: String,
    #[command(flatten)]
    triggers: Triggers,
    /// Go on in the background
    #[arg(long, hide = true)]
    detach: bool,
}

impl Watch {
    pub(crate) fn run(self) -> Result<u8> {
        if !self.triggers.is_any() {
            return Err(Failure::usage("say when to write a profile: --dump-at-rss or --dump-on-growth").into());
        }
        self.triggers.check()?;
        let pid = match self.target.parse() {
            Ok(pid) => pid,
            Err(_) => target::find_running(&self.target)?.pid,
        };
        let Some(start) = ProcStat::of(pid).filter(|stat| !stat.is_zombie()) else {
            return Err(Failure::usage(format!("there is no process {pid}")).into());
        };
        if self.detach {
            self.triggers.command(pid)?.process_group(0).spawn().wrap_err("cannot start in the background")?;
            return Ok(0);
        }
        let runs = || ProcStat::of(pid).is_some_and(|now| !now.is_zombie() && now.start_ticks == start.start_ticks);
        let mut memory = Memory::new(&self.triggers);
        let mut written = 0;
        // One that `poolscope run` only just starts is not on the pool yet.
        let begun = Instant::now();
        while target::newest_segment(pid).is_none() && runs() {
            if begun.elapsed() > STARTING {
                target::find_running(&pid.to_string())?;
            }
            sleep(INTERVAL);
        }
        while runs() {
            if let Some(why) = process::memory(pid).and_then(|now| memory.step(now.rss)) {
                written += 1;
                // What cannot be written now, on a full disk perhaps, is no reason to stop watching.
                if let Err(error) = self.dump(pid, written, &why) {
                    sink::say(&format!("{error:#}"));
                }
            }
            sleep(INTERVAL);
        }
        Ok(0)
    }

    fn dump(&self, pid: u32, number: u32, why: &str) -> Result<()> {
        let entry = discovery::find(&pid.to_string())?;
        let mut profile = target::read(&mut SegmentReader::open(&entry.path)?, &mut crate::symbols::profile_builder())?;
        profile.comments.push(why.to_owned());
        let path = self.triggers.dump_dir.join(format!("heap-{pid}-{number:03}.pb.gz"));
        sink::write(&path, |out| pprof::write_pprof(&profile, Metric::InUseBytes, out))?;
        sink::say(&format!("wrote {}: {why}", path.display()));
        Ok(())
    }
}

impl Triggers {
    fn is_any(&self) -> bool {
        self.dump_at_rss.is_some() || self.dump_on_growth.is_some()
    }

    /// Says what is wrong with them before anything is started.
    pub(crate) fn check(&self) -> Result<()> {
        let folder = self.dump_dir.metadata();
        if self.is_any() && !folder.wrap_err_with(|| format!("cannot use {}", self.dump_dir.display()))?.is_dir() {
            return Err(Failure::usage(format!("{} is no folder", self.dump_dir.display())).into());
        }
        Ok(())
    }

    /// `poolscope watch PID` with these options.
    fn command(&self, pid: u32) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe().wrap_err("cannot find poolscope's own file")?);
        command.arg("watch").arg(pid.to_string()).arg("--dump-dir").arg(&self.dump_dir);
        if let Some(bytes) = self.dump_at_rss {
            command.arg("--dump-at-rss").arg(bytes.to_string());
        }
        if let Some(percent) = self.dump_on_growth {
            command.arg("--dump-on-growth").arg(percent.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    }

    /// Watches a process from the background, if there is anything to watch for. What it has to say goes to `messages`.
    pub(crate) fn watch(&self, pid: u32, messages: Stdio) -> Result<()> {
        if !self.is_any() {
            return Ok(());
        }
        // It ends at once and leaves a process that is nobody's child here.
        let status = self.command(pid)?.arg("--detach").stderr(messages).status().wrap_err("cannot start poolscope")?;
        if !status.success() {
            return Err(Failure::usage(format!("poolscope watch ended with {status}")).into());
        }
        Ok(())
    }
}

/// What the resident set was, and which sizes are worth a profile.
#[derive(Debug)]
struct Memory {
    at: Option<u64>,
    armed: bool,
    growth_percent: Option<u64>,
    /// The largest resident set that a profile was written for, or the first one seen.
    base: Option<u64>,
}

impl Memory {
    fn new(triggers: &Triggers) -> Self {
        Self { at: triggers.dump_at_rss, armed: true, growth_percent: triggers.dump_on_growth, base: None }
    }

    /// Takes the resident set now; says why a profile is due, if one is.
    fn step(&mut self, rss: u64) -> Option<String> {
        let base = *self.base.get_or_insert(rss);
        let shown = |bytes: u64| numbers::bytes(bytes as f64);
        let mut why = None;
        if let Some(at) = self.at {
            if rss >= at && self.armed {
                self.armed = false;
                why = Some(format!("the resident set came to {}, {} or more", shown(rss), shown(at)));
            } else if rss < at / REARM.1 * REARM.0 {
                self.armed = true;
            }
        }
        if let Some(percent) = self.growth_percent {
            let growth = (base / 100).saturating_mul(percent).max(LEAST_GROWTH);
            if rss >= base.saturating_add(growth) {
                self.base = Some(rss);
                let text = format!("the resident set grew from {} to {}", shown(base), shown(rss));
                why = why.or(Some(text));
            }
        }
        why
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn due(at: Option<u64>, percent: Option<u64>, sizes: &[u64]) -> Vec<u64> {
        let triggers = Triggers { dump_at_rss: at, dump_on_growth: percent, dump_dir: PathBuf::new() };
        let mut memory = Memory::new(&triggers);
        sizes.iter().copied().filter(|&size| memory.step(size * MIB).is_some()).collect()
    }

    #[test]
    fn a_size_counts_once_until_memory_has_gone_down() {
        let sizes = [10, 99, 101, 150, 99, 101, 80, 120, 130];
        assert_eq!(due(Some(100 * MIB), None, &sizes), [101, 120]);
    }

    #[test]
    fn growth_counts_from_the_largest_that_a_profile_was_written_for() {
        assert_eq!(due(None, Some(50), &[100, 120, 149, 150, 200, 225, 100, 200, 338]), [150, 225, 338]);
        assert_eq!(due(None, Some(50), &[4, 10, 19, 20, 30, 36]), [20, 36], "16 MiB at least");
    }

    #[test]
    fn both_at_once_are_one_profile() {
        assert_eq!(due(Some(100 * MIB), Some(50), &[10, 120]), [120]);
    }
}
