//! `poolscope check`: runs a program exactly and reports what nothing points to any more at its end.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use color_eyre::eyre::{Result, WrapErr};
use poolscope_profiler::leaks::LeakReport;
use poolscope_profiler::leaks::suppressions::Suppressions;
use poolscope_profiler::leaks::unreachable::{self, Checked};
use poolscope_profiler::model::snapshot::ProcessState;
use poolscope_profiler::segment::discovery::{self, SegmentEntry};
use poolscope_profiler::{ReadError, SegmentReader};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;

use crate::args::lsan;
use crate::failure::Failure;
use crate::launch::{child, library, preload};
use crate::sink;
use crate::words::{Ended, printable};

/// The exit code for leaks, as LeakSanitizer has it.
pub(crate) const LEAKED: u8 = 23;
/// The exit code where nothing is known to have leaked, and not everything could be checked.
pub(crate) const NOT_CHECKED: u8 = 24;

/// Run a program with every allocation recorded, and report the blocks that it can't reach any more, by stack
///
/// At its end the program looks for blocks that no pointer leads to: from registers, stacks, thread-local storage,
/// global variables and other memory of its own. These it has leaked. With --growth all that was never freed counts.
///
/// The program keeps its standard input, output and error, and the report follows on standard error. With --json the
/// report goes to standard output by itself, and what the program writes there to standard error; with --output the
/// program keeps both.
///
/// The exit code is 23 if anything leaked, 24 if nothing is known to have leaked but not everything could be checked,
/// and the program's own code otherwise.
///
/// Processes that the program started count as well. One that was killed, or that left by a system call of its own or
/// by quick_exit, had no end at which its blocks could be called leaks: it could not be checked. The report names it,
/// and says why. The same holds for a process whose records found no room, and for a program that never ran on the
/// pool.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  poolscope check --suppressions leaks.supp -- ./run_tests\n\n\
    A file of suppressions has lines leak:PATTERN, matched against functions, files and modules.")]
pub(crate) struct Check {
    /// Report what was never freed, whether or not the program could still reach it
    #[arg(long)]
    growth: bool,
    /// Write the report as JSON
    #[arg(long)]
    json: bool,
    /// File of suppressions: lines leak:PATTERN
    #[arg(long, value_name = "FILE")]
    suppressions: Vec<PathBuf>,
    /// File for the report
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Check {
    pub(crate) fn run(self) -> Result<u8> {
        let mut suppressions = Suppressions::defaults();
        for file in &self.suppressions {
            suppressions.add_file(file).map_err(|e| Failure::usage(e.to_string()))?;
        }
        let lsan = lsan::options();
        for file in &lsan.suppressions {
            suppressions.add_file(file).map_err(|e| Failure::usage(format!("LSAN_OPTIONS: {e}")))?;
        }
        let library = library::find()?;
        let folder = Folder::new()?;
        let mut command = preload::command(&self.command, &library, Some(1));
        command.env("POOLSCOPE_KEEP", "1").env(discovery::DIR_VARIABLE, &folder.0);
        if !self.growth {
            command.env("POOLSCOPE_LEAK_CHECK", "1");
        }
        let to_standard_output = self.output.as_ref().map_or(self.json, |path| path == Path::new("-"));
        if to_standard_output {
            command.stdout(std::io::stderr().as_fd().try_clone_to_owned()?);
        }
        let (pid, ended) = run_to_end(&mut command)?;

        let Judged { processes, unreadable } = judge_all(&folder.0, pid, self.growth, &suppressions)?;
        if processes.is_empty() && unreadable.is_empty() {
            return Err(not_on_pool(&self.command[0].to_string_lossy(), ended).into());
        }
        let leaked = processes.iter().any(Process::has_leaks);
        let in_doubt = !unreadable.is_empty() || processes.iter().any(|process| process.doubt().is_some());
        let code = match (leaked, in_doubt) {
            (true, _) => lsan.exit_code(LEAKED, ended.exit_code()),
            (false, true) => NOT_CHECKED,
            (false, false) => ended.exit_code(),
        };
        let report = if self.json { to_json(&processes, ended, leaked, code)? } else { to_text(&processes, ended) };
        match (&self.output, self.json) {
            (Some(path), _) => sink::write(path, |out| out.write_all(report.as_bytes()))?,
            (None, true) => sink::print(&report)?,
            (None, false) => std::io::stderr().write_all(report.as_bytes())?,
        }
        Ok(code)
    }
}

/// A folder for the segments of this run alone.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder> {
        let usual = discovery::segment_dir();
        let parents = [usual.parent().map(Path::to_path_buf), Some(std::env::temp_dir())];
        let mut last = None;
        for parent in parents.into_iter().flatten() {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let name = format!("poolscope-check-{}-{:08x}", std::process::id(), now.subsec_nanos());
            let path = parent.join(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) => last = Some((path, error)),
            }
        }
        match last {
            Some((path, error)) => Err(error).wrap_err_with(|| format!("cannot create the folder {}", path.display())),
            None => Err(Failure::usage("there is no folder for segments").into()),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a command to its end. Signals that somebody sends to poolscope go on to it; those of the terminal reach it
/// anyway, since it is in the same process group.
fn run_to_end(command: &mut Command) -> Result<(u32, Ended)> {
    let mut signals = SignalsInfo::<WithOrigin>::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2])?;
    let handle = signals.handle();
    let mut started = child::spawn(command)?;
    let pid = started.id();
    let forwarder = std::thread::spawn(move || {
        for origin in &mut signals {
            if origin.process.is_some() {
                // The forwarder is closed and joined right after the child is reaped.
                child::signal(pid, origin.signal);
            }
        }
    });
    let status = started.wait();
    handle.close();
    let _ = forwarder.join();
    Ok((pid, status.wrap_err("cannot wait for the program")?.into()))
}

/// What is said of one process.
struct Process {
    entry: SegmentEntry,
    verdict: Verdict,
}

enum Verdict {
    Judged(LeakReport),
    NotJudged(String),
}

impl Process {
    fn has_leaks(&self) -> bool {
        matches!(&self.verdict, Verdict::Judged(report) if report.has_leaks())
    }

    /// Why leaks of it may be missing from the report.
    fn doubt(&self) -> Option<String> {
        match &self.verdict {
            Verdict::NotJudged(why) => Some(why.clone()),
            Verdict::Judged(report) if report.missed > 0 => Some("not all its blocks found room in the records".into()),
            Verdict::Judged(report) if !report.exact => Some("it turned the recording of every allocation off".into()),
            Verdict::Judged(report) => report.checked.as_ref().and_then(Checked::doubt),
        }
    }

    fn command(&self) -> String {
        let args = &self.entry.args;
        printable(&if args.is_empty() { self.entry.exe.clone() } else { args.join(" ") })
    }
}

/// What came of a run.
struct Judged {
    processes: Vec<Process>,
    /// Segments that could not be read.
    unreadable: Vec<ReadError>,
}

/// The last image of each process, the program's own first.
fn judge_all(folder: &Path, own: u32, growth: bool, suppressions: &Suppressions) -> Result<Judged> {
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
    let processes = last.into_iter().map(|entry| {
        // What the program itself says of its leaks (__lsan_default_suppressions).
        let own = folder.join(format!("suppressions-{}", entry.pid));
        let mut all = suppressions.clone();
        let verdict = match own.exists().then(|| all.add_file(&own)) {
            Some(Err(error)) => Verdict::NotJudged(error.to_string()),
            _ => judge(&entry, growth, &all),
        };
        Process { verdict, entry }
    });
    Ok(Judged { processes: processes.collect(), unreadable: listing.unreadable })
}

fn judge(entry: &SegmentEntry, growth: bool, suppressions: &Suppressions) -> Verdict {
    let snapshot = SegmentReader::open(&entry.path).and_then(|mut reader| reader.snapshot());
    let mut snapshot = match snapshot {
        Ok(snapshot) => snapshot,
        Err(error) => return Verdict::NotJudged(error.to_string()),
    };
    match snapshot.process.state {
        ProcessState::Exited => {}
        ProcessState::Running => return Verdict::NotJudged("it still runs".into()),
        ProcessState::Killed => {
            return Verdict::NotJudged(
                "it was killed, or left by quick_exit or by a system call of its own: it had no end at which its blocks \
                 could be called leaks"
                    .into(),
            );
        }
    }
    if snapshot.process.forked {
        // Blocks from before the fork are its parent's to free. Those of its own are none older than its segment.
        let start = snapshot.process.start_monotonic_ns;
        snapshot.live.retain(|block| block.time_ns >= start);
    }
    let mut builder = crate::symbols::profile_builder();
    if growth {
        let profile = builder.build(&snapshot);
        return Verdict::Judged(LeakReport::new(&snapshot, &profile, suppressions));
    }
    match unreachable::report(snapshot, &mut builder, suppressions) {
        Ok(report) => Verdict::Judged(report),
        Err(why) => Verdict::NotJudged(why),
    }
}

fn not_on_pool(name: &str, ended: Ended) -> Failure {
    let message = format!(
        "{name} {}, but did not run on the pool, so nothing can be said about leaks: it is statically linked, setuid \
         or setgid, or it cleared LD_PRELOAD. POOLSCOPE_VERBOSE=1 says more if the library was loaded.",
        ended
    );
    Failure::new(NOT_CHECKED, message)
}

fn to_text(processes: &[Process], ended: Ended) -> String {
    let mut out = String::new();
    let clean = processes.iter().filter(|p| matches!(&p.verdict, Verdict::Judged(r) if !r.has_leaks())).count();
    for (i, process) in processes.iter().enumerate() {
        // Of children only what has something to say is shown.
        if i > 0 && !process.has_leaks() && process.doubt().is_none() {
            continue;
        }
        out += &format!("\npoolscope check: {} (pid {})\n", process.command(), process.entry.pid);
        if let Verdict::Judged(report) = &process.verdict {
            out += &report.to_text();
        }
        if let Some(why) = process.doubt() {
            out += &format!("Could not be checked: {why}.\n");
        }
    }
    if processes.len() > 1 {
        out += &format!("\n{} processes, {clean} without leaks.\n", processes.len());
    }
    if ended != Ended::Code(0) {
        out += &format!("The program {}.\n", ended);
    }
    out
}

fn to_json(processes: &[Process], ended: Ended, leaked: bool, code: u8) -> Result<String> {
    let mut list = Vec::new();
    for process in processes {
        let report = match &process.verdict {
            Verdict::Judged(report) => serde_json::from_str(&report.to_json()?)?,
            Verdict::NotJudged(_) => Value::Null,
        };
        list.push(json!({
            "pid": process.entry.pid,
            "exe": process.entry.exe,
            "args": process.entry.args,
            "forked": process.entry.forked,
            "not_checked": process.doubt(),
            "report": report,
        }));
    }
    let sum = |of: fn(&LeakReport) -> u64| -> u64 {
        processes.iter().map(|p| if let Verdict::Judged(r) = &p.verdict { of(r) } else { 0 }).sum()
    };
    let value = json!({
        "version": 1,
        "leaked": leaked,
        "bytes": sum(LeakReport::bytes),
        "objects": sum(LeakReport::objects),
        "exit_code": code,
        "program_exit_code": ended.exit_code(),
        "processes": list,
    });
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}
