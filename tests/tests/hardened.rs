//! Faults of programs: what is found always, and what the hardened mode finds, says and leaves alone.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

use poolscope_e2e::compiler::compile_with_headers;
use poolscope_e2e::{Output, Pool, Program};

/// No block is sampled, and none has guard pages but the large ones.
const NEVER: &str = "1T";
/// Every block is sampled.
const ALWAYS: &str = "1";

struct Faults {
    pool: Pool,
    program: PathBuf,
}

impl Faults {
    fn new(source: &str) -> Faults {
        let pool = Pool::new();
        let program =
            compile_with_headers(pool.files(), source, "faults", &["-g", "-O1", "-fno-inline-functions-called-once"]);
        Faults { pool, program }
    }

    fn program(&self, fault: &str, hardened: bool, period: &str) -> Program {
        let program = self.pool.program(&self.program).arg(fault).env("POOLSCOPE_PERIOD", period);
        let program = if period == NEVER { program.env("POOLSCOPE_GUARDS", "0") } else { program };
        program.env("POOLSCOPE_HARDENED", if hardened { "1" } else { "0" })
    }

    /// Fails unless the hardened mode ends the program by `signal` with such a first line, and with stacks under
    /// these headings, each of which goes through the function of the program that is named beside it.
    #[track_caller]
    fn assert_found(&self, fault: &str, period: &str, signal: i32, line: &str, stacks: &[(&str, &str)]) {
        let output = self.program(fault, true, period).run();
        assert_eq!(output.status.signal(), Some(signal), "{fault}: {}", output.report());
        assert_matches(&output, line);
        let found = stacks_of(&output.stderr);
        let headings: Vec<&str> = found.iter().map(|stack| stack.heading.as_str()).collect();
        let expected: Vec<&str> = stacks.iter().map(|(heading, _)| *heading).collect();
        assert_eq!(headings, expected, "{fault}: {}", output.report());
        for (stack, (_, function)) in found.iter().zip(stacks) {
            let names = self.names(&stack.offsets);
            assert!(
                names.iter().any(|name| name == function),
                "{fault}: {function} is not in {names:?}\n{}",
                output.report()
            );
        }
    }

    /// The functions at addresses of the program.
    fn names(&self, offsets: &[(String, String)]) -> Vec<String> {
        let own: Vec<&str> = offsets
            .iter()
            .filter(|(module, _)| Path::new(module) == self.program)
            .map(|(_, offset)| offset.as_str())
            .collect();
        let output = Program::new("addr2line").args(["-f", "-e"]).arg(&self.program).args(own).run().success();
        output.stdout.lines().step_by(2).map(str::to_owned).collect()
    }
}

/// Fails unless the first line is the expected one, in which `*` stands for an address.
#[track_caller]
fn assert_matches(output: &Output, expected: &str) {
    let first = output.stderr.lines().next().unwrap_or_default();
    let words = first.split(' ').map(|word| {
        if word.starts_with("0x") { word.replace(|c: char| c.is_ascii_alphanumeric(), "") } else { word.to_owned() }
    });
    let shown = words.collect::<Vec<_>>().join(" ");
    assert_eq!(shown, format!("poolscope: {}", expected.replace('*', "")), "{}", output.report());
}

struct PrintedStack {
    heading: String,
    /// Module and address of each frame.
    offsets: Vec<(String, String)>,
}

/// The stacks of a report; fails on a line that is neither a heading nor a frame.
#[track_caller]
fn stacks_of(report: &str) -> Vec<PrintedStack> {
    let mut stacks: Vec<PrintedStack> = Vec::new();
    for line in report.lines().skip(1) {
        let line = line.strip_prefix("poolscope:   ").unwrap_or_else(|| panic!("{line:?} in {report}"));
        if let Some(frame) = line.strip_prefix("  ") {
            let (module, offset) = frame.rsplit_once('+').unwrap_or_else(|| panic!("{line:?} in {report}"));
            assert!(offset.starts_with("0x"), "{line:?}");
            let stack = stacks.last_mut().expect("a heading comes first");
            stack.offsets.push((module.to_owned(), offset.to_owned()));
        } else {
            let (heading, thread) = line.split_once(", thread ").unwrap_or_else(|| panic!("{line:?} in {report}"));
            assert!(thread.trim_end_matches(':').parse::<u32>().is_ok_and(|id| id > 0), "{line:?}");
            stacks.push(PrintedStack { heading: heading.to_owned(), offsets: Vec::new() });
        }
    }
    stacks
}

const ABORT: i32 = libc::SIGABRT;
const FREE_AND_ALLOC: &[(&str, &str)] = &[("freed here", "freeing"), ("allocated", "allocating")];
const TWO_FREES: &[(&str, &str)] =
    &[("freed here", "freeing"), ("freed before", "freeing"), ("allocated", "allocating")];

#[test]
fn a_double_free_is_named_with_both_frees_and_the_allocation() {
    let faults = Faults::new("tests/csrc/faults.c");
    for fault in ["double_free", "double_free_after_others", "double_free_by_another_thread"] {
        faults.assert_found(fault, NEVER, ABORT, "double free of *, a block of 24 bytes", TWO_FREES);
    }
    faults.assert_found("double_free", ALWAYS, ABORT, "double free of *, a block of 24 bytes", TWO_FREES);
    faults.assert_found("double_free_large", NEVER, ABORT, "double free of *, a block of 3000000 bytes", TWO_FREES);
}

#[test]
fn a_free_inside_a_block_is_named_with_the_block() {
    let faults = Faults::new("tests/csrc/faults.c");
    for period in [NEVER, ALWAYS] {
        for (fault, line) in [
            ("interior", "free of *, which lies 16 bytes inside a block of 100 bytes"),
            ("interior_unaligned", "free of *, which lies 3 bytes inside a block of 100 bytes"),
            ("interior_medium", "free of *, which lies 4096 bytes inside a block of 20000 bytes"),
            ("interior_large", "free of *, which lies 70000 bytes inside a block of 700000 bytes"),
        ] {
            faults.assert_found(fault, period, ABORT, line, FREE_AND_ALLOC);
        }
    }
}

#[test]
fn a_free_of_what_is_no_block_is_named_with_its_stack() {
    let faults = Faults::new("tests/csrc/faults.c");
    for fault in ["stack_address", "mapping"] {
        let line = "free of *, which is not an allocated block";
        faults.assert_found(fault, NEVER, ABORT, line, &[("freed here", "freeing")]);
    }
}

#[test]
fn a_write_beside_a_block_is_found_when_it_is_freed_or_resized() {
    let faults = Faults::new("tests/csrc/faults.c");
    for (fault, line) in [
        ("overflow", "overflow of *, a block of 24 bytes: byte 24 was written, counted from its start"),
        (
            "overflow_of_a_large_block",
            "overflow of *, a block of 300000 bytes: byte 300000 was written, counted from its start",
        ),
        ("underflow", "underflow of *, a block of 24 bytes: the byte 1 before its start was written"),
    ] {
        faults.assert_found(fault, NEVER, ABORT, line, FREE_AND_ALLOC);
    }
    let line = "overflow of *, a block of 512 bytes: byte 512 was written, counted from its start";
    let stacks = [("freed here", "freeing"), ("allocated", "overflow_of_aligned")];
    faults.assert_found("overflow_of_aligned", NEVER, ABORT, line, &stacks);
    let line = "overflow of *, a block of 24 bytes: byte 30 was written, counted from its start";
    let stacks = [("resized here", "overflow_found_by_realloc"), ("allocated", "allocating")];
    faults.assert_found("overflow_found_by_realloc", NEVER, ABORT, line, &stacks);
}

#[test]
fn a_write_to_a_freed_block_is_found_when_it_leaves_the_quarantine() {
    let faults = Faults::new("tests/csrc/faults.c");
    let line = "use after free of *, a block of 24 bytes: byte 5 was written after it was freed";
    let stacks = [("freed", "freeing"), ("allocated", "allocating")];
    faults.assert_found("write_after_free", NEVER, ABORT, line, &stacks);
}

#[test]
fn a_write_to_a_freed_large_block_is_found_though_its_memory_has_gone() {
    let faults = Faults::new("tests/csrc/faults.c");
    for (fault, byte) in [
        ("write_after_free_of_a_large_block", 1000005),
        ("write_after_free_behind_its_pages", 2097247),
        ("zeroes_after_free_of_a_large_block", 1003620),
    ] {
        let line = format!("use after free of *, a block of 2097252 bytes: byte {byte} was written after it was freed");
        faults.assert_found(fault, NEVER, ABORT, &line, &[("freed", "freeing"), ("allocated", "allocating_large")]);
    }
    let output = faults.program("large_blocks_read_as_zero", true, NEVER).run().success();
    assert_eq!(output.stdout, "ok\n", "{}", output.report());
}

#[test]
fn a_write_32_bytes_beside_a_block_is_found() {
    let faults = Faults::new("tests/csrc/faults.c");
    for (fault, line) in [
        ("overflow_by_32", "overflow of *, a block of 24 bytes: byte 55 was written, counted from its start"),
        ("underflow_by_32", "underflow of *, a block of 24 bytes: the byte 32 before its start was written"),
    ] {
        faults.assert_found(fault, NEVER, ABORT, line, FREE_AND_ALLOC);
    }
}

#[test]
fn what_nothing_came_across_is_found_when_the_program_ends() {
    let faults = Faults::new("tests/csrc/faults.c");
    let line = "use after free of *, a block of 24 bytes: byte 5 was written after it was freed";
    let stacks = [("freed", "freeing"), ("allocated", "allocating")];
    faults.assert_found("write_after_free_at_the_end", NEVER, ABORT, line, &stacks);
    let line = "overflow of *, a block of 24 bytes: byte 24 was written, counted from its start";
    faults.assert_found("overflow_of_a_block_in_use", NEVER, ABORT, line, &[("allocated", "allocating")]);
}

#[test]
fn a_block_of_no_bytes_can_not_be_touched() {
    let faults = Faults::new("tests/csrc/faults.c");
    let line = "overflow: access to *, which lies right behind a block of 0 bytes";
    let stacks = [("accessed here", "reading"), ("allocated", "allocating")];
    faults.assert_found("read_of_no_bytes", NEVER, libc::SIGSEGV, line, &stacks);
}

#[test]
fn the_first_blocks_lie_between_guards_that_are_wider_than_a_mebibyte() {
    let faults = Faults::new("tests/csrc/faults.c");
    for (fault, line) in [
        (
            "write_a_mebibyte_behind",
            "overflow: access to *, which lies 1048576 bytes behind the end of a block of 32 bytes",
        ),
        ("write_a_mebibyte_before", "underflow: access to *, which lies 1048576 bytes before a block of 32 bytes"),
    ] {
        // What a program allocates before `main` is less than that.
        let output = faults.program(fault, true, "1T").env("POOLSCOPE_GUARDS", "1000").run();
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{fault}: {}", output.report());
        assert_matches(&output, line);
    }
}

#[test]
fn a_freed_block_is_not_resized_nor_measured() {
    let faults = Faults::new("tests/csrc/faults.c");
    for (fault, action, line) in [
        ("realloc_after_free", "resized here", "realloc of *, which was freed before: a block of 24 bytes"),
        (
            "size_after_free",
            "asked for its size here",
            "malloc_usable_size of *, which was freed before: a block of 24 bytes",
        ),
    ] {
        let stacks = [(action, fault), ("freed", "freeing"), ("allocated", "allocating")];
        faults.assert_found(fault, NEVER, ABORT, line, &stacks);
    }
}

#[test]
fn sizes_and_alignments_that_do_not_fit_are_named() {
    let faults = Faults::new("tests/csrc/faults.c");
    for (fault, allocating, line) in [
        (
            "wrong_size",
            "allocating",
            "free of * with a size of 32 bytes, which does not fit: it is a block of 24 bytes",
        ),
        (
            "wrong_aligned_size",
            "wrong_aligned_size",
            "free of * with a size of 64 bytes, which does not fit: it is a block of 128 bytes",
        ),
        (
            "wrong_alignment",
            "wrong_alignment",
            "free of * with an alignment of 32, which does not fit: it is a block of 128 bytes aligned to 64",
        ),
    ] {
        faults.assert_found(fault, NEVER, ABORT, line, &[("freed here", fault), ("allocated", allocating)]);
        // And by the pool's own names.
        let own = format!("own_{fault}");
        faults.assert_found(&own, NEVER, ABORT, line, &[("freed here", &own), ("allocated", &own)]);
    }
}

#[test]
fn an_operator_delete_that_does_not_fit_its_new_is_named() {
    let faults = Faults::new("tests/csrc/faults.cpp");
    let stacks = [("freed here", "main"), ("allocated", "main")];
    for (fault, line) in [
        ("wrong_size", "free of * with a size of 32 bytes, which does not fit: it is a block of 24 bytes"),
        (
            "plain_delete_of_aligned",
            "free of * with an alignment of 16, which does not fit: it is a block of 64 bytes aligned to 64",
        ),
        (
            "aligned_delete_of_plain",
            "free of * with an alignment of 64, which does not fit: it is a block of 64 bytes aligned to 16",
        ),
    ] {
        faults.assert_found(fault, NEVER, ABORT, line, &stacks);
    }
    for (fault, line) in [
        ("array_by_delete", "free of * by operator delete, but a block of 24 bytes that operator new[] allocated"),
        ("one_by_delete_array", "free of * by operator delete[], but a block of 24 bytes that operator new allocated"),
        ("new_by_free", "free of * by free, but a block of 24 bytes that operator new allocated"),
        ("malloc_by_delete", "free of * by operator delete, but a block of 24 bytes that malloc allocated"),
    ] {
        faults.assert_found(fault, NEVER, ABORT, line, &stacks);
    }
    let stacks = [("freed here", "main"), ("freed before", "main"), ("allocated", "main")];
    faults.assert_found("double_delete", NEVER, ABORT, "double free of *, a block of 24 bytes", &stacks);
}

#[test]
fn an_access_to_a_guard_page_is_explained_and_ends_the_program_by_its_signal() {
    let faults = Faults::new("tests/csrc/faults.c");
    let (accessed, allocated) = (("accessed here", "reading"), ("allocated", "allocating"));
    for (fault, place) in [("read_after_free", "7 bytes inside"), ("read_of_the_start_after_free", "at the start of")] {
        let line = format!("use after free: access to *, which lies {place} a block of 24 bytes");
        let stacks = [accessed, ("freed", "freeing"), allocated];
        faults.assert_found(fault, ALWAYS, libc::SIGSEGV, &line, &stacks);
    }
    for (fault, line) in [
        ("read_behind", "overflow: access to *, which lies right behind a block of 32 bytes"),
        ("read_far_before", "underflow: access to *, which lies 4096 bytes before a block of 32 bytes"),
    ] {
        faults.assert_found(fault, ALWAYS, libc::SIGSEGV, line, &[accessed, allocated]);
    }
}

#[test]
fn a_fault_elsewhere_is_left_alone() {
    let faults = Faults::new("tests/csrc/faults.c");
    for fault in ["null_pointer", "raised"] {
        let output = faults.program(fault, true, ALWAYS).run();
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{}", output.report());
        assert!(output.stderr.is_empty(), "{}", output.report());
    }
}

#[test]
fn programs_without_a_fault_run_as_ever() {
    for source in ["tests/csrc/faults.c", "tests/csrc/faults.cpp"] {
        let faults = Faults::new(source);
        for (hardened, period) in [(true, NEVER), (true, ALWAYS), (true, "64K"), (false, "64K")] {
            let output = faults.program("nothing", hardened, period).run().silent_success();
            assert_eq!(output.stdout, "ok\n", "{source} {hardened} {period}");
        }
    }
}

#[test]
fn programs_that_nobody_here_wrote_run_as_ever() {
    let pool = Pool::new();
    let hardened = |program: &str| pool.program(program).env("POOLSCOPE_HARDENED", "1");
    let script =
        "for i in $(seq 1 50); do ( list=(); for j in {1..50}; do list+=(\"$i $j\"); done ) & done; wait; echo ok";
    assert_eq!(hardened("bash").args(["-c", script]).run().silent_success().stdout, "ok\n");
    let script = "import json, threading\n\
        def work():\n    for n in range(20):\n        rows = [{'id': i, 'name': 'x' * (i % 50)} for i in range(200)]\n\
        \x20       assert json.loads(json.dumps(rows)) == rows\n\
        threads = [threading.Thread(target=work) for _ in range(4)]\n\
        [t.start() for t in threads]; [t.join() for t in threads]; print('ok')";
    let python = hardened("/usr/bin/python3").args(["-c", script]).env("PYTHONMALLOC", "malloc");
    assert_eq!(python.run().silent_success().stdout, "ok\n");
    let sum = "with recursive c(x) as (select 1 union all select x + 1 from c where x < 20000) \
        select count(distinct hex(x)) from c;";
    assert_eq!(hardened("sqlite3").args([":memory:", sum]).run().silent_success().stdout, "20000\n");
    let source =
        pool.files().write("work.c", "#include <stdio.h>\nint main(void) { return printf(\"ok\\n\") != 3; }\n");
    hardened("gcc").args(["-O2", "-o"]).arg(pool.files().join("work")).arg(source).run().silent_success();
    assert_eq!(hardened("./work").run().silent_success().stdout, "ok\n");
}

#[test]
fn some_faults_are_found_always() {
    let faults = Faults::new("tests/csrc/faults.c");
    for (fault, period, line) in [
        ("stack_address", NEVER, "free of *, which is not an allocated block"),
        ("mapping", NEVER, "free of *, which is not an allocated block"),
        ("double_free_large", NEVER, "free of *, which is not an allocated block"),
        ("interior_by_another_thread", NEVER, "free of *, which lies 1024 bytes inside a block of up to 20480 bytes"),
        ("small_interior_by_another_thread", NEVER, "free of *, which lies 16 bytes inside a block of up to 112 bytes"),
        ("double_free", ALWAYS, "double free of *, a block of up to 32 bytes"),
        ("interior", ALWAYS, "free of *, which lies 16 bytes inside a block of up to 112 bytes"),
        ("interior_start_of_large", NEVER, "free of *, which lies 16 bytes inside a block of up to 720896 bytes"),
        ("double_free", NEVER, "double free of *, a block of up to 32 bytes"),
        ("double_free_at_the_end", NEVER, "double free of *, a block of up to 32 bytes"),
        (
            "write_after_free_at_the_end",
            NEVER,
            "use after free of *, a block of up to 32 bytes: it was written to after it was freed, or from the block \
             before it",
        ),
        ("double_free_medium", NEVER, "double free of *, a block of up to 20480 bytes"),
    ] {
        let output = faults.program(fault, false, period).run();
        assert_eq!(output.status.signal(), Some(ABORT), "{fault}: {}", output.report());
        assert_matches(&output, line);
    }
}
