//! SARIF 2.1.0, as code scanning reads it: each leak is a result with its stack.

use serde_json::{Value, json};

use super::{Run, headline, place};
use crate::leaks::{Leak, LeakKind};
use crate::model::profile::Frame;

/// Rules by their names, and what they say.
const RULES: &[(&str, &str)] = &[
    ("leak-direct", "Nothing points to the memory any more, and nobody can free it."),
    ("leak-indirect", "Only leaked memory points to it."),
    ("never-freed", "The memory was not freed before the end of the program."),
];

fn rule(leak: &Leak) -> &'static str {
    match leak.kind {
        LeakKind::Indirect => "leak-indirect",
        LeakKind::Grew => "never-freed",
        _ => "leak-direct",
    }
}

impl Run<'_> {
    /// The report.
    pub fn to_sarif(&self) -> serde_json::Result<String> {
        let rules: Vec<Value> =
            RULES.iter().map(|(id, text)| json!({"id": id, "shortDescription": {"text": text}})).collect();
        let results: Vec<Value> = self.outcomes.iter().flat_map(|outcome| outcome.leaks().iter().map(result)).collect();
        let not_checked = self.outcomes.iter().filter_map(|outcome| {
            let text = format!("{} (pid {}): {}", outcome.command, outcome.pid, outcome.not_checked.as_ref()?);
            Some(json!({"level": "error", "message": {"text": text}}))
        });
        let log = json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": {"driver": {
                    "name": "poolscope",
                    "version": env!("CARGO_PKG_VERSION"),
                    "rules": rules,
                }},
                "invocations": [{
                    "commandLine": self.command,
                    "exitCode": self.exit_code,
                    "executionSuccessful": self.outcomes.iter().all(|outcome| outcome.not_checked.is_none()),
                    "toolExecutionNotifications": not_checked.collect::<Vec<_>>(),
                }],
                "results": results,
            }],
        });
        Ok(serde_json::to_string_pretty(&log)? + "\n")
    }
}

fn result(leak: &Leak) -> Value {
    let frames: Vec<Value> = leak.frames.iter().map(|frame| json!({"location": location(frame)})).collect();
    let mut result = json!({
        "ruleId": rule(leak),
        "level": "error",
        "message": {"text": headline(leak)},
        "locations": [],
        "stacks": [{"frames": frames}],
        "partialFingerprints": {"stack/v1": fingerprint(leak)},
        "properties": {"bytes": leak.bytes, "blocks": leak.objects},
    });
    if let Some((frame, ..)) = place(leak) {
        result["locations"] = json!([location(frame)]);
    }
    result
}

fn location(frame: &Frame) -> Value {
    let mut location = json!({"logicalLocations": [{"fullyQualifiedName": frame.name}]});
    if let Some(file) = &frame.file {
        let region = frame.line.map_or_else(|| json!({}), |line| json!({"startLine": line}));
        location["physicalLocation"] = json!({"artifactLocation": {"uri": uri(file)}, "region": region});
    }
    location
}

/// A path as a reference. One from the root is a file of this machine.
fn uri(path: &str) -> String {
    let mut uri = if path.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => uri.push(byte.into()),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

/// The same for the same stack, also when lines have moved.
fn fingerprint(leak: &Leak) -> String {
    // FNV-1a.
    let names = leak.frames.iter().skip(leak.asked).flat_map(|frame| frame.name.bytes().chain([0]));
    let hash =
        names.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}
