//! The handlers of everything but the metrics.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, RawQuery, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::worker::{Refusal, Worker};
use crate::faces::{flamegraph as picture, pprof};
use crate::model::difference::Difference;
use crate::model::memory::Memory;
use crate::model::profile::{Metric, Profile};
use crate::segment::discovery::FindError;

/// The longest difference.
pub(super) const LONGEST: u64 = 3600;

/// The most addresses that are named in one request.
const MOST_ADDRESSES: usize = 10_000;

pub(super) type Pool = State<Arc<Worker>>;

/// What a profile is asked for with.
#[derive(Deserialize)]
pub(super) struct ProfileQuery {
    pub(super) pid: Option<u32>,
    pub(super) seconds: Option<u64>,
    metric: Option<String>,
    at: Option<String>,
    /// `host`, `device` or `pinned`.
    kind: Option<String>,
    device: Option<u32>,
}

impl ProfileQuery {
    /// The moment that is asked for: true for the peak.
    fn at_peak(&self) -> Result<bool, String> {
        match self.at.as_deref() {
            None | Some("now") => Ok(false),
            Some("peak") => Ok(true),
            Some(other) => Err(format!("there is no such moment as {other}: ask for at=now or at=peak")),
        }
    }

    /// Which memory of a profile is asked for.
    fn memory(&self, profile: &Profile) -> Result<Memory, String> {
        Ok(match (self.kind.as_deref(), self.device) {
            (None, None) => profile.usual_memory(),
            (Some("host"), None) => Memory::Host,
            (None | Some("device"), number) => Memory::Device(number),
            (Some("pinned"), number) => Memory::Pinned(number),
            (Some(_), _) => {
                return Err("ask for kind=host, or for kind=device or kind=pinned, with device=N or not".into());
            }
        })
    }
}

/// A response in plain text.
pub(super) fn text(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")], body)
        .into_response()
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match &self {
            Refusal::Ambiguous(..) => StatusCode::BAD_REQUEST,
            Refusal::Find(FindError::Unreadable(_) | FindError::Folder { .. }) | Refusal::Read(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
            Refusal::Find(_) | Refusal::NoProcess | Refusal::NotServed { .. } => StatusCode::NOT_FOUND,
            Refusal::Busy | Refusal::NotChecked(_) | Refusal::NotSearched { .. } => StatusCode::SERVICE_UNAVAILABLE,
        };
        text(status, format!("{self}\n"))
    }
}

pub(super) fn bad(why: impl Into<String>) -> Response {
    text(StatusCode::BAD_REQUEST, why.into() + "\n")
}

pub(super) async fn heap(State(pool): Pool, Query(query): Query<ProfileQuery>) -> Response {
    profile(&pool, &query, "heap", Metric::InUseBytes).await
}

pub(super) async fn allocs(State(pool): Pool, Query(query): Query<ProfileQuery>) -> Response {
    profile(&pool, &query, "allocs", Metric::AllocatedBytes).await
}

/// What `write` writes. Packing a large profile takes a while, in which a program's own requests must not wait.
async fn written(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()> + Send + 'static) -> io::Result<Vec<u8>> {
    let task = tokio::task::spawn_blocking(move || {
        let mut body = Vec::new();
        write(&mut body).map(|()| body)
    });
    task.await.map_err(io::Error::other)?
}

async fn profile(pool: &Worker, query: &ProfileQuery, name: &str, shown: Metric) -> Response {
    let mut reading = match pool.profile(query.pid).await {
        Ok(reading) => reading.profile,
        Err(refusal) => return refusal.into_response(),
    };
    let mut name = name.to_owned();
    match query.at_peak() {
        Ok(false) => {}
        Ok(true) if query.seconds.is_some() => return bad("a difference has no peak: leave seconds or at out"),
        Ok(true) => reading = reading.at_peak().unwrap_or(reading),
        Err(why) => return bad(why),
    }
    if let Some(seconds) = query.seconds {
        if !(1..=LONGEST).contains(&seconds) {
            return bad(format!("seconds={seconds} is not between 1 and {LONGEST}"));
        }
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        match pool.profile(query.pid).await {
            Ok(after) => reading = Difference::new(&reading, &after.profile).to_profile(),
            Err(refusal) => return refusal.into_response(),
        }
        name += "-delta";
    }
    as_pprof(reading, shown, &name).await
}

/// What the process can't reach any more: it looks for that now, and its threads wait meanwhile.
pub(super) async fn leak(State(pool): Pool, Query(query): Query<ProfileQuery>) -> Response {
    match pool.leaks(query.pid).await {
        Ok(profile) => as_pprof(*profile, Metric::InUseBytes, "leak").await,
        Err(refusal) => refusal.into_response(),
    }
}

/// All that is known of the process now, for `poolscope top URL`.
pub(super) async fn reading(State(pool): Pool, Query(query): Query<ProfileQuery>) -> Response {
    let reading = match pool.reading(query.pid).await {
        Ok(reading) => reading,
        Err(refusal) => return refusal.into_response(),
    };
    let body = match written(move |out| reading.write(out)).await {
        Ok(body) => body,
        Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot write the reading: {error}\n")),
    };
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body).into_response()
}

/// Which processes are served, for `poolscope top URL`.
pub(super) async fn processes(State(pool): Pool) -> Result<Response, Refusal> {
    let list = serde_json::to_vec(&pool.listed().await?).unwrap_or_default();
    Ok(([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")], list).into_response())
}

/// A profile in pprof's format, with the headers that Go sends.
async fn as_pprof(profile: Profile, shown: Metric, name: &str) -> Response {
    let body = match written(move |out| pprof::write_pprof(&profile, shown, out)).await {
        Ok(body) => body,
        Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot write the profile: {error}\n")),
    };
    let attachment = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_DISPOSITION, attachment.unwrap_or(HeaderValue::from_static("attachment"))),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, body).into_response()
}

/// The arguments, separated by zero bytes, as Go gives them.
pub(super) async fn cmdline(State(pool): Pool, Query(query): Query<ProfileQuery>) -> Result<Response, Refusal> {
    let process = pool.profile(query.pid).await?.snapshot.process;
    let arguments = if process.args.is_empty() { vec![process.exe] } else { process.args };
    Ok(text(StatusCode::OK, arguments.join("\0")))
}

pub(super) async fn symbol(State(pool): Pool, RawQuery(query): RawQuery) -> Response {
    symbols(&pool, &query.unwrap_or_default()).await
}

pub(super) async fn symbol_post(State(pool): Pool, body: String) -> Response {
    symbols(&pool, &body).await
}

/// `num_symbols: 1`, which says that there are any; then `0x1234 name` for each address that is asked for and known.
///
/// Our profiles carry their names, so this is for readers that ask all the same; it knows the addresses of profiles.
async fn symbols(pool: &Worker, query: &str) -> Response {
    let parts: Vec<&str> = query.split(['+', '&']).collect();
    let pid = parts.iter().find_map(|part| part.strip_prefix("pid=")?.parse().ok());
    let addresses = parts.iter().filter_map(|part| u64::from_str_radix(part.strip_prefix("0x")?, 16).ok());
    let addresses: Vec<u64> = addresses.take(MOST_ADDRESSES).collect();
    let mut body = "num_symbols: 1\n".to_owned();
    if !addresses.is_empty() {
        let profile = match pool.profile(pid).await {
            Ok(reading) => reading.profile,
            Err(refusal) => return refusal.into_response(),
        };
        let known: std::collections::HashMap<u64, &str> = profile
            .locations
            .iter()
            .filter_map(|location| Some((location.address, location.frames.last()?.name.as_str())))
            .collect();
        for address in addresses {
            if let Some(name) = known.get(&address) {
                body += &format!("{address:#x} {name}\n");
            }
        }
    }
    text(StatusCode::OK, body)
}

pub(super) async fn flamegraph(State(pool): Pool, Query(query): Query<ProfileQuery>) -> Response {
    let asked = query.metric.as_deref().unwrap_or(Metric::InUseBytes.pprof_name());
    let Some(metric) = Metric::ALL.into_iter().find(|metric| metric.pprof_name() == asked) else {
        let names = Metric::ALL.map(Metric::pprof_name).join(", ");
        return bad(format!("there is no such metric: ask for one of {names}"));
    };
    let reading = match pool.profile(query.pid).await {
        Ok(reading) => reading,
        Err(refusal) => return refusal.into_response(),
    };
    let process = &reading.snapshot.process;
    let program = process.exe.rsplit('/').next().unwrap_or_default();
    let memory = match query.memory(&reading.profile) {
        Ok(memory) => memory,
        Err(why) => return bad(why),
    };
    if let Err(missing) = reading.profile.require(memory) {
        return text(StatusCode::NOT_FOUND, format!("{missing}\n"));
    }
    let mut profile = reading.profile.only(memory);
    let mut when = String::new();
    match query.at_peak() {
        Ok(false) => {}
        Ok(true) if !metric.is_in_use() => return bad("the peak is about memory in use: leave at or metric out"),
        Ok(true) => {
            when = profile.when_at_peak(memory).map(|when| format!(" {when}")).unwrap_or_default();
            profile = profile.at_peak().unwrap_or(profile);
        }
        Err(why) => return bad(why),
    }
    let title = format!("{program} (pid {}){when}: {} {}", process.pid, metric.describe(), memory.describe());
    let body = match written(move |out| picture::write_flamegraph(&profile, metric, title.trim_end(), out)).await {
        Ok(body) => body,
        Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot draw the flamegraph: {error}\n")),
    };
    ([(header::CONTENT_TYPE, "image/svg+xml"), (header::CACHE_CONTROL, "no-store")], body).into_response()
}

pub(super) async fn healthz() -> Response {
    text(StatusCode::OK, "ok\n".to_owned())
}

pub(super) async fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "there is nothing here: / lists what there is\n".to_owned())
}
