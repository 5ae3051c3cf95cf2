//! Ours and the peers in one go: times, memory of a small program, and what an attached dashboard costs.
//!
//! usage: `compare [ROUNDS]`. Each round runs every workload on every allocator, in another order each time, so
//! that a machine that slows down slows all of them. The table shows medians, the spread between the fastest and the slowest
//! round, and the ratio to ours; the same figures go to `out/bench.json`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const OURS: &str = "poolscope";
const WORKLOADS: [(&str, &str); 4] = [
    ("pair64", "malloc+free of 64 B, one at a time"),
    ("batch64", "64 B, a thousand at a time"),
    ("random", "8 to 511 B at random, 4096 live"),
    ("cross-thread", "allocated here, freed by another thread"),
];

struct Allocator {
    name: &'static str,
    library: Option<PathBuf>,
}

fn main() {
    let rounds: usize = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(7).max(5);
    let release = std::env::current_exe().expect("this program has a path");
    let release = release.parent().expect("it lies in a folder").to_owned();
    let allocators = allocators(&release);

    let mut times = BTreeMap::<(&str, &str), Vec<f64>>::new();
    let mut memory = BTreeMap::<&str, Vec<f64>>::new();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for index in 0..allocators.len() {
            let allocator = &allocators[(index + round) % allocators.len()];
            for (workload, _) in WORKLOADS {
                let time = time_of(&release, allocator, workload);
                times.entry((workload, allocator.name)).or_default().push(time);
            }
            memory.entry(allocator.name).or_default().push(peak_of_python(&release, allocator));
        }
    }

    println!("\nNanoseconds per malloc and free: median of {rounds} rounds, (fastest to slowest), ratio to ours.\n");
    let mut report = json!({ "rounds": rounds, "nanoseconds": {}, "peak_rss_kib": {} });
    for (workload, what) in WORKLOADS {
        println!("{workload}: {what}");
        let ours = Spread::of(&times[&(workload, OURS)]).median;
        for allocator in &allocators {
            let spread = Spread::of(&times[&(workload, allocator.name)]);
            println!(
                "  {:<14} {:>7.2}  ({:.2} to {:.2})  {:.2}",
                allocator.name,
                spread.median,
                spread.least,
                spread.most,
                spread.median / ours
            );
            report["nanoseconds"][workload][allocator.name] = spread.json();
        }
        if workload == "pair64" {
            for peer in ["mimalloc 3", "mimalloc 2.0"] {
                if let Some(theirs) = times.get(&(workload, peer)) {
                    println!("  goal: at most 1.00 times {peer}: {:.2}", ours / Spread::of(theirs).median);
                }
            }
        }
    }

    println!("\nPeak memory of `/usr/bin/python3 -c pass`, in KiB, and above glibc's.\n");
    let glibc = Spread::of(&memory["glibc"]).median;
    for allocator in &allocators {
        let spread = Spread::of(&memory[allocator.name]);
        println!("  {:<14} {:>7.0}  {:+.0}", allocator.name, spread.median, spread.median - glibc);
        report["peak_rss_kib"][allocator.name] = spread.json();
    }
    println!("  goal: at most +2048 for ours: {:+.0}", Spread::of(&memory[OURS]).median - glibc);

    println!("\nCost of an attached dashboard (one reading a second) to a busy program.\n");
    let attach = attach_cost(&release, &allocators[0]);
    println!(
        "  {:.2} %  ({:.2} to {:.2}), the median of {} pairs of windows with it and without it; goal: under 2 %",
        attach.median, attach.least, attach.most, attach.count
    );
    report["attach_percent"] = attach.json();

    std::fs::create_dir_all("out").expect("out/ can be made");
    std::fs::write("out/bench.json", format!("{report:#}\n")).expect("out/bench.json can be written");
    println!("\nThe same figures are in out/bench.json.");
}

struct Spread {
    median: f64,
    least: f64,
    most: f64,
    count: usize,
}

impl Spread {
    fn of(values: &[f64]) -> Spread {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Spread { median, least: sorted[0], most: sorted[sorted.len() - 1], count: sorted.len() }
    }

    fn json(&self) -> Value {
        json!({ "median": self.median, "least": self.least, "most": self.most, "count": self.count })
    }
}

fn allocators(release: &Path) -> Vec<Allocator> {
    let system = Path::new("/usr/lib/x86_64-linux-gnu");
    let candidates = [
        (OURS, release.join("libpoolscope.so"), "scripts/build.sh builds it"),
        ("mimalloc 3", mimalloc3(release), ""),
        ("mimalloc 2.0", system.join("libmimalloc.so.2.0"), "Debian package libmimalloc2.0"),
        ("jemalloc", system.join("libjemalloc.so.2"), "Debian package libjemalloc2"),
        ("tcmalloc", system.join("libtcmalloc_minimal.so.4"), "Debian package libtcmalloc-minimal4"),
    ];
    let mut allocators = Vec::new();
    for (name, library, from) in candidates {
        assert!(library.exists(), "{} is missing: {from}", library.display());
        allocators.push(Allocator { name, library: Some(library) });
    }
    allocators.push(Allocator { name: "glibc", library: None });
    allocators
}

/// Compiles mimalloc 3 as its own build does for a library to preload, from the sources in the crate `libmimalloc-sys`.
fn mimalloc3(release: &Path) -> PathBuf {
    let library = release.join("libmimalloc3.so");
    let metadata = Command::new("cargo").args(["metadata", "--format-version", "1", "--all-features"]).output();
    let metadata = metadata.expect("cargo runs").stdout;
    let metadata: Value = serde_json::from_slice(&metadata).expect("cargo metadata is JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package = packages.iter().find(|package| package["name"] == "libmimalloc-sys").expect("it is a dependency");
    let manifest = Path::new(package["manifest_path"].as_str().expect("a path"));
    let source = manifest.parent().expect("a folder").join("c_src/mimalloc/v3");
    assert!(source.is_dir(), "{} is missing", source.display());
    let status = Command::new("cc")
        .args(["-O3", "-DNDEBUG", "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT", "-DMI_MALLOC_OVERRIDE=1", "-shared"])
        .args(["-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec", "-fno-builtin-malloc", "-w"])
        .arg(format!("-I{}", source.join("include").display()))
        .arg(source.join("src/static.c"))
        .arg("-o")
        .arg(&library)
        .arg("-pthread")
        .status()
        .expect("cc runs");
    assert!(status.success(), "mimalloc 3 does not compile");
    library
}

fn on(allocator: &Allocator, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    if let Some(library) = &allocator.library {
        command.env("LD_PRELOAD", library);
    }
    command
}

fn time_of(release: &Path, allocator: &Allocator, workload: &str) -> f64 {
    let output = on(allocator, release.join("workloads")).arg(workload).output().expect("workloads runs");
    assert!(output.status.success(), "{workload} on {} failed", allocator.name);
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("workloads prints a number")
}

/// Peak resident memory of the smallest run of Python, in KiB. A process that is small itself starts Python and waits for
/// it: the kernel counts the memory that the starting process had at the time of `exec` into the peak.
fn peak_of_python(release: &Path, allocator: &Allocator) -> f64 {
    let mut command = Command::new(release.join("workloads"));
    command.env_remove("LD_PRELOAD").stdin(Stdio::null()).arg("peak");
    command.arg(allocator.library.as_deref().unwrap_or(Path::new("")));
    let output = command.args(["/usr/bin/python3", "-c", "pass"]).output().expect("workloads runs");
    assert!(output.status.success(), "python on {} failed", allocator.name);
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("workloads prints a number")
}

const WINDOW: Duration = Duration::from_secs(4);
const PAIRS: usize = 8;

/// By how many per cent a busy program is slower in the windows in which a dashboard looks at it.
fn attach_cost(release: &Path, ours: &Allocator) -> Spread {
    let windows = 2 * PAIRS + 1;
    let seconds = windows as u64 * WINDOW.as_secs() * 2;
    let start = Instant::now();
    let busy = on(ours, release.join("workloads")).args(["busy", &seconds.to_string()]).stdout(Stdio::piped()).spawn();
    let mut busy = busy.expect("workloads runs");
    let pid = busy.id();
    // Without, with, without, ...: the first second of each window is left out, for the reader's start and end.
    let mut bounds = Vec::new();
    for window in 0..windows {
        let from = start.elapsed() + Duration::from_secs(1);
        let dashboard = (window % 2 == 1).then(|| dashboard(release, pid));
        std::thread::sleep(WINDOW);
        bounds.push((from.as_millis() as u64, start.elapsed().as_millis() as u64));
        if let Some(dashboard) = dashboard {
            end(dashboard);
        }
    }
    busy.kill().expect("it is a child");
    let output = busy.wait_with_output().expect("workloads ends");
    let slots: Vec<(u64, u64)> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_once(' ').and_then(|(at, pairs)| Some((at.parse().ok()?, pairs.parse().ok()?))))
        .collect();
    // Pairs per millisecond, from the first whole slot of the window to its last.
    let rate = |&(from, to): &(u64, u64)| {
        let inside: Vec<_> = slots.iter().filter(|(at, _)| (from..to).contains(at)).collect();
        let (first, last) = (inside.first().expect("slots").0, inside.last().expect("slots").0);
        inside[1..].iter().map(|(_, pairs)| pairs).sum::<u64>() as f64 / (last - first) as f64
    };
    let rates: Vec<f64> = bounds.iter().map(rate).collect();
    // Each window with a dashboard beside the mean of its neighbours without one.
    let costs = (1..windows).step_by(2).map(|with| {
        let without = f64::midpoint(rates[with - 1], rates[with + 1]);
        (1.0 - rates[with] / without) * 100.0
    });
    Spread::of(&costs.collect::<Vec<_>>())
}

/// The real dashboard in a terminal of its own.
fn dashboard(release: &Path, pid: u32) -> Child {
    let command = format!("stty rows 36 cols 120; exec {} top {pid}", release.join("poolscope").display());
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm-256color");
    script.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("script runs")
}

/// Ends it at once.
fn end(mut dashboard: Child) {
    let running = dashboard.try_wait().expect("it is a child").is_none();
    assert!(running, "the dashboard ended by itself: its cost was not measured");
    // With `script` its terminal goes, and the dashboard is hung up on.
    dashboard.kill().expect("it is a child");
    dashboard.wait().expect("it is a child");
}
