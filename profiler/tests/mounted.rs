//! The handlers mounted in a program's own router, over a segment made byte by byte.

// The segment's parts that these tests don't use are used by the others.
#[allow(dead_code)]
#[path = "behaviour/segment.rs"]
mod segment;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use poolscope_profiler::faces::pprof::reader::read_pprof;
use poolscope_profiler::http::{self, Source};
use poolscope_wire::stats::Unbacked;
use tower::ServiceExt;

use segment::{TempSegment, sample};

async fn get(app: &Router, uri: &str) -> (StatusCode, Vec<u8>) {
    let request = Request::get(uri).body(Body::empty()).expect("is a request");
    let response = app.clone().oneshot(request).await.expect("never fails");
    let status = response.status();
    (status, to_bytes(response.into_body(), 1 << 24).await.expect("is short").to_vec())
}

fn text(body: Vec<u8>) -> String {
    String::from_utf8(body).expect("is text")
}

#[tokio::test]
async fn handlers_mounted_under_a_path_link_to_each_other_there() {
    let file = TempSegment::new(&sample());
    let own = Router::new().route("/own", axum::routing::get(|| async { "the program's" }));
    let app = own.nest("/pool", http::router(Source::Segment(file.path.clone())));
    assert_eq!(text(get(&app, "/own").await.1), "the program's");
    for page in ["/pool", "/pool/debug/pprof", "/pool/debug/pprof/"] {
        let (status, body) = get(&app, page).await;
        let page = text(body);
        assert_eq!(status, StatusCode::OK);
        assert!(page.contains("href=\"/pool/debug/pprof/heap?pid=4000000000\""), "{page}");
    }
    let (status, body) = get(&app, "/pool/debug/pprof/heap").await;
    assert_eq!(status, StatusCode::OK);
    let profile = read_pprof(&body).expect("is a profile");
    assert_eq!(profile.totals().in_use.bytes, 545_416.0);
    assert!(text(get(&app, "/pool/metrics").await.1).contains("poolscope_samples_total{pid=\"4000000000\"} 6\n"));
}

#[tokio::test]
async fn the_first_page_says_what_of_the_memory_in_use_was_never_touched() {
    let first = async |segment| {
        let file = TempSegment::new(&segment);
        text(get(&http::router(Source::Segment(file.path.clone())), "/").await.1)
    };
    let mut segment = sample();
    assert!(!first(sample()).await.contains("never touched"));
    segment.header.unbacked[Unbacked::InUse as usize] = 512;
    let page = first(segment).await;
    assert!(page.contains("512 B of it never touched"), "{page}");
}

#[tokio::test]
async fn a_token_guards_what_it_is_put_around() {
    let file = TempSegment::new(&sample());
    let app = http::require_token(http::router(Source::Segment(file.path.clone())), "secret".to_owned());
    assert_eq!(get(&app, "/metrics").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(get(&app, "/nothing").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(get(&app, "/metrics?token=secret").await.0, StatusCode::OK);
    assert_eq!(get(&app, "/healthz").await.0, StatusCode::OK);
}

#[tokio::test]
async fn another_processes_cpu_profile_is_not_to_be_had_here() {
    let file = TempSegment::new(&sample());
    let app = http::router(Source::Segment(file.path.clone()));
    let (status, body) = get(&app, "/debug/pprof/profile?seconds=5").await;
    assert_eq!(status, StatusCode::NOT_IMPLEMENTED);
    let says = text(body);
    assert!(says.contains("perf record -F 99 -g -p 4000000000 -o cpu.perf -- sleep 5"), "{says}");
}

#[cfg(feature = "cpu-profile")]
mod cpu {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    static STOP: AtomicBool = AtomicBool::new(false);

    #[inline(never)]
    fn burn_the_processor() -> u64 {
        let mut sum = 1u64;
        while !STOP.load(Ordering::Relaxed) {
            for i in 0..10_000u64 {
                sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(i));
            }
        }
        sum
    }

    #[tokio::test]
    async fn a_program_that_mounts_the_handlers_serves_where_its_time_goes() {
        let busy = std::thread::spawn(burn_the_processor);
        let app = http::router(Source::Process(std::process::id()));
        let first = tokio::spawn({
            let app = app.clone();
            async move { get(&app, "/debug/pprof/profile?seconds=2").await }
        });
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        let (status, body) = get(&app, "/debug/pprof/profile?seconds=1").await;
        assert_eq!((status, text(body).contains("taken already")), (StatusCode::SERVICE_UNAVAILABLE, true));
        let (status, body) = first.await.expect("ends");
        STOP.store(true, Ordering::Relaxed);
        busy.join().expect("ends");
        assert_eq!(status, StatusCode::OK);

        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("cpu.pb.gz");
        std::fs::write(&path, body).expect("is written");
        let mut go = Command::new("go");
        go.args(["tool", "pprof", "-top"]).arg(&path).env("HOME", folder.path()).env("PPROF_TMPDIR", folder.path());
        let output = go.output().expect("go runs");
        let (top, said) = (text(output.stdout), text(output.stderr));
        assert!(top.contains("burn_the_processor") && top.contains("Type: cpu"), "{top}{said}");
        assert_eq!(said, "");
    }
}

#[tokio::test]
async fn a_segment_that_goes_away_is_an_answer_and_no_end() {
    let file = TempSegment::new(&sample());
    let app = http::router(Source::Segment(file.path.clone()));
    assert_eq!(get(&app, "/flamegraph").await.0, StatusCode::OK);
    let away = file.folder().join("away");
    std::fs::rename(&file.path, &away).expect("is moved");
    let (status, body) = get(&app, "/flamegraph").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text(body).contains("is neither a process id nor a file that is there"));
    std::fs::rename(&away, &file.path).expect("is moved");
    assert_eq!(get(&app, "/flamegraph").await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_damaged_segment_is_named_as_such() {
    let file = TempSegment::from_bytes("77.00000000000000aa", &[b'x'; 5000]);
    let app = http::router(Source::Segment(file.path.clone()));
    for page in ["/debug/pprof/heap", "/metrics", "/debug/pprof/"] {
        let (status, body) = get(&app, page).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{page}");
        assert!(text(body).contains("not a poolscope segment"), "{page}");
    }
}
