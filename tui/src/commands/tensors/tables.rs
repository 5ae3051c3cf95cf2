//! Replies of the owner as tables and lines.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use poolscope_profiler::words::figures;
use serde_json::Value;

use crate::words::{numbers, printable};

/// "3 tensors".
pub(super) fn tensors(count: usize) -> String {
    if count == 1 { "1 tensor".to_owned() } else { format!("{count} tensors") }
}

fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry[field].as_str().unwrap_or_default()
}

fn number(entry: &Value, field: &str) -> u64 {
    entry[field].as_u64().unwrap_or(0)
}

/// How long ago a time in milliseconds was.
fn ago(time: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    figures::duration(now.saturating_sub(Duration::from_millis(time)))
}

fn shape(entry: &Value) -> String {
    let shape: Vec<String> = entry["shape"].as_array().into_iter().flatten().map(Value::to_string).collect();
    format!("[{}]", shape.join(","))
}

/// "pid 1234 (python3) since 3m", one after the other.
fn holders(entry: &Value) -> String {
    let holder = |holder: &Value| {
        let program = printable(text(holder, "program"));
        let program = if program.is_empty() { String::new() } else { format!(" ({program})") };
        format!("pid {}{program}", number(holder, "pid"))
    };
    let all: Vec<String> = entry["held_by"].as_array().into_iter().flatten().map(holder).collect();
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

fn row(entry: &Value) -> String {
    let state = if entry["draft"] == true { "draft" } else { "" };
    format!(
        "{:>10}  {:<8} {:<16} {:>6} {:>5} {:>6}  {}  {}{}\n",
        numbers::bytes(number(entry, "bytes") as f64),
        text(entry, "dtype"),
        shape(entry),
        number(entry, "device"),
        number(entry, "refcount"),
        ago(number(entry, "ctime")),
        printable(text(entry, "name")),
        holders(entry),
        if state.is_empty() { String::new() } else { format!("  {state}") },
    )
}

/// All tensors, and then what has no name.
pub(super) fn list(reply: &Value) -> String {
    let entries = |field: &str| reply[field].as_array().cloned().unwrap_or_default();
    let (named, quarantine) = (entries("tensors"), entries("quarantine"));
    if named.is_empty() && quarantine.is_empty() {
        return "No tensors. Put some: poolscope tensors put model.safetensors\n".to_owned();
    }
    let mut out = format!(
        "{:>10}  {:<8} {:<16} {:>6} {:>5} {:>6}  NAME  HELD BY\n",
        "SIZE", "DTYPE", "SHAPE", "DEVICE", "REFS", "AGE"
    );
    named.iter().for_each(|entry| out += &row(entry));
    out += &quarantined(&quarantine);
    let bytes: u64 = named.iter().chain(&quarantine).map(|entry| number(entry, "bytes")).sum();
    out + &format!("\n{}, {}\n", tensors(named.len()), numbers::bytes(bytes as f64))
}

/// What has no name any more, and is held.
fn quarantined(entries: &[Value]) -> String {
    if entries.is_empty() {
        return String::new();
    }
    let line = |entry: &Value| {
        format!(
            "{:>10}  {} (generation {}), freed {} ago, held by {}\n",
            numbers::bytes(number(entry, "bytes") as f64),
            printable(text(entry, "name")),
            number(entry, "generation"),
            ago(number(entry, "freed_at")),
            holders(entry),
        )
    };
    "\nWithout a name, and still held:\n".to_owned() + &entries.iter().map(line).collect::<String>()
}

/// What came of a look for what the dead left.
pub(super) fn collected(reply: &Value) -> String {
    let ended = format!("{} dead processes' references returned\n", reply["clients_ended"]);
    ended + &quarantined(reply["quarantine"].as_array().map_or(&[], Vec::as_slice))
}

/// What a process had not given back, a line for each tensor.
pub(super) fn held(clients: &[Value]) -> String {
    let line = |entry: &Value| {
        let references = number(entry, "references");
        let times = if references == 1 { String::new() } else { format!(", got {references} times") };
        format!(
            "{:>10}  {} ({} {}){times}\n",
            numbers::bytes(number(entry, "bytes") as f64),
            printable(text(entry, "name")),
            text(entry, "dtype"),
            shape(entry)
        )
    };
    let tensors = clients.iter().flat_map(|client| client["tensors"].as_array().into_iter().flatten());
    let more: u64 = clients.iter().map(|client| number(client, "more")).sum();
    let more = if more == 0 { String::new() } else { format!("and {more} more\n") };
    tensors.map(line).collect::<String>() + &more
}

/// One tensor.
pub(super) fn show(entry: &Value) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| out += &format!("{name:<12} {value}\n");
    line("name", printable(text(entry, "name")));
    line("type", format!("{} {}", text(entry, "dtype"), shape(entry)));
    line("size", numbers::bytes(number(entry, "bytes") as f64));
    line("device", format!("{} ({})", number(entry, "device"), printable(text(entry, "gpu_uuid"))));
    line("generation", number(entry, "generation").to_string());
    line("references", number(entry, "refcount").to_string());
    line("held by", holders(entry));
    line("transport", text(entry, "transport").to_owned());
    line("place", format!("slab {}, offset {}", number(entry, "slab"), number(entry, "offset")));
    line("owner", format!("pid {}, {}", number(entry, "owner_pid"), printable(text(entry, "socket"))));
    line("created", format!("{} ago", ago(number(entry, "ctime"))));
    if entry["meta"].as_object().is_some_and(|meta| !meta.is_empty()) {
        line("meta", printable(&entry["meta"].to_string()));
    }
    out
}

/// What became of names that were deleted.
pub(super) fn deleted(reply: &Value) -> String {
    let line = |entry: &Value| {
        let name = printable(text(entry, "name"));
        match holders(entry).as_str() {
            "-" => format!("{name}: deleted\n"),
            holders => format!("{name}: deleted; its memory stays while it is held by {holders}\n"),
        }
    };
    reply["deleted"].as_array().into_iter().flatten().map(line).collect()
}
