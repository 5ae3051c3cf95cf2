//! `/debug/pprof/profile`: where a program spends its processor time.
//!
//! The `pprof` crate samples the process that it runs in, by a timer's signal. So this is for programs that mount the
//! handlers, and only with the feature `cpu-profile`; of another process it says how to get a profile.

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::pages::{Pool, ProfileQuery, bad, text};

/// Go's default.
const SECONDS: u64 = 30;

pub(super) async fn profile(State(pool): Pool, Query(query): Query<ProfileQuery>) -> Response {
    let seconds = query.seconds.unwrap_or(SECONDS);
    if !(1..=super::pages::LONGEST).contains(&seconds) {
        return bad(format!("seconds={seconds} is not between 1 and {}", super::pages::LONGEST));
    }
    let own = std::process::id();
    match query.pid.or_else(|| pool.served_pid()) {
        Some(pid) if pid == own => this_process(seconds).await,
        None => this_process(seconds).await,
        Some(pid) => elsewhere(pid, seconds),
    }
}

fn elsewhere(pid: u32, seconds: u64) -> Response {
    let how = format!(
        "a CPU profile is taken inside the program, and process {pid} is another one. From outside, Linux' perf can:\n\n    \
         perf record -F 99 -g -p {pid} -o cpu.perf -- sleep {seconds}\n    perf report -i cpu.perf\n\n\
         A Rust program serves its own here: mount poolscope_profiler::http::router in it, with the feature cpu-profile.\n"
    );
    text(StatusCode::NOT_IMPLEMENTED, how)
}

#[cfg(not(feature = "cpu-profile"))]
#[allow(clippy::unused_async, reason = "the other build of it waits")]
async fn this_process(_seconds: u64) -> Response {
    let how = "this program was built without CPU profiles: build poolscope-profiler with the feature cpu-profile\n";
    text(StatusCode::NOT_IMPLEMENTED, how.to_owned())
}

#[cfg(feature = "cpu-profile")]
async fn this_process(seconds: u64) -> Response {
    use axum::http::header;
    use axum::response::IntoResponse;

    match sampled(std::time::Duration::from_secs(seconds)).await {
        Ok(body) => {
            let headers = [
                (header::CONTENT_TYPE, "application/octet-stream"),
                (header::CONTENT_DISPOSITION, "attachment; filename=\"profile\""),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            ];
            (headers, body).into_response()
        }
        Err(pprof::Error::Running) => {
            text(StatusCode::SERVICE_UNAVAILABLE, "a CPU profile is being taken already: try again later\n".to_owned())
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("cannot take a CPU profile: {error}\n")),
    }
}

/// The profile of some time from now on, packed.
#[cfg(feature = "cpu-profile")]
async fn sampled(time: std::time::Duration) -> pprof::Result<Vec<u8>> {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use pprof::protos::{Mapping, Message};

    /// Samples in a second, as Go takes them.
    const FREQUENCY: i32 = 100;

    // The signal may come while the thread is in these: they take locks that the unwinder may need.
    let builder = pprof::ProfilerGuardBuilder::default().frequency(FREQUENCY);
    let guard = builder.blocklist(&["libc", "libgcc", "pthread", "vdso"]).build()?;
    tokio::time::sleep(time).await;
    let packed = tokio::task::spawn_blocking(move || {
        let mut profile = guard.report().build()?.pprof()?;
        // Without a mapping, pprof's readers complain that they don't know the program.
        let filename = profile.string_table.len() as i64;
        let program = std::env::current_exe().unwrap_or_default();
        profile.string_table.push(program.to_string_lossy().into_owned());
        profile.mapping =
            vec![Mapping { id: 1, filename, has_functions: true, has_filenames: true, ..Mapping::default() }];
        profile.location.iter_mut().for_each(|location| location.mapping_id = 1);
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(&profile.encode_to_vec()).and_then(|()| encoder.finish()).map_err(Into::into)
    });
    packed.await.map_err(std::io::Error::other)?
}
