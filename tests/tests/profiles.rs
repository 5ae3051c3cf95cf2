//! Profiles of a real server, compared with each other and with the rules that pprof's readers hold them to.

use std::path::{Path, PathBuf};

use poolscope_e2e::pprof_rules::{self, Expected};
use poolscope_e2e::{Pool, Running, compiler, pprof, sample};
use serde_json::Value;

/// The sample server, leaking.
fn server(pool: &Pool) -> Running {
    let args = ["--clients", "4", "--rate", "0", "--seconds", "100"];
    let mut server = pool.program(sample("kv-server")).args(args).env("POOLSCOPE_PERIOD", "64K").start();
    server.wait_for_line("kv-server: pid");
    wait_for_samples(pool, &mut server, 2000);
    server
}

fn wait_for_samples(pool: &Pool, server: &mut Running, samples: u64) {
    let from = pool.segment(server.pid()).map_or(0, |segment| segment.samples());
    server.wait_until("it took samples", |running| {
        (pool.segment(running.pid())?.samples() >= from + samples).then_some(())
    });
}

fn dump(pool: &Pool, pid: u32, name: &str, args: &[&str]) -> PathBuf {
    let path = pool.files().join(name);
    pool.poolscope().args(["dump", &pid.to_string(), "-o"]).arg(&path).args(args).run().success();
    path
}

fn text(path: &Path) -> &str {
    path.to_str().expect("is text")
}

#[test]
fn what_a_server_leaked_between_two_profiles_is_what_grew() {
    let pool = Pool::new();
    let mut server = server(&pool);
    let before = dump(&pool, server.pid(), "before.pb.gz", &[]);
    wait_for_samples(&pool, &mut server, 3000);
    let pid = server.pid().to_string();
    let diff = |args: &[&str]| pool.poolscope().arg("diff").arg(&before).args(args).run().success().stdout;

    let table = diff(&[&pid]);
    let leak = table.lines().find(|line| line.contains("remember_watch")).expect("the leak is in the table");
    assert!(leak.trim_start().starts_with('+') && table.starts_with("bytes in use: "), "{table}");

    let after = dump(&pool, server.pid(), "after.pb.gz", &[]);
    let json: Value = serde_json::from_str(&diff(&[text(&after), "--json"])).expect("is JSON");
    let sites = json["sites"].as_array().expect("sites");
    let leak = sites.iter().find(|site| site["frames"].to_string().contains("remember_watch")).expect("the leak");
    let bytes = |side: &str| leak[side]["in_use"]["bytes"].as_f64().expect("is a number");
    assert!(bytes("after") > bytes("before"), "{leak:#}");

    let (svg, profile) = (pool.files().join("change.svg"), pool.files().join("change.pb.gz"));
    assert_eq!(diff(&[text(&after), "--svg", text(&svg), "--pprof", text(&profile)]), "");
    let svg = std::fs::read_to_string(svg).expect("was written");
    assert!(svg.contains("remember_watch") && svg.contains("red: more than before"), "{svg}");
    let ours = pprof::pprof(pool.files(), &["-top", "-cum", "-unit=B"], &profile).stdout;
    assert!(ours.contains("a difference") && ours.contains("remember_watch"), "{ours}");
    pprof_rules::check(&profile, &Expected { main: "kv-server", shown: "inuse_space", delta: true });
    // pprof's own subtraction of the same two files comes to the same.
    let line = |top: &str| -> Vec<String> {
        let line = top.lines().find(|line| line.ends_with("remember_watch")).unwrap_or_else(|| panic!("{top}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    let base = format!("-base={}", before.display());
    let theirs = pprof::pprof(pool.files(), &["-top", "-cum", "-unit=B", &base], &after).stdout;
    assert_eq!(line(&ours)[3], line(&theirs)[3], "{ours}\n{theirs}");

    let flamegraph = ["flamegraph", text(&after), "--base", text(&before), "-o", "-"];
    let flamegraph = pool.poolscope().args(flamegraph).run().success().stdout;
    assert!(flamegraph.contains("after.pb.gz, compared with before.pb.gz"), "{flamegraph}");
}

#[test]
fn a_dump_over_seconds_holds_what_was_allocated_in_them() {
    let pool = Pool::new();
    let mut server = server(&pool);
    let whole = dump(&pool, server.pid(), "whole.pb.gz", &[]);
    let delta = dump(&pool, server.pid(), "delta.pb.gz", &["--seconds", "1", "--allocs"]);
    wait_for_samples(&pool, &mut server, 1);
    let top = pprof::pprof(pool.files(), &["-top"], &delta).stdout;
    assert!(top.contains("Type: alloc_space") && top.contains("Duration: 1."), "{top}");
    let total = |path: &Path| {
        let raw = pprof::Raw::read(pool.files(), path);
        raw.samples.iter().map(|sample| sample.values[1]).sum::<i64>()
    };
    pprof_rules::check(&whole, &Expected { main: "kv-server", shown: "inuse_space", delta: false });
    pprof_rules::check(&delta, &Expected { main: "kv-server", shown: "alloc_space", delta: true });
    let delta_bytes = total(&delta);
    assert!(delta_bytes > 0, "the server allocates all the time");
    assert!(delta_bytes < total(&whole) + total(&dump(&pool, server.pid(), "end.pb.gz", &[])));
}

#[test]
fn samples_carry_the_size_of_their_blocks_and_the_name_of_their_thread() {
    let pool = Pool::new();
    let server = server(&pool);
    let profile = dump(&pool, server.pid(), "heap.pb.gz", &[]);
    let tags = pprof::pprof(pool.files(), &["-tags"], &profile).stdout;
    let (bytes, thread) = tags.split_once("thread: Total").expect("both labels");
    assert!(bytes.contains("bytes: Total"), "{tags}");
    assert!(thread.contains("kv-server") || thread.contains("worker"), "{tags}");
    let traces = pprof::pprof(pool.files(), &["-traces"], &profile).stdout;
    assert!(traces.contains("remember_watch") && traces.contains("thread:"), "{traces}");
    assert!(pprof::pprof(pool.files(), &["-svg"], &profile).stdout.contains("</svg>"));
    let comments = pprof::pprof(pool.files(), &["-comments"], &profile).stdout;
    assert!(comments.contains("kv-server --clients 4") && comments.contains("64.0 KiB"), "{comments}");
}

#[test]
fn what_cannot_be_compared_is_named_with_the_reason() {
    let pool = Pool::new();
    let text_file = pool.files().write("notes.txt", "no profile");
    let output = pool.poolscope().arg("diff").arg(&text_file).arg(&text_file).run();
    assert_eq!(output.code(), 2);
    assert!(output.stderr.contains("notes.txt: it is of no format that is read here: pprof"), "{}", output.report());
    let output = pool.poolscope().args(["diff", "/nonexistent/a", "/nonexistent/b"]).run();
    assert!(output.stderr.contains("\"/nonexistent/a\" is neither"), "{}", output.report());
}

/// C, C++, Python, a killed program, an empty heap: what programs leave is different, the rules are the same.
#[test]
fn the_profiles_of_all_kinds_of_programs_keep_the_rules_and_show_no_frame_of_the_pool() {
    let pool = Pool::new();
    let cpp = compiler::compile_linked(pool.files(), "samples/csrc/words.cpp", "words", &["-g", "-O1"]);
    let programs: [(&str, Vec<&str>, &str); 3] = [
        (text(&cpp), vec![], "words"),
        ("/usr/bin/python3", vec!["-c", "x=[str(i) for i in range(100000)]"], "python3"),
        ("/bin/true", vec![], "true"),
    ];
    for (program, args, main) in programs {
        let before: Vec<PathBuf> = pool.segments().into_iter().map(|segment| segment.path).collect();
        let input = "the quick brown fox jumps over the lazy dog ".repeat(2000);
        pool.program(program).args(&args).env("POOLSCOPE_PERIOD", "1").input(input).run();
        for segment in pool.segments().iter().filter(|segment| !before.contains(&segment.path)) {
            let profile = pool.files().join("kind.pb.gz");
            pool.poolscope().arg("dump").arg(&segment.path).arg("-o").arg(&profile).run().success();
            pprof_rules::check(&profile, &Expected { main, shown: "inuse_space", delta: false });
            let top = pprof::pprof(pool.files(), &["-top", "-sample_index=alloc_space"], &profile).stdout;
            for line in top.lines().skip_while(|line| !line.contains("flat%")) {
                let name = line.split_whitespace().nth(5).unwrap_or_default();
                assert!(!["malloc", "calloc", "operator"].contains(&name), "{main}: {top}");
            }
        }
    }
}
