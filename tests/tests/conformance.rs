//! What C23, POSIX 2024, C++17 and glibc promise of malloc and its relatives, held by programs of our own
//! (`tests/csrc/conformance`). Each scenario runs on the pool, once more with every allocation recorded, and without
//! the pool: what it expects is what glibc does. Those about what a block is run in the hardened mode, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use poolscope_e2e::compiler::compile_into;
use poolscope_e2e::{Output, Pool, Program};

/// Sizes that no memory holds are asked for here, and every call must happen. Blocks are written to as far as
/// `malloc_usable_size` goes, which the checks that some compilers add by default take for an overflow.
const FLAGS: [&str; 4] = ["-O2", "-fno-builtin", "-Wno-alloc-size-larger-than", "-U_FORTIFY_SOURCE"];

/// A file of `tests/csrc/conformance`, compiled once for all tests.
fn build(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = built.get(name) {
        return path.clone();
    }
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let flags: Vec<&str> = FLAGS.iter().chain(flags).copied().collect();
    compile_into(&output, &Path::new("tests/csrc/conformance").join(source), &flags, &[]);
    built.insert(name.to_owned(), output.clone());
    output
}

fn name_of(source: &str) -> &str {
    source.split_once('.').expect("the name of a source file").0
}

fn program(source: &str) -> PathBuf {
    build(source, name_of(source), &[])
}

fn plugin() -> PathBuf {
    build("plugin.cpp", "plugin.so", &["-shared", "-fPIC"])
}

fn on_pool_with(source: &str, scenario: &str, variable: &str, value: &str) -> Output {
    let pool = Pool::new();
    let output = pool.program(program(source)).arg(scenario).arg(plugin()).env(variable, value).run().silent_success();
    pool.assert_ran(name_of(source));
    output
}

/// With a sample every 512 KiB, as by default.
fn on_pool(source: &str, scenario: &str) -> Output {
    on_pool_with(source, scenario, "POOLSCOPE_PERIOD", "512K")
}

/// With every allocation recorded.
fn recorded(source: &str, scenario: &str) -> Output {
    on_pool_with(source, scenario, "POOLSCOPE_PERIOD", "1")
}

fn hardened(source: &str, scenario: &str) -> Output {
    on_pool_with(source, scenario, "POOLSCOPE_HARDENED", "1")
}

fn without_pool(source: &str, scenario: &str) -> Output {
    Program::new(program(source)).arg(scenario).arg(plugin()).run().silent_success()
}

fn everywhere(source: &str, scenario: &str) {
    without_pool(source, scenario);
    on_pool(source, scenario);
    recorded(source, scenario);
}

fn everywhere_and_hardened(source: &str, scenario: &str) {
    everywhere(source, scenario);
    hardened(source, scenario);
}

/// Under `ulimit -v`, in KiB. Without the pool, threads that allocate at once would leave no room for a scenario's
/// blocks: glibc reserves 64 MiB for each.
fn under_a_limit(source: &str, scenario: &str, limit: u32) {
    let command = format!("ulimit -v {limit}; exec {} {scenario}", program(source).display());
    Program::new("bash").args(["-c", &command]).env("MALLOC_ARENA_MAX", "1").run().silent_success();
    let pool = Pool::new();
    pool.program("bash").args(["-c", &command]).run().silent_success();
    pool.assert_ran(name_of(source));
}

#[test]
fn blocks_of_no_bytes_are_blocks() {
    everywhere_and_hardened("blocks.c", "zero-sizes");
}

#[test]
fn blocks_of_every_size_are_aligned_to_16_bytes() {
    everywhere_and_hardened("blocks.c", "alignment-of-every-size");
}

#[test]
fn every_byte_of_the_usable_size_can_be_used() {
    everywhere_and_hardened("blocks.c", "usable-sizes");
}

#[test]
fn alignments_up_to_a_gibibyte_are_kept() {
    everywhere("blocks.c", "alignments");
}

#[test]
fn calloc_returns_zeros_where_dirt_was_before() {
    everywhere_and_hardened("blocks.c", "calloc-after-dirt");
}

#[test]
fn calloc_returns_zeros_among_blocks_of_all_sizes() {
    everywhere_and_hardened("blocks.c", "calloc-among-dirt");
}

#[test]
fn calloc_touches_no_memory_that_is_new() {
    everywhere("blocks.c", "calloc-of-new-memory");
}

#[test]
fn calloc_touches_no_memory_that_nobody_used() {
    everywhere("blocks.c", "calloc-of-used-memory");
}

#[test]
fn realloc_keeps_the_contents_from_any_size_to_any_other() {
    everywhere_and_hardened("blocks.c", "realloc-keeps-contents");
}

#[test]
fn realloc_of_gibibytes_touches_no_more_than_the_program_did() {
    everywhere("blocks.c", "realloc-of-huge-blocks");
}

#[test]
fn glibcs_own_names_are_the_same_allocator() {
    everywhere_and_hardened("blocks.c", "names-of-glibc");
}

#[test]
fn sized_frees_of_c23_free() {
    everywhere_and_hardened("blocks.c", "sized-frees");
}

#[test]
fn sizes_beyond_ptrdiff_max_are_refused_with_enomem() {
    everywhere_and_hardened("errors.c", "sizes-beyond-ptrdiff-max");
}

#[test]
fn products_that_overflow_are_refused_with_enomem() {
    everywhere_and_hardened("errors.c", "products-that-overflow");
}

#[test]
fn alignments_that_are_none_are_refused_with_einval() {
    everywhere_and_hardened("errors.c", "alignments-that-are-none");
}

#[test]
fn free_keeps_errno() {
    everywhere_and_hardened("errors.c", "frees-keep-errno");
}

#[test]
fn allocations_that_succeed_keep_errno() {
    everywhere_and_hardened("errors.c", "successes-keep-errno");
}

#[test]
fn realloc_to_nothing_frees() {
    everywhere("errors.c", "realloc-to-nothing");
}

#[test]
fn blocks_that_no_machine_holds_are_refused_and_leave_nothing_behind() {
    everywhere("errors.c", "refusals-cost-nothing");
}

#[test]
fn a_limit_of_address_space_that_a_process_sets_itself_leaves_room_for_everything() {
    everywhere("limits.c", "address-space");
}

#[test]
fn a_limit_of_address_space_that_is_inherited_leaves_room_for_everything() {
    under_a_limit("limits.c", "inherited-address-space", 400_000);
}

#[test]
fn a_limit_of_data_leaves_room_for_everything() {
    everywhere("limits.c", "data");
}

#[test]
fn a_limit_that_is_lifted_is_gone() {
    everywhere("limits.c", "limit-that-is-lifted");
}

#[test]
fn what_fits_into_the_last_megabyte_is_had() {
    everywhere("limits.c", "last-megabyte");
}

#[test]
fn threads_that_use_up_all_memory_go_on() {
    everywhere("limits.c", "threads-that-fill-it");
}

#[test]
fn every_form_of_operator_new_goes_with_its_deletes() {
    everywhere_and_hardened("operators.cpp", "every-form");
}

/// The others are those by default, and frees of what they allocate come in any form.
#[test]
fn a_program_that_replaces_some_operators_has_all_of_them_lead_there() {
    everywhere_and_hardened("replaced_operators.cpp", "every-form");
    everywhere_and_hardened("replaced_operators.cpp", "what-is-thrown");
}

#[test]
fn a_program_with_an_allocator_of_its_own_has_all_functions_lead_there() {
    without_pool("replaced_malloc.c", "own-blocks");
    let pool = Pool::new();
    pool.program(program("replaced_malloc.c")).arg("own-blocks").run().silent_success();
}

#[test]
fn operator_new_throws_and_its_nothrow_forms_return_null() {
    everywhere_and_hardened("operators.cpp", "without-memory");
}

#[test]
fn every_form_of_operator_new_calls_the_new_handler() {
    everywhere_and_hardened("operators.cpp", "new-handlers");
}

#[test]
fn what_a_new_handler_frees_is_used() {
    under_a_limit("operators.cpp", "handlers-that-free", 500_000);
}

#[test]
fn threads_catch_what_operator_new_throws() {
    everywhere("operators.cpp", "in-threads");
}

#[test]
fn objects_of_threads_allocate_when_they_are_destroyed() {
    everywhere("operators.cpp", "objects-of-threads");
}

#[test]
fn fork_does_not_wait_for_streams_whose_readers_wait_for_memory() {
    without_pool("processes.c", "streams-that-are-flushed");
    on_pool("processes.c", "streams-that-are-flushed");
}

#[test]
fn a_signal_handler_that_interrupts_malloc_may_fork() {
    everywhere("processes.c", "signal-handlers-that-fork");
}

#[test]
fn children_of_a_program_with_threads_allocate_and_free_what_they_inherited() {
    everywhere("processes.c", "children-of-threads");
}

#[test]
fn handlers_of_fork_may_allocate() {
    everywhere("processes.c", "handlers-that-allocate");
}

#[test]
fn processes_start_in_every_other_way_while_threads_allocate() {
    without_pool("processes.c", "other-ways-to-start-a-process");
    on_pool("processes.c", "other-ways-to-start-a-process");
}

#[test]
fn constructors_and_destructors_of_the_program_allocate() {
    for run in [without_pool, on_pool, recorded, hardened] {
        assert_eq!(run("life.c", "before-and-after-main").stdout, "freed after main\n");
    }
}

#[test]
fn threads_may_go_on_while_the_process_ends() {
    for run in [without_pool, on_pool, on_pool, on_pool, on_pool, on_pool, recorded] {
        assert_eq!(run("life.c", "threads-that-outlive-main").stdout, "freed after main\n");
    }
}

#[test]
fn destructors_of_thread_keys_allocate_round_after_round() {
    everywhere("life.c", "destructors-of-thread-keys");
}

#[test]
fn no_cancelled_thread_ends_in_malloc() {
    everywhere("life.c", "threads-that-are-cancelled");
    // With a sample at almost every refill, the segment grows under the cancelled threads.
    on_pool_with("life.c", "threads-that-are-cancelled", "POOLSCOPE_PERIOD", "64");
}

#[test]
fn the_last_thread_may_be_another_one_than_main() {
    for run in [without_pool, on_pool] {
        assert_eq!(run("life.c", "main-that-ends-first").stdout, "the last thread ended\n");
    }
}

/// POSIX forbids it, glibc may hang, and programs do it all the same.
#[test]
fn a_signal_handler_that_interrupts_malloc_may_allocate() {
    on_pool("life.c", "signal-handlers-that-allocate");
    recorded("life.c", "signal-handlers-that-allocate");
}

#[test]
fn libraries_may_come_and_go_and_bring_the_cpp_runtime() {
    everywhere("life.c", "libraries-that-come-and-go");
}

#[test]
fn a_library_in_a_namespace_of_its_own_has_its_own_malloc() {
    everywhere("life.c", "libraries-in-a-namespace");
}

#[test]
fn a_static_program_does_not_notice_the_preload() {
    let program = build("blocks.c", "blocks-static-pie", &["-static-pie"]);
    let pool = Pool::new();
    pool.program(program).arg("zero-sizes").run().silent_success();
    assert!(pool.segments().is_empty(), "nothing was preloaded");
}

#[test]
fn a_program_may_have_the_family_itself_around_glibcs_names() {
    everywhere_and_hardened("wrapped.c", "wrapped");
}
