//! Whose processes `poolscope` finds where `POOLSCOPE_DIR` does not say where to look.

use poolscope_e2e::{Pool, Program, Running, artifacts};
use serde_json::Value;

/// A program that runs until its input ends, and then leaves no segment.
fn start(program: Program) -> Running {
    let mut running = program.start();
    running.tell("up");
    running.wait_for_line("up");
    running
}

/// `poolscope` that looks wherever it usually does.
fn anywhere(pool: &Pool, args: &[&str]) -> Program {
    pool.poolscope().args(args).env_remove("POOLSCOPE_DIR")
}

/// The row of a process in `list --json`.
fn row(list: Program, pid: u32) -> Option<Value> {
    let text = list.run().success().stdout;
    let list: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let rows = list["processes"].as_array().expect("there is a list").clone();
    rows.into_iter().find(|row| row["pid"] == pid)
}

#[test]
fn a_process_with_a_folder_of_its_own_is_listed_unless_another_folder_is_named() {
    let pool = Pool::new();
    let cat = start(pool.program("cat").env_remove("POOLSCOPE_KEEP"));
    let found = row(anywhere(&pool, &["list", "--json"]), cat.pid()).expect("it is listed");
    assert_eq!(found["state"], "running");
    // SAFETY: a system call without arguments.
    assert_eq!(found["uid"], unsafe { libc::geteuid() });
    let other = Pool::new();
    assert_eq!(row(other.poolscope().args(["list", "--json"]), cat.pid()), None, "POOLSCOPE_DIR names another folder");
    cat.finish().success();
}

#[test]
fn root_lists_the_processes_of_all_users_and_others_hear_that_there_may_be_some() {
    // SAFETY: a system call without arguments.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("not root: no process of another user can be started, and nothing is tested");
        return;
    }
    let pool = Pool::new();
    let as_user = |uid: u32| Program::new("setpriv").args([format!("--reuid={uid}"), "--clear-groups".to_owned()]);
    let (library, poolscope) = (pool.files().join("libpoolscope.so"), pool.files().join("poolscope"));
    artifacts::copy(&artifacts::library(), &library);
    artifacts::copy(&artifacts::poolscope(), &poolscope);
    // Where nothing else is said, its segment lies in its user's folder.
    let preloaded = format!("LD_PRELOAD={}", library.display());
    let cat = start(as_user(64_123).args(["env", &preloaded, "cat"]).env_remove("POOLSCOPE_DIR"));
    let pid = cat.pid();

    let found = row(anywhere(&pool, &["list", "--json"]), pid).expect("root sees it");
    assert_eq!((&found["uid"], &found["state"]), (&64_123.into(), &"running".into()));
    let text = anywhere(&pool, &["list"]).run().success().stdout;
    let line = text.lines().find(|line| line.trim_start().starts_with(&pid.to_string())).expect("it has a line");
    assert_eq!(line.split_whitespace().nth(1), Some("64123"), "{text}");
    assert_eq!(text.lines().next().and_then(|heads| heads.split_whitespace().nth(1)), Some("USER"), "{text}");

    let alone = as_user(64_124).arg(&poolscope).arg("list").env_remove("POOLSCOPE_DIR").run().success();
    let words = "Other users may have programs on the pool: `sudo poolscope list` shows them";
    assert!(alone.stdout.contains("No process runs on the pool") && alone.stdout.contains(words), "{}", alone.report());

    cat.finish().success();
    assert_eq!(row(anywhere(&pool, &["list", "--json"]), pid), None, "it has ended");
    std::fs::remove_dir("/dev/shm/poolscope-64123").expect("nothing is left in it");
}
