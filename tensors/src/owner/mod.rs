//! The owner: a daemon that has the memory, keeps the books, and serves requests.
//!
//! Threads: one lets clients in, one serves each of them, one looks after what ends, and two talk with Redis: one takes
//! commands (BLPOP), one writes entries and replies. The stock is behind one lock, which nobody holds while waiting for
//! a client or for Redis.

mod commands;
mod devices;
mod left;
mod metrics;
mod mirror;
mod operations;
mod sockets;
mod stock;
mod words;

use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::words::{Code, Refusal};
pub use commands::COMMANDS;
use devices::Served;
pub use devices::{DeviceChoice, SIMULATED, uuid_text};
use mirror::Replies;
pub use mirror::{HASH, NAMES, OWNER as OWNER_KEY, REPLY, connect as connect_redis};
use operations::About;
use stock::Stock;

/// How long a slab stays that nothing is in.
const EMPTY: Duration = Duration::from_secs(2);
const SWEEP: Duration = Duration::from_millis(500);

/// What an owner is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Redis, if entries and commands go over it: `redis://HOST:PORT` or `redis+unix:///PATH`.
    pub redis: Option<String>,
    /// The devices, numbered from 0.
    pub devices: Vec<DeviceChoice>,
    /// The socket. Its folder is made if it is not there, for this user alone.
    pub socket: PathBuf,
    /// The command that starts a keeper for the folder; without one, memory ends with the owner.
    pub keeper: Vec<OsString>,
    /// Clients at once.
    pub clients: usize,
    /// How long a client may take to say who it is, to send the rest of a request, and to read its answer.
    pub stall: Duration,
    /// What a request over Redis must have to delete.
    pub token: Option<String>,
    /// Where Prometheus may ask.
    pub metrics: Option<SocketAddr>,
    /// Waits until the owner of the folder has ended, instead of a refusal.
    pub standby: bool,
}

pub(crate) struct Shared {
    pub(crate) stock: Mutex<Stock>,
    replies: Replies,
    about: About,
    stopping: AtomicBool,
    stall: Duration,
}

fn lock(stock: &Mutex<Stock>) -> MutexGuard<'_, Stock> {
    stock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.replies.wake();
    }

    fn say(&self, words: &str) {
        // Nobody may read it any more.
        let _ = writeln!(io::stderr(), "poolscope tensors: {words}");
    }
}

/// An owner that serves.
pub struct Owner {
    shared: Arc<Shared>,
    options: Options,
    /// Held for as long as the owner lives; the kernel opens it at its end.
    _lock: File,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// The socket that clients come by.
    door: UnixListener,
    metrics_at: Option<SocketAddr>,
}

fn refuse_others(path: &Path, metadata: &Metadata) -> Result<(), Refusal> {
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() == own && metadata.mode() & 0o077 == 0 && metadata.is_dir() {
        return Ok(());
    }
    let words = format!(
        "{}: the socket's folder must be a folder of user {own} that nobody else may enter: chmod 700, or name another \
         by --socket",
        path.display()
    );
    Err(Refusal::new(Code::Denied, words))
}

/// The socket's folder, made if need be, for this user alone.
fn own_folder(socket: &Path) -> Result<PathBuf, Refusal> {
    let folder = match socket.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => return Err(Refusal::new(Code::Denied, format!("{} is no file in a folder", socket.display()))),
    };
    let failed = |error: io::Error| Refusal::system(&format!("the folder {}", folder.display()), error);
    match std::fs::metadata(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed)?;
        }
        Err(error) => return Err(failed(error)),
        Ok(_) => {}
    }
    refuse_others(&folder, &std::fs::metadata(&folder).map_err(failed)?)?;
    Ok(folder)
}

/// The folder's lock, which one owner has.
fn take_lock(folder: &Path, waits: bool) -> Result<File, Refusal> {
    let path = folder.join("owner.lock");
    let failed = |error: io::Error| Refusal::system(&format!("the lock {}", path.display()), error);
    let mut file = File::options().create(true).read(true).write(true).truncate(false).open(&path).map_err(failed)?;
    let operation = if waits { FlockOperation::LockExclusive } else { FlockOperation::NonBlockingLockExclusive };
    loop {
        match flock(&file, operation) {
            Ok(()) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let pid = std::fs::read_to_string(&path).unwrap_or_default();
                let words = format!(
                    "{} has an owner already: process {}. Stop it, wait for its end by --standby, or name another \
                     socket",
                    folder.display(),
                    pid.trim()
                );
                return Err(Refusal::new(Code::Busy, words));
            }
            Err(error) => return Err(failed(error.into())),
        }
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
    Ok(file)
}

fn listen(socket: &Path) -> Result<UnixListener, Refusal> {
    let failed = |error: io::Error| Refusal::system(&format!("the socket {}", socket.display()), error);
    // What is there was the last owner's: this one has the lock.
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(failed)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// A client takes a socket and a pipe: the usual limit of a process is for fewer than a thousand.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // What is not allowed is told to the client that there is no descriptor for.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

impl Owner {
    /// Starts: takes over what an owner before left with its keeper, and serves from then on.
    pub fn start(options: Options) -> Result<Owner, Refusal> {
        allow_descriptors();
        let folder = own_folder(&options.socket)?;
        let lock = take_lock(&folder, options.standby)?;
        let socket = std::path::absolute(&options.socket).unwrap_or(options.socket.clone());
        let about = About { socket: socket.display().to_string(), token: options.token.clone() };
        if let Some(url) = &options.redis {
            redis::Client::open(url.as_str()).map_err(|error| {
                let words = format!("--redis {url}: {error}; write redis://HOST:PORT or redis+unix:///PATH");
                Refusal::new(Code::BadField, words)
            })?;
            mirror::refuse_second_owner(url, &about)?;
        }
        let open = |(number, choice): (usize, &DeviceChoice)| Served::open(*choice, number);
        let devices = options.devices.iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()?;
        let metrics = options
            .metrics
            .map(|at| TcpListener::bind(at).map_err(|error| Refusal::system(&format!("metrics on {at}"), error)));
        let metrics = metrics.transpose()?;
        let metrics_at = metrics.as_ref().and_then(|listener| listener.local_addr().ok());
        // Before the keeper is started: it would outlive an owner that can't listen.
        let listener = listen(&options.socket)?;
        let stock = Stock::take_over(&folder, options.keeper.clone(), devices);
        let stock = stock.inspect_err(|_| drop(std::fs::remove_file(&options.socket)))?;
        let door = listener.try_clone().map_err(|error| Refusal::system("the socket", error))?;
        let stopping = AtomicBool::new(false);
        let shared = Arc::new(Shared {
            stock: Mutex::new(stock),
            replies: Replies::default(),
            about,
            stopping,
            stall: options.stall,
        });
        let mut threads = Vec::new();
        let mut start = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.into()).spawn(work);
            thread.map(|thread| threads.push(thread)).map_err(|error| Refusal::system("a thread", error))
        };
        let (own, most) = (Arc::clone(&shared), options.clients);
        start("tensor sockets", Box::new(move || sockets::run(&own, &listener, most)))?;
        let own = Arc::clone(&shared);
        start("tensor ends", Box::new(move || watch_ends(&own)))?;
        if let Some(url) = options.redis.clone() {
            let (own, commands) = (Arc::clone(&shared), url.clone());
            start("tensor commands", Box::new(move || commands::run(&own, &commands)))?;
            let own = Arc::clone(&shared);
            start("tensor mirror", Box::new(move || mirror::run(&own, &url)))?;
        }
        if let Some(listener) = metrics {
            let own = Arc::clone(&shared);
            start("tensor metrics", Box::new(move || metrics::run(&own, &listener)))?;
        }
        Ok(Owner { shared, options, _lock: lock, threads, door, metrics_at })
    }

    /// Whether it has ended itself, because another owner followed it.
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Where Prometheus may ask.
    pub fn metrics_at(&self) -> Option<SocketAddr> {
        self.metrics_at
    }

    /// How many tensors it took over from the owner before.
    pub fn adopted(&self) -> u64 {
        lock(&self.shared.stock).counts.adopted
    }

    /// Ends. What it has goes at once, or stays with the keeper for the next owner.
    pub fn end(self, frees: bool) -> Result<(), Refusal> {
        let was_followed = self.shared.is_stopping();
        self.shared.stop();
        // It waits for somebody to come; the socket's file may be gone, so nobody may be able to.
        let _ = UnixStream::from(OwnedFd::from(self.door)).shutdown(Shutdown::Both);
        self.threads.into_iter().for_each(|thread| drop(thread.join()));
        if frees && !was_followed {
            lock(&self.shared.stock).give_up_all()?;
            if let Some(url) = &self.options.redis {
                mirror::clear(&self.shared, url).map_err(|error| Refusal::system("the entries in Redis", error))?;
            }
        }
        // The next owner would do the same.
        let _ = std::fs::remove_file(&self.options.socket);
        Ok(())
    }
}

/// Looks after what ends: clients by their pipes or processes, slabs that nothing is in, the keeper.
fn watch_ends(shared: &Arc<Shared>) {
    let mut swept = Instant::now();
    while !shared.is_stopping() {
        let lives = lock(&shared.stock).lives();
        let mut waiting: Vec<PollFd<'_>> =
            lives.iter().map(|(_, life)| PollFd::new(&**life, PollFlags::empty())).collect();
        let limit = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        // A signal is as good as the end of the time.
        let _ = poll(&mut waiting, Some(&limit));
        let ended =
            waiting.iter().zip(&lives).filter(|(it, _)| it.revents().intersects(PollFlags::HUP | PollFlags::ERR));
        let ended: Vec<u64> = ended.map(|(_, (client, _))| *client).collect();
        drop(waiting);
        let mut stock = lock(&shared.stock);
        let mut result = ended.into_iter().try_for_each(|client| stock.end_client(client));
        if swept.elapsed() > SWEEP {
            swept = Instant::now();
            result = result.and_then(|()| stock.sweep().map(drop)).and_then(|()| stock.mend_keeper());
        }
        result = result.and_then(|()| stock.look_at_words());
        let old = Instant::now().checked_sub(EMPTY);
        result = result.and_then(|()| old.map_or(Ok(()), |old| stock.give_back_empty(old)));
        drop(stock);
        if let Err(refusal) = result {
            shared.say(&refusal.words);
        }
    }
}
