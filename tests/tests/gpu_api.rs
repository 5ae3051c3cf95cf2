//! The device pool for programs that are not written in Rust: `poolscope_gpu.h`, on the simulated device.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use poolscope_e2e::{Pool, Program, Scratch, compiler, gpu_library, library, repository};
use serde_json::Value;

fn header() -> PathBuf {
    repository().join("alloc/plugin/include/poolscope_gpu.h")
}

/// A program of `tests/csrc`, linked with the library.
fn compile(scratch: &Scratch, source: &str, flags: &[&str]) -> PathBuf {
    let library = gpu_library();
    let folder = library.parent().expect("the library lies in a folder").display();
    let include = format!("-I{}", header().parent().expect("it lies in a folder").display());
    let (find, run) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let flags: Vec<&str> = [include.as_str(), "-pedantic"].into_iter().chain(flags.iter().copied()).collect();
    let output = scratch.join("program");
    let source = Path::new("tests/csrc").join(source);
    compiler::compile_into(&output, &source, &flags, &[&find, &run, "-lpoolscope_gpu"]);
    output
}

fn on_simulated_device(program: &Path) -> Program {
    Program::new(program).env("POOLSCOPE_GPU_DEVICE", "sim:1073741824")
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let text = Program::new("gcc").args(["-E", "-P"]).arg(header()).run().silent_success().stdout;
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = text.split(|c| !is_part(c)).filter(|name| name.starts_with("poolscope_"));
    let declared: BTreeSet<&str> = names.filter(|name| !name.ends_with("_pool_id")).collect();
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

#[test]
fn a_refused_block_is_an_exception_where_pytorch_is() {
    let scratch = Scratch::new();
    let program = compile(&scratch, "torch_refusal.cpp", &["-O2"]);
    let library = scratch.join("libc10.so");
    let flags = ["-DC10", "-fPIC", "-shared", "-Wl,-soname,libc10.so"];
    compiler::compile_into(&library, Path::new("tests/csrc/torch_refusal.cpp"), &flags, &[]);
    let thrown = on_simulated_device(&program).env("LD_PRELOAD", &library).run().silent_success().stdout;
    assert!(thrown.starts_with("poolscope_torch_alloc|libpoolscope_gpu.so|0|poolscope: device 0: "), "{thrown}");
    assert!(thrown.contains("(1125899906842624 bytes) of device memory"), "{thrown}");
    // Without it the words are printed, and the block is null.
    let without = on_simulated_device(&program).run();
    assert!(without.stdout.contains("was given out"), "{without:?}");
    assert!(without.stderr.contains("(1125899906842624 bytes) of device memory"), "{without:?}");
}

/// The call sites of device memory: function and bytes in use.
fn holders(pool: &Pool, pid: u32) -> Vec<(String, f64)> {
    let text = pool.poolscope().args(["top", &pid.to_string(), "--json"]).run().success().stdout;
    let model: Value = serde_json::from_str(&text).expect("JSON");
    let sites = model["sites"].as_array().expect("sites").iter().filter(|site| site["kind"] == "device");
    let name = |site: &Value| site["frames"][0]["function"].as_str().expect("a name").to_owned();
    let mut sites: Vec<_> = sites.map(|site| (name(site), site["in_use"]["bytes"].as_f64().expect("bytes"))).collect();
    sites.sort_by(|a, b| a.1.total_cmp(&b.1));
    sites
}

/// The same memory, with a segment of this library's own and with that of a preloaded one. The program is built without frame
/// pointers, as PyTorch and Python are.
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
        assert!(weights.starts_with("about 600.0 MiB in 6 blocks: load_weights (gpu_full.c:11) < main"), "{said}");
        assert!(
            activations.starts_with("about 300.0 MiB in 1 block: keep_activations (gpu_full.c:16) < main"),
            "{said}"
        );
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
    for name in ["simulated", "sim:lots", "sim:0", "cuda:1"] {
        let said = python(code).env("POOLSCOPE_GPU_DEVICE", name).run().silent_success().stdout;
        assert!(
            said.starts_with(&format!("-1 POOLSCOPE_GPU_DEVICE={name}: it takes cuda, sim, or sim:BYTES")),
            "{said}"
        );
    }
    let said = python(code).env_remove("POOLSCOPE_GPU_DEVICE").run().silent_success().stdout;
    let has_driver = !said.starts_with("-1 ");
    assert!(has_driver || said.starts_with("-1 no CUDA driver: libcuda.so.1 can't be loaded."), "{said}");
}
