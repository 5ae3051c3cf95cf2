//! No room, no folder, no permission: the program runs on and nobody hears of it unless asked.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use std::fs::OpenOptions;
use std::time::Duration;

use poolscope_e2e::{Output, Pool, Program, Running, Scratch, compiler, library, poolscope, skip};

/// What the program under test does: enough for thousands of samples, threads and a fork.
const SCRIPT: &str = "
import os, threading
def work(): return [bytes(n % 3000) for n in range(40000)]
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
pid = os.fork()
if pid == 0: work(); os._exit(0)
print(os.waitpid(pid, 0)[1], len(work()))
";
const ANSWER: &str = "0 40000\n";

/// A program that allocates, in several threads and in a forked child, once for each line of its input.
const GROWING: &str = "
import os, sys, threading
kept = []
def work(): kept.append([bytes(n % 3000) for n in range(20000)])
for line in sys.stdin:
    threads = [threading.Thread(target=work) for _ in range(3)]
    [t.start() for t in threads]; [t.join() for t in threads]
    pid = os.fork()
    if pid == 0: work(); os._exit(len(kept) % 200)
    assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == (len(kept) + 1) % 200
    if len(kept) % 2: del kept[:1]
    print('round', len(line), sum(sum(map(len, part)) for part in kept) > 0, flush=True)
";

/// Python warns from 3.12 on where a process with several threads forks, and the pool's own is one.
const RUNS_GROWING: [&str; 4] = ["-W", "ignore", "-c", GROWING];

/// Has the program of [`GROWING`] work once more.
fn work(program: &mut Running, round: usize) {
    program.send(&format!("{}\n", "x".repeat(round)));
    program.wait_for_line(&format!("round {} True", round + 1));
}

/// Runs `prepare` and then the program, in a mount namespace of their own; `$1` is the folder in question.
fn run_in_namespace(prepare: &str, dir: &Path, settings: &[(&str, &str)]) -> Output {
    let mut script = format!("set -e\n{prepare}\nexport POOLSCOPE_DIR=$1 LD_PRELOAD=$2\n");
    for (name, value) in settings {
        script += &format!("export {name}={value}\n");
    }
    script += "exec /usr/bin/python3 -W ignore -c \"$3\"";
    Program::with_own_mounts().args(["bash", "-c", &script, "bash"]).arg(dir).arg(library()).arg(SCRIPT).run()
}

/// The program's answer is right whatever happened; standard error is empty, or has one line if it was asked for.
#[track_caller]
fn runs_on(run: impl Fn(&[(&str, &str)]) -> Output) {
    let silent = run(&[("POOLSCOPE_PERIOD", "16K")]).silent_success();
    assert_eq!(silent.stdout, ANSWER);

    let verbose = run(&[("POOLSCOPE_PERIOD", "16K"), ("POOLSCOPE_VERBOSE", "1")]);
    assert_eq!((verbose.code(), verbose.stdout.as_str()), (0, ANSWER), "{}", verbose.report());
    let lines: Vec<&str> = verbose.stderr.lines().collect();
    assert!(matches!(lines[..], [line] if line.starts_with("poolscope: ")), "{}", verbose.report());
}

#[test]
fn a_full_tmpfs() {
    let dir = Scratch::new();
    let full = "mount -t tmpfs -o size=64k tmpfs \"$1\"; dd if=/dev/zero of=\"$1/fill\" bs=4k status=none 2>&- || true";
    runs_on(|settings| run_in_namespace(full, dir.path(), settings));
}

/// The segment ends wherever the room does: in its first pages, in what it grows by, in what a forked child copies.
/// There is no SIGBUS and no SIGSEGV, neither in the program nor in its child.
#[test]
fn a_tmpfs_that_fills_up_while_the_program_runs() {
    let dir = Scratch::new();
    for pages in [1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 25, 32, 40, 64, 100, 150, 200, 300, 600] {
        let small = format!("mount -t tmpfs -o nr_blocks={pages} tmpfs \"$1\"");
        for period in ["16K", "1"] {
            let output = run_in_namespace(&small, dir.path(), &[("POOLSCOPE_PERIOD", period)]).silent_success();
            assert_eq!(output.stdout, ANSWER, "with {pages} pages and a period of {period}");
        }
    }
}

#[test]
fn no_more_inodes() {
    let dir = Scratch::new();
    let full = "mount -t tmpfs -o nr_inodes=1 tmpfs \"$1\"";
    runs_on(|settings| run_in_namespace(full, dir.path(), settings));
}

#[test]
fn a_read_only_folder() {
    let dir = Scratch::new();
    runs_on(|settings| run_in_namespace("mount -t tmpfs -o ro tmpfs \"$1\"", dir.path(), settings));
}

/// The place that is used when nothing is set.
#[test]
fn a_read_only_dev_shm() {
    let dir = Scratch::new();
    let prepare = "mount -t tmpfs -o ro tmpfs /dev/shm; set -- '' \"$2\" \"$3\"";
    runs_on(|settings| {
        let mut settings = settings.to_vec();
        // An empty POOLSCOPE_DIR would be a bad value; the variable must be gone.
        settings.push(("X=1; unset POOLSCOPE_DIR; export X", "2"));
        run_in_namespace(prepare, dir.path(), &settings)
    });
}

#[test]
fn a_folder_that_cannot_be_made() {
    let dir = Scratch::new();
    let missing = dir.join("missing/below/missing");
    runs_on(|settings| run_in_namespace("", &missing, settings));
}

#[test]
fn a_file_in_the_place_of_the_folder() {
    let dir = Scratch::new();
    let file = dir.write("file", "not a folder");
    runs_on(|settings| run_in_namespace("", &file, settings));
}

/// A program that may not write long files gets no signal for it: `SIGXFSZ` would end it.
#[test]
fn a_limit_of_file_size() {
    let dir = Scratch::in_shared_memory();
    // With a limit of 0 there is no output that a test could read from a file.
    let silent = Program::new("bash")
        .args(["-c", "ulimit -f 0; /bin/true && exec /bin/ls / | (exec /usr/bin/wc -l) >/dev/null"]);
    silent.env("LD_PRELOAD", library()).env("POOLSCOPE_DIR", dir.path()).run().silent_success();
    for blocks in [1, 64, 4096] {
        runs_on(|settings| run_in_namespace(&format!("ulimit -f {blocks}"), dir.path(), settings));
    }
    // Here the segment begins, and parts of it grow until they can't.
    for blocks in [16_000, 20_000, 30_000, 60_000, 100_000, 200_000] {
        let settings = [("POOLSCOPE_PERIOD", "1")];
        let output = run_in_namespace(&format!("ulimit -f {blocks}"), dir.path(), &settings).silent_success();
        assert_eq!(output.stdout, ANSWER, "with a limit of {blocks} KiB");
    }
}

/// The limit comes while the program runs, and its recorder wants files. `$1` are blocks of samples, then of a trace.
#[test]
fn a_limit_of_file_size_that_comes_later() {
    let dir = Scratch::in_shared_memory();
    let mut program = Program::new("/usr/bin/python3")
        .args(RUNS_GROWING)
        .env("LD_PRELOAD", library())
        .env("POOLSCOPE_DIR", dir.path())
        .env("POOLSCOPE_PERIOD", "16K")
        .start();
    work(&mut program, 1);
    let limit = libc::rlimit { rlim_cur: 8192, rlim_max: 8192 };
    // SAFETY: reads the limit, of a child that was not waited for.
    let limited =
        unsafe { libc::prlimit(program.pid() as i32, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(limited, 0);
    let record = Program::new(poolscope())
        .args(["record", &program.pid().to_string(), "--duration", "1", "-o"])
        .arg(dir.join("later.rec"))
        .env("POOLSCOPE_DIR", dir.path())
        .start();
    for round in 2..12 {
        work(&mut program, round);
        std::thread::sleep(Duration::from_millis(150));
    }
    // The recorder has nothing to show, and says so.
    let record = record.finish();
    assert_ne!(record.code(), 0, "{}", record.report());
    assert!(record.stderr.contains("could not make the file for its events"), "{}", record.report());
    assert_eq!(program.finish().code(), 0);
}

/// With a segment there is nothing to say, also when asked.
#[test]
fn no_trouble() {
    let dir = Scratch::in_shared_memory();
    let output = run_in_namespace("", dir.path(), &[("POOLSCOPE_VERBOSE", "1")]).silent_success();
    assert_eq!(output.stdout, ANSWER);
}

/// A file system on a disk reads ahead by itself: with each page that was touched it had 31 others in memory, 12 MiB for
/// a program that only sleeps, which its cgroup pays for.
#[test]
fn a_segment_on_a_disk_has_only_the_pages_in_memory_that_somebody_used() {
    let pool = Pool::new();
    let dir = pool.files().join("on-a-disk");
    let file_system = Program::new("stat").args(["-f", "-c", "%T"]).arg(pool.files().path()).run().silent_success();
    if file_system.stdout.trim() == "tmpfs" {
        return skip("a segment on a disk: the folder for temporary files is in memory");
    }
    let mut program = pool.program("/usr/bin/python3").args(RUNS_GROWING).env("POOLSCOPE_DIR", &dir).start();
    work(&mut program, 1);
    // Readers neither bring in more than they look at.
    for (command, option) in [("stats", "--json"), ("top", "--once"), ("report", "--json")] {
        let pid = program.pid().to_string();
        pool.poolscope().env("POOLSCOPE_DIR", &dir).args([command, &pid, option]).run().success();
    }
    let of_pid =
        |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&program.pid().to_string());
    let mut files = std::fs::read_dir(&dir).unwrap().map(Result::unwrap);
    let segment = files.find(of_pid).expect("its segment").path();
    let cached = Program::new("fincore").args(["-b", "-n", "-o", "RES"]).arg(&segment).run().silent_success();
    let cached: u64 = cached.stdout.trim().parse().expect("a number of bytes");
    assert!((32 << 10..1 << 20).contains(&cached), "{cached} bytes of {} are in memory", segment.display());
    program.finish().silent_success();
}

/// The one file in the pool's folder whose name ends with this, and not with anything else behind the generation.
fn file_of(pool: &Pool, program: &Running, suffix: &str) -> std::path::PathBuf {
    let beginning = format!("{}.", program.pid());
    let names = std::fs::read_dir(pool.segment_dir()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names = names.map(|name| name.into_string().unwrap());
    let is_it = |name: &String| {
        name.strip_prefix(&beginning).is_some_and(|rest| match suffix {
            "" => !rest.contains('.'),
            _ => rest.ends_with(suffix),
        })
    };
    pool.segment_dir().join(names.find(is_it).expect("the file is there"))
}

/// Whoever cuts a segment off takes it from its readers, not from the program: that goes on, and makes no new one.
#[test]
fn a_segment_that_is_cut_off() {
    for left in [0, 1, 4096, 20_000, 1 << 20] {
        for period in ["1", "16K"] {
            let pool = Pool::new();
            let mut program = pool
                .program("/usr/bin/python3")
                .args(RUNS_GROWING)
                .env("POOLSCOPE_PERIOD", period)
                .env("POOLSCOPE_KEEP", "0")
                .env("POOLSCOPE_VERBOSE", "1")
                .start();
            work(&mut program, 1);
            let segment = file_of(&pool, &program, "");
            OpenOptions::new().write(true).open(&segment).unwrap().set_len(left).unwrap();
            for round in 2..5 {
                work(&mut program, round);
            }
            // Nobody reads a heap out of what is left.
            let dumped = pool.poolscope().args(["dump", &program.pid().to_string()]).run();
            assert_ne!(
                dumped.code(),
                0,
                "{left} bytes left, period {period}: {}",
                dumped.report().chars().take(400).collect::<String>()
            );
            let output = program.finish();
            assert_eq!(output.code(), 0, "{left} bytes left, period {period}: {}", output.report());
            let said = "poolscope: the segment was cut off, other processes can't see this heap any more\n";
            assert_eq!(output.stderr, said, "{left} bytes left, period {period}");
            assert!(!segment.exists(), "the end of the program removes what is left");
        }
    }
}

/// The recording ends, and what was recorded until then is there; the program goes on, and can be recorded again.
#[test]
fn a_trace_that_is_cut_off() {
    for lossless in [false, true] {
        let pool = Pool::new();
        let mut program = pool.program("/usr/bin/python3").args(RUNS_GROWING).start();
        work(&mut program, 1);
        let pid = program.pid().to_string();
        let mut arguments = vec!["record", &pid, "--duration", "3", "-o", "cut.rec"];
        if lossless {
            arguments.push("--lossless");
        }
        let record = pool.poolscope().args(&arguments).start();
        std::thread::sleep(Duration::from_millis(600));
        work(&mut program, 2);
        let trace = file_of(&pool, &program, ".trace");
        OpenOptions::new().write(true).open(trace).unwrap().set_len(0).unwrap();
        for round in 3..6 {
            work(&mut program, round);
        }
        let record = record.finish();
        assert!(!record.report().contains("panicked"), "{}", record.report());
        pool.poolscope().args(["record", &pid, "--duration", "1", "-o", "again.rec"]).start();
        for round in 6..8 {
            work(&mut program, round);
        }
        program.finish().silent_success();
    }
}

/// The file system goes away with a lazy unmount, below the segment, while the program allocates.
#[test]
fn a_file_system_that_is_taken_away() {
    let dir = Scratch::new();
    let script = format!("import subprocess; subprocess.run(['umount', '-l', '{}'])\n{SCRIPT}", dir.path().display());
    let run = format!("mount -t tmpfs tmpfs \"$1\"; set -- \"$1\" \"$2\" \"{}\"", script.replace('"', "\\\""));
    for period in ["1", "16K"] {
        let output = run_in_namespace(&run, dir.path(), &[("POOLSCOPE_PERIOD", period)]).silent_success();
        assert_eq!(output.stdout, ANSWER);
    }
}

/// The handler that keeps the program alive is not the program's affair: it sees the actions that it set, and what is
/// not the pool's ends it as ever.
#[test]
fn a_program_that_handles_bus_errors_itself() {
    let pool = Pool::new();
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/bus_error.c", "bus_error", &["-O1"]);
    for (how, signal) in [("", None), ("forked", None), ("touch", Some(libc::SIGBUS)), ("raise", Some(libc::SIGBUS))] {
        for run in [Program::new(&program), pool.program(&program)] {
            let output = run.arg(how).run();
            assert_eq!((output.status.signal(), output.stderr.as_str()), (signal, ""), "{how:?}: {}", output.report());
        }
    }
}

/// What the program has resident of a trace's file.
fn resident_trace(program: &Running) -> u64 {
    let maps = std::fs::read_to_string(format!("/proc/{}/smaps", program.pid())).unwrap();
    let (mut is_trace, mut kib) = (false, 0);
    for line in maps.lines() {
        if let Some(rss) = line.strip_prefix("Rss:") {
            let rss: u64 = rss.trim().trim_end_matches(" kB").parse().unwrap();
            kib += if is_trace { rss } else { 0 };
        } else if line.split(' ').next().is_some_and(|range| range.contains('-')) {
            is_trace = line.contains(".trace");
        }
    }
    kib << 10
}

/// A program that sleeps notices the end of its recorder all the same, and gives the rings' memory back.
#[test]
fn a_recorder_that_is_killed_while_the_program_sleeps() {
    let pool = Pool::new();
    let mut program = pool.program("/usr/bin/python3").args(RUNS_GROWING).start();
    work(&mut program, 1);
    let pid = program.pid().to_string();
    let mut record = pool.poolscope().args(["record", &pid, "--duration", "100", "-o", "killed.rec"]).start();
    record.wait_until("the trace is there", |_| {
        work(&mut program, 2);
        (resident_trace(&program) > 100_000).then_some(())
    });
    let trace = file_of(&pool, &program, ".trace");
    record.signal(libc::SIGKILL);
    program.wait_until("the rings are empty", |program| (resident_trace(program) == 0).then_some(()));
    assert!(!trace.exists());
    work(&mut program, 3);
    program.finish().silent_success();
}

/// What never came to be a segment or a trace, because there was no room or because it was cut off, is removed as well.
#[test]
fn gc_removes_empty_files() {
    let pool = Pool::new();
    let mut program = pool.program("/usr/bin/python3").args(RUNS_GROWING).start();
    work(&mut program, 1);
    let segment = file_of(&pool, &program, "");
    OpenOptions::new().write(true).open(&segment).unwrap().set_len(0).unwrap();
    let files = ["77.00000000000000aa", "77.00000000000000aa.trace", "78.00000000000000aa.trace", "notes", "79.trace"];
    for (file, len) in files.into_iter().zip([0, 0, 4096, 0, 0]) {
        std::fs::write(pool.segment_dir().join(file), vec![0; len]).unwrap();
    }
    // The program has its own mapped, to its end.
    pool.poolscope().args(["gc"]).run().success();
    let left = files.map(|file| pool.segment_dir().join(file).exists());
    assert_eq!((left, segment.exists()), ([false, false, false, true, true], true));
    program.signal(libc::SIGKILL);
    program.finish();
    pool.poolscope().args(["gc"]).run().success();
    assert!(!segment.exists());
}

/// Where the file system has no room for the first ring, no empty file of a trace is left.
#[test]
fn a_recording_without_room_leaves_nothing() {
    let pool = Pool::new();
    let script = "mount -t tmpfs -o nr_blocks=200 tmpfs \"$POOLSCOPE_DIR\"; cd /tmp; \
        /usr/bin/env LD_PRELOAD=\"$1\" POOLSCOPE_PERIOD=0 /usr/bin/python3 -c 'import time
for n in range(60): x = [bytes(n % 3000) for n in range(3000)]; time.sleep(0.05)' & \
        sleep 1; \"$2\" record $! --duration 1 -o /dev/null 2>&1; wait $!; echo code $?; ls \"$POOLSCOPE_DIR\"";
    let run = Program::with_own_mounts().args(["bash", "-c", script, "bash"]).arg(library()).arg(poolscope());
    let output = run.env("POOLSCOPE_DIR", pool.segment_dir()).run();
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert!(lines.len() >= 2 && lines.last() == Some(&"code 0"), "{}", output.report());
}

/// What is to be recorded and cannot be is an ordinary block.
#[test]
fn a_program_ends_whatever_the_period_with_and_without_a_segment() {
    let pool = Pool::new();
    let a_file = pool.files().join("a file");
    std::fs::write(&a_file, "").expect("a file");
    for period in ["0", "1", "2", "1024G"] {
        for dir in [pool.segment_dir(), a_file.clone()] {
            let script = "for size in range(0, 40000, 50): x = [bytes(size) for n in range(4)]";
            let program = pool.program("/usr/bin/python3").args(["-c", script]);
            program.env("POOLSCOPE_PERIOD", period).env("POOLSCOPE_DIR", dir).run().success();
        }
    }
}

/// A program whose forked worker writes its title over the environment, and the worker's number.
fn titled(pool: &Pool, arguments: &[&str]) -> (Running, String) {
    let flags = ["-O1", "-fno-builtin"];
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/titled.c", "titled", &flags);
    let mut running = pool.program(program).args(arguments).start();
    let line = running.wait_for_line("READY");
    let worker = line.trim_start_matches("READY").trim().to_owned();
    (running, worker)
}

#[test]
fn a_worker_that_overwrites_its_environment_keeps_its_segment_where_it_was_told() {
    let pool = Pool::new();
    let (mut running, worker) = titled(&pool, &[]);
    let list = pool.poolscope().arg("list").run().success().stdout;
    let row = list.lines().find(|row| row.split_whitespace().next() == Some(&worker)).expect("the worker is listed");
    assert!(row.trim_end().ends_with("(forked) titled: worker"), "{row}");
    running.wait_until("its blocks are in the figures", |_| {
        let stats = pool.poolscope().args(["stats", &worker, "--json"]).run().success().stdout;
        let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
        (stats["usage"]["in_use"].as_u64()? >= 1024 * 8192).then_some(())
    });
    running.send("\n");
    running.finish().success();
}

#[test]
fn a_worker_without_a_segment_is_not_taken_for_the_process_that_it_was_forked_from() {
    let pool = Pool::new();
    let (mut running, worker) = titled(&pool, &["short files"]);
    let stats = pool.poolscope().args(["stats", &worker]).run();
    assert_ne!(stats.code(), 0, "{}", stats.report());
    assert!(stats.stderr.contains("is forked and keeps no segment yet"), "{}", stats.report());
    running.send("\n");
    running.finish().success();
}
