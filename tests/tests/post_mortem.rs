//! What a process leaves that did not end by itself: killed, aborted, out of memory; and how it is cleaned up.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use poolscope_e2e::{Output, Pool, Program, Running, compiler, library, poolscope, sample, skip};
use serde_json::Value;

/// A python3 that holds 64 MiB in blocks of 1 MiB, made by one call of `hold`, and then does what `end` says.
fn python(pool: &Pool, end: &str) -> Running {
    let script = format!(
        "import os,sys,time,signal\nheld=[bytearray(1<<20) for _ in range(64)]\nprint('ready',flush=True)\n{end}\n"
    );
    let mut program = pool.program("/usr/bin/python3").args(["-c", &script]).env("POOLSCOPE_PERIOD", "64K").start();
    program.wait_for_line("ready");
    program
}

fn listed(pool: &Pool, pid: u32) -> Value {
    let list = pool.poolscope().args(["list", "--json"]).run().success().stdout;
    let list: Value = serde_json::from_str(&list).expect("list --json is JSON");
    let processes = list["processes"].as_array().expect("processes");
    processes.iter().find(|process| process["pid"] == pid).cloned().unwrap_or(Value::Null)
}

/// Every reader takes the pid of the dead as it takes that of the living.
#[track_caller]
fn assert_heap_is_read(pool: &Pool, pid: u32, at_least: f64) {
    assert_heap_is_read_beside(pool, pid, None, at_least);
}

/// The same where another program has the number by now: each command says which.
#[track_caller]
fn assert_heap_is_read_beside(pool: &Pool, pid: u32, now: Option<&str>, at_least: f64) {
    let command = |args: &[&str]| {
        let output = pool.poolscope().args(args).run();
        let said = output.stderr.lines().filter(|line| !line.starts_with(' ')).collect::<Vec<_>>();
        let expected = now.map(|now| format!("{now} now, which does not run on the pool: this is of /usr/bin/python3"));
        let is_said = match &expected {
            Some(words) => said.len() == 1 && said[0].contains(words),
            None => said.is_empty(),
        };
        assert!(output.code() == 0 && is_said, "{}", output.report());
        output.stdout
    };
    let pid = pid.to_string();
    let model: Value = serde_json::from_str(&command(&["top", &pid, "--json"])).expect("is JSON");
    assert!(model["in_use"]["bytes"].as_f64().expect("is a number") >= at_least, "{:#}", model["in_use"]);
    let screen = command(&["top", &pid, "--once", "--size", "120x30"]);
    let is_said =
        |now: &str| screen.lines().any(|line| line.contains(&format!("Process {pid} is ")) && line.contains(now));
    assert!(screen.contains("MiB") && now.is_none_or(is_said), "{screen}");
    assert!(command(&["flamegraph", &pid, "-o", "-"]).contains("</svg>"));
    let leaks = pool.poolscope().args(["leaks", &pid, "--json"]).run();
    assert!(leaks.stderr.contains("was in use when it ended, leaked or not"), "{}", leaks.report());
    let leaks: Value = serde_json::from_str(&leaks.stdout).expect("is JSON");
    assert!(leaks["bytes"].as_f64().expect("is a number") >= at_least, "{leaks:#}");
    let profile = pool.files().join("dead.pb.gz");
    command(&["dump", &pid, "-o", profile.to_str().expect("is text")]);
    poolscope_e2e::pprof::pprof(pool.files(), &["-top"], &profile);
}

const MIB: f64 = 1024.0 * 1024.0;

#[test]
fn the_heap_of_a_killed_and_of_an_aborted_process_is_read_by_its_pid() {
    for (end, signal) in [("os.kill(os.getpid(), signal.SIGKILL)", libc::SIGKILL), ("os.abort()", libc::SIGABRT)] {
        let pool = Pool::new();
        let program = python(&pool, end);
        let pid = program.pid();
        let before = SystemTime::now();
        assert_eq!(program.finish().status.signal(), Some(signal));
        let dead = listed(&pool, pid);
        assert_eq!(dead["state"], "gone", "{dead:#}");
        assert_eq!(dead["ended_realtime_ns"], Value::Null, "nobody says when");
        let alive = Duration::from_nanos(dead["alive_realtime_ns"].as_u64().expect("is a time"));
        let alive = SystemTime::UNIX_EPOCH + alive;
        let near = Duration::from_secs(30);
        assert!(alive + near > before && alive < SystemTime::now(), "it lived until {alive:?}, about {before:?}");
        assert_heap_is_read(&pool, pid, 48.0 * MIB);
    }
}

#[test]
fn a_process_that_became_another_is_not_called_killed() {
    let pool = Pool::new();
    // Without the library, the program that follows has no segment of its own, and leaves this one.
    let end = "os.environ.pop('LD_PRELOAD'); os.execvp('sleep', ['sleep', '100'])";
    let mut program = python(&pool, end);
    let pid = program.pid();
    program.wait_until("it became sleep", |_| (listed(&pool, pid)["state"] != "running").then_some(()));
    assert_eq!(listed(&pool, pid)["state"], "replaced");
    assert_heap_is_read_beside(&pool, pid, Some("/sleep"), 48.0 * MIB);
}

/// What a program counts is written now and then, its samples at once.
#[test]
fn what_a_killed_program_allocated_in_its_last_moment_is_said() {
    let pool = Pool::new();
    let end = "time.sleep(0.5)\nmore=[bytearray(1<<20) for _ in range(48)]\nos.kill(os.getpid(), signal.SIGKILL)";
    // The counters may have been written in between.
    let is_said = (0..5).any(|_| {
        let program = python(&pool, end);
        let pid = program.pid().to_string();
        program.finish();
        let model: Value = pool.json(&["top", &pid, "--json"]);
        let findings = model["findings"].as_array().expect("findings").clone();
        let Some(found) = findings.iter().find(|found| found["rule"] == "counted_before") else { return false };
        let mib = found["evidence"]["sampled_bytes"].as_f64().expect("a figure") / MIB;
        // 112 MiB in blocks of 1 MiB, each of which is a sample, and what python has by itself.
        assert!((112.0..125.0).contains(&mib), "{found:#}");
        let sentence = found["sentence"].as_str().expect("a sentence");
        let screen = pool.poolscope().args(["top", &pid, "--once", "--size", "120x30"]).run().success().stdout;
        assert!(screen.contains(sentence), "{sentence}\n{screen}");
        true
    });
    assert!(is_said, "the counters were up to date five times");
}

/// What samples say by chance, and what they don't because there are none, is nothing of a last moment.
#[test]
fn nothing_is_said_of_a_last_moment_in_which_nothing_happened() {
    let pool = Pool::new();
    for period in ["1", "64K", "64M", "1T"] {
        let script = "import os,signal,time\nheld=[bytearray(1<<20) for _ in range(64)]\ntime.sleep(0.5)\n\
                      os.kill(os.getpid(), signal.SIGKILL)";
        let program = pool.program("/usr/bin/python3").args(["-c", script]).env("POOLSCOPE_PERIOD", period).start();
        let pid = program.pid().to_string();
        program.finish();
        let model: Value = pool.json(&["top", &pid, "--json"]);
        let rules: Vec<_> = model["findings"].as_array().expect("findings").iter().map(|it| &it["rule"]).collect();
        assert!(!rules.iter().any(|rule| *rule == "counted_before"), "{period}: {rules:?}");
    }
}

/// A memory cgroup of a test's own, of version 1 or 2; removed at the end.
struct MemoryCgroup(PathBuf);

impl MemoryCgroup {
    fn new(limit: u64) -> Result<Self, String> {
        let name = format!("poolscope-test-{}-{limit}", std::process::id());
        let candidates = [
            (Path::new("/sys/fs/cgroup/memory"), &["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]),
            (Path::new("/sys/fs/cgroup"), &["memory.max", "memory.swap.max"]),
        ];
        let mut why = "there is no memory controller".to_owned();
        for (root, [file, swap]) in candidates {
            let group = Self(root.join(&name));
            let made = std::fs::create_dir(&group.0).and_then(|()| {
                std::fs::write(group.0.join(file), limit.to_string())?;
                // Without swap accounting the file is not there, and without swap it does not matter.
                let swap_limit = if *swap == "memory.swap.max" { 0 } else { limit };
                let _ = std::fs::write(group.0.join(swap), swap_limit.to_string());
                Ok(())
            });
            match made {
                Ok(()) => return Ok(group),
                Err(error) => why = format!("{}: {error}", group.0.display()),
            }
        }
        Err(why)
    }

    /// The same; without one a test says that it is skipped.
    fn or_skip(limit: u64) -> Option<Self> {
        Self::new(limit).map_err(|why| skip(&format!("no memory cgroup can be made here ({why})"))).ok()
    }

    /// Runs a command of poolscope's in it, on a Python with this script.
    fn run(&self, pool: &Pool, command: &[&str], python: &str) -> Output {
        let script = "echo $$ > \"$1/cgroup.procs\"; shift; exec \"$@\"";
        let program = Program::new("bash").args(["-c", script, "bash"]).arg(&self.0).arg(poolscope()).args(command);
        let program = program.args(["--", "/usr/bin/python3", "-c", python]);
        program.env("POOLSCOPE_DIR", pool.segment_dir()).env("POOLSCOPE_LIB", library()).run()
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // The kernel lets go of the group's last process a moment after it was waited for.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn the_heap_of_a_process_that_the_out_of_memory_killer_took_is_read_and_the_kernel_is_quoted() {
    let Some(group) = MemoryCgroup::or_skip(96 << 20) else { return };
    let pool = Pool::new();
    let join = format!("open({:?},'w').write(str(os.getpid()))", group.0.join("cgroup.procs"));
    let end = format!("{join}\nwhile True: held.append(bytearray(b'x')*(1<<20))");
    let program = python(&pool, &end);
    let pid = program.pid();
    assert_eq!(program.finish().status.signal(), Some(libc::SIGKILL));
    assert_heap_is_read(&pool, pid, 100.0 * MIB);
    let dead = listed(&pool, pid);
    if std::fs::File::open("/dev/kmsg").is_err() {
        skip("the kernel's log can't be read here, so nobody says why the process ended");
        assert_eq!(dead["state"], "gone");
        return;
    }
    assert_eq!(dead["state"], "oom", "{dead:#}");
    let line = dead["kernel"].as_str().expect("the kernel is quoted");
    assert!(line.contains("out of memory") && line.contains(&pid.to_string()), "{line}");
    assert!(dead["ended_realtime_ns"].as_u64() >= dead["started_realtime_ns"].as_u64(), "{dead:#}");
    let text = pool.poolscope().args(["list", "--all"]).run().success().stdout;
    assert!(text.contains(" oom ") && text.contains("kernel: "), "{text}");
}

#[test]
fn gc_removes_what_the_dead_left_and_nothing_else() {
    let pool = Pool::new();
    let living = python(&pool, "time.sleep(100)");
    let dead = python(&pool, "os.kill(os.getpid(), signal.SIGKILL)");
    let dead_pid = dead.pid();
    dead.finish();
    let folder = pool.segment_dir();
    // Files that are none of its business, by their name or by what is in them, and a link to one.
    let foreign = ["notes.txt", "77.00000000000000aa", "78.notanumber"];
    for name in foreign {
        std::fs::write(folder.join(name), "mine").expect("is written");
    }
    let outside = pool.files().write("precious", "mine");
    std::os::unix::fs::symlink(&outside, folder.join("79.00000000000000aa")).expect("is linked");
    let left = |pid: u32| pool.segment(pid).is_some();

    let gc = |args: &[&str]| pool.poolscope().arg("gc").args(args).run();
    let dry = gc(&["--dry-run"]);
    assert_eq!(dry.code(), 0);
    assert!(dry.stdout.contains("python3") && dry.stdout.contains("1 segment would be removed"), "{}", dry.report());
    assert!(left(dead_pid));
    assert!(gc(&["--older-than", "1h"]).stdout.starts_with("0 segments removed"));
    assert!(left(dead_pid), "it died just now");

    let done = gc(&[]);
    assert_eq!(done.code(), 0);
    assert!(done.stdout.contains("1 segment removed"), "{}", done.report());
    assert!(!left(dead_pid) && left(living.pid()), "{}", done.report());
    for name in foreign {
        assert!(folder.join(name).exists(), "{name}");
    }
    assert!(folder.join("79.00000000000000aa").is_symlink() && outside.exists());
    assert!(gc(&[]).stdout.starts_with("0 segments removed"), "what is there stays");
}

#[test]
fn gc_removes_a_segment_that_was_never_finished_once_nobody_has_it() {
    let pool = Pool::new();
    std::fs::create_dir_all(pool.segment_dir()).expect("is made");
    let path = pool.segment_dir().join("77.00000000000000aa");
    // As long as one is at first: what a program leaves that dies while it makes it.
    let file = std::fs::File::create_new(&path).expect("is made");
    file.set_len(1 << 16).expect("is long");
    let gc = || pool.poolscope().arg("gc").run().success();
    assert!(gc().stdout.starts_with("0 segments removed"), "somebody is at work on it");
    drop(file);
    let listed = pool.poolscope().args(["list", "--all"]).run();
    assert!(listed.stderr.contains("`poolscope gc` removes the file"), "{}", listed.report());
    // Otherwise it is one of those that dead processes left.
    let listed = pool.poolscope().arg("list").run().silent_success();
    assert!(listed.stdout.contains("One dead process left a segment of "), "{}", listed.report());
    let done = gc();
    assert!(done.stdout.contains("never finished") && done.stdout.contains("1 segment removed"), "{}", done.report());
    assert!(!path.exists());
}

/// The segments' folder may be one that several containers share, each with a process 7 of its own.
#[test]
fn gc_keeps_the_segment_of_a_process_whose_number_is_unknown_here() {
    let pool = Pool::new();
    let probe = Program::new("unshare").args(["--pid", "--fork", "true"]).run();
    if probe.code() != 0 {
        poolscope_e2e::skip(&format!("no pid namespace can be made here ({})", probe.stderr.trim()));
        return;
    }
    let script = format!(
        "LD_PRELOAD='{}' POOLSCOPE_DIR='{}' exec python3 -c 'import time; print(\"ready\",flush=True); time.sleep(100)'",
        library().display(),
        pool.segment_dir().display()
    );
    let mut inside = Program::new("unshare").args(["--pid", "--fork", "--kill-child", "sh", "-c", &script]).start();
    inside.wait_for_line("ready");
    // It is process 1 of its namespace; here, process 1 is another, and it is listed under its number here.
    assert!(pool.segment(1).is_some(), "{:?}", pool.segments());
    assert_eq!(listed(&pool, 1), serde_json::Value::Null);
    let gc = pool.poolscope().arg("gc").run().success();
    assert!(gc.stdout.starts_with("0 segments removed"), "{}", gc.report());
    assert!(pool.segment(1).is_some());
    inside.signal(libc::SIGKILL);
    inside.finish();
}

#[test]
fn a_number_that_another_process_got_since_still_names_the_dead_ones_heap() {
    let pool = Pool::new();
    let dead = python(&pool, "os.kill(os.getpid(), signal.SIGKILL)");
    let segment = pool.segment(dead.pid()).expect("has a segment");
    dead.finish();
    // The kernel gives numbers out again only after all others; a copy under the number of a process that runs is the
    // same to a reader.
    let mut other = Program::new(sample("kv-server")).args(["--clients", "1", "--seconds", "100"]).start();
    other.wait_for_line("kv-server: pid");
    let name = format!("{}.{:016x}", other.pid(), segment.header.generation);
    std::fs::copy(&segment.path, pool.segment_dir().join(name)).expect("is copied");
    assert_eq!(listed(&pool, other.pid())["state"], "gone");
    assert_heap_is_read_beside(&pool, other.pid(), Some("/kv-server"), 48.0 * MIB);
    let gc = pool.poolscope().arg("gc").run().success();
    assert!(gc.stdout.contains("2 segments removed"), "{}", gc.report());
}

#[test]
fn only_what_a_process_that_ended_by_exit_did_not_free_is_called_leaked() {
    let pool = Pool::new();
    let leak = compiler::compile(pool.files(), "leak.c", "leak", &["-g"]);
    let program = pool.program(&leak).arg("40").env("POOLSCOPE_PERIOD", "1").start();
    let pid = program.pid();
    assert_eq!(program.finish().code(), 0);
    let leaks = pool.poolscope().args(["leaks", &pid.to_string()]).run().silent_success().stdout;
    assert!(leaks.contains("leak 1: ") && leaks.contains("leak.c:"), "{leaks}");

    let makers = compiler::compile_with_headers(pool.files(), "tests/csrc/makers.cpp", "makers", &["-g"]);
    let mut living = pool.program(&makers).env("POOLSCOPE_PERIOD", "1").start();
    living.wait_for_line("ready");
    let pid = living.pid().to_string();
    let output = pool.poolscope().args(["leaks", "--growth", &pid]).run();
    assert!(
        output.code() == 0 && output.stderr.contains("in use now, leaked or not, the oldest first"),
        "{}",
        output.report()
    );
    let sites: Vec<&str> = output.stdout.lines().filter(|line| line.starts_with("in use ")).collect();
    let ages = sites.iter().map(|line| line.split_once(", the oldest for ").expect("has an age").1);
    let seconds: Vec<f64> = ages.map(|age| age.trim_end_matches(" s").parse().expect("is in seconds")).collect();
    assert!(seconds.len() > 1 && seconds.is_sorted_by(|a, b| a >= b), "{}", output.stdout);
    assert!(output.stdout.contains("makers.cpp:") && !output.stdout.contains("leaked"), "{}", output.stdout);

    living.signal(libc::SIGKILL);
    living.finish();
    let killed = pool.poolscope().args(["leaks", &pid]).run().stdout;
    assert!(killed.contains("was in use 1: ") && killed.contains("blocks was in use, from"), "{killed}");
    assert!(!killed.contains("leaked"), "{killed}");
}

#[test]
fn a_process_in_another_pid_namespace_runs_and_is_read_by_its_number_here() {
    let pool = Pool::new();
    let makers = compiler::compile_with_headers(pool.files(), "tests/csrc/makers.cpp", "makers", &["-g"]);
    let mut outer = Program::new("unshare")
        .args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc", "env"])
        .arg(format!("LD_PRELOAD={}", library().display()))
        .arg(format!("POOLSCOPE_DIR={}", pool.segment_dir().display()))
        .args(["POOLSCOPE_PERIOD=1".as_ref(), makers.as_os_str()])
        .start();
    outer.wait_for_line("ready");
    let listed = || -> Vec<Value> {
        let list = pool.poolscope().args(["list", "--json"]).run().success().stdout;
        let list: Value = serde_json::from_str(&list).expect("is JSON");
        let is_it = |process: &&Value| process["exe"].as_str().is_some_and(|exe| exe.ends_with("/makers"));
        list["processes"].as_array().expect("processes").iter().filter(is_it).cloned().collect()
    };
    let running = listed();
    let pid = running[0]["pid"].to_string();
    assert_eq!((running.len(), &running[0]["state"]), (1, &Value::from("running")), "{running:#?}");
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("the number is one of here");
    assert_eq!(comm, "makers\n");
    let top = pool.poolscope().args(["report", &pid]).run().success().stdout;
    assert!(top.contains("running") && top.contains("makers.cpp"), "{top}");
    drop(outer);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while listed()[0]["state"] != "gone" {
        assert!(std::time::Instant::now() < deadline, "{:#?}", listed());
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The kernel writes a few faults in a while down and drops others, so its log says what to expect.
#[test]
fn a_fault_that_the_kernel_wrote_down_is_quoted() {
    let pool = Pool::new();
    let program = python(&pool, "import ctypes; ctypes.string_at(8)");
    let pid = program.pid();
    assert_eq!(program.finish().status.signal(), Some(libc::SIGSEGV));
    let log = Program::new("dmesg").run().stdout;
    let dead = listed(&pool, pid);
    if log.contains(&format!("python3[{pid}]: segfault at 8 ")) {
        assert_eq!(dead["state"], "fault", "{dead:#}");
        assert!(dead["kernel"].as_str().expect("the kernel is quoted").contains("segfault at 8 "), "{dead:#}");
    } else {
        eprintln!("the kernel's log can't be read here, or does not have the fault");
        assert_eq!(dead["state"], "gone", "{dead:#}");
    }
    assert_heap_is_read(&pool, pid, 48.0 * MIB);
}

#[test]
fn a_command_says_that_its_program_was_killed_for_lack_of_memory() {
    let Some(group) = MemoryCgroup::or_skip(100 << 20) else { return };
    let pool = Pool::new();
    let recording = pool.files().join("killed.rec");
    let record = ["record", "-o", recording.to_str().expect("UTF-8")];
    // The kernel takes the program first, and not the command, which is in the group as well.
    let code = "open('/proc/self/oom_score_adj', 'w').write('900'); x = [bytearray(1 << 20) for _ in range(1000)]";
    for command in [record.as_slice(), &["check"]] {
        let output = group.run(&pool, command, code);
        assert!([24, 137].contains(&output.code()), "{}", output.report());
        let why = "program was killed by the kernel (SIGKILL): its control group had no more memory";
        assert!(output.stderr.contains(why), "{}", output.report());
    }
}

/// 24 rings of full length would take 48 MiB.
#[test]
fn a_recording_leaves_the_memory_of_the_control_group_to_the_program() {
    let Some(group) = MemoryCgroup::or_skip(72 << 20) else { return };
    let pool = Pool::new();
    let recording = pool.files().join("many.rec");
    let command = ["record", "-o", recording.to_str().expect("UTF-8")];
    let script = "import threading
all = threading.Barrier(24)
def work():
    for size in range(2000): bytes(600 + size)
    all.wait()
threads = [threading.Thread(target=work) for _ in range(24)]
for thread in threads: thread.start()
for thread in threads: thread.join()";
    let output = group.run(&pool, &command, script);
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(output.stderr.contains("nothing was lost"), "{}", output.report());
}
