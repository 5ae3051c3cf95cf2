//! Connections, the queue, the workers and the sweeper.
//!
//! A connection's thread parses a line and puts the request into the queue; a worker takes it out, runs it and
//! sends the answer back. So a request is allocated by one thread and freed by another, as in most servers.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::audit::AuditTrail;
use crate::options::Options;
use crate::protocol::{self, Request};
use crate::store::Store;

struct Job {
    connection: u64,
    request: Request,
    answer: Sender<Vec<u8>>,
}

struct State {
    store: Store,
    audit: AuditTrail,
    requests: AtomicU64,
    expired: AtomicU64,
}

/// A running server; its threads end with the process.
pub(crate) struct Server {
    state: Arc<State>,
}

impl Server {
    /// Starts all threads and returns.
    pub(crate) fn start(listener: TcpListener, options: &Options) -> io::Result<Server> {
        let state = Arc::new(State {
            store: Store::new(),
            audit: AuditTrail::default(),
            requests: AtomicU64::new(0),
            expired: AtomicU64::new(0),
        });
        let (queue, jobs) = sync_channel::<Job>(1024);
        let jobs = Arc::new(Mutex::new(jobs));
        for index in 0..options.workers {
            let (state, jobs) = (Arc::clone(&state), Arc::clone(&jobs));
            thread::Builder::new().name(format!("worker-{index}")).spawn(move || work(&state, &jobs))?;
        }
        let sweeper = Arc::clone(&state);
        thread::Builder::new().name("sweeper".into()).spawn(move || {
            loop {
                thread::sleep(Duration::from_millis(250));
                sweeper.expired.fetch_add(sweeper.store.expire() as u64, Ordering::Relaxed);
            }
        })?;
        thread::Builder::new().name("acceptor".into()).spawn(move || accept(&listener, &queue))?;
        Ok(Server { state })
    }

    /// One line of figures.
    pub(crate) fn stats(&self) -> String {
        stats(&self.state)
    }
}

fn accept(listener: &TcpListener, queue: &SyncSender<Job>) {
    for (connection, stream) in listener.incoming().enumerate() {
        let queue = queue.clone();
        let started = stream.and_then(|stream| {
            stream.set_nodelay(true)?;
            thread::Builder::new().name(format!("conn-{connection}")).spawn(move || {
                // A connection that breaks is the client's business: its thread ends, the server goes on.
                let _ = converse(connection as u64, &stream, &queue);
            })
        });
        if let Err(error) = started {
            eprintln!("kv-server: a connection was refused: {error}");
        }
    }
}

/// Reads requests and writes answers until the client goes.
fn converse(connection: u64, stream: &TcpStream, queue: &SyncSender<Job>) -> io::Result<()> {
    let mut lines = BufReader::new(stream);
    let mut out = stream;
    let (answer, answers) = channel();
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            return Ok(());
        }
        match protocol::parse(line.trim_end_matches(['\r', '\n'])) {
            Ok(Request::Quit) => return out.write_all(b"OK\n"),
            Ok(request) => {
                let job = Job { connection, request, answer: answer.clone() };
                if queue.send(job).is_err() {
                    return Ok(());
                }
                let Ok(bytes) = answers.recv() else { return Ok(()) };
                out.write_all(&bytes)?;
            }
            Err(message) => out.write_all(format!("ERROR {message}\n").as_bytes())?,
        }
    }
}

fn work(state: &State, jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().expect("a worker panicked with the queue in hand").recv();
        let Ok(job) = job else { return };
        let answer = handle_request(state, job.connection, job.request);
        state.requests.fetch_add(1, Ordering::Relaxed);
        // The connection may have gone meanwhile.
        let _ = job.answer.send(answer);
    }
}

#[inline(never)]
fn handle_request(state: &State, connection: u64, request: Request) -> Vec<u8> {
    match request {
        Request::Auth { user, token } => {
            state.audit.remember_sign_in(connection, &user, &token);
            let known = token.len() >= 8;
            state.audit.settle_sign_in(connection);
            if known { b"OK\n".to_vec() } else { b"ERROR unknown token\n".to_vec() }
        }
        Request::Set { key, ttl_ms, value } => {
            state.store.set(key, value, Duration::from_millis(ttl_ms));
            b"OK\n".to_vec()
        }
        Request::Get { key } => match state.store.get(&key) {
            Some(mut value) => {
                value.push(b'\n');
                value
            }
            None => b"NIL\n".to_vec(),
        },
        Request::Del { key } => format!("{}\n", u8::from(state.store.del(&key))).into_bytes(),
        Request::Append { key, value } => format!("{}\n", state.store.append(key, &value)).into_bytes(),
        Request::Scan { prefix } => {
            let mut line = state.store.scan(&prefix).join(" ");
            line.push('\n');
            line.into_bytes()
        }
        Request::Watch { key, filter } => {
            state.audit.remember_watch(connection, &key, &filter);
            b"OK\n".to_vec()
        }
        Request::Unwatch { key } => {
            state.audit.settle_watch(&key);
            b"OK\n".to_vec()
        }
        Request::Stats => format!("{}\n", stats(state)).into_bytes(),
        Request::Quit => b"OK\n".to_vec(),
    }
}

fn stats(state: &State) -> String {
    let (entries, bytes) = state.store.size();
    format!(
        "requests {} entries {entries} bytes {bytes} expired {} audit_bytes {}",
        state.requests.load(Ordering::Relaxed),
        state.expired.load(Ordering::Relaxed),
        state.audit.bytes(),
    )
}
