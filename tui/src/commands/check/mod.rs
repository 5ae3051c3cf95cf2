//! `poolscope check`: runs a program exactly and reports what nothing points to any more at its end.

pub(crate) mod folder;
mod judge;
mod report;

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueHint};
use color_eyre::eyre::{Result, WrapErr};
use poolscope_profiler::leaks::Shown;
use poolscope_profiler::leaks::suppressions::Suppressions;
use poolscope_profiler::segment::folders;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;

use crate::args::{at_most, lsan, parse_mask};
use crate::commands::tensors::held_by;
use crate::failure::Failure;
use crate::launch::out_of_memory::Kills;
use crate::launch::{child, library, own_pool, preload, sanitizer};
use crate::words::Ended;
use crate::{sink, version};

/// What a person is shown where nothing else is said: there may be thousands of stacks, of hundreds of frames.
pub(crate) const USUAL: Shown = Shown { leaks: 100, frames: 40 };

use folder::Folder;
use judge::{Asked, Judged, Process, judge_all};
#[cfg(test)]
pub(crate) use report::CheckJson;
use report::{Outputs, Report};

/// The exit code for leaks, as LeakSanitizer has it.
pub(crate) const LEAKED: u8 = 23;
/// The exit code where nothing is known to have leaked, and not everything could be checked.
pub(crate) const NOT_CHECKED: u8 = 24;

/// Run a program with every allocation recorded, and report the blocks that it can't reach any more, by stack
///
/// At its end the program looks for blocks that no pointer leads to: from registers, stacks, thread-local storage,
/// global variables and other memory of its own. These it has leaked. With --growth all that was never freed counts.
/// With --all the report has both apart, and only what was leaked counts.
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
///
/// A program that has the pool in itself (#[global_allocator]) is checked by it. Nothing is preloaded then: what its
/// libraries in C take from malloc is not looked at, and neither are programs that it starts.
///
/// Python's own allocator is left out (PYTHONMALLOC=malloc), so that its objects are looked at one by one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope check --suppressions leaks.supp -- ./run_tests\n  \
    poolscope check --prove --junit leaks.xml -- ./run_tests\n\n\
    A file of suppressions is as LeakSanitizer has it (lines leak:PATTERN, matched against functions, files and modules) \
    or as valgrind has it (rules in braces, of several frames). A comment `# poolscope: max=BLOCKS` above a rule says how \
    much it may hold.")]
pub(crate) struct Check {
    /// Report what the program can't reach any more (the default)
    #[arg(long, group = "question")]
    leaks: bool,
    /// Report what was never freed, whether or not the program could still reach it
    #[arg(long, group = "question")]
    growth: bool,
    /// Report leaks, and what the program could still reach beside them
    #[arg(long, group = "question")]
    all: bool,
    /// Have each process lose a block on purpose, and fail unless it is found
    #[arg(long)]
    prove: bool,
    /// Have a copy of each process look, so that its threads wait for the copy only
    #[arg(long)]
    snapshot: bool,
    /// Bits that are no part of an address where the program keeps one, such as 0xff00000000000000
    #[arg(long, value_name = "MASK", value_parser = parse_mask)]
    tag_mask: Option<u64>,
    /// Write the report as JSON
    #[arg(long)]
    json: bool,
    /// Report this many stacks of a process at most, those of most bytes: 100, and all in JSON and in a file, if nothing
    /// is said; 0 for all
    #[arg(long, value_name = "N", conflicts_with = "json")]
    max_leaks: Option<usize>,
    /// Report this many frames of a stack at most, most of them innermost ones: 40, and all in JSON and in a file, if
    /// nothing is said; 0 for all
    #[arg(long, value_name = "N", conflicts_with = "json")]
    max_frames: Option<usize>,
    /// File of suppressions, as LeakSanitizer or valgrind has it
    #[arg(long, value_name = "FILE")]
    suppressions: Vec<PathBuf>,
    /// File for the report
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    outputs: Outputs,
    /// Leave Python its own allocator: its objects are then looked at by the arena
    #[arg(long)]
    pymalloc: bool,
    /// Report what programs of the system lose by themselves, too, such as perl and gcc
    #[arg(long)]
    no_program_rules: bool,
    /// List the built-in rules, with the reason of each, and end
    #[arg(long)]
    list_rules: bool,
    /// The program and its arguments
    #[arg(
        trailing_var_arg = true,
        required_unless_present = "list_rules",
        value_name = "CMD",
        value_hint = ValueHint::CommandWithArguments
    )]
    command: Vec<OsString>,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// What nobody can reach.
    Leaks,
    /// What was never freed.
    Growth,
    /// Both, apart.
    All,
}

impl Question {
    fn name(self) -> &'static str {
        match self {
            Question::Leaks => "leaks",
            Question::Growth => "growth",
            Question::All => "all",
        }
    }
}

impl Check {
    pub(crate) fn run(self) -> Result<u8> {
        if self.list_rules {
            let rules = Suppressions::built_in().chain(Suppressions::of_programs());
            let rules = rules.map(|(what, why)| format!("{why}\n    {what}\n"));
            sink::print(&rules.collect::<String>())?;
            return Ok(0);
        }
        let mut suppressions = Suppressions::defaults();
        if !self.no_program_rules {
            suppressions = suppressions.with_programs();
        }
        for file in &self.suppressions {
            suppressions.add_file(file).map_err(|e| Failure::usage(e.to_string()))?;
        }
        let lsan = lsan::options();
        for file in &lsan.suppressions {
            suppressions.add_file(file).map_err(|e| Failure::usage(format!("LSAN_OPTIONS: {e}")))?;
        }
        let question = match (self.growth, self.all) {
            (true, _) => Question::Growth,
            (_, true) => Question::All,
            _ => Question::Leaks,
        };
        sanitizer::refuse(&self.command[0])?;
        let library = library::find()?;
        version::check_library(&library)?;
        let folder = Folder::new()?;
        // A second pool would have a thread that the first one can't stop, and nothing to say.
        let has_own_pool = own_pool::has_pool(&self.command[0]);
        let mut command = match has_own_pool {
            true => preload::without_library(&self.command, Some(1)),
            false => preload::command(&self.command, &library, Some(1)),
        };
        command.env("POOLSCOPE_KEEP", "1").env(folders::DIR_VARIABLE, folder.path());
        if question != Question::Growth {
            command.env("POOLSCOPE_LEAK_CHECK", "1");
        }
        if self.snapshot {
            command.env("POOLSCOPE_LEAK_SNAPSHOT", "1");
        }
        if let Some(mask) = self.tag_mask {
            command.env("POOLSCOPE_LEAK_TAG_MASK", mask.to_string());
        }
        let planted = self.prove.then(size_to_plant);
        if let Some(bytes) = planted {
            command.env("POOLSCOPE_LEAK_PLANT", bytes.to_string());
        }
        if !self.pymalloc && std::env::var_os("PYTHONMALLOC").is_none() {
            command.env("PYTHONMALLOC", "malloc");
        }
        let to_standard_output = self.output.as_ref().map_or(self.json, |path| path == Path::new("-"));
        if to_standard_output {
            command.stdout(std::io::stderr().as_fd().try_clone_to_owned()?);
        }
        let (pid, ended) = run_to_end(&mut command)?;

        let asked = Asked { question, planted, suppressions: &suppressions };
        let Judged { processes, unreadable } = judge_all(folder.path(), pid, asked)?;
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
        let report = Report {
            command: processes.first().map_or_else(String::new, Process::command),
            question,
            has_own_pool,
            proved: planted.is_some() && !in_doubt,
            processes: &processes,
            suppressions: &suppressions,
            ended,
            leaked,
            code,
        };
        let usual = if self.output.is_none() { USUAL } else { Shown::ALL };
        let shown =
            Shown { leaks: at_most(self.max_leaks, usual.leaks), frames: at_most(self.max_frames, usual.frames) };
        let text = if self.json { report.to_json()? } else { report.to_text(shown) + &tensors_of(&processes) };
        match (&self.output, self.json) {
            (Some(path), _) => sink::write(path, |out| out.write_all(text.as_bytes()))?,
            (None, true) => sink::print(&text)?,
            (None, false) => std::io::stderr().write_all(text.as_bytes())?,
        }
        self.outputs.write(&report)?;
        Ok(code)
    }
}

/// The named tensors that the processes had not given back. They come back by themselves, and are no leak.
fn tensors_of(processes: &[Process]) -> String {
    let held = processes.iter().filter_map(|process| held_by(process.entry.pid, true));
    held.map(|held| format!("\n{held}")).collect()
}

/// A size that the program has no block of, in all probability: of a small one, so that the block is one of many.
fn size_to_plant() -> u64 {
    let random = RandomState::new().build_hasher().finish();
    20_000 + random % 100_000
}

/// Runs a command to its end. Signals that somebody sends to poolscope go on to it; those of the terminal reach it
/// anyway, since it is in the same process group.
fn run_to_end(command: &mut Command) -> Result<(u32, Ended)> {
    let mut signals = SignalsInfo::<WithOrigin>::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2])?;
    let handle = signals.handle();
    let kills = Kills::so_far();
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
    Ok((pid, kills.how_ended(status.wrap_err("cannot wait for the program")?)))
}

fn not_on_pool(name: &str, ended: Ended) -> Failure {
    let message = format!(
        "{name} {}, but did not run on the pool, so nothing can be said about leaks: it is statically linked, setuid \
         or setgid, or it cleared LD_PRELOAD. POOLSCOPE_VERBOSE=1 says more if the library was loaded.",
        ended
    );
    Failure::new(NOT_CHECKED, message)
}
