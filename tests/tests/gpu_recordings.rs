//! Recordings of devices' memory, and the traces that are made of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use poolscope_e2e::{Pool, Program, compiler, pprof, sample};
use serde_json::Value;

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
    let report = pool.json(&["report", "gpu.rec", "--json"]);
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
    let report = pool.json(&["report", "gpu.rec", "--json"]);
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
    let report = pool.json(&["report", "gpu.rec", "--json"]);
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
        let report = pool.json(&["report", "gpu.rec", "--json"]);
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
        |trace: &str| pool.json(&["bench", "gpu", "--trace", trace, "--policy", "tiered", "--passes", "2", "--json"]);
    let (of_text, of_recording) = (bench("gpu.trace.gz"), bench("gpu.rec"));
    for what in ["operations", "streams", "peak_live"] {
        assert_eq!(number(&of_text, &[what]), number(&of_recording, &[what]), "{what}");
    }
    let peak = (55 << 20) + 10 * ((3 << 20) + 1);
    assert_eq!((number(&of_recording, &["peak_live"]), number(&of_recording, &["streams"])), (peak, 2));
    let whatif = pool.json(&["whatif", "gpu.rec", "--json"]);
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
    let report = pool.json(&["report", "gpu.rec", "--json"]);
    for (device, file) in ["gpu.trace", "gpu.device1.trace"].into_iter().enumerate() {
        let text = std::fs::read_to_string(pool.files().join(file)).expect("a trace");
        let lines = operations(&text);
        let allocated: u64 = lines.iter().map(|(_, _, size, _)| size).sum();
        assert_eq!(allocated, number(&report["devices"][device], &["allocated", "bytes"]), "{file}");
        let number = device.to_string();
        let bench = ["bench", "gpu", "--policy", "bfc", "--passes", "1", "--json", "--trace"];
        let bench = pool.json(&[&bench[..], &["gpu.rec", "--of-device", &number]].concat());
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
