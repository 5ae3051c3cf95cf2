//! The static probes of the library: what its notes say, and what a tracer that listens sees.

use poolscope_e2e::{Pool, Program, library};

const PROGRAM: &str = r#"#include <stdio.h>
#include <stdlib.h>
int main(void) {
    void *one = malloc(1000), *two = malloc(2000);
    fprintf(stderr, "%p %p\n", one, two);
    free(one);
    free(two);
    return 0;
}
"#;

/// The notes of one probe.
fn probe(notes: &str, name: &str) -> String {
    let at = notes.find(&format!("Name: {name}\n")).unwrap_or_else(|| panic!("no probe {name}: {notes}"));
    let from = notes[..at].rfind("Provider:").expect("has a provider");
    notes[from..].split("stapsdt ").next().expect("has text").to_owned()
}

fn field(probe: &str, name: &str) -> u64 {
    let rest = probe.split(name).nth(1).unwrap_or_else(|| panic!("no {name}: {probe}"));
    let digits: String =
        rest.trim_start().trim_start_matches("0x").chars().take_while(char::is_ascii_hexdigit).collect();
    u64::from_str_radix(&digits, 16).expect("is an address")
}

#[test]
fn the_library_has_the_probes_with_their_arguments_and_semaphores() {
    let notes = Program::new("readelf").arg("-nW").arg(library()).run().success().stdout;
    let sections = Program::new("readelf").arg("-SW").arg(library()).run().success().stdout;
    let probes = sections.lines().find(|line| line.contains(" .probes ")).expect("has a section of semaphores");
    let numbers: Vec<&str> = probes.split(".probes").nth(1).expect("goes on").split_whitespace().collect();
    let number = |at: usize| u64::from_str_radix(numbers[at], 16).expect("is a number");
    let (start, length) = (number(1), number(3));
    assert_eq!(length, 4, "two semaphores of two bytes: {probes}");
    assert!(probes.contains(" WA "), "tracers write to them: {probes}");
    for (name, arguments) in [("alloc", "-8@%rdi -8@%rsi -8@%rdx"), ("free", "-8@%rdi")] {
        let probe = probe(&notes, name);
        assert!(probe.contains("Provider: otel_memory"), "{probe}");
        assert!(probe.trim_end().ends_with(&format!("Arguments: {arguments}")), "{probe}");
        let semaphore = field(&probe, "Semaphore:");
        assert!((start..start + length).contains(&semaphore), "{semaphore:#x}: {probes}");
        assert!(field(&probe, "Location:") > 0 && field(&probe, "Base:") > 0, "{probe}");
    }
    assert_eq!(notes.matches("Provider: otel_memory").count(), 2, "each place is one: {notes}");
}

#[test]
fn a_tracer_that_listens_sees_sampled_blocks_and_their_frees() {
    let pool = Pool::new();
    let source = pool.files().write("blocks.c", PROGRAM);
    let program = pool.files().join("blocks");
    Program::new("gcc").args(["-g", "-O0", "-o"]).arg(&program).arg(source).run().silent_success();
    let environment = |period: &str| {
        let dir = pool.segment_dir();
        format!(
            "set environment LD_PRELOAD {}\nset environment POOLSCOPE_DIR {}\nset environment POOLSCOPE_PERIOD {period}\n",
            library().display(),
            dir.display()
        )
    };
    let session = |period: &str| {
        let script = format!(
            "set pagination off\nset startup-with-shell off\n{}break main\nrun\n\
             break -probe-stap libpoolscope.so:otel_memory:alloc\ncommands\nsilent\n\
             printf \"alloc %#lx %lu %lu\\n\", $_probe_arg0, $_probe_arg1, $_probe_arg2\ncontinue\nend\n\
             break -probe-stap libpoolscope.so:otel_memory:free\ncommands\nsilent\n\
             printf \"free %#lx\\n\", $_probe_arg0\ncontinue\nend\ncontinue\n",
            environment(period)
        );
        let script = pool.files().write("listen.gdb", &script);
        let gdb =
            Program::new("gdb").args(["-nx", "-batch", "-x"]).arg(script).arg(&program).env("HOME", "/nonexistent");
        gdb.run()
    };
    let exact = session("1");
    let blocks =
        exact.stderr.lines().find(|line| line.starts_with("0x")).unwrap_or_else(|| panic!("{}", exact.report()));
    let (one, two) = blocks.split_once(' ').expect("two addresses");
    for line in [
        format!("alloc {one} 1000 1000"),
        format!("alloc {two} 2000 2000"),
        format!("free {one}"),
        format!("free {two}"),
    ] {
        assert!(exact.stdout.lines().any(|seen| seen == line), "{line}: {}", exact.report());
    }

    // What is not sampled has no probe.
    let sampled = session("1G");
    assert!(sampled.stderr.contains("0x") && !sampled.stdout.contains("alloc 0x"), "{}", sampled.report());
}
