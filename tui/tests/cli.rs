//! The command line as a user meets it: what it prints, what it exits with, what it says when something is wrong.

mod support;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use poolscope_wire::{HEADER_LEN, Header, flags};
use support::{Folder, poolscope, some_library, stderr, stdout, write_segment};

/// A pid that no process has: the kernel's limit is 2^22.
const NOBODY: u32 = 4_194_305;

#[test]
fn three_wrong_pids_get_three_errors() {
    let folder = Folder::new("pids");
    let mut sleep = Command::new("sleep").arg("60").spawn().unwrap();
    for (pid, says) in [(NOBODY, "there is no process"), (sleep.id(), "does not run on the pool")] {
        for command in ["top", "dump", "flamegraph"] {
            let output = poolscope(&folder.0).args([command, &pid.to_string()]).output().unwrap();
            assert_eq!(output.status.code(), Some(2));
            assert!(stderr(&output).contains(says), "{command}: {}", stderr(&output));
            assert_eq!(stdout(&output), "");
        }
    }
    sleep.kill().unwrap();
    sleep.wait().unwrap();
}

#[test]
fn what_is_no_segment_is_named() {
    let folder = Folder::new("no-segment");
    let file = folder.0.join("4.00000000000000aa");
    for bytes in [&b""[..], b"hello", &[0; 5000]] {
        fs::write(&file, bytes).unwrap();
        let output = poolscope(&folder.0).arg("top").arg(&file).arg("--once").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("4.00000000000000aa"), "{}", stderr(&output));
    }
}

#[test]
fn a_frame_without_a_terminal_has_the_size_that_was_asked_for() {
    let folder = Folder::new("once");
    let segment = write_segment(&folder.0, NOBODY);
    for (size, width, height) in [("80x24", 80, 24), ("120x36", 120, 36), ("200x60", 200, 60)] {
        let output = poolscope(&folder.0).arg("top").arg(&segment).args(["--once", "--size", size]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        assert_eq!(text.lines().count(), height);
        assert!(text.lines().all(|line| line.chars().count() <= width));
        for word in ["kvserver", "100 MiB", "4,242", "exited", "DROPPED", "[kvserver+0x1000]"] {
            assert!(text.contains(word), "{word} is missing:\n{text}");
        }
    }
}

#[test]
fn a_site_is_named_by_the_caller_of_what_a_person_says() {
    let folder = Folder::new("by-caller");
    let segment = write_segment(&folder.0, NOBODY);
    let rules = folder.0.join("rules");
    fs::write(&rules, "# the wrapper\nfn:kvserver+0x1000]\n").unwrap();
    let report = |args: &[&str]| {
        let output = poolscope(&folder.0).arg("report").arg(&segment).args(args).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let line = stdout(&output).lines().find(|line| line.contains("96.0 MiB")).expect("the largest site").to_owned();
        line.split("%  ").nth(1).expect("its name").to_owned()
    };
    assert!(report(&[]).starts_with("[kvserver+0x1000]"), "{}", report(&[]));
    let named = report(&["--by-caller", "fn:kvserver+0x1000]"]);
    assert!(named.starts_with("[kvserver+0x2000]"), "{named}");
    assert_eq!(report(&["--naming", rules.to_str().unwrap()]), named);
    for (args, says) in [(["--by-caller", "fn:"], "is no rule for names"), (["--naming", "/nowhere"], "/nowhere: ")] {
        let output = poolscope(&folder.0).args(["list"]).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
    }
}

#[test]
fn a_process_is_found_by_the_pid_of_what_it_left_behind() {
    let folder = Folder::new("dead-pid");
    write_segment(&folder.0, NOBODY);
    let output = poolscope(&folder.0).args(["top", &NOBODY.to_string(), "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let model: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(model["process"]["pid"], NOBODY);
    assert_eq!(model["in_use"]["bytes"], 100.0 * 1024.0 * 1024.0);
    assert!(model["history"].is_array() && model["rates"].is_null());
}

#[test]
fn who_asks_for_a_running_process_is_told_that_the_answer_is_of_an_earlier_one() {
    let folder = Folder::new("number-given-again");
    let number = std::process::id().to_string();
    let path = write_segment(&folder.0, std::process::id());
    let now = std::env::current_exe().unwrap();
    for command in [&["stats"][..], &["dump", "--output", "/dev/null"], &["top", "--once"]] {
        let output = poolscope(&folder.0).args(command).arg(&number).output().unwrap();
        let said = stderr(&output);
        for words in [&format!("is {} now", now.display()), "this is of /opt/kv/kvserver, which had that number"] {
            assert!(output.status.success() && said.contains(words), "{command:?}: {said}");
        }
    }
    let output = poolscope(&folder.0).arg("stats").arg(&path).output().unwrap();
    assert_eq!(stderr(&output), "", "who names the file knows whose it is");
}

#[test]
fn a_process_without_the_pool_is_not_watched_for_one_that_had_its_number() {
    let folder = Folder::new("watch-number-given-again");
    let mut sleep = Command::new("sleep").arg("30").spawn().unwrap();
    write_segment(&folder.0, sleep.id());
    let output = poolscope(&folder.0).args(["watch", &sleep.id().to_string(), "--dump-at-rss", "1G"]).output().unwrap();
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    for words in ["does not run on the pool", "An earlier process of this number left"] {
        assert_eq!(stderr(&output).matches(words).count(), 1, "{}", stderr(&output));
    }
}

#[test]
fn list_counts_the_dead_and_an_empty_folder_says_what_to_do() {
    let folder = Folder::new("list");
    let output = poolscope(&folder.0).arg("list").output().unwrap();
    assert!(output.status.success());
    assert!(stdout(&output).contains("poolscope run"));
    write_segment(&folder.0, NOBODY);
    let text = stdout(&poolscope(&folder.0).arg("list").output().unwrap());
    assert!(text.contains("No process runs") && text.contains("One dead process left a segment of "), "{text}");
    assert!(!text.contains("kvserver"), "{text}");
    write_segment(&folder.0, NOBODY - 1);
    let text = stdout(&poolscope(&folder.0).arg("list").output().unwrap());
    assert!(text.contains("2 dead processes left segments of ") && text.contains("list --all"), "{text}");
    let text = stdout(&poolscope(&folder.0).args(["list", "--all"]).output().unwrap());
    assert!(text.contains("exited") && text.contains("100 MiB") && text.contains("kvserver --port 7000"), "{text}");
    let json: serde_json::Value =
        serde_json::from_slice(&poolscope(&folder.0).args(["list", "--json"]).output().unwrap().stdout).unwrap();
    assert_eq!(json["processes"][0]["state"], "exited");
    assert_eq!(json["processes"][0]["live_bytes"], 100.0 * 1024.0 * 1024.0);
    // As text: -0.0 is equal to 0.0.
    assert_eq!(json["processes"][0]["device_live_bytes"].to_string(), "0.0");
}

#[test]
fn list_calls_no_figure_exact_that_misses_samples() {
    let folder = Folder::new("lost");
    let segment = write_segment(&folder.0, NOBODY);
    for (dropped, period, exact) in [(0, "exact", true), (7, "too low", false)] {
        let bytes = fs::read(&segment).unwrap();
        let mut header = Header::parse(&bytes, bytes.len() as u64).unwrap();
        (header.flags, header.dropped_live) = (flags::EXACT, dropped);
        fs::write(&segment, [&header.to_bytes()[..], &bytes[HEADER_LEN..]].concat()).unwrap();
        let text = stdout(&poolscope(&folder.0).args(["list", "--all"]).output().unwrap());
        let line = text.lines().find(|line| line.contains("kvserver")).unwrap();
        assert!(line.contains(&format!("{period}  kvserver")), "{text}");
        let json = poolscope(&folder.0).args(["list", "--json"]).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(
            (&json["processes"][0]["exact"], &json["processes"][0]["lost_samples"]),
            (&exact.into(), &dropped.into())
        );
    }
}

#[test]
fn dump_and_flamegraph_write_files_and_standard_output() {
    let folder = Folder::new("files");
    let segment = write_segment(&folder.0, NOBODY);
    let profile = folder.0.join("heap.pb.gz");
    let output = poolscope(&folder.0).arg("dump").arg(&segment).arg("-o").arg(&profile).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read(&profile).unwrap()[..2], [0x1f, 0x8b]);
    for metric in ["inuse_space", "inuse_objects", "alloc_space", "alloc_objects"] {
        let output = poolscope(&folder.0)
            .arg("flamegraph")
            .arg(&segment)
            .args(["-o", "-", "--metric", metric])
            .output()
            .unwrap();
        assert!(output.status.success());
        assert!(stdout(&output).contains("</svg>"));
    }
    let output = poolscope(&folder.0).arg("dump").arg(&segment).args(["-o", "/dev/null/heap"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/dev/null/heap"));
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2, "nothing unfinished is left");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = Folder::new("pipe");
    let segment = write_segment(&folder.0, NOBODY);
    let mut child = poolscope(&folder.0)
        .arg("flamegraph")
        .arg(&segment)
        .args(["-o", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let status = child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said.lines().filter(|l| l.contains("roken pipe") || l.contains("panic")).count(), 0, "{said}");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_missing_library_names_the_places_and_ends_with_2() {
    let folder = Folder::new("library");
    for command in [&["run", "--headless", "--", "true"][..], &["check", "--", "true"]] {
        let output =
            poolscope(&folder.0).args(command).env("POOLSCOPE_LIB", "/nonexistent/libpoolscope.so").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("/nonexistent/libpoolscope.so"), "{}", stderr(&output));
    }
}

#[test]
fn headless_becomes_the_program() {
    let folder = Folder::new("headless");
    let library = some_library();
    let run = |script: &str| {
        let mut command = poolscope(&folder.0);
        command.env("POOLSCOPE_LIB", &library).args([
            "run",
            "--headless",
            "--period",
            "64KiB",
            "--",
            "sh",
            "-c",
            script,
        ]);
        command
    };
    let output = run("echo $POOLSCOPE_PERIOD $LD_PRELOAD; echo bad >&2; exit 7").output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(stderr(&output), "bad\n");
    assert!(stdout(&output).starts_with("65536 /") && stdout(&output).contains("libc.so.6"), "{}", stdout(&output));
    let output = run("kill -TERM $$").output().unwrap();
    assert_eq!(output.status.signal(), Some(15));
}

#[test]
fn a_program_that_cannot_run_ends_as_in_a_shell() {
    let folder = Folder::new("cannot-run");
    let script = folder.0.join("script");
    fs::write(&script, "#!/nonexistent/interpreter\n").unwrap();
    let not_executable = folder.0.join("text");
    fs::write(&not_executable, "hello").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let cases = [
        ("no-such-program-here", 127, "PATH"),
        ("./no/such/file", 127, "no such file"),
        (script.to_str().unwrap(), 127, "interpreter"),
        (not_executable.to_str().unwrap(), 126, "not executable"),
    ];
    for (program, code, says) in cases {
        for command in [&["run", "--headless"][..], &["check"]] {
            let output = poolscope(&folder.0)
                .env("POOLSCOPE_LIB", some_library())
                .args(command)
                .args(["--", program])
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(code), "{program}: {}", stderr(&output));
            assert!(stderr(&output).contains(says), "{}", stderr(&output));
        }
    }
}

#[test]
fn check_says_so_if_the_program_did_not_run_on_the_pool() {
    let folder = Folder::new("check");
    let segments = folder.0.join("segments");
    fs::create_dir(&segments).unwrap();
    let output =
        poolscope(&segments).env("POOLSCOPE_LIB", some_library()).args(["check", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(24));
    assert!(stderr(&output).contains("did not run on the pool"), "{}", stderr(&output));
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "its own folder is gone");
}

#[test]
fn the_dashboard_needs_a_terminal_and_says_what_needs_none() {
    let folder = Folder::new("no-terminal");
    let segment = write_segment(&folder.0, NOBODY);
    let output = poolscope(&folder.0).arg("top").arg(&segment).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--once"));
    let output =
        poolscope(&folder.0).env("POOLSCOPE_LIB", some_library()).args(["run", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--headless"));
}

#[test]
fn wrong_usage_ends_with_2() {
    let folder = Folder::new("usage");
    for arguments in [&["frobnicate"][..], &["top"], &["run"], &["run", "--period", "abc", "--", "true"], &[]] {
        let output = poolscope(&folder.0).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

/// A trace of device memory: blocks of 3 MiB, of which five are live at a time.
fn write_trace(folder: &Path) -> PathBuf {
    let mut text = "# a model\n".to_owned();
    for block in 0..200 {
        text += &format!("+ {block} {} 0\n", (block % 7 + 1) * 1_000_000);
        if block >= 5 {
            text += &format!("- {}\n", block - 5);
        }
    }
    let path = folder.join("model.trace");
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_trace_is_replayed_on_the_policies_that_were_asked_for() {
    let folder = Folder::new("bench-gpu");
    let trace = write_trace(&folder.0);
    let bench =
        |more: &[&str]| poolscope(&folder.0).args(["bench", "gpu", "--trace"]).arg(&trace).args(more).output().unwrap();
    let output = bench(&["--policy", "tiered,async"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(text.contains("\ntiered ") && text.contains("\nasync ") && !text.contains("\nbuddy "), "{text}");

    let output = bench(&["--json", "--passes", "3", "--memory", "1G"]);
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((report["operations"].as_u64(), report["memory"].as_u64()), (Some(400), Some(1 << 30)));
    let policies = report["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 6);
    for policy in policies {
        assert_eq!(policy["passes"].as_array().map(Vec::len), Some(3), "{policy}");
        let reserved = policy["peak_reserved"].as_u64().unwrap();
        assert!(reserved >= report["peak_live"].as_u64().unwrap(), "{policy}");
    }

    // Not even the program's own bytes fit.
    let output = bench(&["--memory", "4M"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stdout(&output).contains("out of memory") && stdout(&output).contains("line "), "{}", stdout(&output));
}

#[test]
fn a_machine_without_the_device_says_so() {
    let folder = Folder::new("bench-no-device");
    let trace = write_trace(&folder.0);
    // No machine has so many; most that run this have none, and say why.
    let output = poolscope(&folder.0).args(["bench", "gpu", "--device", "99", "--trace"]).arg(trace).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("--device 99") && (text.contains("driver") || text.contains("device 99")), "{text}");
}

#[test]
fn what_is_no_trace_is_named_with_its_line() {
    let folder = Folder::new("bench-bad-trace");
    let cases: [(&[u8], &str); 4] = [
        (b"+ 1 100 0\n- 1\n- 1\n", "line 3"),
        (b"# nothing\n", "no operation"),
        (b"+ 1 100 0\nfree 1\n", "line 2"),
        (b"\x1f\x8bgarbage", "can't be read"),
    ];
    for (bytes, says) in cases {
        let path = folder.0.join("bad.trace");
        fs::write(&path, bytes).unwrap();
        for command in [&["bench", "gpu", "--trace"][..], &["whatif"]] {
            let output = poolscope(&folder.0).args(command).arg(&path).output().unwrap();
            assert_eq!(output.status.code(), Some(2));
            assert!(stderr(&output).contains(says) && stderr(&output).contains("bad.trace"), "{}", stderr(&output));
        }
    }
}

#[test]
fn what_if_ends_with_a_recommendation_and_its_settings() {
    let folder = Folder::new("whatif");
    let trace = write_trace(&folder.0);
    let output = poolscope(&folder.0).arg("whatif").arg(&trace).output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    let (_, end) = text.split_once("\nRecommended: ").expect(&text);
    assert!(end.contains("// Rust:\nlet "), "{text}");
    // A pool that no reader sees is none to recommend.
    assert_eq!(end.contains("let pool"), end.contains("let pool = poolscope_alloc::gpu::pool("), "{text}");
    let again = poolscope(&folder.0).arg("whatif").arg(&trace).output().unwrap();
    assert_eq!(stdout(&again), text, "the figures are no time of this machine's");

    let output = poolscope(&folder.0).args(["whatif", "--json"]).arg(&trace).output().unwrap();
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let name = report["recommendation"]["label"].as_str().unwrap();
    assert!(report["candidates"].as_array().unwrap().iter().any(|it| it["label"] == name), "{report}");

    let output = poolscope(&folder.0).args(["whatif", "--memory", "2M"]).arg(&trace).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no device of 2.00 MiB"), "{}", stderr(&output));
}

/// A library of another build than the command: its segment is there, and of a version that nobody here reads.
#[test]
fn recording_a_program_whose_segment_is_of_another_version_names_the_version() {
    let folder = Folder::new("other-version");
    let program = "import mmap, os, time\n\
        path = os.environ['POOLSCOPE_DIR'] + '/%d.%016x' % (os.getpid(), 7)\n\
        file = open(path + '.new', 'wb+')\n\
        file.write(b'POOLSCOP' + (99).to_bytes(4, 'little') + bytes(8180))\n\
        file.flush()\n\
        held = mmap.mmap(file.fileno(), 0)\n\
        os.rename(path + '.new', path)\n\
        time.sleep(0.5)\n";
    let mut command = poolscope(&folder.0);
    command.env("POOLSCOPE_LIB", some_library()).arg("record").arg("-o").arg(folder.0.join("app.rec"));
    let output = command.args(["--", "python3", "-c", program]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("segment of version 99, this poolscope reads version"), "{}", stderr(&output));
    assert!(!stderr(&output).contains("not on the pool"), "{}", stderr(&output));
    assert!(!folder.0.join("app.rec").exists());
}

/// A library that says what it writes is refused before the program starts.
#[test]
fn a_library_that_writes_other_segments_is_refused_before_the_program_runs() {
    let folder = Folder::new("other-library");
    let library = folder.0.join("libpoolscope.so");
    fs::write(&library, b"\x7fELF @(#)libpoolscope.so 9.9.9 commit 0123abcd segment 99\0").unwrap();
    for command in ["record", "check"] {
        let output =
            poolscope(&folder.0).env("POOLSCOPE_LIB", &library).args([command, "--", "echo", "ran"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{command}");
        for words in ["9.9.9, commit 0123abcd", "segments of version 99"] {
            assert!(stderr(&output).contains(words), "{command}: {}", stderr(&output));
        }
        assert_eq!(stdout(&output), "", "{command}");
    }
    let output = poolscope(&folder.0).env("POOLSCOPE_LIB", &library).arg("--version").output().unwrap();
    let said = stdout(&output);
    assert!(said.contains("libpoolscope.so: 9.9.9, commit 0123abcd, writes segments of version 99"), "{said}");
    assert!(said.contains(&format!("poolscope {}", env!("CARGO_PKG_VERSION"))), "{said}");
    let (oldest, newest) = (poolscope_wire::OLDEST_VERSION, poolscope_wire::VERSION);
    assert!(said.contains(&format!("reads versions {oldest} to {newest}")), "{said}");
}

#[test]
fn help_has_commands_and_topics_and_says_what_there_is() {
    let folder = Folder::new("help");
    let said = |arguments: &[&str]| stdout(&poolscope(&folder.0).arg("help").args(arguments).output().unwrap());
    assert!(said(&[]).contains("Commands:") && said(&[]).contains("poolscope help hunting"));
    assert!(said(&["dump"]).contains("--seconds <N>"));
    for (topic, words) in [("memory", "resident set"), ("reading", "as wide as"), ("hunting", "poolscope check")] {
        assert!(said(&[topic]).contains(words), "{topic}");
    }
    // `sites` is neither.
    let output = poolscope(&folder.0).args(["help", "sites"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("dump") && stderr(&output).contains("flamegraph"), "{}", stderr(&output));
}

/// By each shell's own parser; bash's completes as well.
#[test]
fn bash_completes_commands_options_and_topics() {
    let folder = Folder::new("completions");
    let script = folder.0.join("poolscope.bash");
    let output = poolscope(&folder.0).args(["completions", "bash"]).output().unwrap();
    fs::write(&script, &output.stdout).unwrap();
    let complete = |words: &str, last: usize| {
        let ask = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={last}; _poolscope poolscope \"${{COMP_WORDS[$COMP_CWORD]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["-c", &ask]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    assert_eq!(complete("poolscope fl", 1), "flamegraph\n");
    assert!(complete("poolscope flamegraph --me", 2).contains("--metric"));
    assert_eq!(complete("poolscope help hu", 2), "hunting\n");
    // What the help does not show is not offered.
    assert_eq!(complete("poolscope watch --deta", 2), "\n");
    assert!(!complete("poolscope tensors ", 2).contains("keep"));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = poolscope(&folder.0).args(["completions", shell]).output().unwrap();
        let script = stdout(&output);
        assert!(output.status.success() && script.contains("flamegraph"), "{shell}");
        assert!(script.contains("version") && script.contains("tensors") && script.contains("metric"), "{shell}");
        for hidden in ["detach", "tensors__keep", "tensors keep", "tensors;keep"] {
            assert!(!script.contains(hidden), "{shell}: {hidden}");
        }
    }
}

#[test]
fn a_token_that_others_can_read_or_change_is_warned_of() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("token");
    let file = folder.0.join("token");
    fs::write(&file, "s3cret\n").unwrap();
    let said = |folder_mode: u32, mode: u32| {
        fs::set_permissions(&folder.0, fs::Permissions::from_mode(folder_mode)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        // Nobody listens there.
        let mut command = poolscope(&folder.0);
        let output = command.args(["top", "http://127.0.0.1:1", "--once", "--token-file"]).arg(&file).output().unwrap();
        assert!(stderr(&output).contains("http://127.0.0.1:1"), "{}", stderr(&output));
        stderr(&output)
    };
    let read = said(0o755, 0o644);
    assert!(
        read.contains("every user of this machine can read the token in") && read.contains("(mode 0644)"),
        "{read}"
    );
    assert!(read.contains(&format!("chmod 600 {}", file.display())), "{read}");
    assert!(said(0o755, 0o602).contains("can change the token in"));
    // Nobody else gets at these.
    for (folder, mode) in [(0o755, 0o600), (0o755, 0o640), (0o700, 0o644)] {
        assert!(!said(folder, mode).contains("every user"), "{folder:o} {mode:o}");
    }
}

/// Every command and every topic has a page that `man` shows without a warning.
#[test]
fn the_manual_pages_are_whole() {
    let folder = Folder::new("man");
    let pages = folder.0.join("pages");
    let output = poolscope(&folder.0).arg("man").arg(&pages).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let names: Vec<String> =
        fs::read_dir(&pages).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    for page in ["poolscope.1", "poolscope-dump.1", "poolscope-record.1", "poolscope-memory.7", "poolscope-hunting.7"] {
        assert!(names.iter().any(|name| name == page), "{page} of {names:?}");
    }
    let text = fs::read_to_string(pages.join("poolscope-hunting.7")).unwrap();
    assert!(text.contains(".SH \"A PROGRAM THAT RUNS\"") && text.contains(".nf\n"), "{text}");
    let dump = fs::read_to_string(pages.join("poolscope-dump.1")).unwrap();
    assert!(dump.contains(r"\-\-seconds") && dump.contains("poolscope"), "{dump}");
}
