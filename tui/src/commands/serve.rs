//! `poolscope serve`: profiles over HTTP.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::{ArgGroup, Args};
use color_eyre::eyre::{Result, WrapErr};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use poolscope_profiler::http::{self, Options, Source};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::{sink, symbols, target};

/// Time that requests have to come to an end after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// Time that a client has to send the head of a request: who sends half of one takes up no connection for longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time until the next attempt where no connection can be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// Serve profiles over HTTP: for go tool pprof, Prometheus and a browser
///
/// Pages: / lists them; /debug/pprof/heap and /debug/pprof/allocs (?seconds=N for a difference), /debug/pprof/leak
/// (what a program with every allocation recorded can't reach any more: it looks for that then), /flamegraph, /metrics
/// (Prometheus and OpenMetrics), /healthz. With --all, ?pid=PID names the process.
///
/// Other machines can reach an address that is not a loopback one, and profiles tell a lot about a program: such an
/// address needs a token, which requests then send as "Authorization: Bearer TOKEN" or as ?token=TOKEN. Without one,
/// every user of this machine can read what is served on a loopback address.
///
/// SIGTERM and ctrl-c end it when the requests that run are answered, within 5 seconds.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("whose").required(true).args(["target", "all"])),
    after_help = "Examples:\n  poolscope serve 1234 --listen 127.0.0.1:6060\n  \
        go tool pprof http://127.0.0.1:6060/debug/pprof/heap\n  \
        poolscope serve --all --listen 0.0.0.0:6060 --token-file /etc/poolscope.token"
)]
pub(crate) struct Serve {
    /// Process id, or the file of a segment
    #[arg(value_name = "PID|SEGMENT")]
    target: Option<String>,
    /// Serve every process of yours that runs on the pool
    #[arg(long)]
    all: bool,
    /// Address and port; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:6060")]
    listen: SocketAddr,
    /// File with the token that requests must send
    #[arg(long, value_name = "FILE")]
    token_file: Option<std::path::PathBuf>,
    /// Answer to this name, too: without a token, a server on a loopback address answers to names of this machine only
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
}

impl Serve {
    pub(crate) fn run(self) -> Result<u8> {
        let source = match &self.target {
            None => Source::All,
            Some(target) => {
                // What is asked wrongly is said now, and not to the first who asks.
                let entry = target::find(target)?;
                if target.parse::<u32>().is_ok() { Source::Process(entry.pid) } else { Source::Segment(entry.path) }
            }
        };
        let token = self.token()?;
        if token.is_none() && !is_loopback(self.listen.ip()) {
            return Err(Failure::usage(format!(
                "{} can be reached from other machines: name a file with a token by --token-file, or listen on 127.0.0.1",
                self.listen
            ))
            .into());
        }
        if token.is_none() {
            sink::say(
                "every user of this machine can read what is served: --token-file names a file with a token that they need",
            );
        }
        let mut app = http::router_with(
            source,
            Options { debug_dirs: symbols::debug_dirs().to_vec(), naming: symbols::naming() },
        );
        app = match token {
            Some(token) => http::require_token(app, token),
            None => http::require_local_host(app, self.allow_host),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let done = runtime.block_on(serve(self.listen, app));
        // Connections that are still open end with the process.
        runtime.shutdown_background();
        done.map(|()| 0)
    }

    fn token(&self) -> Result<Option<String>> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let text = std::fs::read_to_string(path);
        let token = text.wrap_err_with(|| format!("cannot read the token from {}", path.display()))?.trim().to_owned();
        if token.is_empty() {
            return Err(Failure::usage("the token is empty: anybody could guess it").into());
        }
        Ok(Some(token))
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

async fn serve(address: SocketAddr, app: axum::Router) -> Result<()> {
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = TcpListener::bind(address).await.wrap_err_with(|| format!("cannot listen on {address}"))?;
    let address = listener.local_addr()?;
    sink::print(&format!("serving on http://{address}/\n"))?;
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => drop(connections.spawn(converse(stream, app.clone(), stopped.clone()))),
                // Out of descriptors, or a client that has gone already: what is open goes on.
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            _ = connections.join_next(), if !connections.is_empty() => {}
            _ = terminated.recv() => break,
            _ = interrupted.recv() => break,
        }
    }
    drop(listener);
    let _ = stop.send(());
    // Longer takes a difference over minutes, or a client that does not read.
    let _ = tokio::time::timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
    Ok(())
}

/// Answers the requests of one connection, until it or the server comes to an end.
async fn converse(stream: TcpStream, app: axum::Router, mut stopped: watch::Receiver<()>) {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    let mut connection = std::pin::pin!(connection);
    // What goes wrong is the client's to notice.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.changed() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}
