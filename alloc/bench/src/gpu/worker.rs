//! A contestant's process: it is asked for rows on its standard input, one a line and with the processor to measure it
//! on, if it is to be one, and answers each with a line of JSON.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use poolscope_alloc::gpu;
use poolscope_bench::Result;
use poolscope_bench::results::Figures;
use poolscope_gpu::{Config, Cuda, Device, Pool, Simulated, Stream};
use poolscope_replay::{Policy, PolicyError, PolicyStats, policies};
use serde::{Deserialize, Serialize};

use crate::contestants::{self, Contestant, Kind, Place};
use crate::cupy;
use crate::peers::Peer;
use crate::plugin::{self, Plugin};
use crate::processors::Processors;
use crate::raw::{Driver, Malloc, MallocAsync};
use crate::rows::{self, Extent, Ground, Row};

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It can take part; its version, if it is another's.
    Ready(String),
    /// It can't.
    Absent(String),
    /// The figures of a row.
    Figures(Figures),
    /// Why there are none.
    Failed(String),
}

/// A row that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(90);
/// Passes over a trace: the first is cold, the later half warm.
const PASSES: usize = 8;
/// Where no call costs this machine's time, more do no harm.
const SIMULATED_PASSES: usize = 12;

/// A started worker.
pub struct Handle {
    pub name: String,
    pub kind: Kind,
    pub version: String,
    child: Child,
    questions: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Handle {
    /// Starts a contestant's process.
    pub fn start(contestant: &Contestant, extent: &Extent, peers: &Path) -> Result<Handle> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = match contestant.kind {
            Kind::Cupy => cupy::command(extent)?,
            _ => {
                let list = |items: Vec<String>| items.join(",");
                let mut command = Command::new(this);
                command.args(["--worker", contestant.name, "--device", &extent.place.argument()]);
                command.args(["--threads", &list(extent.threads.iter().map(ToString::to_string).collect())]);
                let traces = extent.traces.iter().map(|path| path.display().to_string()).collect();
                command.args(["--trace", &list(traces)]).arg("--peers").arg(peers);
                command
            }
        };
        command.envs(contestant.environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("its process can't be started: {error}"))?;
        let (sender, answers) = channel();
        let output = child.stdout.take().ok_or("its process has no output")?;
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let questions = child.stdin.take();
        let name = contestant.name.to_owned();
        Ok(Handle { name, kind: contestant.kind, version: String::new(), child, questions, answers })
    }

    fn answer(&mut self) -> Result<Answer> {
        match self.answers.recv_timeout(LIMIT) {
            Ok(line) => serde_json::from_str(&line).map_err(|error| format!("it answers {line:?}: {error}")),
            Err(RecvTimeoutError::Timeout) => {
                // It would answer the next question with this row's figures.
                let _ = self.child.kill();
                Err(format!("no answer for {} s", LIMIT.as_secs()))
            }
            Err(RecvTimeoutError::Disconnected) => match self.child.wait() {
                Ok(status) => Err(format!("its process has ended: {status}")),
                Err(error) => Err(format!("its process has ended: {error}")),
            },
        }
    }

    /// Waits until it can take part.
    pub fn ready(mut self) -> Result<Handle> {
        match self.answer()? {
            Answer::Ready(version) => {
                self.version = version;
                Ok(self)
            }
            Answer::Absent(reason) => Err(reason),
            other => Err(format!("it begins with {other:?}")),
        }
    }

    /// Measures a row, on a processor or wherever the scheduler puts it.
    pub fn measure(&mut self, id: &str, processor: Option<usize>) -> Result<Figures> {
        let questions = self.questions.as_mut().ok_or("its process takes no question")?;
        let processor = processor.map_or(String::new(), |number| format!("\t{number}"));
        writeln!(questions, "{id}{processor}").and_then(|()| questions.flush()).map_err(|error| error.to_string())?;
        match self.answer()? {
            Answer::Figures(figures) => Ok(figures),
            Answer::Failed(reason) => Err(reason),
            other => Err(format!("it answers {other:?}")),
        }
    }

    /// In how many rounds it is measured: a trace takes cudaMalloc ten seconds, and says nothing new; and Python runs
    /// one thread at a time.
    pub fn rounds_of(&self, row: &Row) -> usize {
        match (self.kind, row) {
            (Kind::Malloc, Row::Trace(_) | Row::Tail(_)) => 1,
            (Kind::Cupy, Row::Threads(2.., _) | Row::FirstMoment(_) | Row::Tail(_)) => 0,
            _ => usize::MAX,
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The end of its questions is the end of the process.
        drop(self.questions.take());
        let ended = (0..50).any(|_| {
            let ended = matches!(self.child.try_wait(), Ok(Some(_)) | Err(_));
            if !ended {
                std::thread::sleep(Duration::from_millis(100));
            }
            ended
        });
        if !ended {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn say(answer: &Answer) -> Result<()> {
    let line = serde_json::to_string(answer).map_err(|error| error.to_string())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

/// Is the contestant of this name until standard input ends.
pub fn serve(name: &str, extent: &Extent, peers: &Path) -> Result<()> {
    let known = contestants::all(extent.place).into_iter().find(|contestant| contestant.name == name);
    let contestant = known.ok_or(format!("no contestant {name}"))?;
    match answer_all(&contestant, extent, peers) {
        Ok(()) => Ok(()),
        Err(reason) => say(&Answer::Absent(reason)),
    }
}

fn answer_all(contestant: &Contestant, extent: &Extent, peers: &Path) -> Result<()> {
    let said = |error: PolicyError| error.to_string();
    let ordinal = match extent.place {
        Place::Cuda(ordinal) => ordinal,
        Place::Simulated => {
            let device = Arc::new(Simulated::new(contestants::SIMULATED_MEMORY));
            let ground = Ground {
                stream: &|| Ok(device.non_blocking_stream()),
                destroy: &|stream| device.destroy_stream(stream),
                attach: &|| {},
                clock: Some(&|| device.now()),
                counts_calls: true,
                passes: SIMULATED_PASSES,
            };
            let open = || {
                let policy = policies::build(contestant.name, device.clone(), &Config::default().with_environment());
                policy.ok_or("no such policy")?.map(Boxed).map_err(said)
            };
            return answer(extent, String::new(), &ground, open);
        }
    };
    let driver = Driver::open(ordinal)?;
    let malloc = contestant.kind == Kind::Malloc;
    let ground = Ground {
        stream: &|| driver.stream(),
        destroy: &|stream| driver.destroy(stream),
        attach: &|| driver.attach(),
        clock: None,
        counts_calls: matches!(contestant.kind, Kind::Pool | Kind::Unrecorded),
        passes: if malloc { 1 } else { PASSES },
    };
    match contestant.kind {
        Kind::Pool | Kind::Unrecorded => {
            let device = Arc::new(Cuda::open(ordinal).map_err(|error| error.to_string())?);
            let recorded = contestant.kind == Kind::Pool;
            let open = || {
                let (device, config) = (device.clone(), Config::default().with_environment());
                let pool = if recorded { gpu::pool(device, ordinal, config) } else { Pool::new(device, config) };
                pool.map_err(|error| error.to_string())
            };
            answer(extent, env!("CARGO_PKG_VERSION").to_owned(), &ground, open)
        }
        Kind::Plugin => {
            let plugin = Plugin::load(&peers.join("libpoolscope_gpu.so"), ordinal)?;
            answer(extent, env!("CARGO_PKG_VERSION").to_owned(), &ground, || Ok(plugin::Row(plugin)))
        }
        Kind::Malloc => answer(extent, String::new(), &ground, || Ok(Malloc(driver))),
        Kind::MallocAsync => answer(extent, String::new(), &ground, || Ok(MallocAsync::new(driver))),
        Kind::Library(file) => {
            let peer = Peer::load(contestant.name, &peers.join(file))?;
            answer(extent, peer.version(), &ground, || peer.open(ordinal))
        }
        Kind::Policy | Kind::Cupy => Err("it is no contestant of this program".to_owned()),
    }
}

fn answer<P: Policy>(
    extent: &Extent,
    version: String,
    ground: &Ground<'_>,
    open: impl Fn() -> Result<P>,
) -> Result<()> {
    drop(open()?);
    say(&Answer::Ready(version))?;
    let (rows, processors) = (rows::all(extent), Processors::of_this_process());
    for line in std::io::stdin().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let (id, processor) = match line.split_once('\t') {
            Some((id, processor)) => (id, processor.parse().ok()),
            None => (line.as_str(), None),
        };
        let measured = match rows.iter().find(|row| row.id() == id) {
            None => Err(format!("no row {line}")),
            // An allocator's own threads run where they like.
            Some(row) => open().and_then(|policy| {
                processors.bind(processor);
                let figures = rows::measure(row, &policy, ground);
                processors.bind(None);
                figures
            }),
        };
        say(&match measured {
            Ok(figures) => Answer::Figures(figures),
            Err(reason) => Answer::Failed(reason),
        })?;
    }
    Ok(())
}

/// Any policy.
struct Boxed(Box<dyn Policy>);

impl Policy for Boxed {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn allocate(&self, size: u64, stream: Stream) -> std::result::Result<u64, PolicyError> {
        self.0.allocate(size, stream)
    }

    fn free(&self, address: u64, stream: Stream) -> std::result::Result<(), PolicyError> {
        self.0.free(address, stream)
    }

    fn stats(&self) -> PolicyStats {
        self.0.stats()
    }

    fn release(&self) -> std::result::Result<(), PolicyError> {
        self.0.release()
    }
}
