//! Programs that say what they hold, and the profile that the pool made of them, read by real `go tool pprof`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use poolscope_e2e::compiler::{compile, compile_library};
use poolscope_e2e::pprof::{Raw, pprof};
use poolscope_e2e::{Pool, Program, artifacts, sample, truth};

/// How far what the profile says of a site is off, in standard errors: by the site and the type of sample.
type Deviations = BTreeMap<(String, &'static str), f64>;

/// Runs the program at this period and compares its profile with the truth.
#[track_caller]
fn deviations(pool: &Pool, program: &PathBuf, args: &[PathBuf], period: u64, sites: &[&str]) -> Deviations {
    let mut running = pool.program(program).args(args).env("POOLSCOPE_PERIOD", period.to_string()).start();
    running.wait_for_line("READY");
    let profile = pool.files().join("heap.pb.gz");
    pool.poolscope().args(["dump", &running.pid().to_string(), "-o"]).arg(&profile).run().success();
    let blocks = truth::parse(&running.stdout());
    running.finish().silent_success();

    let raw = Raw::read(pool.files(), &profile);
    let types = ["alloc_objects/count", "alloc_space/bytes", "inuse_objects/count", "inuse_space/bytes"];
    assert_eq!(raw.types, types);
    let top = pprof(pool.files(), &["-top", "-cum", "-sample_index=inuse_space"], &profile).stdout;

    let mut deviations = Deviations::new();
    for &site in sites {
        let blocks = blocks.get(site).unwrap_or_else(|| panic!("the program said nothing of {site}"));
        let allocated = truth::amount(blocks, period, |blocks| blocks.allocated);
        let held = truth::amount(blocks, period, |blocks| blocks.held);
        for (what, amount) in [("alloc_space/bytes", allocated), ("inuse_space/bytes", held)] {
            let estimate = raw.total_under(site, what);
            let off = amount.deviation(estimate);
            println!("{site} {what}: {estimate}, truth {} +- {:.0}, off by {off:+.2}", amount.bytes, amount.error);
            deviations.insert((site.to_owned(), what), off);
        }
        // Named in the report that a person reads, too, unless it holds nothing.
        let named = top.lines().any(|line| line.split_whitespace().any(|word| word.ends_with(site)));
        assert!(named || held.bytes == 0, "{site} is not in -top:\n{top}");
    }
    deviations
}

/// Within 3 standard errors, as `truth` computes them. The samples are random: of a right profiler, one run in about
/// 50 has a figure past 3. Then the mean of three more runs, whose error is smaller by the root of 3, must be within 3.5
/// of that for every figure: 2 of a single run's. Any that is past 5 (1 in 1,700,000) fails at once.
#[track_caller]
fn holds(program: &PathBuf, args: &[PathBuf], period: u64, sites: &[&str]) {
    let pool = Pool::new();
    let run = || deviations(&pool, program, args, period, sites);
    let first = run();
    assert!(first.values().all(|off| off.abs() <= 5.0), "off by so many standard errors: {first:?}");
    if first.values().any(|off| off.abs() > 3.0) {
        let more = [run(), run(), run()];
        let off = |figure| more.iter().map(|run| run[figure]).sum::<f64>() / 3.0_f64.sqrt();
        assert!(first.keys().all(|figure| off(figure).abs() <= 3.5), "off by {first:?}, and then by {more:?}");
    }
}

const DEFAULT: u64 = 512 << 10;
const SITES: [&str; 3] = ["site_a", "site_b", "site_c"];
const SITES_AND_PLUGIN: [&str; 4] = ["site_a", "site_b", "site_c", "site_plugin"];

/// Builds the C program and its plug-in with these flags and holds the profile to them.
#[track_caller]
fn c_program(flags: &[&str], strip: Option<&str>, period: u64) {
    let pool = Pool::new();
    let program = compile(pool.files(), "truth.c", "truth", flags);
    let plugin = compile_library(pool.files(), "truth_plugin.c", "truth_plugin.so", flags);
    if let Some(how) = strip {
        Program::new("strip").arg(how).arg(&program).arg(&plugin).run().silent_success();
    }
    holds(&program, &[plugin], period, &SITES_AND_PLUGIN);
}

#[test]
fn a_c_program_without_frame_pointers_and_a_plugin() {
    c_program(&["-O2", "-g", "-fomit-frame-pointer"], None, DEFAULT);
}

#[test]
fn a_c_program_with_frame_pointers_and_a_plugin() {
    c_program(&["-O2", "-g", "-fno-omit-frame-pointer"], None, DEFAULT);
}

#[test]
fn an_unoptimised_c_program() {
    c_program(&["-O0", "-g"], None, DEFAULT);
}

#[test]
fn a_stripped_c_program_with_only_eh_frame_and_symbols() {
    c_program(&["-O2", "-g", "-fomit-frame-pointer"], Some("--strip-debug"), DEFAULT);
}

#[test]
fn a_c_program_at_fixed_addresses() {
    let pool = Pool::new();
    let program = compile(pool.files(), "truth.c", "truth", &["-O2", "-g", "-no-pie", "-fno-pie"]);
    holds(&program, &[], DEFAULT, &SITES);
}

/// Sixteen times the samples, a quarter of the error: a small bias shows.
#[test]
fn many_samples_come_closer_to_the_truth() {
    c_program(&["-O2", "-g"], None, 32 << 10);
}

#[test]
fn a_rust_program() {
    holds(&sample("truth-rust"), &[], DEFAULT, &SITES);
}

#[test]
fn a_stripped_rust_program_with_only_eh_frame_and_symbols() {
    let pool = Pool::new();
    let program = pool.files().join("truth-rust");
    artifacts::copy(&sample("truth-rust"), &program);
    Program::new("strip").arg("--strip-debug").arg(&program).run().silent_success();
    holds(&program, &[], DEFAULT, &SITES);
}

/// With a period of 1 every allocation is recorded: no estimate, the truth to the byte.
#[test]
fn a_period_of_one_records_everything() {
    let pool = Pool::new();
    let program = compile(pool.files(), "truth.c", "truth", &["-O2", "-g"]);
    let mut running = pool.program(program).env("POOLSCOPE_PERIOD", "1").start();
    running.wait_for_line("READY");
    let profile = pool.files().join("heap.pb.gz");
    pool.poolscope().args(["dump", &running.pid().to_string(), "-o"]).arg(&profile).run().success();
    let blocks = truth::parse(&running.stdout());
    running.finish().silent_success();
    let raw = Raw::read(pool.files(), &profile);
    for site in SITES {
        let sum = |count: fn(&truth::Blocks) -> u64| {
            blocks[site].iter().fold((0, 0), |(n, bytes), each| (n + count(each), bytes + count(each) * each.size))
        };
        let (objects, bytes) = sum(|each| each.allocated);
        assert_eq!(raw.total_under(site, "alloc_objects/count"), objects, "{site}");
        assert_eq!(raw.total_under(site, "alloc_space/bytes"), bytes, "{site}");
        let (objects, bytes) = sum(|each| each.held);
        assert_eq!(raw.total_under(site, "inuse_objects/count"), objects, "{site}");
        assert_eq!(raw.total_under(site, "inuse_space/bytes"), bytes, "{site}");
    }
}

#[test]
fn pprof_draws_and_lists_without_a_warning() {
    let pool = Pool::new();
    let program = compile(pool.files(), "truth.c", "truth", &["-O2", "-g"]);
    let mut running = pool.program(program).start();
    running.wait_for_line("READY");
    let profile = pool.files().join("heap.pb.gz");
    pool.poolscope().args(["dump", &running.pid().to_string(), "-o"]).arg(&profile).run().success();
    running.finish().silent_success();
    let svg = pool.files().join("heap.svg");
    let to = format!("-output={}", svg.display());
    Program::new("go").args(["tool", "pprof", "-svg", &to]).arg(&profile).run().success();
    assert!(std::fs::read_to_string(svg).unwrap().contains("site_a"));
    // Files and lines came along.
    let list = pprof(pool.files(), &["-top", "-lines"], &profile).stdout;
    assert!(list.contains("truth.h:") || list.contains("truth.c:"), "{list}");
    let raw = Raw::read(pool.files(), &profile);
    let with_build_id = |name: &str| {
        raw.mappings.iter().any(|line| {
            let mut words = line.split_whitespace().skip_while(|word| !word.ends_with(name)).skip(1);
            words.next().is_some_and(|id| id.len() >= 16 && id.bytes().all(|b| b.is_ascii_hexdigit()))
        })
    };
    assert!(with_build_id("/truth"), "no build id: {:?}", raw.mappings);
}
