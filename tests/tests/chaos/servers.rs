//! The servers, their load, and what is known of their answers.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use poolscope_e2e::{Program, Running, Scratch, library};
use redis::Commands;

use crate::disturbance::Folder;
use crate::random::Random;

/// How a server is asked.
#[derive(Clone)]
enum Client {
    /// Values by key, over a socket.
    Redis(PathBuf),
    /// Files, over a socket, with their contents.
    Nginx(PathBuf, Arc<Vec<(String, Vec<u8>)>>),
    /// Lines that are answered by a checksum, with what each is.
    Python(Arc<Vec<(String, String)>>),
}

/// A running server.
pub struct Server {
    running: Running,
    client: Client,
    answered: usize,
}

/// A load that goes on until this is dropped.
pub struct Loaded {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Threads that sort, join and compress for each line that is asked, and answer by a checksum.
const PYTHON: &str = "
import json, sys, threading, zlib
def part(n, results, at):
    rows = [{'key': str(i * 7919 % n), 'value': 'x' * (i % 700)} for i in range(n)]
    rows.sort(key=lambda row: row['key'])
    results[at] = zlib.crc32(zlib.compress(json.dumps(rows).encode(), 1))
print('ready', flush=True)
for line in sys.stdin:
    n = int(line)
    results = [0] * 3
    threads = [threading.Thread(target=part, args=(n + at, results, at)) for at in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(n, *results, flush=True)
";

const NUMBERS: [usize; 4] = [300, 900, 1500, 2200];

/// What the program answers without the pool.
fn truth() -> Arc<Vec<(String, String)>> {
    let input: String = NUMBERS.iter().map(|n| format!("{n}\n")).collect();
    let output = Program::new("/usr/bin/python3").args(["-c", PYTHON]).input(input).run().success();
    let answers = output.stdout.lines().skip(1).map(str::to_owned);
    Arc::new(NUMBERS.iter().map(|n| format!("{n}\n")).zip(answers).collect())
}

/// Starts all of them on the pool.
pub fn start_all(files: &Scratch, folder: &Folder, settings: &[(&str, &str)]) -> Vec<Server> {
    vec![redis(files, folder, settings), nginx(files, folder, settings), python(folder, settings)]
}

fn on_the_pool(program: &str, folder: &Folder, settings: &[(&str, &str)]) -> Program {
    // Idle memory goes back within seconds, unless the setting under test says otherwise.
    let mut program = Program::new(program)
        .env("LD_PRELOAD", library())
        .env("POOLSCOPE_DIR", folder.path())
        .env("POOLSCOPE_SCAVENGE_MS", "1000")
        .env("POOLSCOPE_GC_MS", "500")
        .limit(3600);
    for (name, value) in settings {
        program = program.env(name, value);
    }
    program
}

fn redis(files: &Scratch, folder: &Folder, settings: &[(&str, &str)]) -> Server {
    let socket = files.join("redis.sock");
    let mut running = on_the_pool("redis-server", folder, settings)
        .args(["--port", "0", "--save", "", "--io-threads", "2", "--dir"])
        .arg(files.path())
        .arg("--unixsocket")
        .arg(&socket)
        .start();
    running.wait_until("it was ready", |running| running.stdout().contains("eady to accept connections").then_some(()));
    Server { running, client: Client::Redis(socket), answered: 0 }
}

fn nginx(files: &Scratch, folder: &Folder, settings: &[(&str, &str)]) -> Server {
    let socket = files.join("nginx.sock");
    let root = files.path().display().to_string();
    let mut random = Random::new(1);
    let mut contents = Vec::new();
    for (name, size) in [("small", 700), ("medium", 30_000), ("large", 900_000)] {
        let bytes: Vec<u8> = (0..size).map(|_| random.next() as u8).collect();
        std::fs::write(files.join(name), &bytes).expect("the file is written");
        contents.push((name.to_owned(), bytes));
    }
    let configuration = files.write(
        "nginx.conf",
        &format!(
            "worker_processes 2; daemon off; pid {root}/nginx.pid; error_log {root}/error.log; \
             events {{ worker_connections 64; }} \
             http {{ access_log off; sendfile off; output_buffers 4 64k; client_body_temp_path {root}/1; \
             proxy_temp_path {root}/2; fastcgi_temp_path {root}/3; uwsgi_temp_path {root}/4; scgi_temp_path {root}/5; \
             server {{ listen unix:{}; root {root}; }} }}",
            socket.display()
        ),
    );
    // Workers of root's would run as somebody who may not read the folder.
    let user = "user root; ";
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        let text = std::fs::read_to_string(&configuration).expect("it was written");
        std::fs::write(&configuration, format!("{user}{text}")).expect("it can be written");
    }
    let mut running = on_the_pool("/usr/sbin/nginx", folder, settings).arg("-c").arg(&configuration).start();
    running.wait_until("it listened", |_| UnixStream::connect(&socket).is_ok().then_some(()));
    Server { running, client: Client::Nginx(socket, Arc::new(contents)), answered: 0 }
}

fn python(folder: &Folder, settings: &[(&str, &str)]) -> Server {
    let mut running = on_the_pool("/usr/bin/python3", folder, settings).args(["-c", PYTHON]).start();
    running.wait_for_line("ready");
    Server { running, client: Client::Python(truth()), answered: 0 }
}

impl Server {
    /// What it is.
    pub fn name(&self) -> &'static str {
        match self.client {
            Client::Redis(_) => "redis",
            Client::Nginx(..) => "nginx",
            Client::Python(_) => "python",
        }
    }

    /// The process that is disturbed: of nginx a worker, which is what serves.
    pub fn pid(&self) -> u32 {
        let pid = self.running.pid();
        if !matches!(self.client, Client::Nginx(..)) {
            return pid;
        }
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children.split_whitespace().next().and_then(|child| child.parse().ok()).expect("nginx has workers")
    }

    /// One cycle of its load; every answer is compared with what it must be.
    pub fn work(&mut self) {
        match &self.client {
            Client::Python(answers) => {
                for (asked, answer) in answers.iter() {
                    self.running.send(asked);
                    self.answered += 1;
                    let answered = self.answered;
                    let line = self.running.wait_until("it answered", |running| {
                        let out = running.stdout();
                        let whole = out.rfind('\n').map_or("", |end| &out[..end]);
                        whole.lines().nth(answered).map(str::to_owned)
                    });
                    assert_eq!(&line, answer, "a wrong answer");
                }
            }
            client => ask(client, &AtomicBool::new(true), 1),
        }
    }

    /// Loads it from other threads as long as the result is kept.
    pub fn loaded(&mut self) -> Loaded {
        let stop = Arc::new(AtomicBool::new(false));
        if let Client::Python(answers) = &self.client {
            // It answers in the order in which it was asked; the answers are compared with the next cycle.
            for (asked, _) in answers.iter() {
                self.running.send(asked);
                self.answered += 1;
            }
            return Loaded { stop, thread: None };
        }
        let (client, stopped) = (self.client.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || ask(&client, &stopped, usize::MAX));
        Loaded { stop, thread: Some(thread) }
    }

    /// Has it let go of what it holds.
    pub fn empty(&mut self) {
        if let Client::Redis(socket) = &self.client {
            let _: () = connect(socket).flushall().expect("redis answers");
        }
    }

    /// Fails if it has ended.
    pub fn assert_lives(&mut self, done: &str) {
        let name = self.name();
        let said = self.running.stderr();
        assert!(!said.contains("poolscope:"), "{name}: the pool spoke after \"{done}\"\n{said}");
        self.running.assert_runs(done);
    }

    /// Ends it as its user would, and fails if it ended otherwise.
    pub fn stop(self) {
        let name = self.name();
        match &self.client {
            Client::Redis(socket) => {
                let mut connection = connect(socket);
                // It closes the connection instead of an answer.
                let _ = redis::cmd("SHUTDOWN").arg("NOSAVE").query::<()>(&mut connection);
            }
            Client::Nginx(..) => self.running.signal(libc::SIGQUIT),
            Client::Python(_) => {}
        }
        let output = self.running.finish();
        assert!(output.status.success(), "{name}: {}", output.report());
    }
}

fn connect(socket: &std::path::Path) -> redis::Connection {
    let client = redis::Client::open(format!("redis+unix://{}", socket.display())).expect("an address");
    let connection = client.get_connection().expect("redis lets us in");
    connection.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    connection
}

/// Asks until it is stopped or has asked so many times, and compares.
fn ask(client: &Client, stop: &AtomicBool, cycles: usize) {
    for cycle in 0..cycles {
        if cycle > 0 && stop.load(Ordering::Relaxed) {
            return;
        }
        match client {
            Client::Redis(socket) => ask_redis(socket, cycle as u64),
            Client::Nginx(socket, contents) => contents.iter().for_each(|(name, bytes)| ask_nginx(socket, name, bytes)),
            Client::Python(_) => {}
        }
    }
}

/// Values of many sizes, written, read and deleted.
fn ask_redis(socket: &std::path::Path, cycle: u64) {
    let mut redis = connect(socket);
    let mut random = Random::new(cycle);
    let value = |key: u64| {
        let mut of_key = Random::new(key ^ 0x5eed);
        let size = 1 << of_key.below(16);
        (0..size + of_key.below(size)).map(|_| of_key.next() as u8).collect::<Vec<u8>>()
    };
    for _ in 0..400 {
        let key = random.below(1000) as u64;
        match random.below(4) {
            0 | 1 => redis.set::<_, _, ()>(key, value(key)).expect("redis keeps it"),
            2 => redis.del::<_, ()>(key).expect("redis deletes it"),
            _ => {
                let found: Option<Vec<u8>> = redis.get(key).expect("redis answers");
                assert!(found.is_none_or(|found| found == value(key)), "redis gave another value for {key}");
            }
        }
    }
}

fn ask_nginx(socket: &std::path::Path, name: &str, expected: &[u8]) {
    let mut stream = UnixStream::connect(socket).expect("nginx lets us in");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    stream.write_all(format!("GET /{name} HTTP/1.0\r\n\r\n").as_bytes()).expect("it is asked");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("nginx answers");
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |at| at + 4);
    assert!(answer[body..] == *expected, "nginx gave other contents for {name}");
}
