//! A process that gives root up gives it up: the pool's own thread keeps nothing. Nor is it in the way of what only
//! processes with one thread may do.

use poolscope_e2e::{Pool, Program, artifacts, compiler, pprof};

/// A thread: its number, and the line with its credentials.
type Thread = (String, String);

/// What the program printed, by when it looked: a title, and its threads.
fn looks(how: &str) -> Option<Vec<(String, Vec<Thread>)>> {
    // SAFETY: a system call without arguments.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("not root: there are no credentials to give up, and nothing is tested");
        return None;
    }
    let pool = Pool::new();
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/credentials.c", "credentials", &["-O2"]);
    // A delay that is long enough for the thread to be there at each look.
    let output = pool.program(program).arg(how).env("POOLSCOPE_SCAVENGE_MS", "2000").limit(20).run().success();
    let mut looks = Vec::new();
    for line in output.stdout.lines() {
        match line.strip_prefix("THREAD ") {
            None => looks.push((line.to_owned(), Vec::new())),
            Some(thread) => {
                let (number, credentials) = thread.split_once(' ').expect("a number comes first");
                let (_, threads) = looks.last_mut().expect("a title comes first");
                threads.push((number.to_owned(), credentials.to_owned()));
            }
        }
    }
    Some(looks)
}

const NOBODY: &str = "Uid:\t65534\t65534\t65534\t65534Gid:\t65534\t65534\t65534\t65534Groups:\t ";

fn assert_given_up(how: &str) {
    let Some(looks) = looks(how) else { return };
    let [(before, old), (after, new), (again, anew)] = &looks[..] else { panic!("{looks:?}") };
    assert_eq!((before.as_str(), after.as_str(), again.as_str()), ("BEFORE", "AFTER", "AGAIN"));
    let [main, scavenger] = &old[..] else { panic!("{looks:?}") };
    assert!(old.iter().all(|(_, credentials)| credentials.starts_with("Uid:\t0\t0\t0\t0")), "{looks:?}");
    // There may be a new scavenger at once, as there is idle memory; the old one is gone.
    let later = || new.iter().chain(anew);
    assert!(later().all(|(number, credentials)| credentials == NOBODY && *number != scavenger.0), "{looks:?}");
    assert!(new.iter().any(|(number, _)| *number == main.0), "{looks:?}");
    assert_eq!(anew.len(), 2, "{looks:?}");
}

#[test]
fn no_thread_keeps_what_setuid_and_its_like_give_up() {
    assert_given_up("libc");
}

#[test]
fn the_scavenger_ends_by_itself_where_the_change_passed_it_by() {
    assert_given_up("raw");
}

/// As servers do: the segment's file can't be opened by the other user, and not found from the other root.
#[test]
fn a_process_that_becomes_another_user_or_takes_another_root_is_recorded_in_full() {
    // SAFETY: a system call without arguments.
    if unsafe { libc::geteuid() } != 0 {
        poolscope_e2e::skip("a process that becomes another user, or takes another root: it needs root");
        return;
    }
    let pool = Pool::new();
    let source = "tests/csrc/becomes_another.c";
    let program = compiler::compile_with_headers(pool.files(), source, "becomes_another", &["-g", "-fno-builtin"]);
    // Where anybody may read it.
    let poolscope = pool.files().join("poolscope");
    artifacts::copy(&artifacts::poolscope(), &poolscope);
    for steps in ["setuid", "chroot", "chroot setuid"] {
        let mut running = pool.program(&program).args(steps.split(' ')).env("POOLSCOPE_PERIOD", "1").start();
        running.wait_for_line("ready");
        let profile = pool.files().join("profile.pb.gz");
        let pid = running.pid().to_string();
        pool.poolscope().args(["dump", &pid, "-o"]).arg(&profile).run().silent_success();
        let top = pprof::pprof(pool.files(), &["-top", "-sample_index=inuse_space", "-unit=B"], &profile).stdout;
        let is_whole = |line: &str| line.contains("4000000B") && line.ends_with("take");
        assert!(top.lines().any(is_whole), "{steps}: {source} holds 4,000,000 bytes:\n{top}");
        let comments = pprof::pprof(pool.files(), &["-comments"], &profile).stdout;
        assert!(!comments.contains("lost"), "{steps}: {comments}");
        let leaks = pool.poolscope().args(["leaks", &pid]).run();
        assert!(leaks.code() == 0 && leaks.stdout.contains("checked 4,0"), "{steps}: {}", leaks.report());
        if steps.contains("setuid") {
            let by_that_user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
            let stats = Program::new("setpriv").args(by_that_user).arg(&poolscope).args(["stats", &pid]).run();
            assert!(stats.stderr.contains("lets only root see it"), "{}", stats.report());
        }
        let recording = pool.files().join("recording.psr");
        let record = pool.poolscope().args(["record", "--duration", "0.5", "-o"]).arg(&recording).arg(&pid).run();
        if steps == "chroot" {
            assert!(record.code() == 0 && record.stderr.contains("nothing was lost"), "{}", record.report());
        } else {
            assert!(record.stderr.contains("become another user since it started"), "{}", record.report());
        }
        running.finish().success();
        let record = pool.poolscope().args(["record", "-o"]).arg(&recording).arg("--").arg(&program);
        let record = record.args(steps.split(' ')).run();
        assert!(record.code() == 0 && record.stderr.contains("nothing was lost"), "{steps}: {}", record.report());
        assert!(record.stderr.contains("the program ended; 4,00"), "{steps}: {}", record.report());
    }
}

#[test]
fn a_process_with_one_thread_enters_namespaces_as_without_the_pool() {
    let pool = Pool::new();
    let program = compiler::compile_with_headers(pool.files(), "tests/csrc/alone.c", "alone", &["-O2", "-fno-builtin"]);
    for call in ["user", "vm", "sighand", "thread", "mount", "time"] {
        // What the kernel refuses to this user is refused either way.
        let bare = Program::new(&program).arg(call).run().success().stdout;
        let pooled = pool.program(&program).arg(call).env("POOLSCOPE_SCAVENGE_MS", "2000").run().success().stdout;
        let error = |output: &str| output.lines().find(|line| line.starts_with("ERROR")).map(str::to_owned);
        assert_eq!(error(&pooled), error(&bare), "{call}");
        if matches!(call, "vm" | "sighand" | "thread") {
            assert_eq!(bare, "THREADS 1\nERROR 0\nAGAIN 1\n", "{call}");
            assert_eq!(pooled, "THREADS 2\nERROR 0\nAGAIN 2\n", "{call}");
        }
    }
}
