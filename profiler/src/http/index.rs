//! The page that says what there is.

use crate::segment::discovery::SegmentEntry;
use crate::words::markup::{escaped, filled};

const INDEX: &str = include_str!("templates/index.html");
/// The index without a process.
const NONE: &str = include_str!("templates/none.html");
const PROCESS: &str = include_str!("templates/process.html");
/// A row of a process's table.
const ROW: &str = include_str!("templates/row.html");

/// A row of the table: path, what it is.
const PAGES: &[(&str, &str)] = &[
    (
        "debug/pprof/heap",
        "what is in use, for go tool pprof; ?seconds=N for what changed in N seconds, ?at=peak for what was in use at the peak",
    ),
    ("debug/pprof/allocs", "the same with what was allocated in front; ?seconds=N"),
    ("debug/pprof/leak", "what the program can't reach any more: it looks for that now, and waits meanwhile"),
    ("debug/pprof/profile", "processor time, of a program that serves this itself; ?seconds=N, 30 if none is given"),
    ("debug/pprof/cmdline", "the program and its arguments"),
    ("debug/pprof/symbol", "names of addresses: ?0x1234+0x5678"),
    ("flamegraph", "a picture of what is in use; ?metric=inuse_space, inuse_objects, alloc_space or alloc_objects"),
    ("flamegraph?at=peak", "a picture of what was in use at the peak"),
    ("metrics", "for Prometheus"),
    ("healthz", "answers ok as long as this runs"),
];

/// The page, with a table of links for each process; the pages lie under the path `mounted`.
pub(super) fn page(entries: &[SegmentEntry], mounted: &str, query: &str) -> String {
    let processes: String = entries.iter().map(|entry| process(entry, mounted, query)).collect();
    let processes = if entries.is_empty() { NONE } else { &processes };
    filled(INDEX, &[("processes", processes)])
}

fn process(entry: &SegmentEntry, mounted: &str, query: &str) -> String {
    let command = if entry.args.is_empty() { entry.exe.clone() } else { entry.args.join(" ") };
    let rows = PAGES.iter().map(|(path, what)| {
        let separator = if path.contains('?') { '&' } else { '?' };
        let link = format!("{mounted}/{path}{separator}pid={}{query}", entry.pid);
        filled(ROW, &[("link", &escaped(&link)), ("path", path), ("what", what)])
    });
    let rows: String = rows.collect();
    filled(PROCESS, &[("pid", &entry.pid.to_string()), ("command", &escaped(&command)), ("rows", &rows)])
}
