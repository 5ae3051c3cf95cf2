//! A real redis-server under redis-benchmark, over a socket of its own in a folder of its own.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use poolscope_bench::Result;
use poolscope_bench::results::Figures;

use crate::peers::Allocator;
use crate::process;

pub const SERVER: &str = "/usr/bin/redis-server";
pub const BENCHMARK: &str = "/usr/bin/redis-benchmark";

const REQUESTS: &str = "50000";
/// Keys are drawn from so many, and values have so many bytes.
const KEYS: &str = "50000";
const VALUE: &str = "100";
/// Of the row with many keys.
const MANY: &str = "1000000";
/// How long the server is left alone then: longer than idle memory stays by default.
const IDLE: Duration = Duration::from_secs(15);
const START: Duration = Duration::from_secs(20);
const END: Duration = Duration::from_secs(5);

/// Nanoseconds per request of `test` (as redis-benchmark names it), and the server's largest resident memory.
pub fn measure(test: &str, allocator: &Allocator) -> Result<Figures> {
    let server = Server::start(allocator)?;
    if test == "get" {
        // There has to be something to get.
        server.requests_per_second("set")?;
    }
    let rate = server.requests_per_second(test)?;
    Ok(Figures::from([("ns".to_owned(), 1e9 / rate), ("peak".to_owned(), server.memory("VmHWM:")?)]))
}

/// Nanoseconds per request that sets one of a million keys, the server's largest resident memory, and what is left of it
/// when all keys are deleted and the server has been idle.
pub fn million(allocator: &Allocator) -> Result<Figures> {
    let server = Server::start(allocator)?;
    let rate = server.rate("set", MANY)?;
    let peak = server.memory("VmHWM:")?;
    server.ask("FLUSHALL SYNC")?;
    std::thread::sleep(IDLE);
    let left = server.memory("VmRSS:")?;
    Ok(Figures::from([("ns".to_owned(), 1e9 / rate), ("peak".to_owned(), peak), ("left".to_owned(), left)]))
}

struct Server {
    process: Child,
    folder: PathBuf,
}

impl Server {
    fn start(allocator: &Allocator) -> Result<Server> {
        let folder = std::env::temp_dir().join(format!("bench-cpu-redis-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let socket = folder.join("socket");
        let mut command = process::on(allocator, SERVER);
        if allocator.library.is_none() {
            // Debian's server is linked with jemalloc, which a preloaded C library takes the calls from.
            command.env("LD_PRELOAD", "libc.so.6");
        }
        command.current_dir(&folder).args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"]);
        command.arg(&socket).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().map_err(|error| format!("{SERVER} can't be started: {error}"))?;
        let mut server = Server { process, folder };
        let start = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            if let Ok(Some(status)) = server.process.try_wait() {
                return Err(format!("{SERVER} ended: {status}"));
            }
            if start.elapsed() > START {
                return Err(format!("{SERVER} did not listen within {} s", START.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    fn requests_per_second(&self, test: &str) -> Result<f64> {
        self.rate_of(test, REQUESTS, KEYS)
    }

    /// As many requests as there are keys.
    fn rate(&self, test: &str, keys: &str) -> Result<f64> {
        self.rate_of(test, keys, keys)
    }

    /// Sends a command and waits for its answer.
    fn ask(&self, command: &str) -> Result<()> {
        let failed = |error: std::io::Error| format!("redis-server did not answer {command}: {error}");
        let mut socket = UnixStream::connect(self.folder.join("socket")).map_err(failed)?;
        socket.write_all(format!("{command}\r\n").as_bytes()).map_err(failed)?;
        let mut answer = [0; 64];
        let len = socket.read(&mut answer).map_err(failed)?;
        if answer.starts_with(b"+OK") {
            return Ok(());
        }
        Err(format!("redis-server answered {command} with {}", String::from_utf8_lossy(&answer[..len]).trim()))
    }

    fn rate_of(&self, test: &str, requests: &str, keys: &str) -> Result<f64> {
        let mut command = Command::new(BENCHMARK);
        command.arg("-s").arg(self.folder.join("socket"));
        command.args(["-n", requests, "-r", keys, "-d", VALUE, "-P", "16", "--csv", "-t", test]);
        let csv = process::output(command)?;
        // "SET","185185.17",...
        let rate = csv.lines().nth(1).and_then(|line| line.split("\",\"").nth(1)?.parse().ok());
        rate.ok_or(format!("{BENCHMARK} printed no rate: {csv}"))
    }

    /// Bytes of that line of the server's status.
    fn memory(&self, name: &str) -> Result<f64> {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let memory = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse().ok());
        memory.map(|memory: f64| memory * 1024.0).ok_or(format!("{path} has no {name}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A server that ends by itself takes the pool's segment with it.
        // SAFETY: no memory is involved, and the process has not been waited for.
        unsafe { libc::kill(self.process.id().cast_signed(), libc::SIGTERM) };
        let asked = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) {
            if asked.elapsed() > END {
                let _ = self.process.kill().and_then(|()| self.process.wait());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
