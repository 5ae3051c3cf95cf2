//! An in-memory key-value server with real clients: the program that `make demo` watches.
//!
//! It listens on loopback, speaks a line protocol ([`protocol`]), runs every request on a pool of workers
//! ([`server`]) over a sharded store ([`store`]), and expires old keys. `--clients N` starts one child process with
//! `N` connections ([`client`]). One request path leaks: WATCH, see [`audit`]. The leak is the point of the
//! sample; everything else gives its memory back.
//!
//! The server uses the system's allocator and knows nothing of poolscope: `poolscope run -- kv-server` puts it on
//! the pool from outside.

mod audit;
mod client;
mod options;
mod protocol;
mod server;
mod store;

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use options::{Options, Role};

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{}", options::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("kv-server: {message}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    let result = match options.role {
        Role::Server => serve(&options),
        Role::Clients { port } => client::run(port, &options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kv-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &Options) -> io::Result<()> {
    // Blocked before the first thread starts, so that every thread inherits it and only the wait below sees them.
    let signals = StopSignals::block();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))?;
    let port = listener.local_addr()?.port();

    let server = server::Server::start(listener, options)?;
    println!("kv-server: pid {}, port {port}, {} workers", std::process::id(), options.workers);
    println!("kv-server: it leaks on purpose. In poolscope's dashboard: the call site with a ▲, and Enter there.");
    let clients = (options.clients > 0).then(|| start_clients(port, options)).transpose()?;
    io::stdout().flush()?;

    signals.wait((options.seconds > 0).then(|| Duration::from_secs(options.seconds)));

    if let Some(mut clients) = clients {
        // The child ends by itself once its connections close; a kill makes sure that it never outlives us.
        clients.kill()?;
        clients.wait()?;
    }
    println!("kv-server: {}", server.stats());
    Ok(())
}

/// The clients are a process of their own and stay off the pool: what the dashboard shows is the server's memory.
fn start_clients(port: u16, options: &Options) -> io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .env_remove("LD_PRELOAD")
        .args(["--connect", &port.to_string()])
        .args(["--clients", &options.clients.to_string()])
        .args(["--rate", &options.rate.to_string()])
        .args(["--keys", &options.keys.to_string()])
        .stdin(Stdio::null())
        .spawn()
}

/// SIGTERM and SIGINT, taken by a wait instead of a handler.
struct StopSignals(libc::sigset_t);

impl StopSignals {
    fn block() -> StopSignals {
        // SAFETY: `set` is written by sigemptyset before it is read; all pointers are to locals or null.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGTERM);
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            StopSignals(set)
        }
    }

    /// Returns when one of the signals came or, if there is a limit, when the time is up.
    fn wait(&self, limit: Option<Duration>) {
        let deadline = limit.map(|limit| std::time::Instant::now() + limit);
        loop {
            let left = deadline
                .map_or(Duration::from_secs(3600), |at| at.saturating_duration_since(std::time::Instant::now()));
            let left = libc::timespec { tv_sec: left.as_secs() as libc::time_t, tv_nsec: left.subsec_nanos().into() };
            // SAFETY: the set is initialised by `block`, the timeout lives on this stack, no siginfo is asked for.
            let signal = unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &left) };
            if signal > 0 || deadline.is_some_and(|at| at <= std::time::Instant::now()) {
                return;
            }
        }
    }
}
