//! The schemas of what commands write with `--json`, which lie in docs/schemas.

use std::path::{Path, PathBuf};

use poolscope_profiler::faces::json::ProcessReport;
use poolscope_profiler::faces::json::devices::devices_json;
use poolscope_profiler::faces::json::difference::DifferenceJson;
use poolscope_profiler::faces::json::facts::FactsJson;
use poolscope_profiler::faces::json::schema::schema_of;
use poolscope_profiler::leaks::json::LeaksJson;
use poolscope_profiler::recording::faces::json::Report;
use poolscope_wire::stats::json;
use serde_json::{Map, Value};

use crate::commands::check::CheckJson;
use crate::commands::list::ListJson;
use crate::commands::{bench, whatif};
use crate::dashboard::everybody::Everybody;
use crate::dashboard::json::TopJson;
use crate::dashboard::measure::Cost;
use crate::dashboard::model::fixture;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schemas")
}

/// The file of each schema, and what is in it.
fn files() -> Vec<(PathBuf, String)> {
    let all = [
        ("bench", schema_of::<bench::Report>("poolscope bench gpu --json")),
        ("check", schema_of::<CheckJson<'_>>("poolscope check --json")),
        ("diff", schema_of::<DifferenceJson<'_>>("poolscope diff --json")),
        ("leaks", schema_of::<LeaksJson<'_>>("poolscope leaks --json")),
        ("list", schema_of::<ListJson<'_>>("poolscope list --json")),
        ("report", schema_of::<Report<'_>>("poolscope report --json of a recording")),
        ("report-process", schema_of::<ProcessReport<'_>>("poolscope report --json of a process or a segment")),
        ("stats", stats()),
        ("bench-dashboard", schema_of::<Cost>("poolscope bench dashboard --json")),
        ("top-all", schema_of::<Everybody>("poolscope top --all --json")),
        ("top", schema_of::<TopJson<'_>>("poolscope top --json")),
        ("whatif", schema_of::<whatif::Report>("poolscope whatif --json")),
        ("whatif-host", schema_of::<whatif::host::HostReport>("poolscope whatif --host --json")),
    ];
    let text = |schema: &Value| serde_json::to_string_pretty(schema).expect("is JSON") + "\n";
    all.iter().map(|(name, schema)| (folder().join(format!("{name}.json")), text(schema))).collect()
}

/// The statistics are written without a type, by the process itself, too: their schema is that of what is written of a
/// process that has everything.
fn stats() -> Value {
    let snapshot = fixture::model_with_devices().snapshot;
    let mut written = String::new();
    json::write(&snapshot.stats(), &mut written).expect("is text");
    let mut example: Value = serde_json::from_str(&written).expect("is JSON");
    let devices = devices_json(&snapshot.devices).expect("is JSON");
    example["devices"] = serde_json::from_str(&devices).expect("is JSON");
    let Value::Object(mut schema) = of_example(&example) else { unreachable!("an object's schema is one") };
    // What is known beside the counters has a type. References lead from the root.
    let mut process = schema_of::<FactsJson>("process");
    let process = process.as_object_mut().expect("an object's schema is one");
    process.remove("$schema");
    schema.insert("$defs".to_owned(), process.remove("$defs").expect("it has parts"));
    schema["properties"]["process"] = Value::Object(process.clone());
    schema["required"].as_array_mut().expect("a list").push("process".into());
    let required = schema["required"].as_array_mut().expect("a list");
    required.retain(|field| field != "devices");
    schema.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    schema.insert("title".to_owned(), "poolscope stats --json".into());
    Value::Object(schema)
}

fn of_example(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let properties: Map<String, Value> =
                fields.iter().map(|(name, value)| (name.clone(), of_example(value))).collect();
            let required: Vec<&String> = fields.keys().collect();
            serde_json::json!({ "type": "object", "properties": properties, "required": required })
        }
        Value::Array(items) => {
            let first = items.first().expect("the example has one of each");
            serde_json::json!({ "type": "array", "items": of_example(first) })
        }
        Value::Number(number) if number.is_u64() => serde_json::json!({ "type": "integer", "minimum": 0 }),
        Value::String(_) => serde_json::json!({ "type": "string" }),
        other => panic!("{other} is in no statistics"),
    }
}

#[test]
fn the_schemas_in_docs_are_those_of_what_is_written() {
    let mut expected: Vec<PathBuf> = Vec::new();
    for (path, text) in files() {
        let is = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            is == text,
            "{} is not the schema of what is written. Write docs/schemas anew:\n\
             cargo test -p poolscope-tui --bin poolscope write_the_schemas -- --ignored",
            path.display()
        );
        expected.push(path);
    }
    let there = std::fs::read_dir(folder()).expect("docs/schemas").filter(|entry| {
        entry.as_ref().is_ok_and(|entry| entry.path().extension().is_some_and(|extension| extension == "json"))
    });
    assert_eq!(there.count(), expected.len(), "a schema lies there of what is not written");
}

#[test]
#[ignore = "writes docs/schemas"]
fn write_the_schemas() {
    std::fs::create_dir_all(folder()).expect("is made");
    for (path, text) in files() {
        std::fs::write(path, text).expect("is written");
    }
}
