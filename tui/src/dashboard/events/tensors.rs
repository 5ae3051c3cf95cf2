//! Named tensors of the watched process: what their owner says over its socket, asked on a thread of its own.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use poolscope_profiler::model::snapshot::{ProcessInfo, ProcessState};
use poolscope_tensors::{Identity, Store, StoreOptions};
use serde_json::{Value, json};

use super::Event;
use crate::words::printable;

/// How long the owner's answer is waited for.
const PATIENCE: Duration = Duration::from_millis(500);
/// Between two questions, at least.
const EVERY: Duration = Duration::from_secs(1);
/// An owner with many tensors is asked so much less often than it takes to answer.
const SPARING: u32 = 20;

/// A process that uses tensors, as the owner knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// Its number in its pid namespace.
    pub(crate) pid: u32,
    /// Its program; empty where the owner can't see it.
    pub(crate) program: String,
    /// References that it has.
    pub(crate) references: u64,
    /// How long it has been the owner's client.
    pub(crate) since: Duration,
}

/// A tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    /// Tells it from others that have or had the name.
    pub(crate) generation: u64,
    pub(crate) bytes: u64,
    pub(crate) dtype: String,
    /// As `[2,3]`.
    pub(crate) shape: String,
    /// The device's number among those of the owner.
    pub(crate) device: u64,
    pub(crate) references: u64,
    pub(crate) users: Vec<User>,
    pub(crate) age: Duration,
    /// It is written still, and nobody else gets it.
    pub(crate) is_draft: bool,
    /// Its name was taken away so long ago, and somebody holds it still.
    pub(crate) freed: Option<Duration>,
}

/// What an owner has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tensors {
    /// The watched process.
    pub(crate) pid: u32,
    pub(crate) owner: u32,
    pub(crate) socket: PathBuf,
    /// Those with a name, and then those without one.
    pub(crate) all: Vec<Tensor>,
    /// Why the last question had no answer: the rest is what was known before.
    pub(crate) trouble: Option<String>,
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or(0)
}

fn text(value: &Value, field: &str) -> String {
    printable(value[field].as_str().unwrap_or_default())
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value[field].as_array().into_iter().flatten()
}

/// The time since a time in milliseconds since 1970.
fn since(milliseconds: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_millis(milliseconds))
}

fn tensor(entry: &Value) -> Tensor {
    let user = |user: &Value| User {
        pid: number(user, "pid") as u32,
        program: text(user, "program"),
        references: number(user, "references"),
        since: since(number(user, "since")),
    };
    let shape: Vec<String> = list(entry, "shape").map(Value::to_string).collect();
    Tensor {
        name: text(entry, "name"),
        generation: number(entry, "generation"),
        bytes: number(entry, "bytes"),
        dtype: text(entry, "dtype"),
        shape: format!("[{}]", shape.join(",")),
        device: number(entry, "device"),
        references: number(entry, "refcount"),
        users: list(entry, "held_by").map(user).collect(),
        age: since(number(entry, "ctime")),
        is_draft: entry["draft"] == true,
        freed: entry["freed_at"].as_u64().map(since),
    }
}

/// What a variable is in the environment that a process was started with.
fn variable(pid: u32, name: &str) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let environment = String::from_utf8_lossy(&environment);
    let value = environment.split('\0').find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))?;
    (!value.is_empty()).then(|| value.to_owned())
}

/// Where the owner is that a process is, or asks: by its arguments, then by its environment, then as for this program.
fn socket_of(process: &ProcessInfo) -> PathBuf {
    let mut arguments = process.args.iter().skip_while(|argument| *argument != "serve");
    let named = arguments.find_map(|argument| match argument.strip_prefix("--socket") {
        Some("") => Some(None),
        Some(value) => value.strip_prefix('=').map(|value| Some(value.to_owned())),
        None => None,
    });
    let named = named.and_then(|value| value.or_else(|| arguments.next().cloned()));
    let named = named.or_else(|| variable(process.pid, "POOLSCOPE_TENSORS")).map(PathBuf::from);
    let of_session = || {
        let folder = variable(process.pid, "XDG_RUNTIME_DIR")?;
        Some(Path::new(&folder).join("poolscope/tensors.sock"))
    };
    named.or_else(of_session).unwrap_or_else(poolscope_tensors::default_socket)
}

/// Asks owners, over one connection for as long as it is the same one.
#[derive(Default)]
struct Asker {
    store: Option<(PathBuf, Store)>,
    /// What was said last of a process that serves or holds tensors.
    known: Option<Tensors>,
}

impl Asker {
    fn ask(&mut self, socket: &Path) -> Result<Value, String> {
        if self.store.as_ref().is_none_or(|(path, _)| path != socket) {
            let options = StoreOptions { socket: socket.to_owned(), patience: PATIENCE };
            let store = Store::open(options).map_err(|refusal| printable(&refusal.words))?;
            self.store = Some((socket.to_owned(), store));
        }
        let Some((_, store)) = &self.store else { return Err(String::new()) };
        let reply = store.request(&json!({"op": "list"})).and_then(|list| {
            let stats = store.request(&json!({"op": "stats"}))?;
            Ok(json!({"list": list, "owner": stats["owner_pid"]}))
        });
        reply.map_err(|refusal| {
            self.store = None;
            printable(&refusal.words)
        })
    }

    /// What is to be shown of a process; `None` if it neither serves nor holds tensors.
    fn look(&mut self, process: &ProcessInfo) -> Option<Tensors> {
        let pid = process.pid;
        self.known.take_if(|known| known.pid != pid);
        if process.state != ProcessState::Running {
            return self.known.clone();
        }
        let socket = self.known.as_ref().map_or_else(|| socket_of(process), |known| known.socket.clone());
        if self.known.is_none() && !socket.exists() {
            return None;
        }
        match self.ask(&socket) {
            Ok(reply) => {
                let (list_of, owner) = (&reply["list"], number(&reply, "owner") as u32);
                let who = Identity::of(pid);
                let is_user = |entry: &Value| {
                    list(entry, "held_by")
                        .any(|user| number(user, "pid") == u64::from(pid) && number(user, "start") == who.start)
                };
                let entries = || list(list_of, "tensors").chain(list(list_of, "quarantine"));
                if self.known.is_some() || owner == pid || entries().any(is_user) {
                    let all = entries().map(tensor).collect();
                    self.known = Some(Tensors { pid, owner, socket, all, trouble: None });
                }
            }
            Err(why) => {
                if let Some(known) = &mut self.known {
                    known.trouble = Some(why);
                }
            }
        }
        self.known.clone()
    }
}

/// What the owner of a process's tensors says now.
pub(crate) fn read(process: &ProcessInfo) -> Option<Tensors> {
    Asker::default().look(process)
}

/// The thread that asks.
pub(crate) struct Watch(SyncSender<ProcessInfo>);

impl Watch {
    /// Starts it; it ends with what this returns.
    pub(crate) fn start(to: Sender<Event>) -> io::Result<Watch> {
        let (processes, inbox) = sync_channel(1);
        thread::Builder::new().name("tensors".into()).spawn(move || watch(&to, &inbox))?;
        Ok(Watch(processes))
    }

    /// The process that is watched now. A thread that waits for an owner hears of it later.
    pub(crate) fn follow(&self, process: &ProcessInfo) {
        let _ = self.0.try_send(process.clone());
    }
}

fn watch(to: &Sender<Event>, inbox: &Receiver<ProcessInfo>) {
    let (mut asker, mut told) = (Asker::default(), None);
    while let Ok(process) = inbox.recv() {
        let start = Instant::now();
        let tensors = asker.look(&process);
        let is_news = tensors.is_some() || told.as_ref().is_some_and(Option::is_some);
        if is_news && to.send(Event::Tensors(tensors.clone().map(Arc::new))).is_err() {
            return;
        }
        told = Some(tensors);
        thread::sleep(EVERY.max(start.elapsed() * SPARING));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_the_one_that_the_process_was_told() {
        let of = |arguments: &[&str]| {
            let args = arguments.iter().map(|&argument| argument.to_owned()).collect();
            socket_of(&ProcessInfo { pid: u32::MAX, args, ..ProcessInfo::default() })
        };
        let named = Path::new("/a/b.sock");
        assert_eq!(of(&["poolscope", "tensors", "serve", "--device", "sim", "--socket", "/a/b.sock"]), named);
        assert_eq!(of(&["poolscope", "tensors", "serve", "--socket=/a/b.sock"]), named);
        assert_eq!(of(&["program", "--socket", "/other"]), poolscope_tensors::default_socket());
    }
}
