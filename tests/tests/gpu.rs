//! Device memory from end to end: a program with pools on simulated devices, and everything that reads of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use poolscope_e2e::pprof_rules::{self, Expected};
use poolscope_e2e::{Pool, Program, Running, Scratch, compiler, pprof, sample};
use serde_json::Value;

const MIB: f64 = 1_048_576.0;
const LEAK: u64 = 3_000_000;

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
    let mut program = training(pool, &["--devices", "2", "--leak", "3000000"]).start();
    program.wait_for_line("gpu-training: pid");
    program
}

fn json(pool: &Pool, args: &[&str]) -> Value {
    let text = pool.poolscope().args(args).run().success().stdout;
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The model, once both devices have made a few steps.
fn model(pool: &Pool, pid: &str) -> Value {
    for _ in 0..100 {
        let model = json(pool, &["top", pid, "--json"]);
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
        assert_eq!(device["memory_bytes"], 16u64 << 30);
        let counter = |name: &str| device["counters"][name].as_f64().expect(name);
        let (in_use, reserved) = (counter("current_usage"), counter("held"));
        // 24 layers' weights and twice as much state of the optimizer.
        assert!(in_use >= 72.0 * 28.0 * MIB && reserved >= in_use, "{in_use} of {reserved}");
        assert!(device["in_use"]["bytes"].as_f64() >= Some(72.0 * 28.0 * MIB), "{}", device["in_use"]);
    }
    assert!(model["in_use"]["bytes"].as_f64() < Some(512.0 * MIB), "the host's figures are the host's");

    let stats = json(&pool, &["stats", &pid, "--json"]);
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
    assert!(text.contains("Pool of device 1 (simulated") && text.contains("16.0 GiB)"), "{text}");

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
    let model = json(&pool, &["top", pid, "--json"]);
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
    let report = json(&pool, &["leaks", pid, "--json", "--kind", "device"]);
    let leaks = report["leaks"].as_array().expect("leaks");
    assert_eq!(leaks.len(), 2, "{report}");
    for leak in leaks {
        assert_eq!((leak["bytes"].as_u64(), leak["objects"].as_u64()), (Some(8 * LEAK), Some(8)));
        let mut frames = leak["frames"].as_array().expect("frames").iter();
        assert_eq!(frames.next().map(|frame| &frame["function"]), Some(&Value::from("tensor")), "{leak}");
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
        let model = json(&pool, &["top", &pid, "--json"]);
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
    let after = json(&pool, &["top", &pid, "--json"]);
    assert_eq!(after["process"]["state"], "killed");
    assert!(
        after["devices"][1]["counters"]["current_usage"].as_f64() >= Some(72.0 * 28.0 * MIB),
        "{}",
        after["devices"]
    );
    let svg = pool.poolscope().args(["flamegraph", &pid, "--device", "0", "-o", "-"]).run().success().stdout;
    assert!(svg.contains("make_optimizer_state"), "{svg}");
}

/// The program whose every block of device memory is known.
fn events(pool: &Pool) -> PathBuf {
    let output = pool.files().join("gpu_events");
    compiler::compile_with_gpu(&output, "gpu_events.c", &["-O2", "-g", "-fomit-frame-pointer"]);
    output
}

/// Records a command that has pools on simulated devices.
fn record(pool: &Pool, options: &[&str], command: &[&str]) -> Program {
    let record = pool.poolscope().env("POOLSCOPE_GPU_DEVICE", "sim:1073741824").args(["record", "-q", "-o", "gpu.rec"]);
    record.args(options).arg("--").args(command)
}

fn number(value: &Value, path: &[&str]) -> u64 {
    let found = path.iter().fold(value, |value, key| &value[*key]);
    found.as_u64().unwrap_or_else(|| panic!("{path:?} is no number but {found}"))
}

/// What the functions of the program did, with all that they called: allocations, bytes, frees.
fn by_function(memory: &Value) -> BTreeMap<String, [u64; 3]> {
    let mut functions: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for site in memory["sites"].as_array().expect("sites") {
        let figures = [["allocated", "objects"], ["allocated", "bytes"], ["freed", "objects"]];
        let figures = figures.map(|path| number(site, &path));
        for frame in site["frames"].as_array().expect("frames") {
            let name = frame["function"].as_str().expect("a name").to_owned();
            functions.entry(name).or_default().iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
        }
    }
    functions
}

#[test]
fn a_recording_has_every_block_of_a_device_with_its_stack_stream_and_thread() {
    let pool = Pool::new();
    let program = events(&pool);
    let said = record(&pool, &["--lossless"], &[program.to_str().expect("a path"), "calls"]).run().success().stdout;
    let report = json(&pool, &["report", "gpu.rec", "--json"]);
    assert_eq!((number(&report, &["lost", "events"]), report["devices"].as_array().map(Vec::len)), (0, Some(1)));
    let device = &report["devices"][0];
    assert_eq!((device["kind"].as_str(), number(device, &["device"])), (Some("device"), 0));

    let functions = by_function(device);
    let mut total = [0; 3];
    for line in said.lines() {
        let (name, figures) = line.split_once(' ').expect("a line for each function");
        let figures: Vec<u64> = figures.split(' ').map(|figure| figure.parse().expect("a number")).collect();
        assert_eq!(functions.get(name).map(<[u64; 3]>::as_slice), Some(figures.as_slice()), "{name}: {functions:?}");
        total.iter_mut().zip(figures).for_each(|(sum, figure)| *sum += figure);
    }
    let [allocations, bytes, frees] = total;
    assert_eq!(
        (number(device, &["allocated", "objects"]), number(device, &["allocated", "bytes"])),
        (allocations, bytes)
    );
    assert_eq!((number(device, &["freed", "objects"]), number(device, &["unknown_frees"])), (frees, 0));
    // All weights are there when the large blocks are.
    let (weights, large) = (55 << 20, 10 * ((3 << 20) + 1));
    assert_eq!((number(device, &["peak", "bytes"]), number(device, &["in_use", "bytes"])), (weights + large, weights));
    assert_eq!(number(device, &["temporary", "objects"]), 100 + 1, "each small block, and the last of the large ones");

    let streams = device["streams"].as_array().expect("streams").iter();
    let streams: Vec<_> = streams.map(|stream| ["handle", "frees"].map(|what| number(stream, &[what]))).collect();
    assert_eq!(streams, [[0, 100], [2, 10 + 20]], "blocks that were handed over are freed on the other stream");
    let of_others = device["threads"].as_array().expect("threads").iter().map(|it| number(it, &["frees_of_others"]));
    assert_eq!(of_others.filter(|frees| *frees > 0).collect::<Vec<_>>(), [20]);
    // The host has its own figures: none of its sites is one of the device's.
    assert!(number(&report, &["peak", "bytes"]) < weights, "{}", report["peak"]);
    assert_eq!(number(&report, &["lost", "unknown_frees"]), 0);

    let text = pool.poolscope().args(["report", "gpu.rec"]).run().success().stdout;
    for part in [
        "Device 0: 140 allocations",
        "Device 0\n========\n",
        "Peak: 85.0 MiB in 20 blocks",
        "load_weights",
        "Streams\n",
    ] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
    let page = pool.files().join("report.html");
    pool.poolscope().args(["report", "gpu.rec", "--html"]).arg(&page).run().success();
    let page = std::fs::read_to_string(page).expect("a page");
    for part in ["<h1>Device 0</h1>", "Device 0: In use over time", "Device 0: Flamegraph of the peak"] {
        assert!(page.contains(part), "no {part}");
    }
    let svg =
        pool.poolscope().args(["flamegraph", "gpu.rec", "--device", "0", "--peak", "-o", "-"]).run().success().stdout;
    assert!(svg.contains("make_large") && !svg.contains("make_small"), "{svg}");
    let profile = pool.files().join("gpu.pb.gz");
    pool.poolscope().args(["dump", "gpu.rec", "-o"]).arg(&profile).run().success();
    let raw = pprof::pprof(pool.files(), &["-top", "-unit=B", "-sample_index=gpu_inuse_space"], &profile).stdout;
    assert!(raw.contains(&format!("of {weights}B total")) && raw.contains("load_weights"), "{raw}");
    let change = pool.poolscope().args(["diff", "gpu.rec", "gpu.rec", "--device", "0"]).run();
    assert!(change.code() == 0 && !change.stdout.contains("load_weights"), "{}", change.report());
}

#[test]
fn pinned_memory_is_recorded_beside_the_devices_and_apart_from_it() {
    const BLOCK: u64 = 24 << 20;
    let pool = Pool::new();
    let program = pool.files().join("gpu_pinned");
    compiler::compile_with_gpu(&program, "gpu_pinned.c", &["-O2", "-g", "-fno-optimize-sibling-calls"]);
    let said = record(&pool, &[], &[program.to_str().expect("a path")]).env("POOLSCOPE_GPU_DEVICE", "sim:64M:2");
    said.run().success();
    let report = json(&pool, &["report", "gpu.rec", "--json"]);
    assert_eq!(number(&report, &["lost", "events"]), 0);
    let memories = report["devices"].as_array().expect("devices");
    let of = |kind: &str, device: u64| {
        let is = |memory: &&Value| memory["kind"] == kind && memory["device"] == device;
        memories.iter().find(is).unwrap_or_else(|| panic!("no {kind} {device}: {report:#}"))
    };
    let figures = |memory: &Value| {
        [
            ["allocated", "objects"],
            ["allocated", "bytes"],
            ["freed", "objects"],
            ["in_use", "objects"],
            ["peak", "bytes"],
        ]
        .map(|path| number(memory, &path))
    };
    // What the program does by its source: staged batches and a small block, and the third block that the full device
    // spills.
    assert_eq!(figures(of("pinned", 0)), [2, (3 << 20) + 1000, 2, 0, (3 << 20) + 1000]);
    assert_eq!(figures(of("pinned", 1)), [1, BLOCK, 1, 0, BLOCK]);
    assert_eq!(figures(of("device", 0)), [1, 1000, 1, 0, 1000]);
    assert_eq!(figures(of("device", 1)), [2, 2 * BLOCK, 0, 2, 2 * BLOCK]);
    assert_eq!(memories.len(), 4);
    assert_eq!(by_function(of("pinned", 0)).get("stage_batches"), Some(&[1, 3 << 20, 1]));
    assert_eq!(by_function(of("pinned", 1)).get("spill_activations"), Some(&[1, BLOCK, 1]));

    let poolscope = |args: &[&str]| pool.poolscope().args(args).run().success().stdout;
    let text = poolscope(&["report", "gpu.rec"]);
    assert!(text.contains("stage_batches") && text.contains("inned"), "{text}");
    let svg = poolscope(&["flamegraph", "gpu.rec", "--kind", "pinned", "--device", "1", "--peak", "-o", "-"]);
    assert!(svg.contains("spill_activations") && !svg.contains("stage_batches"), "{svg}");
    let profile = pool.files().join("pinned.pb.gz");
    pool.poolscope().args(["dump", "gpu.rec", "-o"]).arg(&profile).run().success();
    let raw = pprof::pprof(pool.files(), &["-top", "-unit=B", "-sample_index=pinned_alloc_space"], &profile).stdout;
    assert!(raw.contains(&format!("of {}B total", BLOCK + (3 << 20) + 1000)), "{raw}");
}

#[test]
fn a_program_that_brings_its_own_pool_is_recorded_by_that_and_not_taken_for_another_one() {
    let pool = Pool::new();
    let training = sample("gpu-training");
    let command = ["record", "-o", "gpu.rec", "--", training.to_str().expect("a path"), "--steps", "30"];
    let output = pool.poolscope().args(command).run();
    assert_eq!(output.code(), 0, "{}", output.report());
    assert!(output.stderr.contains("has a pool of its own") && !output.stderr.contains("exec"), "{}", output.report());
    assert_eq!(output.stderr.matches("nothing was lost").count(), 1, "of one recording: {}", output.report());
    let report = json(&pool, &["report", "gpu.rec", "--json"]);
    assert_eq!(number(&report, &["lost", "unknown_frees"]), 0);
    assert!(by_function(&report["devices"][0]).contains_key("gpu_training::training::Training::load_weights"));
    assert!(by_function(&report).contains_key("gpu_training::main"), "{report:#}");
}

#[test]
fn a_recorder_that_attaches_gets_every_block_of_a_thread_that_never_leaves_the_pools_fast_path() {
    // With a segment of the pool's own, nothing but the device's memory is the pool's:
    // nobody else looks for the request.
    for preloaded in [true, false] {
        let pool = Pool::new();
        let program = Program::new(events(&pool)).arg("pairs").env("POOLSCOPE_GPU_DEVICE", "sim");
        let program = program.env("POOLSCOPE_DIR", pool.segment_dir());
        let program = if preloaded { program.env("LD_PRELOAD", poolscope_e2e::library()) } else { program };
        let mut program = program.start();
        program.wait_for_line("ready");
        let pid = program.pid().to_string();
        let options = ["record", "-q", &pid, "--duration", "0.3", "-o", "gpu.rec"];
        let recorded = pool.poolscope().args(options).args(["--lossless"]).run().success();
        program.end_input();
        let done = program.wait_for_line("pairs ");
        program.finish().success();
        let report = json(&pool, &["report", "gpu.rec", "--json"]);
        let device = &report["devices"][0];
        let allocated = number(device, &["allocated", "objects"]);
        let done: u64 = done.trim_start_matches("pairs ").parse().expect("a number");
        assert!((1000..done).contains(&allocated), "{allocated} of {done}: {}", recorded.report());
        let (freed, unknown) = (number(device, &["freed", "objects"]), number(device, &["unknown_frees"]));
        assert!(freed.abs_diff(allocated) <= 1 && unknown <= 1, "{allocated} allocations, {freed} frees, {unknown}");
        assert_eq!(device["common_sizes"], serde_json::json!([{ "size": 4096, "objects": allocated }]));
        assert!(number(device, &["peak", "objects"]) <= 2, "no event was missed: {}", device["peak"]);
    }
}

/// The operations of a trace, with blocks numbered as they come and streams by their names as they come.
fn operations(text: &str) -> Vec<(char, usize, u64, usize)> {
    let (mut live, mut streams, mut allocated) = (BTreeMap::new(), Vec::new(), 0);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let operation = |line: &str| match line.split(' ').collect::<Vec<_>>().as_slice() {
        ["+", id, size, stream] => {
            let known = streams.iter().position(|known| known == stream);
            let stream = known.unwrap_or_else(|| {
                streams.push((*stream).to_owned());
                streams.len() - 1
            });
            allocated += 1;
            assert_eq!(live.insert((*id).to_owned(), allocated), None, "{id} is there already");
            ('+', allocated, size.parse().expect("a size"), stream)
        }
        ["-", id] => ('-', live.remove(*id).unwrap_or_else(|| panic!("{id} is not there")), 0, 0),
        _ => panic!("no operation: {line}"),
    };
    lines.map(operation).collect()
}

#[test]
fn the_trace_of_a_recording_is_what_the_program_says_that_it_does() {
    let pool = Pool::new();
    let program = events(&pool);
    let options = ["--lossless", "--gpu-trace", "gpu.trace.gz"];
    let said = record(&pool, &options, &[program.to_str().expect("a path"), "trace"]).run().success().stdout;
    let packed = pool.files().join("gpu.trace.gz");
    assert!(std::fs::read(&packed).expect("a trace").starts_with(&[0x1f, 0x8b]));
    let written = Program::new("zcat").arg(&packed).run().silent_success().stdout;
    let (said, written) = (operations(&said), operations(&written));
    assert_eq!(said.len(), 10 + 200 + 20 + 40);
    assert_eq!(said, written);

    let bench =
        |trace: &str| json(&pool, &["bench", "gpu", "--trace", trace, "--policy", "tiered", "--passes", "2", "--json"]);
    let (of_text, of_recording) = (bench("gpu.trace.gz"), bench("gpu.rec"));
    for what in ["operations", "streams", "peak_live"] {
        assert_eq!(number(&of_text, &[what]), number(&of_recording, &[what]), "{what}");
    }
    let peak = (55 << 20) + 10 * ((3 << 20) + 1);
    assert_eq!((number(&of_recording, &["peak_live"]), number(&of_recording, &["streams"])), (peak, 2));
    let whatif = json(&pool, &["whatif", "gpu.rec", "--json"]);
    assert_eq!(number(&whatif, &["peak_live"]), peak);
}

#[test]
fn each_device_of_a_recording_has_a_trace_of_its_own() {
    let pool = Pool::new();
    let training = sample("gpu-training");
    let command = [training.to_str().expect("a path"), "--devices", "2", "--steps", "2"];
    assert_eq!(record(&pool, &[], &command).run().code(), 0);
    let said = pool.poolscope().args(["report", "gpu.rec", "--gpu-trace", "gpu.trace"]).run();
    assert!(said.code() == 0 && said.stderr.contains("of device 1 is in gpu.device1.trace"), "{}", said.report());
    let report = json(&pool, &["report", "gpu.rec", "--json"]);
    for (device, file) in ["gpu.trace", "gpu.device1.trace"].into_iter().enumerate() {
        let text = std::fs::read_to_string(pool.files().join(file)).expect("a trace");
        let lines = operations(&text);
        let allocated: u64 = lines.iter().map(|(_, _, size, _)| size).sum();
        assert_eq!(allocated, number(&report["devices"][device], &["allocated", "bytes"]), "{file}");
        let number = device.to_string();
        let bench = ["bench", "gpu", "--policy", "bfc", "--passes", "1", "--json", "--trace"];
        let bench = json(&pool, &[&bench[..], &["gpu.rec", "--of-device", &number]].concat());
        assert_eq!(bench["operations"].as_u64(), Some(lines.len() as u64), "{file}");
    }
    for (options, words) in [(&[][..], "--of-device"), (&["--of-device", "7"][..], "no event of device 7, but of 0, 1")]
    {
        let refused = pool.poolscope().args(["whatif", "gpu.rec"]).args(options).run();
        assert!(refused.code() == 2 && refused.stderr.contains(words), "{}", refused.report());
    }
    // A program without a device's memory has no trace, and an old one stays.
    let recorded = pool.poolscope().args(["record", "-o", "none.rec", "--gpu-trace", "gpu.trace", "--", "true"]).run();
    assert!(recorded.stderr.contains("gpu.trace is not written"), "{}", recorded.report());
    assert!(std::fs::metadata(pool.files().join("gpu.trace")).is_ok_and(|file| file.len() > 1000));
    let none = pool.poolscope().args(["bench", "gpu", "--trace", "none.rec"]).run();
    assert!(none.code() == 2 && none.stderr.contains("no event of a device's memory"), "{}", none.report());
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
        let shown = json(&pool, &["top", &pid, "--json"])["devices"][0]["counters"].clone();
        (shown["free_count"] == of_program["free_count"]).then_some(shown)
    });
    assert_eq!(names(&shown), names(&of_program));
    for name in ["total_allocated", "total_freed", "current_usage", "peak_usage", "allocation_count", "cache_misses"] {
        assert!(shown[name] == of_program[name] && shown[name].as_u64() > Some(0), "{name}: {shown}, {of_program}");
    }
    assert_eq!(json(&pool, &["stats", &pid, "--json"])["devices"][0]["counters"]["held"], shown["held"]);
    program.end_input();
    program.finish().success();
}

#[test]
fn who_holds_a_devices_memory_comes_to_what_the_program_has_of_it() {
    let pool = Pool::new();
    let program = pool.files().join("gpu_held");
    compiler::compile_with_gpu(&program, "gpu_held.c", &["-O2", "-g"]);
    let program = Program::new(program).env("POOLSCOPE_GPU_DEVICE", "sim:1073741824");
    // A period that rises with what samples take would leave a site with few or none on a busy machine.
    let program = program.env("POOLSCOPE_SAMPLE_RATE", "0");
    let mut program = program.env("POOLSCOPE_DIR", pool.segment_dir()).start();
    program.wait_for_line("ready");
    let pid = program.pid().to_string();
    let said = program.stdout();
    let truth: BTreeMap<&str, f64> = said
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(name, bytes)| (name, bytes.parse().expect("bytes")))
        .collect();
    assert_eq!(truth.len(), 4, "{said}");

    let model = json(&pool, &["top", &pid, "--json"]);
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
    assert!((all - total).abs() < 1.0, "{all} of {total} bytes: {held:?}, {unattributed} of nobody");
    for (name, bytes) in &truth {
        let (found, error) = held.get(name).copied().unwrap_or_default();
        // Where no block was sampled it is nobody's.
        assert!((found - bytes).abs() <= 4.0 * error + unattributed, "{name}: {found} ± {error}, and {bytes} are true");
    }
    assert!(held.values().any(|(_, error)| *error > 0.0), "nothing is estimated: {held:?}");
    let process = model["period_bytes"].as_u64();
    assert!(device["period_bytes"].as_u64() >= process && process == Some(512 << 10), "{}", device["period_bytes"]);
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
        let model = json(&pool, &["top", &pid, "--json"]);
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
