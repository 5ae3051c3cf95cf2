//! What an attached dashboard costs the program that it looks at.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use poolscope_bench::Result;
use poolscope_bench::progress::progress;
use poolscope_bench::statistics::Spread;

use crate::measure::Programs;
use crate::peers::Allocator;
use crate::process;

const WINDOW: Duration = Duration::from_secs(3);
/// The beginning of a window that is left out, for the dashboard's start and end.
const SETTLING: Duration = Duration::from_secs(1);
const PAIRS: usize = 9;
const WINDOWS: usize = 2 * PAIRS + 1;

/// By how many per cent a busy program is slower in the windows in which a dashboard looks at it, each held against the
/// windows before and after it.
pub fn measure(programs: &Programs, ours: &Allocator) -> Result<Spread> {
    // A little longer than the windows: it ends by itself, and takes its segment with it.
    let duration = WINDOW * (WINDOWS as u32 + 1);
    let start = Instant::now();
    let mut command = process::on(ours, &programs.workloads);
    command.args(["busy", &duration.as_millis().to_string()]).stdout(Stdio::piped());
    let busy = command.spawn().map_err(|error| format!("workloads can't be started: {error}"))?;
    let mut bounds = Vec::new();
    let mut failure = Ok(());
    for window in 0..WINDOWS {
        progress(&format!("a dashboard attached, window {} of {WINDOWS}", window + 1));
        let from = start.elapsed() + SETTLING;
        if window % 2 == 1 {
            failure = watched(&programs.command, busy.id());
        } else {
            std::thread::sleep(WINDOW);
        }
        if failure.is_err() {
            break;
        }
        bounds.push((from.as_millis() as u64, start.elapsed().as_millis() as u64));
    }
    progress("");
    let output = busy.wait_with_output().map_err(|error| format!("workloads: {error}"))?;
    failure?;
    let slots: Vec<(u64, u64)> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_once(' ').and_then(|(at, done)| Some((at.parse().ok()?, done.parse().ok()?))))
        .collect();
    let rates: Option<Vec<f64>> = bounds.iter().map(|&(from, to)| rate(&slots, from, to)).collect();
    let rates = rates.ok_or("workloads printed too little")?;
    let costs = (1..WINDOWS).step_by(2).map(|with| {
        let without = f64::midpoint(rates[with - 1], rates[with + 1]);
        (1.0 - rates[with] / without) * 100.0
    });
    Spread::of(&costs.collect::<Vec<_>>()).ok_or("no windows".to_owned())
}

/// Operations per millisecond, from the first whole slot between the two times to the last.
fn rate(slots: &[(u64, u64)], from: u64, to: u64) -> Option<f64> {
    let inside: Vec<_> = slots.iter().filter(|(at, _)| (from..to).contains(at)).collect();
    let (first, last) = (inside.first()?.0, inside.last()?.0);
    (last > first).then(|| inside[1..].iter().map(|(_, done)| done).sum::<u64>() as f64 / (last - first) as f64)
}

/// A window with a dashboard.
fn watched(command: &Path, pid: u32) -> Result<()> {
    let mut dashboard = dashboard(command, pid)?;
    std::thread::sleep(WINDOW);
    let ended = dashboard.try_wait().ok().flatten().is_some();
    // With `script` its terminal goes, and the dashboard is hung up on.
    dashboard.kill().and_then(|()| dashboard.wait()).map_err(|error| format!("script: {error}"))?;
    if ended { Err("the dashboard ended by itself".to_owned()) } else { Ok(()) }
}

/// The real one, in a terminal of its own.
fn dashboard(command: &Path, pid: u32) -> Result<Child> {
    let line = format!("stty rows 36 cols 120; exec '{}' top {pid}", command.display());
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm-256color");
    script.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    script.spawn().map_err(|error| format!("script can't be started: {error}"))
}
