//! Profiles that are written while a program grows.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use poolscope_e2e::pprof_rules::{self, Expected};
use poolscope_e2e::{Pool, Program, Running, pprof};

/// Grows to 256 MiB in steps of 1 MiB, and waits for a line.
const GROWS: &str = "import sys,time\nheld=[]\nfor i in range(256):\n held.append(bytearray(b'x')*(1<<20))\n time.sleep(0.005)\n\
                     print('grown',flush=True)\nsys.stdin.readline()\n";

/// Grows by 32 MiB with each line of its input.
const GROWS_BY_LINE: &str = "import sys\nheld=[]\nfor line in sys.stdin:\n held.append(bytearray(b'x')*(32<<20))\n \
                             print('at',len(held),flush=True)\n";

/// Has it grow, step by step, until the watcher has written so many profiles, one of them for `why`. A watcher that
/// gets no time to look at one size sees a later one.
fn grow_until(run: &mut Running, step: &mut u32, profiles: usize, why: &str) {
    let is_written = |run: &Running| {
        let said = run.stderr();
        said.contains(why) && said.matches("poolscope: wrote ").count() >= profiles
    };
    while !is_written(run) {
        *step += 1;
        assert!(*step < 60, "{} MiB and no profile for {why:?}: {}", *step * 32, run.stderr());
        run.send("\n");
        run.wait_for_line(&format!("at {step}"));
        (0..50).take_while(|_| !is_written(run)).for_each(|_| sleep(Duration::from_millis(10)));
    }
}

fn profiles(pool: &Pool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(pool.files().path()).expect("is readable").flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().ends_with(".pb.gz")).collect();
    found.sort();
    found
}

#[test]
fn a_program_that_grows_leaves_a_profile_for_each_step() {
    let pool = Pool::new();
    let args = ["run", "--headless", "--period", "64K", "--dump-at-rss", "128M", "--dump-on-growth", "100"];
    let mut run = pool.poolscope().args(args).args(["--", "/usr/bin/python3", "-c", GROWS_BY_LINE]).start();
    let mut step = 0;
    grow_until(&mut run, &mut step, 1, "the resident set grew from");
    grow_until(&mut run, &mut step, 3, "the resident set came to");
    let pid = run.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    assert_eq!(children, "", "the program has no child that it does not know");
    let output = run.finish();
    assert_eq!(output.code(), 0);

    let written = profiles(&pool);
    assert!(written.len() >= 3, "{written:?}\n{}", output.report());
    assert_eq!(written[0], pool.files().join(format!("heap-{pid}-001.pb.gz")), "the program kept its number");
    for profile in &written {
        pprof_rules::check(profile, &Expected { main: "python3", shown: "inuse_space", delta: false });
    }
    let why: Vec<String> = written.iter().map(|path| pprof::pprof(pool.files(), &["-comments"], path).stdout).collect();
    assert!(why.iter().any(|text| text.contains("the resident set came to")), "{why:?}");
    assert!(why.iter().any(|text| text.contains("the resident set grew from")), "{why:?}");
}

#[test]
fn a_process_that_runs_already_is_watched_until_it_ends() {
    let pool = Pool::new();
    let mut program = pool.program("/usr/bin/python3").args(["-c", &format!("input()\n{GROWS}")]).start();
    program.wait_until("it is on the pool", |program| pool.segment(program.pid()).map(drop));
    let watch = ["watch", &program.pid().to_string(), "--dump-at-rss", "100M"];
    let mut watch = pool.poolscope().args(watch).start();
    program.send("\n");
    program.wait_for_line("grown");
    watch.wait_until("it wrote the profile", |watch| watch.stderr().contains("wrote ./heap-").then_some(()));
    program.send("\n");
    assert_eq!(program.finish().code(), 0);
    assert_eq!(watch.finish().code(), 0);
    assert_eq!(profiles(&pool).len(), 1);
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let pool = Pool::new();
    let other = Program::new("sleep").arg("100").start();
    let output = pool.poolscope().args(["watch", &other.pid().to_string(), "--dump-at-rss", "1G"]).run();
    assert!(output.code() == 2 && output.stderr.contains("does not run on the pool"), "{}", output.report());
    for (args, says) in [
        (&["watch", "1"][..], "--dump-at-rss or --dump-on-growth"),
        (&["watch", "4194305", "--dump-at-rss", "1G"], "there is no process 4194305"),
        (
            &["run", "--headless", "--dump-at-rss", "1G", "--dump-dir", "/dev/null/absent", "--", "true"],
            "cannot use /dev/null/absent",
        ),
        (&["run", "--dump-at-rss", "much", "--", "true"], "not a number of bytes"),
    ] {
        let output = pool.poolscope().args(args).run();
        assert!(output.code() == 2 && output.stderr.contains(says), "{args:?}: {}", output.report());
    }
}
