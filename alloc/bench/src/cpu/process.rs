//! A process on an allocator, and what it prints.

use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use poolscope_bench::Result;
use poolscope_bench::results::Figures;

use crate::peers::Allocator;

/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// The program with the allocator preloaded, and without anyone's settings.
pub fn on(allocator: &Allocator, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    let settings = ["LD_PRELOAD", "GLIBC_TUNABLES", "POOLSCOPE_", "MALLOC_", "MIMALLOC_", "TCMALLOC_", "TBB_MALLOC_"];
    for (name, _) in std::env::vars_os() {
        if settings.iter().any(|setting| name.to_string_lossy().starts_with(setting)) {
            command.env_remove(name);
        }
    }
    if let Some(library) = &allocator.library {
        command.env("LD_PRELOAD", library);
    }
    command.envs(allocator.environment.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
    command
}

/// What the program prints. One that fails or hangs is an error that says how.
pub fn output(mut command: Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|error| format!("{name} can't be started: {error}"))?;
    let pid = child.id();
    let (ended, watch) = channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let hangs = watch.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout);
        if hangs {
            // SAFETY: no memory is involved. The child has not been waited for, or `ended` would have been dropped.
            unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) };
        }
        hangs
    });
    let output = child.wait_with_output();
    drop(ended);
    if watchdog.join().unwrap_or(false) {
        return Err(format!("hung for {} s", LIMIT.as_secs()));
    }
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}", output.status, errors.lines().last().unwrap_or("it said nothing")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Reads lines of a name and a number: `ns` for an operation, `peak` of the resident memory in bytes, `waste`, the part
/// of it that the program did not ask for, `mean` and `worst`, its ratio to what is live.
pub fn figures(text: &str) -> Result<Figures> {
    let figure = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        let known = ["ns", "peak", "waste", "mean", "worst"].contains(&name);
        Some((name.to_owned(), value.parse().ok().filter(|_| known)?))
    };
    text.lines().map(|line| figure(line).ok_or(format!("not a figure: {line}"))).collect()
}
