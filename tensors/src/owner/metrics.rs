//! What Prometheus reads: the owner's figures as text, over HTTP.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{Shared, lock};

/// Field of the statistics, name, kind, help.
const FIGURES: &[(&str, &str, &str, &str)] = &[
    ("names", "names", "gauge", "Tensors that have a name."),
    ("slabs", "slabs", "gauge", "Pieces of physical memory."),
    ("held_bytes", "held_bytes", "gauge", "Bytes of physical memory."),
    ("in_use_bytes", "in_use_bytes", "gauge", "Bytes in tensors, those without a name included."),
    ("quarantined", "quarantined", "gauge", "Tensors without a name that somebody still holds."),
    ("quarantined_bytes", "quarantined_bytes", "gauge", "Bytes of those."),
    ("clients", "clients", "gauge", "Processes that hold references."),
    ("references", "references", "gauge", "References that they hold."),
    ("/counts/requests", "requests_total", "counter", "Requests, refused ones included."),
    ("/counts/refused", "refused_total", "counter", "Requests that were refused."),
    ("/counts/slabs_made", "slabs_made_total", "counter", "Pieces of physical memory that were made."),
    ("/counts/clients_ended", "clients_ended_total", "counter", "Clients that ended."),
    ("/counts/references_returned", "references_returned_total", "counter", "References that ended clients left."),
    ("/counts/lost", "lost_total", "counter", "Tensors that ended with their owner or publisher."),
];

fn text(stats: &Value) -> String {
    let mut text = String::new();
    for (field, name, kind, help) in FIGURES {
        let pointer = if field.starts_with('/') { (*field).to_owned() } else { format!("/{field}") };
        let value = stats.pointer(&pointer).and_then(Value::as_u64).unwrap_or(0);
        let name = format!("poolscope_tensors_{name}");
        // Writing to a string can't fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    }
    text
}

fn answer(shared: &Shared, mut socket: TcpStream) -> std::io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    socket.set_write_timeout(Some(Duration::from_secs(2)))?;
    let (mut request, mut part) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < 8192 {
        match socket.read(&mut part)? {
            0 => break,
            read => request.extend_from_slice(&part[..read]),
        }
    }
    let is_known = request.starts_with(b"GET /metrics ");
    let (status, body) =
        if is_known { ("200 OK", text(&lock(&shared.stock).stats())) } else { ("404 Not Found", String::new()) };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes())?;
    socket.write_all(body.as_bytes())
}

/// The thread that answers, one after the other, until the owner ends.
pub fn run(shared: &Arc<Shared>, listener: &TcpListener) {
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    while !shared.is_stopping() {
        match listener.accept() {
            Ok((socket, _)) => {
                let served = socket.set_nonblocking(false).and_then(|()| answer(shared, socket));
                // Who went away needs no answer.
                drop(served);
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}
