//! Device memory from end to end: a program with pools on simulated devices, and everything that reads of it.

use std::collections::BTreeMap;

use poolscope_e2e::pprof_rules::{self, Expected};
use poolscope_e2e::{Pool, Program, Running, Scratch, compiler, pprof, sample};
use serde_json::Value;

const MIB: f64 = 1_048_576.0;
const LEAK: u64 = 3_000_000;
/// Bytes of a device: more than a run forgets in a test.
const MEMORY: &str = "274877906944";

/// The made-up training run, every allocation recorded, after some steps.
fn training(pool: &Pool, args: &[&str]) -> Program {
    Program::new(sample("gpu-training"))
        .env("POOLSCOPE_DIR", pool.segment_dir())
        .env("POOLSCOPE_KEEP", "1")
        .env("POOLSCOPE_PERIOD", "1")
        .args(["--step-ms", "5"])
        .args(args)
}

fn running(pool: &Pool) -> Running {
    let mut program = training(pool, &["--devices", "2", "--memory", MEMORY, "--leak", "3000000"]).start();
    program.wait_for_line("gpu-training: pid");
    program
}

/// The model, once both devices have made a few steps.
fn model(pool: &Pool, pid: &str) -> Value {
    for _ in 0..100 {
        let model = pool.json(&["top", pid, "--json"]);
        let devices = model["devices"].as_array().expect("devices").iter();
        if devices.filter(|device| device["counters"]["allocation_count"].as_u64() > Some(2000)).count() == 2 {
            return model;
        }
    }
    panic!("the devices don't get on");
}

#[test]
fn device_memory_is_in_every_output_and_apart_from_the_hosts() {
    let pool = Pool::new();
    let mut program = running(&pool);
    let pid = program.pid().to_string();

    let model = model(&pool, &pid);
    for (number, device) in model["devices"].as_array().expect("devices").iter().enumerate() {
        assert_eq!((device["device"].as_u64(), device["kind"].as_str()), (Some(number as u64), Some("device")));
        assert_eq!(device["memory_bytes"].to_string(), MEMORY);
        let counter = |name: &str| device["counters"][name].as_f64().expect(name);
        let (in_use, reserved) = (counter("current_usage"), counter("held"));
        // 24 layers' weights and twice as much state of the optimizer.
        assert!(in_use >= 72.0 * 28.0 * MIB && reserved >= in_use, "{in_use} of {reserved}");
        assert!(device["in_use"]["bytes"].as_f64() >= Some(72.0 * 28.0 * MIB), "{}", device["in_use"]);
    }
    assert!(model["in_use"]["bytes"].as_f64() < Some(512.0 * MIB), "the host's figures are the host's");

    let stats = pool.json(&["stats", &pid, "--json"]);
    let text = pool.poolscope().args(["stats", &pid]).run().success().stdout;
    let of = |stats: &Value| stats["devices"].as_array().expect("devices").clone();
    assert_eq!(of(&stats).len(), 2);
    for (later, earlier) in of(&stats).iter().zip(of(&model)) {
        for key in ["device", "kind", "name", "memory_bytes"] {
            assert_eq!(later[key], earlier[key], "{key}");
        }
        let counters = |of: &Value| of["counters"].as_object().expect("counters").clone();
        let (later, earlier) = (counters(later), counters(&earlier));
        assert!(
            later.keys().eq(earlier.keys())
                && later["allocation_count"].as_u64() >= earlier["allocation_count"].as_u64()
        );
        for counter in later.keys() {
            assert_eq!(text.matches(&format!(": {counter} ")).count(), 2, "{counter}: {text}");
        }
    }
    assert!(text.contains("Pool of device 1 (simulated") && text.contains("256 GiB)"), "{text}");

    let profile = pool.files().join("gpu.pb.gz");
    pool.poolscope().args(["dump", &pid, "-o"]).arg(&profile).run().success();
    pprof_rules::check(&profile, &Expected { main: "gpu-training", shown: "inuse_space", delta: false });
    let host = pprof::pprof(pool.files(), &["-top", "-unit=MB"], &profile).stdout;
    assert!(host.contains("Type: inuse_space"), "{host}");
    let total = host.split("% of ").nth(1).and_then(|rest| rest.split("MB total").next()?.parse::<f64>().ok());
    assert!(total < Some(100.0), "what pprof shows at first is the host's memory: {host}");
    let of_device = ["-top", "-unit=MB", "-sample_index=gpu_inuse_space", "-tagfocus=device=1"];
    let device = Program::new("go").args(["tool", "pprof"]).args(of_device).arg(&profile);
    let device = device.env("PPROF_TMPDIR", pool.files().path()).run().success().stdout;
    assert!(device.contains("672") && device.contains("load_weights"), "{device}");
    assert!(device.contains("make_optimizer_state") && !device.contains("poolscope_gpu::"), "{device}");
    let all = pprof::pprof(pool.files(), &["-tags", "-sample_index=gpu_inuse_objects"], &profile).stdout;
    assert!(all.contains("device: Total") && all.contains("bytes: Total"), "{all}");

    let flamegraph =
        |args: &[&str]| pool.poolscope().args(["flamegraph", &pid, "-o", "-"]).args(args).run().success().stdout;
    assert!(flamegraph(&[]).contains("bytes in use</text>"), "the host's");
    let svg = flamegraph(&["--device", "1"]);
    assert!(svg.contains("bytes in use of device 1") && svg.contains("load_weights"), "{svg}");
    assert!(flamegraph(&["--kind", "device", "--metric", "alloc_space"]).contains("feed_forward"));
    let missing = pool.poolscope().args(["flamegraph", &pid, "-o", "-", "--device", "7"]).run();
    assert!(missing.code() == 2 && missing.stdout.is_empty(), "{}", missing.report());
    assert!(missing.stderr.contains("no block of memory of device 7"), "{}", missing.report());
    let refused = pool.poolscope().args(["flamegraph", &pid, "--kind", "host", "--device", "1"]).run();
    assert!(refused.code() == 2 && refused.stderr.contains("no device"), "{}", refused.report());

    let frame = pool.poolscope().args(["top", &pid, "--once", "--view", "gpu", "--size", "200x40"]).run().success();
    for part in ["Memory of device 0", "simulated", "█ large", "Who holds it", "load_weights", "2 pools"] {
        assert!(frame.stdout.contains(part), "{part}: {}", frame.stdout);
    }
    program.end_input();
    assert_eq!(program.finish().code(), 0);
}

/// Bytes of what is in use of device 1, by `dump`.
fn in_use_of_device_1(pool: &Pool, pid: &str, options: &[&str]) -> f64 {
    let profile = pool.files().join("device.pb.gz");
    pool.poolscope().args(["dump", pid, "--device", "1", "-o"]).arg(&profile).args(options).run().success();
    let raw = pprof::pprof(pool.files(), &["-top", "-unit=B", "-sample_index=gpu_inuse_space"], &profile).stdout;
    let total = raw.split("% of ").nth(1).and_then(|rest| rest.split("B total").next()?.parse().ok());
    total.unwrap_or_else(|| panic!("pprof says no total: {raw}"))
}

#[test]
fn the_peak_of_a_device_is_known_by_stack_while_it_lives_and_after_its_death() {
    let pool = Pool::new();
    // It leaks nothing: each step has the peak of the one before, and counters that are a moment old are right.
    let mut program = training(&pool, &["--devices", "2"]).start();
    program.wait_for_line("gpu-training: pid");
    let pid = program.pid().to_string();
    let pid = pid.as_str();
    model(&pool, pid);
    // Between steps there are weights and the optimizer's state; at the peak, the activations and gradients of one.
    let alive = in_use_of_device_1(&pool, pid, &["--peak"]);
    program.signal(libc::SIGKILL);
    program.finish();
    let model = pool.json(&["top", pid, "--json"]);
    let counter = |name: &str| model["devices"][1]["counters"][name].as_f64().expect(name);
    let peak = in_use_of_device_1(&pool, pid, &["--peak"]);
    // The counter has what rounding adds, and free blocks in caches. The peak that is written down is lower by a 32nd
    // at most; while the program lives, what is in use at the moment may be nearer to it.
    let most = counter("peak_usage");
    for by_stack in [alive, peak] {
        assert!(by_stack > 1.2 * 72.0 * 28.0 * MIB, "{alive} while it lived, {peak} after its death");
        assert!((0.9 * most..=most).contains(&by_stack), "{alive} and {peak} by stack, {most} by the counter");
    }
    let svg = pool.poolscope().args(["flamegraph", pid, "--device", "1", "--peak", "-o", "-"]).run().success().stdout;
    assert!(svg.contains("at its peak") && svg.contains("of device 1") && svg.contains("feed_forward"), "{svg}");
    // The host has a peak of its own, without the device's.
    let host = pool.poolscope().args(["flamegraph", pid, "--peak", "-o", "-"]).run().success().stdout;
    assert!(host.contains("at its peak") && !host.contains("of device"), "{host}");
    let all = pool.poolscope().args(["flamegraph", pid, "--kind", "device", "--peak", "-o", "-"]).run().success();
    assert!(all.stdout.contains("each device at its own peak"), "{}", all.report());
}

#[test]
fn what_a_program_leaks_of_its_devices_is_told_by_device_and_stack() {
    let pool = Pool::new();
    let leak = LEAK.to_string();
    let run = training(&pool, &["--devices", "2", "--steps", "8", "--leak", &leak]).run().success();
    let pid = run.stdout.split("pid ").nth(1).and_then(|rest| rest.split(',').next()).expect("it says its pid");
    let report = pool.json(&["leaks", pid, "--json", "--kind", "device"]);
    let leaks = report["leaks"].as_array().expect("leaks");
    assert_eq!(leaks.len(), 2, "{report}");
    for leak in leaks {
        assert_eq!((leak["bytes"].as_u64(), leak["objects"].as_u64()), (Some(8 * LEAK), Some(8)));
        let mut frames = leak["frames"].as_array().expect("frames").iter();
        // A function that was not inlined has its whole path.
        let first = frames.next().and_then(|frame| frame["function"].as_str()).expect("a stack has a frame");
        assert_eq!(first.rsplit("::").next(), Some("tensor"), "{leak}");
        let caller = frames.next().and_then(|frame| frame["function"].as_str()).unwrap_or_default();
        assert!(caller.ends_with("::remember_loss"), "{leak}");
    }
    let mut devices: Vec<_> = leaks.iter().map(|leak| leak["device"].as_u64()).collect();
    devices.sort_unstable();
    assert_eq!(devices, [Some(0), Some(1)]);
    let text = pool.poolscope().args(["leaks", pid, "--device", "1"]).run().success().stdout;
    assert!(text.contains("24,000,000 B in 8 blocks of 3,000,000 B each, of device 1"), "{text}");
}

#[test]
fn a_site_that_leaks_is_seen_at_once_whatever_the_period_and_the_period_is_said() {
    let pool = Pool::new();
    // By its bytes, one block in ten thousand would be a sample.
    let period = 1u64 << 30;
    let mut program = training(&pool, &["--leak", "100000"]).env("POOLSCOPE_PERIOD", period.to_string()).start();
    program.wait_for_line("gpu-training: pid");
    let pid = program.pid().to_string();
    let mut found = None;
    for _ in 0..100 {
        let model = pool.json(&["top", &pid, "--json"]);
        let sites = model["sites"].as_array().expect("sites").iter().filter(|site| site["kind"] == "device");
        let leaks = sites.filter(|site| site["frames"].to_string().contains("remember_loss"));
        let in_use: f64 = leaks.filter_map(|site| site["in_use"]["bytes"].as_f64()).sum();
        let in_force = model["devices"][0]["counters"]["sample_period"].as_u64().unwrap_or(0);
        if in_use > 0.0 && in_force >= period {
            found = Some(in_use);
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(found.is_some_and(|in_use| in_use >= 100_000.0), "{found:?}");
    program.end_input();
    assert_eq!(program.finish().code(), 0);
}

#[test]
fn training_ends_with_its_error_once_a_device_has_no_memory_left() {
    let pool = Pool::new();
    let mut program = training(&pool, &["--memory", "4000000000", "--leak", "100000000"]).start();
    program.wait_for_line("gpu-training: pid");
    // Its standard input stays open meanwhile.
    program.wait_until("its error", |training| training.stderr().contains("OutOfMemory").then_some(()));
    let ended = program.finish();
    assert_eq!(ended.code(), 1, "{}", ended.report());
    assert!(ended.stderr.contains("remember_loss"), "{}", ended.report());
}

#[test]
fn check_finds_what_is_leaked_of_a_device() {
    let scratch = Scratch::new();
    let program = sample("gpu-training");
    let check = |leak: &str| {
        let checked = Program::new(poolscope_e2e::poolscope()).dir(scratch.path()).args(["check", "--"]);
        checked.arg(&program).args(["--steps", "3", "--step-ms", "1", "--leak", leak]).run()
    };
    let clean = check("0");
    assert!(!clean.stderr.contains("of device") && !clean.stdout.contains("of device"), "{}", clean.report());
    let leaky = check("70000");
    let said = format!("{}{}", leaky.stdout, leaky.stderr);
    assert_eq!(leaky.code(), 23, "{}", leaky.report());
    assert!(said.contains("210,000 B in 3 blocks of 70,000 B each, of device 0"), "{said}");
}

#[test]
fn a_killed_program_leaves_its_devices_behind() {
    let pool = Pool::new();
    let program = running(&pool);
    let pid = program.pid().to_string();
    model(&pool, &pid);
    program.signal(9);
    program.finish();
    let after = pool.json(&["top", &pid, "--json"]);
    assert_eq!(after["process"]["state"], "killed");
    assert!(
        after["devices"][1]["counters"]["current_usage"].as_f64() >= Some(72.0 * 28.0 * MIB),
        "{}",
        after["devices"]
    );
    let svg = pool.poolscope().args(["flamegraph", &pid, "--device", "0", "-o", "-"]).run().success().stdout;
    assert!(svg.contains("make_optimizer_state"), "{svg}");
}

#[test]
fn a_counter_has_one_name_from_the_pool_to_those_who_read_of_it() {
    let pool = Pool::new();
    let program = pool.files().join("gpu_counters");
    compiler::compile_with_gpu(&program, "gpu_counters.c", &["-O2", "-g"]);
    let program = Program::new(program).env("POOLSCOPE_GPU_DEVICE", "sim:1073741824");
    let mut program = program.env("POOLSCOPE_DIR", pool.segment_dir()).start();
    program.wait_for_line("{");
    let of_program: Value = serde_json::from_str(program.stdout().trim()).expect("the counters are JSON");
    let names = |of: &Value| of.as_object().expect("counters").keys().cloned().collect::<Vec<_>>();
    let pid = program.pid().to_string();
    // The pool shows its counters now and then.
    let shown = program.wait_until("the blocks are shown", |_| {
        let shown = pool.json(&["top", &pid, "--json"])["devices"][0]["counters"].clone();
        (shown["free_count"] == of_program["free_count"]).then_some(shown)
    });
    assert_eq!(names(&shown), names(&of_program));
    for name in ["total_allocated", "total_freed", "current_usage", "peak_usage", "allocation_count", "cache_misses"] {
        assert!(shown[name] == of_program[name] && shown[name].as_u64() > Some(0), "{name}: {shown}, {of_program}");
    }
    assert_eq!(pool.json(&["stats", &pid, "--json"])["devices"][0]["counters"]["held"], shown["held"]);
    program.end_input();
    program.finish().success();
}

#[test]
fn who_holds_a_devices_memory_comes_to_what_the_program_has_of_it() {
    let pool = Pool::new();
    let program = pool.files().join("gpu_held");
    compiler::compile_with_gpu(&program, "gpu_held.c", &["-O2", "-g"]);
    let program = Program::new(program).env("POOLSCOPE_GPU_DEVICE", "sim:1073741824");
    // With the usual period all of its blocks would be recorded. One that rises with what samples take would leave a
    // site with few or none on a busy machine.
    let program = program.env("POOLSCOPE_PERIOD", "32M").env("POOLSCOPE_SAMPLE_RATE", "0");
    let mut program = program.env("POOLSCOPE_DIR", pool.segment_dir()).start();
    program.wait_for_line("ready");
    let pid = program.pid().to_string();
    let said = program.stdout();
    let truth: BTreeMap<&str, f64> = said
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, bytes)| (name, bytes.parse().expect("bytes")))
        .collect();
    assert_eq!(truth.len(), 5, "{said}");

    let model = pool.json(&["top", &pid, "--json"]);
    let device = &model["devices"][0];
    let figure = |of: &Value, name: &str| of[name].as_f64().unwrap_or_else(|| panic!("{name} of {of}"));
    let unattributed = figure(device, "unattributed_bytes");
    let (mut all, mut held) = (unattributed, BTreeMap::new());
    for site in model["sites"].as_array().expect("sites").iter().filter(|site| site["kind"] == "device") {
        let names: Vec<&str> =
            site["frames"].as_array().expect("frames").iter().filter_map(|it| it["function"].as_str()).collect();
        let name = truth.keys().find(|name| names.contains(*name)).unwrap_or_else(|| panic!("whose is {names:?}?"));
        let (bytes, error) = (figure(&site["held"], "bytes"), figure(&site["held"], "error_bytes"));
        all += bytes;
        held.insert(*name, (bytes, error));
    }
    let total: f64 = truth.values().sum();
    // The first block of 600 KiB comes from a slab, and takes a mebibyte.
    let rounded = f64::from((1024 - 600) << 10);
    assert!((all - total - rounded).abs() < 1.0, "{all} of {total} bytes: {held:?}, {unattributed} of nobody");
    for (name, bytes) in &truth {
        let (found, error) = held.get(name).copied().unwrap_or_default();
        // Where no block was sampled it is nobody's.
        assert!((found - bytes).abs() <= 4.0 * error + unattributed, "{name}: {found} ± {error}, and {bytes} are true");
    }
    assert!(held.values().any(|(_, error)| *error > 0.0), "nothing is estimated: {held:?}");
    let process = model["period_bytes"].as_u64();
    assert!(device["period_bytes"].as_u64() >= process && process == Some(32 << 20), "{}", device["period_bytes"]);
    let frame =
        pool.poolscope().args(["top", &pid, "--once", "--view", "gpu", "--size", "130x40"]).run().success().stdout;
    assert!(frame.contains("a sample in") && frame.contains("±"), "{frame}");
    program.end_input();
    program.finish().success();
}

#[test]
fn the_counter_of_a_device_and_its_blocks_are_of_one_moment() {
    let pool = Pool::new();
    let mut program = running(&pool);
    let pid = program.pid().to_string();
    model(&pool, &pid);
    for stop in 0..6 {
        std::thread::sleep(std::time::Duration::from_millis(23 + 7 * stop));
        // In the middle of a step, in which a third of the memory comes and goes.
        program.signal(libc::SIGSTOP);
        let model = pool.json(&["top", &pid, "--json"]);
        program.signal(libc::SIGCONT);
        for device in model["devices"].as_array().expect("devices") {
            let counted = device["counters"]["current_usage"].as_f64().expect("a counter");
            let recorded = device["sampled_bytes"].as_f64().expect("bytes");
            // A block may have been counted and not be recorded yet.
            assert!((counted - recorded).abs() <= 64.0 * MIB, "{counted} counted, {recorded} in recorded blocks");
            assert_eq!((device["sampled_error_bytes"].as_f64(), device["period_bytes"].as_u64()), (Some(0.0), Some(1)));
        }
    }
    program.end_input();
    assert_eq!(program.finish().code(), 0);
}
