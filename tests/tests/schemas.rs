//! What commands write with `--json` is what docs/schemas says, by python3-jsonschema.
//!
//! The schemas allow fields that they do not name. Here there must be none: what a command writes today is named.

use poolscope_e2e::{Pool, Program, compiler, repository, sample};

/// Checks a text against a schema that was closed against unknown fields.
const CHECK: &str = r#"
import json, sys
sys.path.append("/usr/lib/python3/dist-packages")
import jsonschema

schema = json.load(open(sys.argv[1]))
def close(node):
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        close(value)
    if isinstance(node, dict) and node.get("type") == "object" and isinstance(node.get("properties"), dict):
        node["additionalProperties"] = False
close(schema)
jsonschema.Draft202012Validator.check_schema(schema)
errors = list(jsonschema.Draft202012Validator(schema).iter_errors(json.load(sys.stdin)))
for error in errors[:5]:
    print("/".join(map(str, error.absolute_path)), error.message[:300])
sys.exit(bool(errors))
"#;

#[track_caller]
fn check(name: &str, json: &str) {
    let schema = repository().join(format!("docs/schemas/{name}.json"));
    let output = Program::new("python3").args(["-c", CHECK]).arg(schema).input(json).run();
    assert_eq!(output.code(), 0, "{name}: {}", output.report());
}

#[track_caller]
fn written(pool: &Pool, arguments: &[&str]) -> String {
    let output = pool.poolscope().args(arguments).run();
    assert_eq!(output.code(), 0, "{arguments:?}: {}", output.report());
    output.stdout
}

/// A program with host and device memory.
fn training(pool: &Pool) -> Program {
    Program::new(sample("gpu-training"))
        .env("POOLSCOPE_DIR", pool.segment_dir())
        .env("POOLSCOPE_KEEP", "1")
        .env("POOLSCOPE_PERIOD", "4096")
        // Each device has memory for more steps than are made until everything was asked.
        .args(["--step-ms", "5", "--devices", "2", "--memory", "274877906944", "--leak", "3000000"])
}

#[test]
fn what_is_written_of_a_process_is_what_the_schemas_say() {
    let pool = Pool::new();
    let mut program = training(&pool).start();
    program.wait_for_line("gpu-training: pid");
    let pid = program.pid().to_string();
    let profile = pool.files().join("before.pb.gz");
    let profile = profile.to_str().expect("is text");
    pool.poolscope().args(["dump", &pid, "-o", profile]).run().success();
    check("list", &written(&pool, &["list", "--json"]));
    check("top", &written(&pool, &["top", &pid, "--json"]));
    check("top-all", &written(&pool, &["top", "--all", "--json"]));
    let cost = ["bench", "dashboard", &pid, "--seconds", "1", "--json"];
    check("bench-dashboard", &written(&pool, &cost));
    check("stats", &written(&pool, &["stats", &pid, "--json"]));
    check("report-process", &written(&pool, &["report", &pid, "--json"]));
    check("leaks", &written(&pool, &["leaks", &pid, "--growth", "--json"]));
    let leaky = compiler::compile(pool.files(), "leak.c", "leak", &["-O1", "-g", "-fno-inline"]);
    for question in ["--all", "--growth"] {
        let command = pool.poolscope().args(["check", "--json", question, "--"]).arg(&leaky).arg("40");
        check("check", &command.run().stdout);
    }
    check("diff", &written(&pool, &["diff", profile, &pid, "--json"]));

    written(&pool, &["record", &pid, "--duration", "0.5", "-o", "app.rec"]);
    check("report", &written(&pool, &["report", "app.rec", "--json"]));
    check(
        "bench",
        &written(&pool, &["bench", "gpu", "--device", "sim", "--trace", "app.rec", "--of-device", "0", "--json"]),
    );
    check("whatif", &written(&pool, &["whatif", "app.rec", "--of-device", "0", "--json"]));
    check("whatif-host", &written(&pool, &["whatif", "app.rec", "--host", "--json"]));
    program.signal(libc::SIGKILL);
    program.finish();

    // What the kernel and the segment know of its end.
    check("list", &written(&pool, &["list", "--json"]));
}

/// The validator finds what is wrong: a field that is missing, one of another type, one that nobody named.
#[test]
fn a_text_that_differs_from_its_schema_is_found() {
    for wrong in
        [r#"{"version": 1}"#, r#"{"version": "1", "processes": []}"#, r#"{"version": 1, "processes": [], "x": 1}"#]
    {
        let schema = repository().join("docs/schemas/list.json");
        let output = Program::new("python3").args(["-c", CHECK]).arg(schema).input(wrong).run();
        assert_ne!(output.code(), 0, "{wrong}");
    }
}
