//! The first page: a process as it is now, its flamegraph, and what else there is to ask for. Of several processes it
//! lists them, and shows the one that is asked for.

use axum::extract::{OriginalUri, Query, RawQuery, State};
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};

use super::live::live;
use super::pages::{Pool, ProfileQuery};
use super::worker::Refusal;
use crate::segment::discovery::SegmentEntry;
use crate::words::markup::{escaped, filled};

const INDEX: &str = include_str!("templates/index.html");
const STYLE: &str = include_str!("templates/index.css");
const SCRIPT: &str = include_str!("templates/index.js");
/// The page without a process.
const NONE: &str = include_str!("templates/none.html");
/// The page of one process, and a row of the table of what there is.
const PROCESS: &str = include_str!("templates/process.html");
const ROW: &str = include_str!("templates/row.html");
/// The list of several processes, and a row of it.
const SEVERAL: &str = include_str!("templates/several.html");
const ENTRY: &str = include_str!("templates/entry.html");

/// What the page may do: run its own script, ask this server, and show its pictures.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      img-src 'self'; object-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'";

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
    ("reading", "for the dashboard: poolscope top URL"),
    ("processes", "which processes are served, as JSON"),
    ("metrics", "for Prometheus"),
    ("healthz", "answers ok as long as this runs"),
];

/// Where the handlers lie, and the token that led here, which leads on.
struct Links<'a> {
    mounted: &'a str,
    token: String,
}

impl<'a> Links<'a> {
    fn new(path: &'a str, query: &str) -> Links<'a> {
        // The handlers may be mounted under a path of the program's own.
        let path = path.trim_end_matches('/');
        let token = query.split('&').find(|part| part.starts_with("token=")).map(|part| format!("&{part}"));
        Links { mounted: path.strip_suffix("/debug/pprof").unwrap_or(path), token: token.unwrap_or_default() }
    }

    fn to(&self, path: &str, pid: u32) -> String {
        let separator = if path.contains('?') { '&' } else { '?' };
        escaped(&format!("{}/{path}{separator}pid={pid}{}", self.mounted, self.token))
    }
}

/// The page.
pub(super) async fn index(
    State(pool): Pool,
    OriginalUri(uri): OriginalUri,
    Query(asked): Query<ProfileQuery>,
    RawQuery(query): RawQuery,
) -> Result<Response, Refusal> {
    let links = Links::new(uri.path(), &query.unwrap_or_default());
    let entries = pool.entries().await?;
    let chosen = match asked.pid {
        None => entries.first().filter(|_| entries.len() == 1),
        Some(pid) => entries.iter().find(|entry| entry.pid == pid),
    };
    let body = match chosen {
        Some(entry) => {
            let reading = pool.profile(Some(entry.pid)).await?;
            let now = live(&reading, &pool.watched.look(&reading));
            let heading = format!("{} <code>{}</code>", entry.pid, escaped(&command(entry)));
            page(&heading, &process(entry.pid, &now, &links))
        }
        None if entries.is_empty() => page("poolscope", NONE),
        None => page("poolscope", &several(&entries, &links)),
    };
    Ok(([(header::CONTENT_SECURITY_POLICY, POLICY), (header::CACHE_CONTROL, "no-store")], Html(body)).into_response())
}

/// The part of the page that changes.
pub(super) async fn now(State(pool): Pool, Query(asked): Query<ProfileQuery>) -> Result<Response, Refusal> {
    let reading = pool.profile(asked.pid).await?;
    let now = live(&reading, &pool.watched.look(&reading));
    Ok(([(header::CACHE_CONTROL, "no-store")], Html(now)).into_response())
}

fn command(entry: &SegmentEntry) -> String {
    if entry.args.is_empty() { entry.exe.clone() } else { entry.args.join(" ") }
}

fn page(heading: &str, body: &str) -> String {
    let title = "poolscope";
    filled(
        INDEX,
        &[("title", title), ("style", STYLE), ("script", SCRIPT), ("heading", heading), ("body", body.trim_end())],
    )
}

fn process(pid: u32, live: &str, links: &Links<'_>) -> String {
    let rows =
        PAGES.iter().map(|(path, what)| filled(ROW, &[("link", &links.to(path, pid)), ("path", path), ("what", what)]));
    let rows: String = rows.collect();
    filled(
        PROCESS,
        &[
            ("live", live),
            ("live_link", &links.to("live", pid)),
            ("flame_link", &links.to("flamegraph", pid)),
            ("peak_link", &links.to("flamegraph?at=peak", pid)),
            ("rows", &rows),
        ],
    )
}

fn several(entries: &[SegmentEntry], links: &Links<'_>) -> String {
    let rows = entries.iter().map(|entry| {
        let (link, pid) = (links.to("", entry.pid), entry.pid.to_string());
        filled(ENTRY, &[("link", &link), ("pid", &pid), ("command", &escaped(&command(entry)))])
    });
    let rows: String = rows.collect();
    filled(SEVERAL, &[("rows", &rows)])
}
