//! The marks of packages/pytest-poolscope, with Debian's pytest, on a module in C that leaks.

use std::path::Path;

use poolscope_e2e::compiler::compile_into;
use poolscope_e2e::{Output, Pool, Program, repository};

const TESTS: &str = r#"
import asyncio
import leaky
import pytest

@pytest.mark.limit_memory("1 MB")
def test_stays_below():
    leaky.take_and_free(500_000)
    leaky.take_and_free(500_000)

@pytest.mark.limit_memory("1 MB")
def test_takes_too_much():
    leaky.take_and_free(2_000_000)

@pytest.mark.limit_leaks("10 KB")
def test_leaks_little():
    leaky.lose(1000)

@pytest.mark.limit_leaks("10 KB")
def test_leaks_much():
    for _ in range(20):
        leaky.lose(1000)

@pytest.mark.limit_leaks("10 KB")
def test_frees():
    for _ in range(20):
        leaky.take_and_free(100_000)

@pytest.mark.limit_leaks("10 KB")
def test_leaks_in_a_thread():
    leaky.lose_in_a_thread(50_000)

@pytest.mark.limit_leaks("10 KB", current_thread_only=True)
def test_does_not_ask_for_other_threads():
    leaky.lose_in_a_thread(50_000)

@pytest.mark.limit_leaks("10 KB", filter_fn=lambda stack: all(f.function != "lose_a_block" for f in stack.frames))
def test_leaves_out_what_it_knows():
    leaky.lose(50_000)

@pytest.mark.limit_leaks("10 KB", lambda stack: True)
def test_leaks_what_a_filter_reports():
    leaky.lose(50_000)

@pytest.mark.limit_leaks("1000 B")
def test_leaks_just_its_limit():
    leaky.lose(1000)

@pytest.mark.limit_leaks(
    "10 KB", filter_fn=lambda stack: not any(frame.filename.endswith("/leaky.so") for frame in stack.frames)
)
def test_leaves_out_a_file_that_it_knows():
    leaky.lose(50_000)

def lose_on_purpose():
    leaky.lose(50_000)

@pytest.mark.limit_leaks("10 KB", filter_fn=lambda stack: all(f.function != "lose_on_purpose" for f in stack.frames))
def test_leaves_out_a_function_of_pythons_that_it_knows():
    lose_on_purpose()

@pytest.mark.limit_memory(limit="1 kB")
def test_takes_nothing():
    pass

@pytest.mark.limit_leaks(location_limit=".5 MB")
def test_names_its_limit():
    leaky.lose(50_000)

@pytest.mark.asyncio
@pytest.mark.limit_leaks("10 KB")
async def test_leaks_between_two_awaits():
    await asyncio.sleep(0)
    leaky.lose(50_000)
    await asyncio.sleep(0)

@pytest.mark.asyncio
@pytest.mark.limit_memory("1 MB")
async def test_awaits_and_stays_below():
    leaky.take_and_free(500_000)
    await asyncio.sleep(0)
    leaky.take_and_free(500_000)

@pytest.fixture
def a_fixture_that_leaks():
    leaky.lose(50_000)

@pytest.mark.limit_leaks("10 KB")
def test_has_a_fixture_that_leaks(a_fixture_that_leaks):
    pass

@pytest.mark.limit_memory("1 MB")
def test_has_its_own_reason():
    leaky.take_and_free(2_000_000)
    assert 1 == 2

@pytest.mark.limit_memory("1 MB")
@pytest.mark.limit_leaks("1 MB")
def test_has_two_marks():
    pass

@pytest.mark.limit_memory("a lot")
def test_has_no_amount():
    pass
"#;

fn pytest(pool: &Pool, program: Program, options: &[&str]) -> Output {
    let include = Program::new("/usr/bin/python3-config").arg("--includes").run().success().stdout;
    let mut flags: Vec<&str> = include.split_whitespace().collect();
    flags.extend(["-shared", "-fPIC", "-g", "-O1", "-Wno-cast-function-type"]);
    compile_into(&pool.files().join("leaky.so"), Path::new("tests/csrc/leaky_extension.c"), &flags, &[]);
    pool.files().write("test_leaky.py", TESTS);
    let plugin = repository().join("packages/pytest-poolscope");
    let path = format!("{}:{}", plugin.display(), pool.files().path().display());
    program
        .args(["-m", "pytest", "-q", "-p", "pytest_poolscope", "-p", "no:cacheprovider", "test_leaky.py"])
        .args(options)
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .dir(pool.files().path())
        .run()
}

/// Python on the pool, as its tests are to be run.
fn python(pool: &Pool) -> Program {
    pool.program("/usr/bin/python3").env("POOLSCOPE_PERIOD", "1").env("PYTHONMALLOC", "malloc")
}

/// Tests that fail, in their order.
const FAILING: &[&str] = &[
    "takes_too_much",
    "leaks_much",
    "leaks_in_a_thread",
    "leaks_what_a_filter_reports",
    "leaks_just_its_limit",
    "leaks_between_two_awaits",
    "has_its_own_reason",
    "has_two_marks",
    "has_no_amount",
];

fn failed(output: &Output) -> Vec<&str> {
    let lines = output.stdout.lines().filter_map(|line| line.split_once(" test_leaky.py::test_"));
    let failed = lines.filter(|(word, _)| ["FAILED", "MEMORY PROBLEMS"].contains(word));
    failed.filter_map(|(_, line)| line.split(' ').next()).collect()
}

#[test]
fn marks_limit_what_a_test_takes_and_leaves() {
    let pool = Pool::new();
    let output = pytest(&pool, python(&pool), &[]);
    let said = &output.stdout;
    assert_eq!(failed(&output), FAILING, "{}", output.report());
    for words in [
        "Test was limited to 1.0MiB but allocated 1.9MiB",
        "Test was allowed to leak 10.0KiB from each call stack, and leaked more:",
        "    lose_a_block (",
        "    test_leaks_much (",
        "test_leaky.py:43)",
        "assert 1 == 2",
        "a test may have one of the marks",
        "'a lot' is no amount of memory",
        // A test that is over its limit is told from one that fails by itself.
        ".M.M.M..MM",
    ] {
        assert!(said.contains(words), "{words}: {}", output.report());
    }
}

#[test]
fn tests_in_several_processes_have_the_same_limits() {
    let pool = Pool::new();
    let output = pytest(&pool, python(&pool), &["-n", "2"]);
    let (mut found, mut expected) = (failed(&output), FAILING.to_vec());
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "{}", output.report());
}

#[test]
fn without_the_pool_the_marks_say_how_to_run_the_tests() {
    let pool = Pool::new();
    let output = pytest(&pool, Program::new("/usr/bin/python3"), &[]);
    let said = &output.stdout;
    assert!(
        said.contains("needs the pool: run PYTHONMALLOC=malloc") && !said.contains(" passed"),
        "{}",
        output.report()
    );
}
