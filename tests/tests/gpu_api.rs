//! The device pool for programs that are not written in Rust: `poolscope_gpu.h`, on the simulated device.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use poolscope_e2e::{Pool, Program, Scratch, compiler, gpu_library, library, pprof, repository};
use serde_json::Value;

fn header() -> PathBuf {
    repository().join("alloc/plugin/include/poolscope_gpu.h")
}

/// A program of `tests/csrc`, linked with the library.
fn compile(scratch: &Scratch, source: &str, flags: &[&str]) -> PathBuf {
    let output = scratch.join("program");
    compiler::compile_with_gpu(&output, source, flags);
    output
}

fn on_simulated_device(program: &Path) -> Program {
    Program::new(program).env("POOLSCOPE_GPU_DEVICE", "sim:1073741824")
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let include = format!("-I{}", compiler::headers().display());
    let text = Program::new("gcc").args(["-E", "-P", &include]).arg(header()).run().silent_success().stdout;
    // What stands before a bracket is a function; types don't.
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = text.split('(').filter_map(|before| before.rsplit(|c| !is_part(c)).next());
    let declared: BTreeSet<&str> = names.filter(|name| name.starts_with("poolscope_")).collect();
    let listed = Program::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(gpu_library()).run();
    let listed = listed.silent_success().stdout;
    let exported: BTreeSet<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(declared.len() > 20, "{declared:?}");
    assert_eq!(declared, exported, "left: declared, right: exported");
}

#[test]
fn the_header_compiles_without_a_warning_in_c_and_cpp() {
    let scratch = Scratch::new();
    let source = scratch.write("header", "#include \"poolscope_gpu.h\"\n#include \"poolscope_gpu.h\"\nint unit;\n");
    for language in ["-x c -std=c99 -Wstrict-prototypes", "-x c++ -std=c++11 -Wold-style-cast"] {
        Program::new("gcc")
            .args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic"])
            .args(language.split(' '))
            .arg("-I")
            .arg(header().parent().expect("it lies in a folder"))
            .arg("-I")
            .arg(compiler::headers())
            .arg(&source)
            .run()
            .silent_success();
    }
}

#[test]
fn the_interface_does_what_the_header_says() {
    let scratch = Scratch::new();
    on_simulated_device(&compile(&scratch, "gpu_api.c", &["-O2"])).run().silent_success();
}

/// A block of a thread's own cache, allocated and freed by the functions of C, after hooks have come and gone. Every
/// check of it is in there.
const MOST_FOR_A_PAIR: u64 = 300;

/// A medium block of a length that nobody has freed lately: one is freed, merged with what is free beside it, and the
/// lowest free memory that fits is cut, behind one lock.
const MOST_FOR_A_RANDOM_LENGTH: u64 = 1_850;

/// A block that is recorded, with its stack, and its free.
const MOST_FOR_A_RECORDED_PAIR: u64 = 7_500;

/// Instructions of a pair of allocation and free with this sampling period: what the second run of `gpu_pairs` has more
/// than the first one is pairs.
fn instructions_of_a_pair(size: u64, period: &str, (fewer, more): (u64, u64)) -> u64 {
    let pool = Pool::new();
    let program = compile(pool.files(), "gpu_pairs.c", &["-O2"]);
    let instructions = [fewer, more].map(|pairs| {
        let run = on_simulated_device(Path::new("valgrind"))
            .env("POOLSCOPE_DIR", pool.segment_dir())
            .env("POOLSCOPE_PERIOD", period)
            .env("POOLSCOPE_GPU_BACKGROUND_INTERVAL_MS", "0")
            .args(["--tool=callgrind", "--vgdb=no", "--callgrind-out-file=/dev/null"])
            .arg(&program)
            .args([&pairs.to_string(), &size.to_string()])
            .run()
            .success();
        let collected = run.stderr.split("Collected : ").nth(1).and_then(|rest| rest.split_whitespace().next());
        collected.and_then(|count| count.parse::<u64>().ok()).unwrap_or_else(|| panic!("{}", run.report()))
    });
    (instructions[1] - instructions[0]) / (more - fewer)
}

#[test]
fn a_hot_pair_takes_no_more_instructions_than_it_may() {
    let pair = instructions_of_a_pair(4096, "1T", (2_000, 12_000));
    assert!((50..=MOST_FOR_A_PAIR).contains(&pair), "{pair} instructions");
}

#[test]
fn a_pair_of_medium_blocks_of_random_lengths_takes_no_more_instructions_than_it_may() {
    let pair = instructions_of_a_pair(0, "1T", (2_000, 6_000));
    assert!((200..=MOST_FOR_A_RANDOM_LENGTH).contains(&pair), "{pair} instructions");
}

#[test]
fn the_first_blocks_that_are_recorded_take_no_more_instructions_than_later_ones() {
    // As many calls as are counted before the pool's thread looks on.
    for pairs in [(20, 90), (2_000, 4_000)] {
        let pair = instructions_of_a_pair(4096, "1", pairs);
        assert!((1_000..=MOST_FOR_A_RECORDED_PAIR).contains(&pair), "{pair} instructions: {pairs:?}");
    }
}

#[test]
fn a_refused_block_is_an_exception_where_pytorch_is() {
    let scratch = Scratch::new();
    let make = |name: &str, more: &[&str]| {
        let library = scratch.join(name).join("libc10.so");
        std::fs::create_dir(scratch.join(name)).expect("can be made");
        let flags = [&["-DC10", "-fPIC", "-shared", "-Wl,-soname,libc10.so"], more].concat();
        compiler::compile_into(&library, Path::new("tests/csrc/torch_refusal.cpp"), &flags, &[]);
        library
    };
    let (whole, plain) = (make("whole", &[]), make("plain", &["-DPLAIN"]));
    let program = compile(&scratch, "torch_refusal.cpp", &["-O2"]);
    let thrown = |library: &Path| {
        let ended = on_simulated_device(&program).env("LD_PRELOAD", library).run();
        assert!(ended.code() == 0 && ended.stderr.is_empty(), "{}", ended.report());
        ended.stdout
    };
    let place = "poolscope_torch_alloc|libpoolscope_gpu.so|0|";
    let no_memory = format!("{place}CUDA out of memory. poolscope: device 0: ");
    // PyTorch's own exception for missing memory, and the one for everything else.
    let of_whole = thrown(&whole);
    assert!(of_whole.starts_with(&format!("N3c1016OutOfMemoryErrorE: {no_memory}")), "{of_whole}");
    assert!(of_whole.contains("(1125899906842624 bytes) of device memory"), "{of_whole}");
    assert!(of_whole.contains(&format!("\nSt13runtime_error: {place}poolscope: device -1: ")), "{of_whole}");
    // A PyTorch that has not what the former is made of.
    let of_plain = thrown(&plain);
    assert!(of_plain.starts_with(&format!("St13runtime_error: {no_memory}")), "{of_plain}");
    // Without PyTorch the words are printed, and the block is null.
    let without = on_simulated_device(&program).run();
    assert!(without.stdout.contains("was given out"), "{without:?}");
    assert!(without.stderr.contains("(1125899906842624 bytes) of device memory"), "{without:?}");
}

#[test]
fn what_pytorch_is_told_of_memory_is_what_its_blocks_take() {
    let script = repository().join("tests/python/torch_figures.py");
    let ended = on_simulated_device(Path::new("/usr/bin/python3"))
        .arg(script)
        .env("PYTHONPATH", repository().join("samples/python"))
        .env("POOLSCOPE_GPU_LIB", gpu_library())
        .run();
    assert!(ended.code() == 0 && ended.stdout == "ok\n", "{}", ended.report());
}

#[test]
fn settings_come_from_the_environment_are_changed_and_read_back() {
    let scratch = Scratch::new();
    let program = compile(&scratch, "gpu_settings.c", &["-O2"]);
    let run = on_simulated_device(&program)
        .env("POOLSCOPE_GPU_MEMORY_LIMIT", "48M")
        .env("POOLSCOPE_GPU_PINNED_FALLBACK", "1")
        .env("POOLSCOPE_GPU_ALIGNMENT", "100")
        .env("POOLSCOPE_GPU_MEMORYLIMIT", "1")
        .args(["memory_limit", "pinned_fallback", "alignment", "defrag_threshold=0.25", "memory_limit=1GiB"])
        .args(["background_interval_ms=0", "memory_limit=lots", "speed"])
        .run();
    assert_eq!(run.code(), 0, "{}", run.report());
    let lines: Vec<_> = run.stdout.lines().collect();
    let shown = ["memory_limit=48M (3)", "pinned_fallback=1 (1)", "alignment=256 (3)", "defrag_threshold=0.25 (4)"];
    assert_eq!(lines[..4], shown);
    assert_eq!(lines[4..6], ["memory_limit=1G (2)", "background_interval_ms=0 (1)"]);
    assert!(lines[6].starts_with("memory_limit refused: memory_limit = lots: it takes bytes from 0 to"), "{lines:?}");
    assert!(lines[7].starts_with("speed unknown: no setting has the name speed; there are alignment"), "{lines:?}");
    let bad = "poolscope: POOLSCOPE_GPU_ALIGNMENT=100 is not valid, 256 is used; it takes a power of two of bytes";
    assert!(run.stderr.contains(bad), "{}", run.stderr);
    let unknown = "poolscope: POOLSCOPE_GPU_MEMORYLIMIT is unknown and without effect";
    assert!(run.stderr.contains(unknown) && run.stderr.lines().count() == 2, "{}", run.stderr);
}

#[test]
fn a_hardened_pool_refuses_frees_that_race_and_tells_a_second_free() {
    let scratch = Scratch::new();
    let program = compile(&scratch, "gpu_hardened.c", &["-O2", "-pthread"]);
    on_simulated_device(&program).env("POOLSCOPE_GPU_HARDENED", "1").run().silent_success();
    let without = on_simulated_device(&program).run();
    assert_ne!(without.code(), 0, "{}", without.report());
    assert!(without.stderr.contains("waits in quarantine"), "{}", without.stderr);
}

#[test]
fn hooks_see_every_block_of_every_device_and_come_and_go() {
    let scratch = Scratch::new();
    let program = compile(&scratch, "gpu_hooks.c", &["-O2"]);
    Program::new(&program).env("POOLSCOPE_GPU_DEVICE", "sim:1G:2").run().silent_success();
}

#[test]
fn buffers_of_device_and_pinned_memory_are_freed_by_whoever_has_them() {
    let scratch = Scratch::new();
    let program = compile(&scratch, "gpu_buffers.c", &["-O2"]);
    Program::new(&program).env("POOLSCOPE_GPU_DEVICE", "sim:256M:2").run().silent_success();
}

#[test]
fn peers_and_background_work_are_the_programs_to_call_for() {
    let scratch = Scratch::new();
    Program::new(compile(&scratch, "gpu_devices.c", &["-O2"]))
        .env("POOLSCOPE_GPU_DEVICE", "sim:256M:2")
        .env("POOLSCOPE_GPU_BACKGROUND_INTERVAL_MS", "0")
        .run()
        .success();
}

#[test]
fn pinned_memory_is_recorded_and_every_reader_shows_it() {
    let pool = Pool::new();
    let program = compile(pool.files(), "gpu_pinned.c", &["-O2", "-g", "-fno-optimize-sibling-calls"]);
    let mut program = Program::new(&program)
        .env("POOLSCOPE_GPU_DEVICE", "sim:64M:2")
        .env("POOLSCOPE_DIR", pool.segment_dir())
        .env("POOLSCOPE_PERIOD", "1")
        .start();
    program.wait_for_line("gpu_pinned: pid");
    let pid = program.pid().to_string();
    let poolscope = |args: &[&str]| pool.poolscope().args([args[0], &pid]).args(&args[1..]).run().success().stdout;
    let mut holders = holders_of(&pool, program.pid(), "pinned");
    holders.retain(|(_, bytes)| *bytes > 0.0);
    let expected = [("stage_batches".to_owned(), 3.0 * MIB), ("spill_activations".to_owned(), 24.0 * MIB)];
    assert_eq!(holders, expected);
    let wait_for = |wanted: &dyn Fn(&Value) -> bool| {
        for _ in 0..200 {
            let model: Value = serde_json::from_str(&poolscope(&["top", "--json"])).expect("JSON");
            if wanted(&model) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("{}", poolscope(&["top", "--json"]));
    };
    // The pool's own counters come ten times a second.
    wait_for(&|model| {
        let pinned = model["devices"].as_array().expect("devices").iter().filter(|device| device["kind"] == "pinned");
        let in_use = pinned.map(|device| (device["device"].as_u64(), device["counters"]["current_usage"].as_f64()));
        let mut in_use: Vec<_> = in_use.collect();
        in_use.sort_by_key(|(device, _)| *device);
        in_use == [(Some(0), Some(3.0 * MIB)), (Some(1), Some(24.0 * MIB))]
    });
    let stats = poolscope(&["stats"]);
    assert!(stats.contains("pinned host memory, for simulated"), "{stats}");
    let frame = poolscope(&["top", "--once", "--view", "gpu", "--size", "130x40"]);
    assert!(frame.contains("4 pools") && frame.contains("0 pinned") && frame.contains("1 pinned"), "{frame}");
    let profile = pool.files().join("pinned.pb.gz");
    pool.poolscope().args(["dump", &pid, "--kind", "pinned", "-o"]).arg(&profile).run().success();
    let text = pprof::pprof(pool.files(), &["-top", "-unit=MB", "-sample_index=pinned_inuse_space"], &profile).stdout;
    assert!(text.contains("27MB total") && text.contains("stage_batches"), "{text}");
    let svg = poolscope(&["flamegraph", "--kind", "pinned", "-o", "-"]);
    assert!(svg.contains("bytes in use of pinned memory") && svg.contains("spill_activations"), "{svg}");
    program.end_input();
    assert_eq!(program.finish().code(), 0);
}

const MIB: f64 = 1_048_576.0;

/// The call sites of device memory: function and bytes in use.
fn holders(pool: &Pool, pid: u32) -> Vec<(String, f64)> {
    holders_of(pool, pid, "device")
}

/// The same of a kind of memory.
fn holders_of(pool: &Pool, pid: u32, kind: &str) -> Vec<(String, f64)> {
    let text = pool.poolscope().args(["top", &pid.to_string(), "--json"]).run().success().stdout;
    let model: Value = serde_json::from_str(&text).expect("JSON");
    let sites = model["sites"].as_array().expect("sites").iter().filter(|site| site["kind"] == kind);
    let name = |site: &Value| site["frames"][0]["function"].as_str().expect("a name").to_owned();
    let mut sites: Vec<_> = sites.map(|site| (name(site), site["in_use"]["bytes"].as_f64().expect("bytes"))).collect();
    sites.sort_by(|a, b| a.1.total_cmp(&b.1));
    sites
}

/// The same memory, with a segment of this library's own and with that of a preloaded one. The program is built without
/// frame pointers, as PyTorch and Python are.
#[test]
fn device_memory_is_recorded_with_its_stacks_in_the_one_segment_of_the_process() {
    for preloaded in [false, true] {
        let pool = Pool::new();
        let program = compile(pool.files(), "gpu_holders.c", &["-O2", "-g", "-fomit-frame-pointer"]);
        let program =
            on_simulated_device(&program).env("POOLSCOPE_DIR", pool.segment_dir()).env("POOLSCOPE_PERIOD", "1");
        let program = if preloaded { program.env("LD_PRELOAD", library()) } else { program };
        let mut program = program.start();
        program.wait_for_line("gpu_holders: pid");
        let segments = pool.segments();
        let own = segments.iter().filter(|segment| segment.header.pid == program.pid()).count();
        assert_eq!(own, 1, "preloaded: {preloaded}");
        let expected = [("hold_by_c", 50_000.0), ("hold_by_cupy", 400_000.0), ("hold_by_torch", 3_000_000.0)];
        let expected = expected.map(|(name, bytes)| (name.to_owned(), bytes));
        assert_eq!(holders(&pool, program.pid()), expected, "preloaded: {preloaded}");
        program.end_input();
        assert_eq!(program.finish().code(), 0);
        assert_eq!(pool.segments().len(), 0, "a normal exit leaves no segment, of the child neither");
    }
}

#[test]
fn without_memory_the_error_names_the_functions_that_hold_it() {
    for preloaded in [false, true] {
        let pool = Pool::new();
        let program = compile(pool.files(), "gpu_full.c", &["-O2", "-g", "-fomit-frame-pointer"]);
        let program = on_simulated_device(&program).env("POOLSCOPE_DIR", pool.segment_dir());
        let program = if preloaded { program.env("LD_PRELOAD", library()) } else { program };
        let said = program.run().success().stdout;
        let holders: Vec<_> = said.lines().filter_map(|line| line.trim().strip_prefix("held by stack: ")).collect();
        let [weights, activations] = holders[..] else { panic!("two functions hold memory: {said}") };
        assert!(weights.starts_with("600.0 MiB in 6 blocks: load_weights (gpu_full.c:11) < main"), "{said}");
        assert!(activations.starts_with("300.0 MiB in 1 block: keep_activations (gpu_full.c:16) < main"), "{said}");
    }
}

#[test]
fn without_memory_the_error_names_the_functions_of_python_that_hold_it() {
    let code = "import poolscope_gpu as pool\n\
                library = pool.load()\n\
                def load_weights(count):\n    \
                    return [library.poolscope_gpu_alloc(0, 100 << 20, None) for _ in range(count)]\n\
                def keep_activations():\n    \
                    return library.poolscope_gpu_alloc(0, 300 << 20, None)\n\
                kept = load_weights(6), keep_activations()\n\
                assert not library.poolscope_gpu_alloc(0, 500 << 20, None)\n\
                print(library.poolscope_gpu_error().decode())";
    for preloaded in [false, true] {
        let pool = Pool::new();
        let program = python(code).env("POOLSCOPE_GPU_DEVICE", "sim:1073741824");
        let program = if preloaded { program.env("LD_PRELOAD", library()) } else { program };
        let said = program.env("POOLSCOPE_DIR", pool.segment_dir()).run().success().stdout;
        let holders: Vec<_> = said.lines().filter_map(|line| line.trim().strip_prefix("held by stack: ")).collect();
        let [weights, activations] = holders[..] else { panic!("two functions hold memory: {said}") };
        assert!(weights.starts_with("600.0 MiB in 6 blocks: "), "{said}");
        assert!(weights.contains("load_weights (<string>:4) < <module> (<string>:7)"), "{said}");
        assert!(activations.ends_with(": keep_activations (<string>:6) < <module> (<string>:7)"), "{said}");
    }
}

/// Python code with `samples/python` at hand.
fn python(code: &str) -> Program {
    Program::new("/usr/bin/python3")
        .args(["-B", "-c", code])
        .env("PYTHONPATH", repository().join("samples/python"))
        .env("POOLSCOPE_GPU_LIB", gpu_library())
}

#[test]
fn python_reads_the_counters() {
    let code = "import poolscope_gpu as pool\n\
                library = pool.load()\n\
                block = library.poolscope_gpu_alloc(0, 5 << 20, None)\n\
                pool.print_stats(library)\n\
                assert library.poolscope_gpu_free(0, block, None) == 0\n\
                print(pool.stats(library)['free_count'])";
    let said = python(code).env("POOLSCOPE_GPU_DEVICE", "sim").run().silent_success().stdout;
    assert!(said.starts_with("pool: in use 5.0 MiB, peak 5.0 MiB, held 6.0 MiB"), "{said}");
    assert!(said.ends_with("\n1\n"), "{said}");
}

#[test]
fn a_bad_name_of_a_device_and_a_missing_driver_are_refused_in_words() {
    let code = "import poolscope_gpu as pool\n\
                library = pool.load()\n\
                print(library.poolscope_gpu_device_count(), pool.refusal(library))";
    for name in ["simulated", "sim:lots", "sim:0", "sim:1G:0", "sim:1G:1:1", "cuda:1"] {
        let said = python(code).env("POOLSCOPE_GPU_DEVICE", name).run().silent_success().stdout;
        assert!(said.starts_with(&format!("-1 POOLSCOPE_GPU_DEVICE={name}: it takes cuda, sim, sim:BYTES")), "{said}");
    }
    let said = python(code).env_remove("POOLSCOPE_GPU_DEVICE").run().silent_success().stdout;
    let has_driver = !said.starts_with("-1 ");
    assert!(has_driver || said.starts_with("-1 no CUDA driver: libcuda.so.1 can't be loaded."), "{said}");
}
