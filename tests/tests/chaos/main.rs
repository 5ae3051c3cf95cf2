//! Real servers under load, whose answers are checked, while everything is done to the pool's instruments that can be
//! done to them: recorders start, stop, are killed and paused, readers come and go, segments are truncated, deleted and
//! closed to their owner, their file system fills up, and settings are extreme.
//!
//! `POOLSCOPE_CHAOS_SECONDS` sets how long each setting is tried, `POOLSCOPE_CHAOS_SEED` repeats a run.

mod disturbance;
mod random;
mod servers;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use poolscope_e2e::{Program, Scratch, skip};

use disturbance::{DISTURBANCES, Folder};
use random::Random;
use servers::Server;

/// What the servers of a round run with.
const SETTINGS: &[&[(&str, &str)]] = &[
    &[],
    &[("POOLSCOPE_GC_MS", "1"), ("POOLSCOPE_SCAVENGE_MS", "20")],
    &[("POOLSCOPE_SCAVENGE_MS", "0")],
    &[("POOLSCOPE_PERIOD", "1")],
    &[("POOLSCOPE_THREAD_CACHE", "64K"), ("POOLSCOPE_PERIOD", "16K")],
    &[("POOLSCOPE_ARENA", "64M"), ("POOLSCOPE_GC_MS", "50")],
    &[("POOLSCOPE_HARDENED", "1")],
];

/// Seconds that each row of [`SETTINGS`] is tried.
fn seconds() -> u64 {
    std::env::var("POOLSCOPE_CHAOS_SECONDS")
        .map_or(6, |text| text.parse().expect("POOLSCOPE_CHAOS_SECONDS is a number"))
}

fn seed() -> u64 {
    std::env::var("POOLSCOPE_CHAOS_SEED").map_or_else(
        |_| std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_nanos() as u64,
        |text| text.parse().expect("POOLSCOPE_CHAOS_SEED is a number"),
    )
}

/// The folder of segments is a small file system of its own, which the disturbances can fill. It takes a mount, which
/// the test may make in a namespace only.
#[test]
fn servers_answer_right_whatever_is_done_to_their_instruments() {
    let folder = Scratch::new();
    let script = "mount -t tmpfs -o size=48m,mode=0700 tmpfs \"$1\" && shift && exec \"$@\"";
    let this = std::env::current_exe().expect("this program has a path");
    let probe = Program::with_own_mounts().args(["sh", "-c", script, "sh"]).arg(folder.path()).arg("true").run();
    if probe.code() != 0 {
        skip(&format!("no file system can be mounted here ({})", probe.stderr.trim()));
        return;
    }
    let limit = 120 + SETTINGS.len() as u64 * (seconds() * 2 + 60);
    let output = Program::with_own_mounts()
        .args(["sh", "-c", script, "sh"])
        .arg(folder.path())
        .arg(this)
        .args(["--ignored", "--exact", "rounds", "--nocapture"])
        .env("POOLSCOPE_BIN_DIR", poolscope_e2e::artifacts::release())
        .env("POOLSCOPE_CHAOS_FOLDER", folder.path())
        .env("POOLSCOPE_CHAOS_SECONDS", seconds().to_string())
        .env("POOLSCOPE_CHAOS_SEED", seed().to_string())
        .limit(limit)
        .run();
    assert_eq!(output.code(), 0, "{}", output.report());
    println!("{}", output.stdout);
}

#[test]
#[ignore = "the test above runs it, in a mount namespace"]
fn rounds() {
    let folder = std::env::var_os("POOLSCOPE_CHAOS_FOLDER").map(PathBuf::from).expect("POOLSCOPE_CHAOS_FOLDER is set");
    let (seconds, seed) = (seconds(), seed());
    println!("seed {seed}: POOLSCOPE_CHAOS_SEED={seed} repeats it");
    let mut random = Random::new(seed);
    for settings in SETTINGS {
        round(&Folder::new(&folder), settings, Duration::from_secs(seconds), &mut random);
    }
}

/// Starts the servers, disturbs them for a while, and looks at what is left.
fn round(folder: &Folder, settings: &[(&str, &str)], time: Duration, random: &mut Random) {
    let files = Scratch::new();
    let mut servers = servers::start_all(&files, folder, settings);
    // What they hold after a part of their load, when each instrument was at work once.
    disturb_all(folder, &mut servers, Duration::ZERO, random);
    let before = at_rest(&mut servers);
    disturb_all(folder, &mut servers, time, random);
    folder.make_room();
    let after = at_rest(&mut servers);
    // What is freed waits there (16 MiB, and what is known of it) before it is used again.
    let quarantine = if settings.contains(&("POOLSCOPE_HARDENED", "1")) { 20 * 1024 } else { 0 };
    for ((server, before), after) in servers.iter().zip(before).zip(after) {
        let was = format!("{} with {settings:?}: {before:?}, then {after:?}", server.name());
        println!("{was}");
        assert!(after.resident_kib <= before.resident_kib * 5 / 4 + 12 * 1024 + quarantine, "it grew: {was}");
        assert!(after.files <= before.files, "it has more open files: {was}");
        assert!(after.kept <= KEPT, "more of the pool's files are open than it keeps: {was}");
        assert!(after.threads <= before.threads, "it has more threads: {was}");
    }
    for server in servers {
        server.stop();
    }
    assert_nothing_is_left(folder);
}

/// Disturbs each server, all at the same time, until the time is over, and once at least.
fn disturb_all(folder: &Folder, servers: &mut [Server], time: Duration, random: &mut Random) {
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        for server in servers {
            let mut random = Random::new(random.next());
            scope.spawn(move || {
                loop {
                    let disturbance = &DISTURBANCES[random.below(DISTURBANCES.len())];
                    println!("{}: {}", server.name(), disturbance.name);
                    let under_load = server.loaded();
                    (disturbance.run)(folder, server.pid(), &mut random);
                    drop(under_load);
                    server.work();
                    server.assert_lives(disturbance.name);
                    if Instant::now() >= end {
                        return;
                    }
                }
            });
        }
    });
}

/// What a server takes when it has nothing to do.
#[derive(Debug, Clone, Copy)]
struct Footprint {
    resident_kib: u64,
    threads: usize,
    /// Open files of the server's, and of the pool's while it needs them.
    files: usize,
    /// Those that the pool keeps, of a process that has become another user: by their numbers, as no server has so many.
    kept: usize,
}

/// What is kept at most: of the segment, its file, one beside it and their folder; of `/proc`, the folder and four files.
/// Which of the first three there are depends on what was done to them last.
const KEPT: usize = 8;
/// The numbers of kept files begin here, of processes that may have 1,024 or more.
const FIRST_KEPT: u32 = 1008;

/// What each server takes when it is left alone. Idle memory goes back over some seconds, a thread of the pool's ends
/// when nothing is left to do: the least is what counts. Of kept files it is the most.
fn at_rest(servers: &mut [Server]) -> Vec<Footprint> {
    servers.iter_mut().for_each(Server::empty);
    let end = Instant::now() + Duration::from_secs(4);
    let unknown = Footprint { resident_kib: u64::MAX, threads: usize::MAX, files: usize::MAX, kept: 0 };
    let mut least = vec![unknown; servers.len()];
    while Instant::now() < end {
        for (server, least) in servers.iter().zip(&mut least) {
            let now = Footprint::of(server.pid());
            least.resident_kib = least.resident_kib.min(now.resident_kib);
            least.threads = least.threads.min(now.threads);
            least.files = least.files.min(now.files);
            least.kept = least.kept.max(now.kept);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    least
}

impl Footprint {
    fn of(pid: u32) -> Footprint {
        let count = |what: &str| std::fs::read_dir(format!("/proc/{pid}/{what}")).expect("the server lives").count();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
        let resident_kib = line.trim().trim_end_matches(" kB").parse().expect("a number");
        let folder = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the server lives");
        let numbers = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let (kept, files): (Vec<u32>, Vec<u32>) = numbers.partition(|number: &u32| *number >= FIRST_KEPT);
        Footprint { resident_kib, threads: count("task"), files: files.len(), kept: kept.len() }
    }
}

/// The servers have ended as they should: what is left in the folder is what the test itself put there.
fn assert_nothing_is_left(folder: &Folder) {
    let gc = folder.poolscope().arg("gc").run();
    assert_eq!(gc.code(), 0, "{}", gc.report());
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("the folder is readable").flatten().collect();
    let left: Vec<_> = left.iter().map(|entry| entry.path()).filter(|path| !is_ours(path)).collect();
    assert!(left.is_empty(), "{left:?} are left");
}

fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == disturbance::FILL)
}

/// A program with nothing to do is not woken by anything of the pool's, whatever its settings are.
#[test]
fn an_idle_process_is_not_woken() {
    let files = Scratch::new();
    let segments = Scratch::in_shared_memory();
    let script = "import sys\nheld = [bytes(5000) for _ in range(20000)]\ndel held[::2]\nprint('ready', flush=True)\n\
                  sys.stdin.readline()\n";
    for settings in SETTINGS {
        let mut program = Program::new("/usr/bin/python3")
            .args(["-c", script])
            .env("LD_PRELOAD", poolscope_e2e::library())
            .env("POOLSCOPE_DIR", segments.path())
            .env("POOLSCOPE_SCAVENGE_MS", "500")
            .env("POOLSCOPE_GC_MS", "200")
            .dir(files.path());
        for (name, value) in *settings {
            program = program.env(name, value);
        }
        let mut program = program.start();
        program.wait_for_line("ready");
        // What was freed goes back first; on a machine that is held up for a second, nothing wakes in it.
        program.wait_until(&format!("it slept for two seconds ({settings:?})"), |running| {
            let before = wake_ups(running.pid());
            let sleeps = || {
                std::thread::sleep(Duration::from_secs(1));
                wake_ups(running.pid()) == before
            };
            (sleeps() && sleeps()).then_some(())
        });
        program.send("\n");
        program.finish().success();
    }
}

/// How often any thread of a process was switched away from.
fn wake_ups(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process lives").flatten();
    tasks.fold(0, |sum, task| {
        let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let switches = status
            .lines()
            .filter(|line| line.contains("ctxt_switches"))
            .map(|line| line.split_whitespace().last().and_then(|count| count.parse::<u64>().ok()).expect("a count"));
        sum + switches.sum::<u64>()
    })
}
