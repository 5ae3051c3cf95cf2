//! Runs the test programs of the workspace, several at a time, and says which test failed.
//!
//! Cargo runs test programs one after the other, and most of ours wait most of the time: for a figure to come, for a
//! server to start, for a process to go idle. `scripts/test.sh` has Cargo build them, and hands the messages that Cargo
//! writes to this program. It starts each program as Cargo would: in its package's folder, with the same libraries.
//!
//! Programs whose tests compare times or look at the whole machine run last, each of them alone.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Run alone, after all others: each with what it measures.
const ALONE: &[&str] = &[
    "-p poolscope-e2e --test idle",
    "-p poolscope-e2e --test figures",
    "-p poolscope-e2e --test process_memory",
    "-p poolscope-e2e --test sampling",
];

/// Begun first, because they take longest.
const FIRST: &[&str] = &[
    "-p poolscope-e2e --test chaos",
    "-p poolscope-e2e --test readme",
    "-p poolscope-e2e --test record",
    "-p poolscope-e2e --test conformance",
    "-p poolscope-profiler --lib",
];

/// A program that runs for longer hangs. It is ended, and its output says which test had been running.
const LIMIT: Duration = Duration::from_secs(900);

const USAGE: &str = "usage: run-tests FOLDER < MESSAGES
Runs the test programs that `cargo test --no-run --message-format=json` names on its standard output. What each writes
goes to a file in FOLDER.
TEST_JOBS says how many programs run at a time, TEST_LIMIT how many seconds each may take.";

/// A program with tests.
#[derive(Clone, Debug, PartialEq)]
struct Suite {
    /// What `cargo test` would be told to run it alone.
    name: String,
    folder: PathBuf,
    program: PathBuf,
}

impl Suite {
    /// From a message of Cargo's. None for what is not a test program.
    fn of(message: &Value) -> Option<Suite> {
        let program = message["executable"].as_str()?;
        if message["profile"]["test"] != true {
            return None;
        }
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        let (_, package) = message["package_id"].as_str()?.rsplit_once(['#', '/'])?;
        let package = package.split('@').next()?;
        let target = &message["target"];
        let target_name = target["name"].as_str()?;
        let kind = match target["kind"][0].as_str()? {
            kind @ ("bin" | "example" | "test" | "bench") => format!("--{kind} {target_name}"),
            _ => "--lib".to_owned(),
        };
        Some(Suite { name: format!("-p {package} {kind}"), folder: folder.to_owned(), program: program.into() })
    }

    fn file(&self) -> String {
        self.name.replace("--", "").replace("-p ", "").replace(' ', "-") + ".txt"
    }

    fn is(&self, list: &[&str]) -> bool {
        list.contains(&self.name.as_str())
    }
}

/// How a program ended.
struct Outcome {
    suite: Suite,
    took: Duration,
    passed: bool,
    output: String,
}

impl Outcome {
    /// How many tests passed, and how many were left out, as the program says itself.
    fn counts(&self) -> (u32, u32) {
        let line = self.output.lines().rev().find(|line| line.starts_with("test result: ")).unwrap_or_default();
        let before = |word: &str| {
            let (number, _) = line.split_once(word)?;
            number.trim_end().rsplit(' ').next()?.parse().ok()
        };
        (before("passed").unwrap_or(0), before("ignored").unwrap_or(0))
    }

    /// The tests that failed. Where a program died, those that it had not finished.
    fn failed(&self) -> Vec<&str> {
        let lines = || self.output.lines().filter_map(|line| line.strip_prefix("test "));
        let mut failed: Vec<&str> = lines().filter_map(|line| line.strip_suffix(" ... FAILED")).collect();
        let running = lines().filter_map(|line| line.split_once(" has been running for over"));
        for (test, _) in running {
            let ended = lines().any(|line| line.split_once(" ... ").is_some_and(|(name, _)| name == test));
            if !ended {
                failed.push(test);
            }
        }
        failed
    }

    fn print(&self) {
        let (passed, ignored) = self.counts();
        let word = if self.passed { "ok" } else { "FAILED" };
        let ignored = if ignored > 0 { format!(", {ignored} ignored") } else { String::new() };
        let name = &self.suite.name;
        println!("{:7.1} s  {word:6}  {name}: {passed} passed{ignored}", self.took.as_secs_f64());
        if !self.passed {
            println!("{}", self.output);
        }
    }
}

/// The test programs that messages of Cargo's name.
fn suites(messages: impl Iterator<Item = String>) -> Vec<Suite> {
    messages.filter_map(|line| serde_json::from_str(&line).ok()).filter_map(|message| Suite::of(&message)).collect()
}

/// How programs are run.
struct Runner {
    folder: PathBuf,
    libraries: String,
    limit: Duration,
}

impl Runner {
    fn run(&self, suite: Suite) -> Outcome {
        let path = self.folder.join(suite.file());
        let file = File::create(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let errors = file.try_clone().expect("a file can be named twice");
        let begun = Instant::now();
        let mut program = Command::new(&suite.program)
            .current_dir(&suite.folder)
            .env("LD_LIBRARY_PATH", &self.libraries)
            .env("CARGO_MANIFEST_DIR", &suite.folder)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", suite.program.display()));
        let status = loop {
            if let Some(status) = program.try_wait().expect("a child can be waited for") {
                break Some(status);
            }
            if begun.elapsed() > self.limit {
                let _ = program.kill();
                let _ = program.wait();
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let took = begun.elapsed();
        let mut output = String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned();
        match status {
            None => output += &format!("\nIt was ended: it had run for {} s.\n", self.limit.as_secs()),
            Some(status) if !status.success() => output += &format!("\nIt ended with {status}.\n"),
            Some(_) => {}
        }
        Outcome { passed: status.is_some_and(|status| status.success()), suite, took, output }
    }

    /// Runs these, so many at a time, in their order.
    fn run_all(&self, suites: Vec<Suite>, jobs: usize) -> Vec<Outcome> {
        let waiting = Mutex::new(VecDeque::from(suites));
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    loop {
                        let next = waiting.lock().expect("no panic").pop_front();
                        let Some(suite) = next else { break };
                        let outcome = self.run(suite);
                        let mut done = done.lock().expect("no panic");
                        outcome.print();
                        done.push(outcome);
                    }
                });
            }
        });
        done.into_inner().expect("no panic")
    }
}

/// A number that a variable of the environment may give.
fn number(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")),
        Err(_) => otherwise,
    }
}

/// What programs of Cargo's find beside themselves: the standard library, for those that link it as a library.
fn libraries() -> String {
    let told = Command::new("rustc").args(["--print", "target-libdir"]).output().expect("rustc can be run");
    let toolchain = String::from_utf8_lossy(&told.stdout).trim().to_owned();
    match std::env::var("LD_LIBRARY_PATH") {
        Ok(others) => format!("{toolchain}:{others}"),
        Err(_) => toolchain,
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let runner = Runner {
        folder: folder.into(),
        libraries: libraries(),
        limit: Duration::from_secs(number("TEST_LIMIT", LIMIT.as_secs())),
    };
    std::fs::create_dir_all(&runner.folder).unwrap_or_else(|e| panic!("{}: {e}", runner.folder.display()));
    let messages = std::io::stdin().lock().lines().map(|line| line.expect("messages can be read"));
    let mut suites = suites(messages);
    for name in ALONE.iter().chain(FIRST) {
        assert!(suites.iter().any(|suite| suite.name == *name), "there is no {name}: it stands in a list of this file");
    }
    suites.sort_by_key(|suite| !suite.is(FIRST));
    let (last, together): (Vec<Suite>, Vec<Suite>) = suites.into_iter().partition(|suite| suite.is(ALONE));
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let jobs = number("TEST_JOBS", cores as u64).max(1) as usize;
    let begun = Instant::now();
    let mut outcomes = runner.run_all(together, jobs);
    println!("{:7.1} s  so far, {jobs} programs at a time. The rest run alone.", begun.elapsed().as_secs_f64());
    outcomes.extend(runner.run_all(last, 1));
    summary(&mut outcomes, begun.elapsed())
}

fn summary(outcomes: &mut [Outcome], took: Duration) -> ExitCode {
    outcomes.sort_by_key(|outcome| std::cmp::Reverse(outcome.took));
    println!("\nThe longest:");
    for outcome in outcomes.iter().take(12) {
        println!("{:7.1} s  {}", outcome.took.as_secs_f64(), outcome.suite.name);
    }
    let counts = outcomes.iter().map(Outcome::counts);
    let (passed, ignored) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    println!("{passed} tests of {} programs passed in {:.0} s, {ignored} ignored.", outcomes.len(), took.as_secs_f64());
    let failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.passed).collect();
    for outcome in &failed {
        println!("FAILED: cargo test {}", outcome.suite.name);
        outcome.failed().iter().for_each(|test| println!("    {test}"));
    }
    std::io::stdout().flush().expect("output can be written");
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use poolscope_e2e::Scratch;

    fn message(kind: &str, name: &str, test: bool) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"path+file:///src/tui#poolscope-tui@0.1.0",
                "manifest_path":"/src/tui/Cargo.toml","target":{{"kind":["{kind}"],"name":"{name}"}},
                "profile":{{"test":{test}}},"executable":"/target/debug/deps/{name}-1"}}"#
        )
        .replace('\n', "")
    }

    #[test]
    fn test_programs_are_named_as_cargo_would_be_told_to_run_them() {
        let lines = [
            message("lib", "poolscope_tui", true),
            message("bin", "poolscope", true),
            message("bin", "poolscope", false),
            message("test", "cli", true),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let suites = suites(lines.into_iter());
        let names: Vec<&str> = suites.iter().map(|suite| suite.name.as_str()).collect();
        assert_eq!(
            names,
            ["-p poolscope-tui --lib", "-p poolscope-tui --bin poolscope", "-p poolscope-tui --test cli"]
        );
        assert_eq!(suites[0].folder, Path::new("/src/tui"));
        assert_eq!(suites[2].file(), "poolscope-tui-test-cli.txt");
    }

    /// Runs a shell script as if it were a test program.
    fn outcome(script: &str, limit: Duration) -> Outcome {
        let files = Scratch::new();
        let program = files.write("program", &format!("#!/bin/sh\n{script}\n"));
        Command::new("chmod").arg("+x").arg(&program).status().expect("chmod can be run");
        let runner = Runner { folder: files.path().to_owned(), libraries: String::new(), limit };
        let suite = Suite { name: "-p it --lib".to_owned(), folder: files.path().to_owned(), program };
        runner.run_all(vec![suite], 2).pop().expect("it ran")
    }

    const SUMMARY: &str = "echo 'test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out'";

    #[test]
    fn a_program_passes_if_it_ends_with_success() {
        let ran = outcome(&format!("echo 'test a ... ok'; {SUMMARY}"), LIMIT);
        assert!(ran.passed);
        assert_eq!((ran.counts(), ran.failed()), ((12, 3), vec![]));
    }

    #[test]
    fn a_program_that_fails_or_dies_has_failed_whatever_it_wrote() {
        let failed = outcome("echo 'test a ... ok'; echo 'test b::c ... FAILED'; exit 101", LIMIT);
        assert!(!failed.passed);
        assert_eq!(failed.failed(), ["b::c"]);
        let died = outcome(&format!("{SUMMARY}; kill -SEGV $$"), LIMIT);
        assert!(!died.passed && died.output.contains("signal: 11"), "{}", died.output);
    }

    #[test]
    fn a_program_that_hangs_is_ended_and_the_test_that_ran_is_named() {
        let begun = Instant::now();
        let long =
            "echo 'test a has been running for over 60 seconds'; echo 'test b has been running for over 60 seconds'";
        let hung = outcome(&format!("{long}; echo 'test a ... ok'; exec sleep 60"), Duration::from_millis(300));
        assert!(!hung.passed && begun.elapsed() < Duration::from_secs(30));
        assert_eq!(hung.failed(), ["b"]);
        assert!(hung.output.contains("It was ended"), "{}", hung.output);
    }
}
