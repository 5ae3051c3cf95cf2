//! What it costs a busy program that somebody scrapes it.
//!
//! A reader copies the segment with `pread` from a file that it may not write: the program executes not one instruction
//! for it. What is left is what two programs on one machine do to each other's caches. That is measured with scrapes
//! ten times as often as anybody scrapes, in pairs of runs with and without, one right after the other.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use poolscope_bench::Result;
use poolscope_bench::statistics::{Spread, notch};
use serde::Serialize;

use crate::programs::Program;
use crate::run;
use crate::tools::{self, Places};

/// Time between two scrapes.
const EVERY: Duration = Duration::from_millis(100);

/// The cost.
#[derive(Serialize)]
pub struct ScrapeCost {
    /// Processor time of the program with ten scrapes a second as a ratio to that without.
    pub ratio: Spread,
    /// Scrapes that were answered.
    pub scrapes: u64,
    /// Milliseconds that an answer took.
    pub answer_ms: f64,
    /// Per cent within which the cost of one scrape a second lies, nineteen times out of twenty.
    pub uncertainty: f64,
}

impl ScrapeCost {
    /// Per cent of the program's processor time that one scrape a second costs.
    pub fn percent(&self) -> f64 {
        (self.ratio.median - 1.0) * 100.0 / 10.0
    }
}

impl fmt::Display for ScrapeCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.2}% ± {:.2} ({:.1} ms an answer)", self.percent(), self.uncertainty, self.answer_ms)
    }
}

/// A server of all processes on the pool.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(places: &Places) -> Result<Server> {
        let mut command = Command::new(&places.poolscope);
        command.args(["serve", "--all", "--listen", "127.0.0.1:0"]).env("POOLSCOPE_DIR", &places.segments);
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| format!("poolscope serve: {error}"))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        let address = line.trim().trim_start_matches("serving on http://").trim_end_matches('/').to_owned();
        Ok(Server { child, address })
    }

    /// The seconds that an answer took; `None` if there was none.
    fn scrape(&self, page: &str) -> Option<f64> {
        let begun = Instant::now();
        let mut stream = TcpStream::connect(&self.address).ok()?;
        let request = format!("GET {page} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        answer.starts_with(b"HTTP/1.1 200").then(|| begun.elapsed().as_secs_f64())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures `pairs` pairs of runs.
pub fn measure(programs: &[Program], places: &Places, pairs: usize) -> Result<ScrapeCost> {
    let program = programs.iter().find(|program| program.name == "churn-fp").ok_or("the program is left out")?;
    let tools = tools::all();
    let tool = tools.iter().find(|tool| tool.name == "poolscope sampling").ok_or("sampling is left out")?;
    let time = || run::run(tool, program, places)?.remove("processor_ns").ok_or_else(|| "it said no time".to_owned());
    let server = Server::start(places)?;
    let (scrapes, micros) = (AtomicU64::new(0), AtomicU64::new(0));
    let scraped = || {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for page in ["/metrics", "/debug/pprof/heap"].iter().cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    if let Some(seconds) = server.scrape(page) {
                        scrapes.fetch_add(1, Ordering::Relaxed);
                        micros.fetch_add((seconds * 1e6) as u64, Ordering::Relaxed);
                    }
                    std::thread::sleep(EVERY);
                }
            });
            let time = time();
            stop.store(true, Ordering::Relaxed);
            time
        })
    };
    let mut ratios = Vec::with_capacity(pairs);
    for pair in 0..pairs {
        // Whichever is first is not always the same.
        let (with, without) = if pair % 2 == 0 {
            let with = scraped()?;
            (with, time()?)
        } else {
            let without = time()?;
            (scraped()?, without)
        };
        ratios.push(with / without);
    }
    let ratio = Spread::of(&ratios).ok_or("there was no round")?;
    let scrapes = scrapes.into_inner();
    if scrapes == 0 {
        return Err("no scrape was answered".to_owned());
    }
    let answer_ms = micros.into_inner() as f64 / 1e3 / scrapes as f64;
    Ok(ScrapeCost { ratio, scrapes, answer_ms, uncertainty: notch(&ratios) * 100.0 / 10.0 })
}
