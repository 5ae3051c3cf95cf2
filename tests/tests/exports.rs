//! Profiles in the formats of other tools, read by the tools: `go tool pprof`, DHAT's viewer, Perfetto's own schema,
//! flamegraph.pl's lines, Python's csv. And what other tools wrote, against what those say of it themselves.

use std::collections::BTreeMap;
use std::path::PathBuf;

use poolscope_e2e::{Pool, Program, Scratch, artifacts, repository};
use serde_json::Value;

/// A program that holds 300 blocks of 1,000 bytes from `hold`, and freed 500 of 100 from `drop_all`; every allocation
/// is recorded, and it has ended.
fn held(pool: &Pool) -> String {
    const SOURCE: &str = "#include <stdlib.h>\n\
        static void *kept[300];\n\
        __attribute__((noinline)) void hold(void) { for (int i = 0; i < 300; i++) { kept[i] = malloc(1000); *(char *)kept[i] = 1; } }\n\
        __attribute__((noinline)) void drop_all(void) { for (int i = 0; i < 500; i++) { volatile char *p = malloc(100); *p = 1; free((void *)p); } }\n\
        int main(void) { hold(); drop_all(); return kept[0] == 0; }\n";
    let source = pool.files().write("held.c", SOURCE);
    let program = pool.files().join("held");
    Program::new("gcc").args(["-g", "-O1", "-o"]).arg(&program).arg(source).run().silent_success();
    pool.program(&program).env("POOLSCOPE_PERIOD", "1").run().silent_success();
    let segment = pool.segments().into_iter().find(|segment| segment.executable().ends_with("/held"));
    segment.expect("it ran on the pool").path.to_str().expect("is text").to_owned()
}

const HELD: u64 = 300 * 1000;
const FREED: u64 = 500 * 100;

#[track_caller]
fn converted(pool: &Pool, from: &str, to: &str) -> PathBuf {
    let file = pool.files().join(to);
    pool.poolscope().args(["convert", from]).arg(&file).run().silent_success();
    file
}

#[test]
fn collapsed_stacks_and_csv_have_the_truth() {
    let pool = Pool::new();
    let segment = held(&pool);
    let lines = std::fs::read_to_string(converted(&pool, &segment, "held.collapsed")).expect("is text");
    let mut of_hold = 0;
    for line in lines.lines() {
        let (stack, value) = line.rsplit_once(' ').expect("a stack and a number");
        if stack.ends_with(";main;hold") {
            of_hold += value.parse::<u64>().expect("a number");
        }
    }
    assert_eq!(of_hold, HELD, "{lines}");
    assert!(!lines.contains("drop_all"), "{lines}");

    let script = "import csv, sys\n\
        rows = [row for row in csv.DictReader(open(sys.argv[1], newline='')) if row['function'] in ('hold', 'drop_all')]\n\
        for row in rows: print(row['function'], row['kind'], row['inuse_space'], row['alloc_space'], row['alloc_objects'])\n";
    let csv = converted(&pool, &segment, "held.csv");
    let rows = Program::new("python3").args(["-c", script]).arg(csv).run().silent_success().stdout;
    let mut rows: Vec<&str> = rows.lines().collect();
    rows.sort_unstable();
    assert_eq!(rows, [format!("drop_all host 0 {FREED} 500"), format!("hold host {HELD} {HELD} 300")]);
}

#[test]
fn csv_has_no_figure_for_a_peak_that_nobody_knows() {
    let pool = Pool::new();
    let segment = held(&pool);
    let script = "import csv, sys\n\
        for row in csv.DictReader(open(sys.argv[1], newline='')):\n    \
        if row['function'] == 'hold': print(row['inuse_space'], row['peak_space'])\n";
    let row = |csv: PathBuf| Program::new("python3").args(["-c", script]).arg(csv).run().silent_success().stdout;
    assert_eq!(row(converted(&pool, &segment, "held.csv")), format!("{HELD} {HELD}\n"));
    // A pprof file does not say who held memory at the peak.
    let pprof = converted(&pool, &segment, "held.pb.gz");
    let csv = converted(&pool, pprof.to_str().expect("is text"), "through-pprof.csv");
    assert_eq!(row(csv), format!("{HELD} \n"));
}

/// dh_view.js comes with valgrind: the part of it that reads a file runs in node, and its totals are compared.
const DH_VIEW: &str = r#"
const fs = require("fs"), vm = require("vm");
const source = fs.readFileSync("/usr/libexec/valgrind/dh_view.js", "utf8");
const context = { result: null, document: {}, performance: { now: () => 0 }, console, FileReader: class {}, window: {} };
vm.createContext(context);
vm.runInContext(source + `
gData = JSON.parse(input);
gSelect = { childNodes: gSelectData.map(() => ({})), selectedIndex: 0 };
buildTree();
result = { total: gRoot._totalBytes, blocks: gRoot._totalBlocks, end: gRoot._atTEndBytes, most: gData.tg, ran: gData.te };
`.replace("input", JSON.stringify(fs.readFileSync(process.argv[1], "utf8"))), context);
console.log(JSON.stringify(context.result));
"#;

#[test]
fn dhats_viewer_reads_what_is_written_for_it() {
    let pool = Pool::new();
    let segment = held(&pool);
    let file = converted(&pool, &segment, "held.dhat.json");
    let read = Program::new("node").args(["-e", DH_VIEW]).arg(&file).run().silent_success().stdout;
    let read: Value = serde_json::from_str(&read).expect("is JSON");
    // glibc's start allocates a little, too.
    let (total, end) = (read["total"].as_u64().expect("bytes"), read["end"].as_u64().expect("bytes"));
    assert!((HELD + FREED..HELD + FREED + 8192).contains(&total), "{read}");
    assert!((HELD..HELD + 8192).contains(&end), "{read}");
    // And it comes back as it was.
    let again = converted(&pool, file.to_str().expect("is text"), "again.collapsed");
    let direct = converted(&pool, &segment, "direct.collapsed");
    assert_eq!(std::fs::read_to_string(again).expect("is text"), std::fs::read_to_string(direct).expect("is text"));
}

/// By which its viewer has rates, and says when most was in use.
#[test]
fn a_profile_for_dhat_has_the_time_that_the_program_ran() {
    let pool = Pool::new();
    let mut program = pool.program("sleep").arg("60").env("POOLSCOPE_PERIOD", "1").start();
    let pid = program.pid().to_string();
    program.wait_until("its segment is there", |program| pool.segment(program.pid()).map(drop));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let file = converted(&pool, &pid, "sleep.dhat.json");
    let read: Value = serde_json::from_slice(&std::fs::read(file).expect("is read")).expect("is JSON");
    let (most, ran) = (read["tg"].as_u64().expect("a time"), read["te"].as_u64().expect("a time"));
    // In microseconds.
    assert!(most <= ran && (300_000..60_000_000).contains(&ran), "{most} of {ran}");
}

#[test]
fn a_profile_for_firefox_has_what_is_retained_as_allocations_without_frees() {
    let pool = Pool::new();
    let file = converted(&pool, &held(&pool), "held.firefox.json");
    let profile: Value = serde_json::from_slice(&std::fs::read(file).expect("is read")).expect("is JSON");
    let thread = &profile["threads"][0];
    let allocations = &thread["nativeAllocations"];
    let numbers = |name: &str| -> Vec<i64> {
        let list = allocations[name].as_array().unwrap_or_else(|| panic!("no {name} in {allocations}"));
        list.iter().map(|value| value.as_i64().unwrap_or_default()).collect()
    };
    let (weights, addresses, stacks) = (numbers("weight"), numbers("memoryAddress"), numbers("stack"));
    assert_eq!(
        (weights.len(), addresses.len()),
        (stacks.len(), allocations["length"].as_u64().expect("a number") as usize)
    );
    let sum: i64 = weights.iter().sum();
    assert!((HELD..HELD + 8192).contains(&(sum as u64)), "{sum}");
    let mut retained: BTreeMap<i64, i64> = BTreeMap::new();
    for (address, weight) in addresses.iter().zip(&weights) {
        *retained.entry(*address).or_default() += weight;
    }
    assert!(retained.values().any(|bytes| *bytes as u64 == HELD), "{retained:?}");
    assert!(retained.values().all(|bytes| *bytes >= 0), "{retained:?}");
    // Each stack leads to names that there are.
    let depth = thread["stackTable"]["length"].as_i64().expect("a table");
    assert!(stacks.iter().all(|stack| (0..depth).contains(stack)));
    assert!(profile.to_string().contains("\"hold\""));
}

/// By the classes that Perfetto publishes for its traces, where the package is installed.
const PERFETTO: &str = r#"
import sys
try:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
except ImportError:
    sys.exit(77)
trace = pb.Trace()
trace.ParseFromString(open(sys.argv[1], "rb").read())
names, frames, stacks = {}, {}, {}
for packet in trace.packet:
    data = packet.interned_data
    names.update((it.iid, it.str.decode()) for it in data.function_names)
    frames.update((it.iid, names[it.function_name_id]) for it in data.frames)
    stacks.update((it.iid, [frames[frame] for frame in it.frame_ids]) for it in data.callstacks)
for packet in trace.packet:
    for dump in packet.profile_packet.process_dumps:
        for sample in dump.samples:
            print(dump.heap_name, ";".join(stacks[sample.callstack_id]), sample.self_allocated, sample.self_freed, sep="\t")
"#;

/// Python with Perfetto's package, where `POOLSCOPE_PERFETTO_PYTHON` names it or the usual one has it.
fn perfetto_python() -> String {
    std::env::var("POOLSCOPE_PERFETTO_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

#[test]
fn a_trace_for_perfetto_has_a_heap_for_the_host_and_one_for_each_device() {
    let pool = Pool::new();
    let trace = converted(&pool, &held(&pool), "held.pftrace");
    let read = Program::new(perfetto_python()).args(["-c", PERFETTO]).arg(trace).run();
    if read.code() == 77 {
        poolscope_e2e::skip("traces for Perfetto by its own schema: Python's package perfetto is not installed");
        return;
    }
    let read = read.silent_success().stdout;
    let hold = read.lines().find(|line| line.contains(";hold\t")).unwrap_or_else(|| panic!("no hold: {read}"));
    assert!(hold.starts_with("host\t") && hold.ends_with(&format!("\t{HELD}\t0")), "{hold}");
    let dropped = read.lines().find(|line| line.contains(";drop_all\t")).expect("what was freed");
    assert!(dropped.ends_with(&format!("\t{FREED}\t{FREED}")), "{dropped}");

    let training = Program::new(poolscope_e2e::sample("gpu-training"))
        .env("POOLSCOPE_DIR", pool.segment_dir())
        .env("POOLSCOPE_KEEP", "1")
        .env("POOLSCOPE_PERIOD", "1")
        .args(["--step-ms", "5", "--devices", "2"]);
    let mut training = training.start();
    training.wait_for_line("gpu-training: pid");
    let trace = converted(&pool, &training.pid().to_string(), "gpu.pftrace");
    let read = Program::new(perfetto_python()).args(["-c", PERFETTO]).arg(trace).run().silent_success().stdout;
    let heaps: std::collections::BTreeSet<&str> = read.lines().filter_map(|line| line.split('\t').next()).collect();
    assert!(["device 0", "device 1", "host"].iter().all(|heap| heaps.contains(heap)), "{heaps:?}");
}

#[test]
fn pprof_reads_a_profile_that_heaptrack_recorded() {
    let scratch = Scratch::new();
    let leaky = scratch.join("leaky");
    let source = repository().join("samples/csrc/leak.c");
    Program::new("gcc").args(["-g", "-O0", "-o"]).arg(&leaky).arg(source).run().silent_success();
    let heaptrack = Program::new("heaptrack").args(["-o", "app"]).arg(&leaky).arg("40").dir(scratch.path());
    heaptrack.run().success();
    let recorded = std::fs::read_dir(scratch.path()).expect("is read").filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        name.starts_with("app.").then_some(name)
    });
    let recorded: Vec<String> = recorded.collect();
    let pool = Pool::new();
    let from = scratch.join(&recorded[0]);
    let profile = converted(&pool, from.to_str().expect("is text"), "app.pb.gz");
    let top = |figures: &[&str]| {
        let arguments = ["tool", "pprof", "-top"].iter().chain(figures);
        Program::new("go").args(arguments).arg(&profile).run().success().stdout
    };
    // The sample loses 40 blocks of 1,024 bytes, and frees 1,000.
    let in_use = top(&["-sample_index=inuse_space", "-unit=B"]);
    let lost = in_use.lines().find(|line| line.ends_with(" lose_blocks")).unwrap_or_else(|| panic!("{in_use}"));
    assert!(lost.trim_start().starts_with("40960B "), "{lost}");
    let objects = top(&["-sample_index=alloc_objects"]);
    let freed = objects.lines().find(|line| line.ends_with(" use_and_free")).unwrap_or_else(|| panic!("{objects}"));
    assert!(freed.trim_start().starts_with("1000 "), "{freed}");
}

#[test]
fn a_profile_that_valgrind_wrote_is_read() {
    let scratch = Scratch::new();
    let leaky = scratch.join("leaky");
    let source = repository().join("samples/csrc/leak.c");
    Program::new("gcc").args(["-g", "-O0", "-o"]).arg(&leaky).arg(source).run().silent_success();
    let out = scratch.join("dhat.out");
    let option = format!("--dhat-out-file={}", out.display());
    Program::new("valgrind").args(["-q", "--tool=dhat", &option]).arg(&leaky).arg("40").run().success();
    let pool = Pool::new();
    let collapsed = converted(&pool, out.to_str().expect("is text"), "dhat.collapsed");
    let lines = std::fs::read_to_string(collapsed).expect("is text");
    assert!(lines.lines().any(|line| line.contains("main;lose_blocks") && line.ends_with(" 40960")), "{lines}");
}

/// memray keeps what is asked for by `mmap`, too; the test looks at one function, and at what memray says itself.
#[test]
fn a_table_that_memray_wrote_is_read() {
    const SCRIPT: &str = "def hold():\n    return [bytearray(100_000) for _ in range(30)]\nkept = hold()\n";
    let python = std::env::var("POOLSCOPE_MEMRAY_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let pool = Pool::new();
    let memray = |arguments: &[&str]| {
        Program::new(&python).args(["-m", "memray"]).args(arguments).dir(pool.files().path()).run()
    };
    pool.files().write("held.py", SCRIPT);
    if memray(&["--version"]).code() != 0 {
        poolscope_e2e::skip("tables of memray: Python's package memray is not installed");
        return;
    }
    memray(&["run", "-q", "-o", "held.bin", "held.py"]).success();
    let refused = pool.poolscope().args(["convert", "held.bin", "held.csv"]).run();
    assert_eq!((refused.code(), refused.stderr.contains("memray transform csv")), (2, true), "{}", refused.report());
    memray(&["transform", "csv", "-o", "table.csv", "held.bin"]).success();
    let lines = std::fs::read_to_string(converted_from_memray(&pool, "table.csv")).expect("is text");
    let of_hold: u64 = lines
        .lines()
        .filter(|line| line.contains(";hold"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum();
    // Each array has a byte more, for the end of a text.
    assert!((30 * 100_001..30 * 100_001 + 4096).contains(&of_hold), "{lines}");
}

/// As [`converted`], of a format of which something is said.
fn converted_from_memray(pool: &Pool, from: &str) -> PathBuf {
    let file = pool.files().join("memray.collapsed");
    let output = pool.poolscope().args(["convert", from]).arg(&file).run();
    assert!(output.code() == 0 && output.stderr.contains("what came and went"), "{}", output.report());
    file
}

/// Python's own pickle, in each protocol.
#[test]
fn a_snapshot_of_pytorch_is_read() {
    let pool = Pool::new();
    let script = "import pickle\n\
        frames = [{'name': 'forward', 'filename': 'model.py', 'line': 7}, {'name': 'train', 'filename': 'run.py', 'line': 3}]\n\
        block = {'address': 1 << 40, 'size': 2048, 'requested_size': 2000, 'state': 'active_allocated', 'frames': frames}\n\
        free = {'address': 2 << 40, 'size': 512, 'requested_size': 0, 'state': 'inactive', 'frames': []}\n\
        native = lambda name: {'name': name, 'filename': '??', 'line': 0}\n\
        inner = ['torch::unwind::unwind()', 'torch::cuda::(anonymous namespace)::gather_with_cpp()', 'at::detail::empty_cuda(long)']\n\
        mixed = [*map(native, inner), native('at::native::conv(at::Tensor)'), native('_PyEval_EvalFrameDefault'), *frames]\n\
        work = {'address': 3 << 40, 'size': 512, 'requested_size': 300, 'state': 'active_allocated', 'frames': mixed}\n\
        alone = {**work, 'requested_size': 100, 'frames': [*map(native, inner), native('at::native::conv(at::Tensor)')]}\n\
        blocks = [block, free, work, alone]\n\
        segment = {'device': 1, 'address': 1 << 40, 'total_size': 2 << 20, 'stream': 0, 'blocks': blocks}\n\
        event = {'action': 'alloc', 'addr': 1 << 40, 'size': 5000, 'stream': 0, 'frames': frames, 'time_us': 1}\n\
        snapshot = {'segments': [segment], 'device_traces': [[], [event]], 'allocator_settings': {'x': None, 'y': 1.5}}\n\
        for protocol in range(6): pickle.dump(snapshot, open(f'{protocol}.pickle', 'wb'), protocol)\n";
    Program::new("python3").args(["-c", script]).dir(pool.files().path()).run().silent_success();
    for protocol in 0..6 {
        let from = pool.files().join(format!("{protocol}.pickle"));
        let csv = converted(&pool, from.to_str().expect("is text"), &format!("{protocol}.csv"));
        let csv = std::fs::read_to_string(csv).expect("is text");
        assert!(csv.contains("device,1,forward,model.py,7,2000,1,5000,1,,false,train;forward"), "{protocol}: {csv}");
        // PyTorch's own steps to the memory are no part of a stack of Python. Without Python they are, but for how it
        // writes stacks down.
        let work =
            "device,1,at::native::conv(at::Tensor),,,300,1,300,1,,false,train;forward;at::native::conv(at::Tensor)";
        let alone = "100,1,100,1,,false,at::native::conv(at::Tensor);at::detail::empty_cuda(long)";
        assert!(csv.contains(work) && csv.contains(alone), "{protocol}: {csv}");
    }
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_written() {
    let pool = Pool::new();
    let segment = held(&pool);
    pool.files().write("broken.json", "{\"dhatFileVersion\": 2");
    pool.files().write("text", "this is no profile");
    pool.files().write("empty.pb.gz", "");
    pool.files().write("other.json", "{\"a\": 1}");
    let firefox = converted(&pool, &segment, "held.firefox.json");
    let whole = std::fs::read(converted(&pool, &segment, "held.pb.gz")).expect("is there");
    std::fs::write(pool.files().join("cut.pb.gz"), &whole[..whole.len() / 2]).expect("is written");
    let large = std::fs::File::create(pool.files().join("large")).expect("is made");
    large.set_len(20 << 30).expect("is set");
    for (from, to, why) in [
        ("empty.pb.gz", "out.csv", "empty.pb.gz: it is empty"),
        ("cut.pb.gz", "out.csv", "cut.pb.gz: it is cut off"),
        ("other.json", "out.csv", "other.json: it is JSON, and not DHAT's"),
        (firefox.to_str().expect("is text"), "out.csv", "It is a profile for profiler.firefox.com"),
        ("large", "out.csv", "larger than 1024 MiB"),
        (segment.as_str(), "out.json", "--format"),
        ("broken.json", "out.csv", "DHAT"),
        ("text", "out.csv", "of no format that is read here: pprof, heaptrack"),
        ("nothing.pb.gz", "out.csv", "nothing.pb.gz"),
    ] {
        let output = pool.poolscope().args(["convert", from, to]).run();
        assert_eq!(output.code(), 2, "{}", output.report());
        assert!(output.stderr.contains(why), "{why}: {}", output.stderr);
        assert!(!pool.files().join(to).exists());
    }
}

#[test]
fn a_profile_comes_through_a_pipe() {
    let pool = Pool::new();
    let segment = held(&pool);
    let command = artifacts::poolscope();
    let script = r#"set -eu -o pipefail
        "$1" convert "$2" - --format pprof > held.pb.gz
        "$1" convert - input.collapsed < held.pb.gz
        cat held.pb.gz | "$1" convert - piped.collapsed
        "$1" convert <(cat held.pb.gz) substituted.collapsed
        cat held.pb.gz | "$1" diff - held.pb.gz
        "$1" convert "$2" segment.collapsed
        cat "$2" | "$1" convert - copied.collapsed
        for file in input piped substituted copied; do cmp $file.collapsed segment.collapsed; done
        if head -c 50 held.pb.gz | "$1" convert - cut.csv 2> error; then exit 1; fi
        grep -q "cannot read standard input: it is cut off" error"#;
    let output = Program::new("bash").args(["-c", script, "bash"]).arg(command).arg(&segment).dir(pool.files().path());
    assert_eq!(
        output.run().success().stdout,
        "bytes in use: 293 KiB before, 293 KiB after, +0 B\nNo call path changed.\n"
    );
}

#[test]
fn what_has_nothing_to_show_or_cannot_be_written_is_said() {
    let pool = Pool::new();
    let source =
        pool.files().write("freed.c", "#include <stdlib.h>\nint main(void) { free(malloc(100)); return 0; }\n");
    let program = pool.files().join("freed");
    Program::new("gcc").arg("-O0").arg("-o").arg(&program).arg(source).run().silent_success();
    pool.program(&program).env("POOLSCOPE_PERIOD", "1").run().silent_success();
    let segment = pool.segments().into_iter().find(|segment| segment.executable().ends_with("/freed"));
    let segment = segment.expect("it ran on the pool").path;
    let convert = |arguments: &[&str]| pool.poolscope().arg("convert").arg(&segment).args(arguments).run();
    let held = convert(&["held.collapsed"]);
    assert_eq!((held.code(), held.stderr.contains("no call site has bytes in use")), (0, true), "{}", held.report());
    convert(&["allocated.collapsed", "--metric", "alloc_space"]).silent_success();

    let ambiguous = pool.poolscope().arg("dump").arg(&segment).args(["-o", "heap.json"]).run();
    assert!(ambiguous.code() == 2 && ambiguous.stderr.contains(".firefox.json"), "{}", ambiguous.report());
    for (script, why) in [
        (
            "\"$1\" convert \"$2\" - --format csv > /dev/full",
            "cannot write to standard output: No space left on device",
        ),
        ("\"$1\" list > /dev/full", "cannot write to standard output: No space left on device"),
        ("\"$1\" whatif \"$2\"", "is the segment of a process, which has no trace"),
        ("\"$1\" bench gpu \"$2\"", "is the segment of a process, which has no trace"),
        ("\"$1\" record \"$2\" -o out.rec", "which has ended"),
    ] {
        let shell = Program::new("sh").args(["-c", script, "sh"]).arg(artifacts::poolscope()).arg(&segment);
        let output = shell.env("POOLSCOPE_DIR", pool.segment_dir()).dir(pool.files().path()).run();
        assert!(output.code() == 2 && output.stderr.contains(why), "{script}: {}", output.report());
    }
}
