//! One run of a program under a tool.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use poolscope_bench::Result;
use poolscope_bench::results::Figures;

use crate::programs::{Program, SHORT};
use crate::tools::{Places, Tool};

/// A run that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(90);

/// Runs it, and says what that came to:
/// - `seconds` until the program had ended and everything was written, for the whole work;
/// - `pair_ns` that a pair took by the clock, and `processor_ns` of the program's own processor time, as it says
///   itself;
/// - `bytes` that the tool wrote, for the whole work, and `stored` of them for an allocation and its free, which our recorder says;
/// - `recorder_bytes` of memory that our recorder took, at most, and `lost` if it lost events.
pub fn run(tool: &Tool, program: &Program, places: &Places) -> Result<Figures> {
    for entry in std::fs::read_dir(&places.output).map_err(|error| error.to_string())?.flatten() {
        let _ = std::fs::remove_file(entry.path());
    }
    let short = program.short.as_ref().filter(|_| tool.slow);
    let part = if short.is_some() { 1.0 / SHORT as f64 } else { 1.0 };
    let shortened = Program { command: short.unwrap_or(&program.command).clone(), ..program.clone() };
    let mut command = tool.command(places, &shortened)?;
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["POOLSCOPE_", "MALLOC_", "TCMALLOC_"].iter().any(|prefix| name.starts_with(prefix))
            && !is_set(&command, &name)
        {
            command.env_remove(&*name);
        }
    }
    let output = |name: &str| File::create(places.output.with_file_name(name)).map_err(|error| error.to_string());
    command.stdin(match &program.input {
        Some(path) => Stdio::from(File::open(path).map_err(|error| error.to_string())?),
        None => Stdio::null(),
    });
    command.stdout(output("stdout")?).stderr(output("stderr")?).process_group(0);
    let begun = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("can't be started: {error}"))?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break status;
        }
        if begun.elapsed() > LIMIT {
            // SAFETY: the child leads a group of its own, and was not waited for.
            unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
            let _ = child.wait();
            return Err(format!("took more than {} s", LIMIT.as_secs()));
        }
        std::thread::sleep(Duration::from_micros(500));
    };
    let seconds = begun.elapsed().as_secs_f64();
    let read = |name: &str| std::fs::read_to_string(places.output.with_file_name(name)).unwrap_or_default();
    let (stdout, stderr) = (read("stdout"), read("stderr"));
    if !status.success() {
        return Err(format!("{status}: {}", stderr.lines().last().unwrap_or("it said nothing")));
    }
    let written = std::fs::read_dir(&places.output).map_err(|error| error.to_string())?.flatten();
    let bytes: u64 = written.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum();
    let (pair_ns, processor_ns) = pair(&stdout);
    let allocations: Option<u64> = stderr.lines().find_map(allocations);
    let recorder = stderr.lines().find_map(|line| bytes_of(line.split_once("memory of the recorder: ")?.1));
    let figures = [
        ("seconds", Some(seconds / part)),
        ("pair_ns", pair_ns),
        ("processor_ns", processor_ns),
        ("bytes", Some(bytes as f64 / part)),
        ("stored", allocations.map(|allocations| bytes as f64 / allocations as f64)),
        ("recorder_bytes", recorder),
        ("lost", stderr.contains("poolscope: lost of thread").then_some(1.0)),
    ];
    Ok(figures.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

fn is_set(command: &std::process::Command, name: &str) -> bool {
    command.get_envs().any(|(known, value)| known == name && value.is_some())
}

/// `24.5 ns a pair, 24.1 ns of processor time`.
fn pair(stdout: &str) -> (Option<f64>, Option<f64>) {
    let line = stdout.lines().find(|line| line.contains(" ns a pair, "));
    let parts = line.and_then(|line| line.split_once(" ns a pair, "));
    let number = |text: &str| text.split(' ').next().and_then(|number| number.parse().ok());
    (parts.and_then(|(clock, _)| number(clock)), parts.and_then(|(_, processor)| number(processor)))
}

/// `...; 2,010,015 allocations and ...`.
fn allocations(line: &str) -> Option<u64> {
    let before = line.split_once(" allocations and ")?.0;
    before.rsplit(' ').next()?.replace(',', "").parse().ok()
}

/// `12.5 MiB at most`.
fn bytes_of(text: &str) -> Option<f64> {
    let mut parts = text.split(' ');
    let number: f64 = parts.next()?.parse().ok()?;
    let unit = match parts.next()? {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        _ => return None,
    };
    Some(number * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_and_recorders_say_is_read() {
        assert_eq!(pair("24.5 ns a pair, 24.1 ns of processor time\n"), (Some(24.5), Some(24.1)));
        assert_eq!(pair("something else\n"), (None, None));
        let said = "poolscope: the program ended; 2,010,015 allocations and 2,010,015 frees of 1 thread in all.rec";
        assert_eq!(allocations(said), Some(2_010_015));
        assert_eq!(bytes_of("1.5 MiB at most"), Some(1_572_864.0));
        assert_eq!(bytes_of("no"), None);
    }
}
