//! The page that says what there is.

use crate::faces::flamegraph::escape;
use crate::segment::discovery::SegmentEntry;

/// A row of the table: path, what it is.
const PAGES: &[(&str, &str)] = &[
    (
        "debug/pprof/heap",
        "what is in use, for go tool pprof; ?seconds=N for what changed in N seconds, ?at=peak for what was in use at the peak",
    ),
    ("debug/pprof/allocs", "the same with what was allocated in front; ?seconds=N"),
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
    let mut html =
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>poolscope</title>\n<style>\n\
        body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }\n\
        td { padding: .15rem 1rem .15rem 0; vertical-align: top } code { font-size: 14px }\n</style></head><body>\n\
        <h1>poolscope</h1>\n"
            .to_owned();
    if entries.is_empty() {
        html += "<p>No process runs on the pool. Start one: <code>poolscope run -- COMMAND</code></p>\n";
    }
    for entry in entries {
        let command = if entry.args.is_empty() { entry.exe.clone() } else { entry.args.join(" ") };
        html += &format!("<h2>{} <code>{}</code></h2>\n<table>\n", entry.pid, escape(&command));
        for (path, what) in PAGES {
            let separator = if path.contains('?') { '&' } else { '?' };
            let link = format!("{mounted}/{path}{separator}pid={}{query}", entry.pid);
            html += &format!(
                "<tr><td><a href=\"{}\"><code>/{path}</code></a></td><td>{what}</td></tr>\n",
                attribute(&link)
            );
        }
        html += "</table>\n";
    }
    html + "</body></html>\n"
}

fn attribute(text: &str) -> String {
    escape(text).replace('"', "&quot;")
}
