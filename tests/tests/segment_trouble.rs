//! No room, no folder, no permission: the program runs on and nobody hears of it unless asked.

use std::path::Path;

use poolscope_e2e::{Output, Program, Scratch, library};

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

/// Runs `prepare` and then the program, in a mount namespace of their own; `$1` is the folder in question.
fn run_in_namespace(prepare: &str, dir: &Path, settings: &[(&str, &str)]) -> Output {
    let mut script = format!("set -e\n{prepare}\nexport POOLSCOPE_DIR=$1 LD_PRELOAD=$2\n");
    for (name, value) in settings {
        script += &format!("export {name}={value}\n");
    }
    script += "exec /usr/bin/python3 -c \"$3\"";
    // SAFETY: geteuid has no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    // Root needs no user namespace, which containers often forbid.
    let namespaces = if root { "-m" } else { "-rm" };
    Program::new("unshare").args([namespaces, "bash", "-c", &script, "bash"]).arg(dir).arg(library()).arg(SCRIPT).run()
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

/// With a segment there is nothing to say, also when asked.
#[test]
fn no_trouble() {
    let dir = Scratch::in_shared_memory();
    let output = run_in_namespace("", dir.path(), &[("POOLSCOPE_VERBOSE", "1")]).silent_success();
    assert_eq!(output.stdout, ANSWER);
}
