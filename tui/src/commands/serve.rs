//! `poolscope serve`: profiles over HTTP.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use clap::{ArgGroup, Args};
use color_eyre::eyre::{Result, WrapErr};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use poolscope_profiler::http::{self, Options, Source};
use poolscope_profiler::process::ProcStat;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::args::token;
use crate::failure::Failure;
use crate::{sink, symbols, target};

/// Time that requests have to come to an end after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// Time that a client has to send the head of a request: who sends half of one takes up no connection for longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time between two looks whether the process is still there.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Variable of the server that --background starts: it lets go of its caller's streams once it listens.
const DETACHED: &str = "POOLSCOPE_SERVE_DETACHED";

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
/// every user of this machine can read what is served on a loopback address. A socket (--listen unix:/PATH) is open to
/// you alone.
///
/// SIGTERM and ctrl-c end it when the requests that run are answered, within 5 seconds.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("whose").required(true).args(["target", "all"])),
    after_help = "Examples:\n  poolscope serve 1234 --listen 127.0.0.1:6060\n  \
        go tool pprof http://127.0.0.1:6060/debug/pprof/heap\n  \
        poolscope serve 1234 --listen unix:/run/user/1000/heap.sock\n  \
        curl --unix-socket /run/user/1000/heap.sock http://localhost/metrics\n  \
        poolscope serve --all --listen 0.0.0.0:6060 --token-file /etc/poolscope.token"
)]
pub(crate) struct Serve {
    /// Process id, name of a program, or the file of a segment
    #[arg(value_name = "PID|NAME|SEGMENT")]
    target: Option<String>,
    /// Serve every process of yours that runs on the pool, for root of all users
    #[arg(long)]
    all: bool,
    /// Address and port, of which 0 takes a free one; or unix:/PATH, a socket that only you can open
    #[arg(long, value_name = "ADDRESS:PORT|unix:/PATH", default_value = "127.0.0.1:6060")]
    listen: Place,
    /// File with the token that requests must send
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Answer to this name, too: without a token, a server on a loopback address answers to names of this machine only
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Come back when the server listens, and leave it running; what it says later goes to standard error if that is a
    /// file
    #[arg(long)]
    background: bool,
    /// End when the process has ended
    #[arg(long, requires = "target")]
    until_exit: bool,
}

/// Where requests come in.
#[derive(Clone, Debug)]
enum Place {
    Address(SocketAddr),
    Socket(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let is_path = path.starts_with('/');
            return if is_path {
                Ok(Place::Socket(path.into()))
            } else {
                Err("a socket is named by its full path".into())
            };
        }
        text.parse().map(Place::Address).map_err(|_| "neither an address with a port nor unix:/PATH".to_owned())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Address(address) => write!(f, "http://{address}/"),
            Place::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Place {
    /// Who can reach it without a token.
    fn reach(&self) -> Reach {
        match self {
            Place::Socket(_) => Reach::User,
            Place::Address(address) if address.ip().to_canonical().is_loopback() => Reach::Machine,
            Place::Address(_) => Reach::Network,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    User,
    Machine,
    Network,
}

impl Serve {
    pub(crate) fn run(self) -> Result<u8> {
        if self.background {
            return in_background();
        }
        let mut served = None;
        let source = match &self.target {
            None => Source::All,
            Some(target) => {
                // What is asked wrongly is said now, and not to the first who asks.
                let entry = target::find(target)?;
                served = self.until_exit.then_some(entry.pid);
                let is_file = target.parse::<u32>().is_err() && !target::is_name(target);
                if is_file { Source::Segment(entry.path) } else { Source::Process(entry.pid) }
            }
        };
        let token = self.token()?;
        match (&self.listen, self.listen.reach()) {
            (Place::Address(address), Reach::Network) if token.is_none() => {
                return Err(Failure::usage(format!(
                    "{address} can be reached from other machines: name a file with a token by --token-file, or listen on \
                     127.0.0.1"
                ))
                .into());
            }
            (_, Reach::Machine) if token.is_none() => sink::say(
                "every user of this machine can read what is served: --token-file names a file with a token that they \
                 need, and --listen unix:/PATH makes a socket that is yours alone",
            ),
            _ => {}
        }
        let mut app = http::router_with(
            source,
            Options { debug_dirs: symbols::debug_dirs().to_vec(), naming: symbols::naming() },
        );
        app = match token {
            Some(token) => http::require_token(app, token),
            // No page on the web leads a browser to a socket.
            None if self.listen.reach() == Reach::User => app,
            None => http::require_local_host(app, self.allow_host),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let done = runtime.block_on(serve(&self.listen, app, served));
        // Connections that are still open end with the process.
        runtime.shutdown_background();
        done.map(|()| 0)
    }

    fn token(&self) -> Result<Option<String>> {
        Ok(self.token_file.as_deref().map(token::read).transpose()?)
    }
}

/// What listens; a socket's file goes with it.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A connection, of whichever kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Listener {
    async fn bind(place: &Place) -> Result<Listener> {
        let failed = || match place {
            Place::Address(address) => format!("cannot listen on {address}"),
            Place::Socket(path) => format!("cannot listen on {}", path.display()),
        };
        match place {
            Place::Address(address) => TcpListener::bind(address).await.map(Listener::Tcp),
            Place::Socket(path) => bind_socket(path).map(|listener| Listener::Unix(listener, path.clone())),
        }
        .wrap_err_with(failed)
    }

    /// Where it really is: a port 0 has become another one.
    fn place(&self) -> Result<Place> {
        Ok(match self {
            Listener::Tcp(listener) => Place::Address(listener.local_addr()?),
            Listener::Unix(_, path) => Place::Socket(path.clone()),
        })
    }

    async fn accept(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Listener::Tcp(listener) => Box::new(listener.accept().await?.0),
            Listener::Unix(listener, _) => Box::new(listener.accept().await?.0),
        })
    }
}

/// A socket that only its owner can open: it is made in a folder of its own, gets its mode there, and then its name.
/// The socket of a server that is gone makes room.
fn bind_socket(path: &Path) -> std::io::Result<UnixListener> {
    let is_left = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
        && std::os::unix::net::UnixStream::connect(path).is_err();
    if !is_left && path.symlink_metadata().is_ok() {
        return Err(std::io::Error::from(std::io::ErrorKind::AddrInUse));
    }
    // Beside the place where it is to be, so that it can be renamed.
    let mut folder = path.as_os_str().to_owned();
    folder.push(format!(".{}", std::process::id()));
    let folder = PathBuf::from(folder);
    std::fs::create_dir(&folder)?;
    let bound = (|| {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
        let unfinished = folder.join("s");
        let listener = UnixListener::bind(&unfinished)?;
        std::fs::set_permissions(&unfinished, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&unfinished, path)?;
        Ok(listener)
    })();
    let _ = std::fs::remove_file(folder.join("s"));
    let _ = std::fs::remove_dir(&folder);
    bound
}

async fn serve(place: &Place, app: axum::Router, until_exit_of: Option<u32>) -> Result<()> {
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let listener = Listener::bind(place).await?;
    sink::print(&format!("serving on {}\n", listener.place()?))?;
    if std::env::var_os(DETACHED).is_some() {
        let_go_of_streams().wrap_err("cannot let go of the caller's streams")?;
    }
    let (stop, stopped) = watch::channel(());
    let mut ended = std::pin::pin!(end_of(until_exit_of));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) => drop(connections.spawn(converse(stream, app.clone(), stopped.clone()))),
                // Out of descriptors, or a client that has gone already: what is open goes on.
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            _ = connections.join_next(), if !connections.is_empty() => {}
            _ = terminated.recv() => break,
            _ = interrupted.recv() => break,
            () = ended.as_mut() => break,
        }
    }
    drop(listener);
    let _ = stop.send(());
    // Longer takes a difference over minutes, or a client that does not read.
    let _ = tokio::time::timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
    Ok(())
}

/// Closes the ways to who started this process. Whoever reads a pipe to its end, as the next program in a shell's
/// pipeline does, would wait for the server's. Standard error stays where it is a file, for which nobody waits.
fn let_go_of_streams() -> std::io::Result<()> {
    let nothing = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&nothing)?;
    let kept = rustix::fs::fstat(rustix::stdio::stderr())
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file());
    if !kept {
        rustix::stdio::dup2_stderr(&nothing)?;
    }
    Ok(())
}

/// Starts the server as a process of its own, and waits until it listens, or has said why not.
fn in_background() -> Result<u8> {
    pass_on_no_descriptor();
    let arguments = std::env::args_os().skip(1).filter(|argument| argument != "--background");
    let mut server = Command::new(std::env::current_exe()?)
        .args(arguments)
        .env(DETACHED, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Ctrl-c in the terminal is not meant for it.
        .process_group(0)
        .spawn()
        .wrap_err("cannot start the server")?;
    let mut line = String::new();
    if let Some(output) = server.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line.is_empty() {
        return Ok(server.wait()?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
    }
    sink::print(&line)?;
    Ok(0)
}

/// Lets no program that is started have a descriptor that was inherited, beyond the three streams: a pipe or a lock of the
/// caller's would last as long as the server.
fn pass_on_no_descriptor() {
    // SAFETY: it closes nothing; a kernel before 5.11 does not know the flag, and refuses.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Comes to an end when the process does; never if there is none to wait for.
async fn end_of(pid: Option<u32>) {
    let Some(pid) = pid else { return std::future::pending().await };
    let start = ProcStat::of(pid).map(|stat| stat.start_ticks);
    while ProcStat::of(pid).is_some_and(|stat| !stat.is_zombie() && Some(stat.start_ticks) == start) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Answers the requests of one connection, until it or the server comes to an end.
async fn converse(stream: Box<dyn Stream>, app: axum::Router, mut stopped: watch::Receiver<()>) {
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
