//! The handlers of `poolscope serve`, for any program to mount: pprof, Prometheus, flamegraphs.
//!
//! ```no_run
//! use poolscope_profiler::http::{self, Source};
//!
//! # async fn serve() -> std::io::Result<()> {
//! // This process, if it runs on the pool, under the program's own routes.
//! let app = axum::Router::new().nest("/pool", http::router(Source::Process(std::process::id())));
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:6060").await?;
//! axum::serve(listener, app).await
//! # }
//! ```
//!
//! Paths and parameters are those of Go's `net/http/pprof`, so that what scrapes Go programs scrapes this. Whoever can
//! reach the handlers sees function names, paths and arguments of the program: mount them on a loopback address behind
//! [`require_local_host`], or behind [`require_token`].

mod access;
mod cpu;
mod index;
mod live;
mod metrics;
mod pages;
mod watched;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::routing::get;

pub use access::{require_local_host, require_token};

use crate::model::naming::Naming;
use worker::Worker;

/// Whose profiles are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// One process, by its id.
    Process(u32),
    /// One segment, by its file.
    Segment(PathBuf),
    /// Every process of this user that runs on the pool; requests name one by `?pid=`.
    All,
}

/// What can be chosen about the handlers.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Folders of separate debug information beside the system's ([`SymbolCache::with_debug_dirs`]).
    ///
    /// [`SymbolCache::with_debug_dirs`]: crate::symbols::symbolize::SymbolCache::with_debug_dirs
    pub debug_dirs: Vec<PathBuf>,
    /// By which functions call sites are not to be named.
    pub naming: Arc<Naming>,
}

/// The handlers, as they are by default.
pub fn router(source: Source) -> Router {
    router_with(source, Options::default())
}

/// The handlers. What they read is read on a thread of their own, which ends with the last clone of the router.
pub fn router_with(source: Source, options: Options) -> Router {
    Router::new()
        .route("/", get(index::index))
        .route("/debug/pprof/", get(index::index))
        .route("/debug/pprof", get(index::index))
        .route("/live", get(index::now))
        .route("/debug/pprof/heap", get(pages::heap))
        .route("/debug/pprof/allocs", get(pages::allocs))
        .route("/debug/pprof/leak", get(pages::leak))
        .route("/debug/pprof/profile", get(cpu::profile))
        .route("/debug/pprof/cmdline", get(pages::cmdline))
        .route("/debug/pprof/symbol", get(pages::symbol).post(pages::symbol_post))
        .route("/flamegraph", get(pages::flamegraph))
        .route("/reading", get(pages::reading))
        .route("/processes", get(pages::processes))
        .route("/metrics", get(metrics::metrics))
        .route("/healthz", get(pages::healthz))
        .fallback(pages::not_found)
        .with_state(Arc::new(Worker::start(source, options)))
}
