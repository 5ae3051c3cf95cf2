//! Named tensors in reports of leaks: which ones a process holds, or held at its end.

use std::thread::sleep;
use std::time::{Duration, Instant};

use poolscope_tensors::{Store, StoreOptions, default_socket};
use serde_json::{Value, json};

use super::tables;

/// How long the owner may take to answer, and to notice the end of a process.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is to be said of a process's tensors; nothing if it has none, or if no owner answers where this program's
/// environment says.
pub(crate) fn held_by(pid: u32, has_ended: bool) -> Option<String> {
    let socket = default_socket();
    // Most machines have no owner, and nobody waits for one.
    if !socket.exists() {
        return None;
    }
    let store = Store::open(StoreOptions { socket, patience: PATIENCE }).ok()?;
    let until = Instant::now() + PATIENCE;
    loop {
        let mut reply = store.request(&json!({"op": "left", "pid": pid})).ok()?;
        let mut list = |field: &str| match reply[field].take() {
            Value::Array(clients) => clients,
            _ => Vec::new(),
        };
        let (running, ended) = (list("running"), list("ended"));
        if has_ended && !running.is_empty() && Instant::now() < until {
            // The owner hears of the end in a moment.
            sleep(Duration::from_millis(10));
            continue;
        }
        let lines = tables::held(if has_ended { &ended } else { &running });
        let when = if has_ended { "held at its end, and had not given back" } else { "holds" };
        return (!lines.is_empty()).then(|| format!("Named tensors that process {pid} {when}:\n{lines}"));
    }
}
