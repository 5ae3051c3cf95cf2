//! Leak checks of Rust tests, as somebody who writes tests meets them.

use poolscope_e2e::{Output, Pool, Program, repository, skip};

/// What the compiler says of a test file with the attribute.
fn compile(pool: &Pool, macros: &str, source: &str) -> Output {
    let file = pool.files().write("wrong.rs", source);
    let attribute = format!("--extern=poolscope_heapcheck={macros}");
    let compiler = Program::new("rustc").args(["--edition=2024", "--test", "--emit=metadata", &attribute]);
    compiler.arg("--out-dir").arg(pool.files().path()).arg(file).run()
}

#[test]
fn what_is_wrong_with_an_attribute_is_said_where_it_stands() {
    let pool = Pool::new();
    let source = repository().join("heapcheck/macros/src/lib.rs");
    let built = Program::new("rustc")
        .args(["--edition=2024", "--crate-type=proc-macro", "--extern=proc_macro", "--crate-name=macros"])
        .arg("--out-dir")
        .arg(pool.files().path())
        .arg(source)
        .run();
    built.silent_success();
    let macros = pool.files().join("libmacros.so").display().to_string();
    let cases = [
        ("(sum = 1)\nfn f() {}", "there is no setting `sum`: there are allow = VALUE", "wrong.rs:1:29"),
        ("(allow)\nfn f() {}", "`allow` needs a value: write allow = VALUE", "wrong.rs:1:29"),
        ("\nasync fn f() {}", "an async test needs a runtime", "wrong.rs:2:10"),
        ("\nstruct S;", "stands above functions only", "wrong.rs:2:9"),
        ("\nconst N: u8 = { 1 };", "stands above functions only", "wrong.rs:2"),
    ];
    for (rest, words, place) in cases {
        let source = format!("#[poolscope_heapcheck::test{}\n", rest.replacen('\n', "]\n", 1));
        let output = compile(&pool, &macros, &source);
        let said = &output.stderr;
        assert!(output.code() != 0 && said.contains(words) && said.contains(place), "{rest}: {}", output.report());
        assert_eq!(said.matches("error:").count(), 2, "one error and the sum of them: {}", output.report());
    }
}

/// The configuration that docs/guide/leaks.md shows.
fn configuration() -> String {
    let guide = std::fs::read_to_string(repository().join("docs/guide/leaks.md")).expect("the guide is there");
    let block = guide.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    block.into_iter().find(|block| block.contains("run-wrapper")).expect("the guide has the configuration").to_owned()
}

const TESTS: &str = r#"
#[test]
fn frees_what_it_takes() {
    let words: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    println!("{}", words.len());
}

#[test]
fn loses_a_block() {
    std::hint::black_box(Box::leak(vec![1u8; 4567].into_boxed_slice()).as_ptr());
    // What is on the stack by chance is overwritten.
    std::hint::black_box([0u8; 4096]);
}
"#;

#[test]
fn nextest_runs_every_test_under_the_checker_with_no_change_of_code() {
    if !Program::new("cargo").args(["nextest", "--version"]).run().status.success() {
        skip("cargo-nextest is not installed");
        return;
    }
    let pool = Pool::new();
    for folder in [".config", "src"] {
        std::fs::create_dir(pool.files().join(folder)).expect("a folder");
    }
    let manifest = "[package]\nname = \"plain\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    pool.files().write("Cargo.toml", manifest);
    pool.files().write("src/lib.rs", TESTS);
    pool.files().write(".config/nextest.toml", &configuration());
    let command = poolscope_e2e::poolscope();
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Program::new("cargo")
        .args(["nextest", "run", "--offline", "--no-fail-fast"])
        .dir(pool.files().path())
        .env("PATH", format!("{}:{path}", command.parent().expect("it lies in a folder").display()))
        .env("CARGO_TARGET_DIR", pool.files().join("target"))
        .env_remove("RUSTFLAGS")
        .run();
    let said = &output.stderr;
    assert!(output.code() != 0 && said.contains("1 passed") && said.contains("1 failed"), "{}", output.report());
    let lost = said.split("FAIL").nth(1).expect("a failed test");
    assert!(lost.contains("loses_a_block") && said.contains("4,567 B in 1 block"), "{}", output.report());
}
