//! A server that serves its own profiles beside its own pages: heap, allocs, leak and CPU.
//!
//! ```console
//! $ cargo run -p poolscope-profiler --features cpu-profile --example own_server -- 127.0.0.1:6060
//! $ go tool pprof http://127.0.0.1:6060/debug/pprof/heap
//! $ go tool pprof http://127.0.0.1:6060/debug/pprof/profile?seconds=5
//! ```
//!
//! `/debug/pprof/leak` needs a record of every allocation: `POOLSCOPE_PERIOD=1`.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use poolscope_profiler::http::{self, Source};

#[global_allocator]
static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;

/// What clients have stored.
type Store = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// Stores so many bytes under a name.
async fn store(State(store): State<Store>, Path((name, bytes)): Path<(String, usize)>) -> String {
    let value = black_box(vec![1; bytes.min(1 << 24)]);
    let before = store.lock().unwrap_or_else(PoisonError::into_inner).insert(name, value);
    format!("{} bytes before\n", before.map_or(0, |before| before.len()))
}

/// Loses so many blocks of 1,000 bytes: the leak that `/debug/pprof/leak` finds.
async fn lose(Path(blocks): Path<usize>) -> String {
    for _ in 0..blocks.min(10_000) {
        std::mem::forget(black_box(vec![1u8; 1000]));
    }
    "lost\n".to_owned()
}

/// Keeps the processor busy for so many milliseconds.
async fn compute(Path(ms): Path<u64>) -> String {
    let time = Duration::from_millis(ms.min(60_000));
    let done = tokio::task::spawn_blocking(move || keep_the_processor_busy(time)).await;
    done.map_or_else(|error| error.to_string(), |()| "done\n".to_owned())
}

/// What the processor's profile has. It is a function of its own in it whatever the optimiser thinks of that.
#[inline(never)]
fn keep_the_processor_busy(time: Duration) {
    let end = Instant::now() + time;
    let mut sum = 1u64;
    while Instant::now() < end {
        sum = black_box((0..10_000).fold(sum, |sum, i| sum.wrapping_mul(31).wrapping_add(i)));
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    serve(&std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:6060".to_owned())).await
}

/// Serves on an address of the loopback interface; port 0 takes a free one.
pub(crate) async fn serve(address: &str) -> std::io::Result<()> {
    let own = Router::new()
        .route("/store/{name}/{bytes}", get(store))
        .route("/lose/{blocks}", get(lose))
        .route("/compute/{ms}", get(compute))
        .with_state(Store::default());
    let app = own.merge(http::router(Source::Process(std::process::id())));
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("own_server: http://{}/", listener.local_addr()?);
    axum::serve(listener, http::require_local_host(app, Vec::new())).await
}
