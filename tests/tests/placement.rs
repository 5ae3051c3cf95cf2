//! Where the pool's memory lies: how much of the address space it reserves, in which pages, on which NUMA nodes. What
//! the kernel says of it (`smaps`, `numa_maps`) is what counts here; machines with more nodes than this one are
//! simulated in `alloc/cpu/src/page_heap/tests.rs`.

use std::path::{Path, PathBuf};

use poolscope_e2e::{Pool, Program, Running, compiler};
use serde_json::Value;

fn program(pool: &Pool) -> PathBuf {
    compiler::compile_linked(pool.files(), "tests/csrc/placement.c", "placement", &["-O2"])
}

/// The huge pages of 2 MiB, as the administrator sees them (Linux, Documentation/admin-guide/mm/hugetlbpage.rst).
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// `tests/csrc/placement.c` while it waits, with what it said of itself.
struct Held {
    running: Running,
    /// Addresses of the first and of the last block.
    blocks: [usize; 2],
    stats: Value,
}

impl Held {
    fn of(program: Program) -> Held {
        let mut running = program.start();
        let line = running.wait_for_line("STATS ");
        let stats = serde_json::from_str(&line["STATS ".len()..]).expect("JSON");
        let line = running.wait_for_line("BLOCKS ");
        let mut words = line.split(' ').skip(1).map(address);
        let blocks = std::array::from_fn(|_| words.next().expect("two addresses"));
        Held { running, blocks, stats }
    }

    /// What the kernel says of the mapping that a block lies in: its lines of `smaps`.
    fn mapping(&self, block: usize) -> String {
        let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", self.running.pid())).expect("smaps is readable");
        let mut found = String::new();
        let mut inside = false;
        for line in smaps.lines() {
            if let Some((from, to)) = line.split(' ').next().and_then(|range| range.split_once('-')) {
                inside = (address(from)..address(to)).contains(&block);
            }
            if inside {
                found += line;
                found.push('\n');
            }
        }
        found
    }

    /// The mapping's flags.
    fn flags(&self, block: usize) -> Vec<String> {
        let mapping = self.mapping(block);
        let line = mapping.lines().find_map(|line| line.strip_prefix("VmFlags:")).expect("smaps has flags");
        line.split_ascii_whitespace().map(str::to_owned).collect()
    }

    fn has_flag(&self, block: usize, flag: &str) -> bool {
        self.flags(block).iter().any(|other| other == flag)
    }

    /// The NUMA policy of the mapping that a block lies in: the second word of its line of `numa_maps`.
    fn policy(&self, block: usize) -> String {
        let maps = std::fs::read_to_string(format!("/proc/{}/numa_maps", self.running.pid())).expect("it is readable");
        let lines = maps.lines().filter_map(|line| Some((address(line.split(' ').next()?), line)));
        let (_, line) = lines.filter(|&(start, _)| start <= block).max().expect("the block lies in a mapping");
        line.split(' ').nth(1).expect("a policy").to_owned()
    }

    /// Ends the program: what it and the pool wrote on standard error.
    fn end(self) -> String {
        let output = self.running.finish();
        assert_eq!(output.code(), 0, "{}", output.report());
        output.stderr
    }

    /// One of the pool's counters.
    fn counter(&self, name: &str) -> u64 {
        self.stats["counters"][name].as_u64().unwrap_or_else(|| panic!("{} has no {name}", self.stats["counters"]))
    }

    /// A number of the statistics' part `system`.
    fn system(&self, name: &str) -> u64 {
        self.stats["system"][name].as_u64().unwrap_or_else(|| panic!("{} has no {name}", self.stats["system"]))
    }
}

fn address(text: &str) -> usize {
    usize::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[test]
fn the_first_reservation_is_as_large_as_asked_for_and_more_follows_when_it_is_used_up() {
    let pool = Pool::new();
    let program = program(&pool);
    let reserved = |arena: Option<&str>, mib: &str, block: &str| {
        let program = pool.program(&program).args([mib, block]);
        let held = Held::of(if let Some(arena) = arena { program.env("POOLSCOPE_ARENA", arena) } else { program });
        let reserved = held.system("reserved_bytes");
        held.running.finish().silent_success();
        reserved >> 20
    };
    assert_eq!(reserved(None, "1", "4096"), 256 << 10);
    assert_eq!(reserved(Some("64M"), "1", "4096"), 64);
    assert_eq!(reserved(Some("1G"), "1", "4096"), 1024);
    // 64 and 128 MiB hold less than 200 with their tables; 256 more do not.
    assert_eq!(reserved(Some("64M"), "200", "65536"), 64 + 128 + 256);
    // A block that is larger than the next arena gets one that it fits in.
    assert_eq!(reserved(Some("64M"), "300", "314572800"), 64 + 384);
    assert_eq!(reserved(Some("1G"), "200", "65536"), 1024);
}

#[test]
fn huge_pages_are_left_to_the_system_by_default() {
    let pool = Pool::new();
    let held = Held::of(pool.program(program(&pool)).arg("200"));
    for block in held.blocks {
        assert!(!held.has_flag(block, "hg") && !held.has_flag(block, "nh"), "{}", held.mapping(block));
    }
    assert_eq!(held.counter("huge_advised_bytes"), 0);
    assert_eq!(held.end(), "");
}

#[test]
fn a_large_heap_lies_in_transparent_huge_pages_if_asked_and_a_small_one_does_not() {
    let pool = Pool::new();
    let program = program(&pool);
    let asked = |mib: &str| Held::of(pool.program(&program).arg(mib).env("POOLSCOPE_HUGE", "madvise"));
    let small = asked("20");
    for block in small.blocks {
        assert!(!small.has_flag(block, "hg"), "{}", small.mapping(block));
    }
    assert_eq!(small.counter("huge_advised_bytes"), 0);
    assert_eq!(small.end(), "");

    let large = asked("200");
    let [first, last] = large.blocks;
    assert!(!large.has_flag(first, "hg"), "{}", large.mapping(first));
    assert!(large.has_flag(last, "hg"), "{}", large.mapping(last));
    let advised = large.counter("huge_advised_bytes") >> 20;
    assert!((100..1000).contains(&advised), "{advised} MiB");
    // What the kernel makes of it, where it may.
    if !read("/sys/kernel/mm/transparent_hugepage/enabled").contains("[never]") {
        let mapping = large.mapping(last);
        let line = mapping.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).expect("smaps says it");
        let huge: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        assert!(huge > 50 << 10, "{mapping}");
    }
    assert_eq!(large.end(), "");
}

#[test]
fn without_huge_pages_the_kernel_is_told_to_use_none() {
    let pool = Pool::new();
    let held = Held::of(pool.program(program(&pool)).arg("200").env("POOLSCOPE_HUGE", "off"));
    for block in held.blocks {
        assert!(held.has_flag(block, "nh") && !held.has_flag(block, "hg"), "{}", held.mapping(block));
    }
    assert_eq!(held.end(), "");
}

/// One test: the pool of explicit huge pages is the machine's.
#[test]
fn explicit_huge_pages_are_used_as_far_as_they_go_and_transparent_ones_then() {
    let pool = Pool::new();
    let program = program(&pool);
    let start = |mib: &str, verbose: &str| {
        let program = pool.program(&program).arg(mib).env("POOLSCOPE_HUGE", "explicit");
        Held::of(program.env("POOLSCOPE_VERBOSE", verbose))
    };
    let said = "poolscope: POOLSCOPE_HUGE=explicit: no more explicit huge pages \
                (error 12: there is no memory left of that kind); transparent ones are asked for from here on\n";
    let free = read(&format!("{HUGE_PAGES}/free_hugepages"));
    if free == "0" {
        let held = start("200", "1");
        assert!(held.has_flag(held.blocks[1], "hg"), "{}", held.mapping(held.blocks[1]));
        assert_eq!((held.counter("huge_explicit_bytes"), held.counter("placement_refused")), (0, 1));
        assert_eq!(held.end(), said);
        assert_eq!(start("20", "0").end(), "");
    }

    let Some(_pages) = MorePages::new(20) else {
        eprintln!("huge pages can't be set aside here: that they are used is not tested");
        return;
    };
    let held = start("20", "1");
    for block in held.blocks {
        assert!(held.has_flag(block, "ht"), "{}", held.mapping(block));
        assert!(held.mapping(block).contains("KernelPageSize:     2048 kB"), "{}", held.mapping(block));
    }
    let bytes = held.counter("huge_explicit_bytes");
    assert!((20 << 20..=40 << 20).contains(&bytes) && bytes.is_multiple_of(2 << 20), "{bytes}");
    assert_eq!(held.counter("placement_refused"), 0);
    assert_eq!(held.end(), "");

    let held = start("200", "1");
    let [first, last] = held.blocks;
    assert!(held.has_flag(first, "ht") && !held.has_flag(last, "ht"), "{}", held.mapping(last));
    assert_eq!((held.counter("huge_explicit_bytes"), held.counter("placement_refused")), (40 << 20, 1));
    assert_eq!(held.end(), said);

    // A kernel that can't move them to where they are to be.
    let launch = without(&pool, libc::SYS_mremap, libc::EINVAL, &program).arg("20");
    let held = Held::of(launch.env("POOLSCOPE_VERBOSE", "1").env("POOLSCOPE_HUGE", "explicit"));
    assert_eq!((held.counter("huge_explicit_bytes"), held.counter("placement_refused")), (0, 1));
    assert!(held.end().contains("no more explicit huge pages (error 22"));
}

/// A program that is linked with the pool, on a kernel whose system call of this number fails.
fn without(pool: &Pool, call: libc::c_long, error: i32, program: &Path) -> Program {
    let refuse = compiler::compile_with_headers(pool.files(), "tests/csrc/refuse.c", "refuse", &["-O2"]);
    let launch = Program::new(refuse).args([call.to_string(), error.to_string()]).arg(program);
    launch.env("POOLSCOPE_DIR", pool.segment_dir())
}

/// Huge pages that are set aside for a test, as root can; the number is put back when this is dropped.
struct MorePages(String);

impl MorePages {
    /// Exactly `count` that are free. `None` where that can't be had.
    fn new(count: u64) -> Option<MorePages> {
        let path = format!("{HUGE_PAGES}/nr_hugepages");
        let before = read(&path);
        let free: u64 = read(&format!("{HUGE_PAGES}/free_hugepages")).parse().ok()?;
        let all: u64 = before.parse().ok()?;
        std::fs::write(&path, (all - free + count).to_string()).ok()?;
        let more = MorePages(before);
        (read(&format!("{HUGE_PAGES}/free_hugepages")) == count.to_string()).then_some(more)
    }
}

impl Drop for MorePages {
    fn drop(&mut self) {
        std::fs::write(format!("{HUGE_PAGES}/nr_hugepages"), &self.0).expect("the number was changed before");
    }
}

/// Nodes with memory, as the kernel lists them.
fn nodes() -> String {
    read("/sys/devices/system/node/has_memory")
}

#[test]
fn memory_comes_from_the_nodes_that_were_asked_for() {
    let pool = Pool::new();
    let program = program(&pool);
    let nodes = nodes();
    let policy = |numa: Option<&str>| {
        let program = pool.program(&program).arg("100");
        let held = Held::of(if let Some(numa) = numa { program.env("POOLSCOPE_NUMA", numa) } else { program });
        let policies = held.blocks.map(|block| held.policy(block));
        assert_eq!(policies[0], policies[1]);
        assert_eq!(held.end(), "");
        policies[0].clone()
    };
    assert_eq!(policy(None), "default");
    assert_eq!(policy(Some("bind:0")), "bind:0");
    assert_eq!(policy(Some("interleave")), format!("interleave:{nodes}"));
    let local = policy(Some("local"));
    if nodes == "0" {
        assert_eq!(local, "default", "one node is every thread's own");
    } else {
        assert!(local.starts_with("prefer:"), "{local}");
    }
}

#[test]
fn a_node_that_is_not_there_is_named_with_what_is_used_instead() {
    let pool = Pool::new();
    let program = program(&pool);
    let run = |numa: &str| {
        let held = Held::of(pool.program(&program).arg("1").env("POOLSCOPE_NUMA", numa));
        (held.policy(held.blocks[0]), held.end())
    };
    if nodes().ends_with("61") {
        return;
    }
    let no = "poolscope: POOLSCOPE_NUMA=";
    let (policy, said) = run("bind:61");
    assert_eq!(policy, "default");
    assert_eq!(
        said,
        format!("{no}bind:61: this process has no memory on node 61; memory comes from where the system takes it\n")
    );
    let (policy, said) = run("bind:0,61");
    assert_eq!(policy, "bind:0");
    assert_eq!(said, format!("{no}bind:0,61: this process has no memory on node 61; node 0 is used alone\n"));
}

#[test]
fn a_kernel_that_refuses_costs_no_memory_and_is_quoted() {
    let pool = Pool::new();
    let program = program(&pool);
    let run = |call: libc::c_long, error: i32, setting: &str, value: &str| {
        let launch = without(&pool, call, error, &program).arg("200");
        let held = Held::of(launch.env("POOLSCOPE_VERBOSE", "1").env(setting, value));
        let refused = held.counter("placement_refused");
        (refused, held.end())
    };
    let (refused, said) = run(libc::SYS_mbind, libc::EPERM, "POOLSCOPE_NUMA", "interleave");
    assert_eq!(refused, 1);
    assert_eq!(
        said,
        "poolscope: POOLSCOPE_NUMA=interleave: mbind failed (error 1: it is not allowed); \
         memory comes from where the system takes it\n"
    );
    let (refused, said) = run(libc::SYS_mbind, libc::ENOSYS, "POOLSCOPE_NUMA", "bind:0");
    assert_eq!(refused, 1);
    assert!(said.contains("error 38: the kernel has no such call"), "{said}");
    let (refused, said) = run(libc::SYS_madvise, libc::EINVAL, "POOLSCOPE_HUGE", "madvise");
    assert_eq!(refused, 1);
    assert_eq!(said, "poolscope: no transparent huge pages (error 22: the kernel has no such thing)\n");
}
