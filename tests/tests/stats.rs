//! The pool's statistics: the same from inside and from outside, right where the truth is known, and in a layout that
//! scripts for tcmalloc read.

use std::path::PathBuf;

use poolscope_e2e::{Pool, Program, Running, Scratch, compiler};
use serde_json::Value;

fn program(scratch: &Scratch) -> PathBuf {
    compiler::compile_linked(scratch, "tests/csrc/stats.c", "stats", &["-O2"])
}

/// What `tests/csrc/stats.c` says of itself while it waits.
struct Said {
    running: Running,
    pid: String,
    json: String,
    text: String,
}

impl Said {
    fn of(program: Program) -> Said {
        let mut running = program.start();
        running.wait_for_line("end");
        let said = running.stdout();
        let (pid, rest) = said.split_once('\n').expect("its process id");
        let (json, text) = rest.split_once('\n').expect("a line of JSON");
        let text = text.strip_suffix("end\n").expect("the last line");
        let (pid, json, text) = (pid.to_owned(), format!("{json}\n"), text.to_owned());
        Said { running, pid, json, text }
    }
}

/// The program on the pool, with nothing that changes the statistics in the background.
fn at_rest(pool: &Pool, program: &PathBuf, arg: &str) -> Program {
    pool.program(program).arg(arg).env("POOLSCOPE_SCAVENGE_MS", "-1").env("POOLSCOPE_GC_MS", "-1")
}

fn start(pool: &Pool, program: &PathBuf, arg: &str) -> Said {
    Said::of(at_rest(pool, program, arg))
}

fn class(stats: &Value, block_bytes: u64) -> &Value {
    let classes = stats["classes"].as_array().expect("classes");
    classes.iter().find(|class| class["block_bytes"] == block_bytes).expect("a class that was used")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// What must hold of any statistics of a process that rests.
fn assert_adds_up(stats: &Value) {
    let usage = &stats["usage"];
    let sum = |names: &[&str]| names.iter().map(|name| number(&usage[name])).sum::<u64>();
    let parts = ["in_use", "page_heap", "central_cache", "transfer_cache", "thread_caches", "metadata"];
    assert_eq!(number(&usage["physical"]) + number(&usage["untouched"]), sum(&parts));
    assert_eq!(number(&usage["virtual"]), sum(&["physical", "unmapped"]));
    let pages = number(&usage["virtual"]) - number(&usage["metadata"]);
    assert_eq!(pages, number(&stats["system"]["used_bytes"]));
    let classes = stats["classes"].as_array().expect("classes");
    let in_blocks: u64 = classes.iter().map(|class| number(&class["in_use_bytes"])).sum();
    assert_eq!(number(&usage["in_use"]), in_blocks + number(&stats["large"]["in_use_bytes"]));
}

/// The statistics without what depends on the pages that the program has touched: it did so once more to say them.
fn without_memory(text: &str) -> String {
    let fields = ["untouched", "physical", "unmapped"].map(|name| format!("\"{name}\":"));
    let lines = ["never touched", "physical + swap", "released to OS"];
    let mut rest = String::new();
    for line in text.lines().filter(|line| !lines.iter().any(|part| line.contains(part))) {
        let parts = line.split(',').filter(|part| !fields.iter().any(|field| part.starts_with(field)));
        rest += &parts.collect::<Vec<_>>().join(",");
        rest.push('\n');
    }
    rest
}

/// What the command says of the whole process comes behind the statistics of the pool, which the program says, too.
fn without_the_process(text: &str) -> String {
    if let Some((pool, _)) = text.split_once("------------------------------------------------\nMemory of the process")
    {
        return pool.to_owned();
    }
    let (pool, _) = text.split_once(",\"process\":").expect("the process in JSON");
    format!("{pool}}}\n")
}

#[test]
fn a_resting_process_says_the_same_from_inside_and_outside() {
    let pool = Pool::new();
    let program = program(pool.files());
    for mode in ["alone", "threads", "fork"] {
        let said = start(&pool, &program, mode);
        let outside = |json: &[&str]| {
            let command = pool.poolscope().arg("stats").arg(&said.pid).args(json);
            without_the_process(&command.run().silent_success().stdout)
        };
        assert_eq!(without_memory(&outside(&["--json"])), without_memory(&said.json), "{mode}");
        assert_eq!(without_memory(&outside(&[])), without_memory(&said.text), "{mode}");
        said.running.finish().silent_success();
    }
}

/// However many of the blocks are samples, which come from slabs of their own.
#[test]
fn what_one_thread_holds_is_counted_to_the_block() {
    let pool = Pool::new();
    let program = program(pool.files());
    for period in ["512K", "8K", "1"] {
        let said = Said::of(at_rest(&pool, &program, "alone").env("POOLSCOPE_PERIOD", period));
        let stats: Value = serde_json::from_str(&said.json).expect("JSON");
        assert_adds_up(&stats);
        // 1000 blocks of 1000 bytes, every other one freed.
        let class = class(&stats, 1008);
        assert_eq!((number(&class["in_use"]), number(&class["in_use_bytes"])), (500, 500 * 1008), "{period}");
        assert_eq!(number(&class["free"]), number(&class["slabs"]) * number(&class["slab_blocks"]) - 500);
        assert!(number(&class["allocs"]) >= 1000 && number(&class["frees"]) == 500, "{period}: {class}");
        assert_eq!(number(&class["hits"]) + number(&class["misses"]), number(&class["allocs"]));
        let large = &stats["large"];
        let counts = ["allocs", "frees", "in_use"].map(|name| number(&large[name]));
        assert_eq!(counts, [2, 1, 1]);
        assert!((10 << 20..(10 << 20) + (1 << 17)).contains(&number(&large["in_use_bytes"])), "{large}");
        said.running.finish().silent_success();
    }
}

#[test]
fn threads_and_forked_children_add_up() {
    let pool = Pool::new();
    let program = program(pool.files());
    for (mode, heaps) in [("threads", 4), ("fork", 1)] {
        let said = start(&pool, &program, mode);
        let stats: Value = serde_json::from_str(&said.json).expect("JSON");
        assert_adds_up(&stats);
        assert_eq!(number(&stats["thread_caches"]["heaps"]), heaps, "{mode}");
        assert_eq!(number(&stats["thread_caches"]["heaps_in_use"]), heaps, "{mode}");
        assert_eq!(number(&class(&stats, 1008)["in_use"]), 500, "{mode}");
        said.running.finish().silent_success();
    }
}

/// The pieces of a line are taken apart as the scripts of tcmalloc's users do it.
#[test]
fn scripts_for_tcmalloc_read_the_text() {
    let pool = Pool::new();
    let said = start(&pool, &program(pool.files()), "alone");
    let stats: Value = serde_json::from_str(&said.json).expect("JSON");
    let script = |name: &str, arguments: &[&str]| {
        let output = Program::new(name).args(arguments).input(&said.text).run().silent_success().stdout;
        output.trim().parse::<u64>().unwrap_or_else(|_| panic!("{output}"))
    };
    let usage = |name: &str| number(&stats["usage"][name]);
    for (pattern, expected) in [
        ("Bytes in use by application", usage("in_use")),
        ("Bytes of these that were never touched", usage("untouched")),
        ("Bytes in page heap freelist", usage("page_heap")),
        ("Bytes in central cache freelist", usage("central_cache")),
        ("Bytes in transfer cache freelist", usage("transfer_cache")),
        ("Bytes in thread cache freelists", usage("thread_caches")),
        ("Bytes in malloc metadata", usage("metadata")),
        ("Actual memory used \\(physical \\+ swap\\)", usage("physical")),
        ("Bytes released to OS \\(aka unmapped\\)", usage("unmapped")),
        ("Virtual address space used", usage("virtual")),
    ] {
        let perl = format!("print $1 if /^MALLOC: [ +=-] +(\\d+) \\( *\\d+\\.\\d MiB\\) {pattern}$/");
        assert_eq!(script("perl", &["-ne", &perl]), expected, "{pattern}");
    }
    let awk = |program: &str| script("awk", &[program]);
    assert_eq!(awk("/Bytes in use by application/ { print $2 }"), usage("in_use"));
    assert_eq!(awk("/Actual memory used/ { print $3 }"), usage("physical"));
    assert_eq!(awk("/Spans in use/ { print $2 }"), number(&stats["page_heap"]["spans_in_use"]));
    assert_eq!(awk("/Thread heaps in use/ { print $2 }"), number(&stats["thread_caches"]["heaps_in_use"]));
    assert_eq!(awk("/Tcmalloc page size/ { print $2 }"), number(&stats["page_bytes"]));
    // A row of the table of size classes, and as many of them as classes that were used.
    let row = "^class +(\\d+) \\[ +1008 bytes \\] : +(\\d+) objs; +[\\d.]+ MiB; +[\\d.]+ cum MiB; +\\d+ live pages; \
               spans: +(\\d+) ret / +(\\d+) req = [01]\\.\\d{4};$";
    let perl = format!("print $2 if m{{{row}}}");
    assert_eq!(script("perl", &["-ne", &perl]), number(&class(&stats, 1008)["free"]));
    let rows = script("awk", &["/^class .* objs;/ { rows++ } END { print rows }"]);
    assert_eq!(rows as usize, stats["classes"].as_array().expect("classes").len());
    said.running.finish().silent_success();
}

#[test]
fn glibcs_own_reports_are_answered() {
    let pool = Pool::new();
    let output = at_rest(&pool, &program(pool.files()), "info").run().success();
    assert!(output.stderr.contains("Bytes in use by application"), "{}", output.report());
    let python = "import sys, xml.etree.ElementTree as xml\n\
        root = xml.parse(sys.stdin).getroot()\n\
        assert root.tag == 'malloc' and root.get('version') == '1'\n\
        heap, mapped = root.find('heap'), root.find(\"total[@type='mmap']\")\n\
        sizes = heap.findall('sizes/size')\n\
        assert sizes and all(int(s.get('from')) <= int(s.get('to')) for s in sizes)\n\
        assert any(int(s.get('from')) <= 1000 <= int(s.get('to')) for s in sizes)\n\
        assert mapped.get('count') == '1' and int(mapped.get('size')) >= 10 << 20\n\
        assert int(root.find(\"system[@type='current']\").get('size')) > 10 << 20\n";
    Program::new("/usr/bin/python3").args(["-c", python]).input(&output.stdout).run().silent_success();
}

#[test]
fn a_kept_segment_has_statistics_and_what_is_none_is_an_error() {
    let pool = Pool::new();
    pool.program("/bin/true").run().silent_success();
    let segments = pool.segments();
    let [segment] = &segments[..] else { panic!("{segments:?}") };
    let text = pool.poolscope().arg("stats").arg(&segment.path).run().silent_success().stdout;
    assert!(text.contains("MALLOC: "), "{text}");
    let wrong = pool.poolscope().args(["stats", "/bin/true"]).run();
    assert_eq!(wrong.code(), 2, "{}", wrong.report());
}
