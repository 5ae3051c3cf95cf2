//! `poolscope tensors`: named tensors, from the owner's side and from a user's.

mod held;
mod serve;
mod tables;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use color_eyre::eyre::Result;
use poolscope_tensors::{Refusal, Store, StoreOptions, default_socket, get_file, put_file};
use serde_json::{Value, json};

pub(crate) use held::held_by;

use crate::args::parse_seconds;
use crate::failure::Failure;
use crate::sink;
use crate::words::printable;

/// How long an owner that does not answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between two looks of `watch`.
const INTERVAL: Duration = Duration::from_millis(200);

/// Share tensors by name: one name is one piece of device memory in every process
///
/// An owner (`serve`) has the memory; programs get it by name, in Rust, C and Python, and over Redis. The owner is
/// found by its socket: the one that --socket or POOLSCOPE_TENSORS names, else poolscope/tensors.sock in
/// XDG_RUNTIME_DIR.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  poolscope tensors serve --redis redis://127.0.0.1 --device 0\n  \
    poolscope tensors put model.safetensors --name llama\n  poolscope tensors list llama/")]
pub(crate) struct Tensors {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    #[command(hide = true)]
    Keep(serve::Keep),
    /// List the tensors, and memory without a name that somebody still holds
    List {
        /// Only names that begin so
        #[arg(default_value = "")]
        prefix: String,
        #[command(flatten)]
        to: To,
    },
    /// Show all that is known of one tensor, and who holds it
    Show {
        name: String,
        #[command(flatten)]
        to: To,
    },
    /// Get the tensors of a name into a file of safetensors, or try whether their memory can be had here
    Get {
        /// A tensor's name, or what the names begin with before a slash
        name: String,
        /// File of safetensors to write
        #[arg(long, short, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        to: To,
    },
    /// Put the tensors of a file of safetensors into the store; all of them become visible at once
    Put {
        file: PathBuf,
        /// What the names begin with, before a slash [default: the file's name]
        #[arg(long)]
        name: Option<String>,
        /// The device's number among those that the owner serves
        #[arg(long, default_value_t = 0)]
        device: u32,
        #[command(flatten)]
        to: To,
    },
    /// Take names away; memory stays for as long as somebody holds it
    Delete {
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        to: To,
    },
    /// Look for what dead processes left, now
    Gc {
        #[command(flatten)]
        to: To,
    },
    /// Say what changes: names that come and go, memory that is held without a name
    Watch {
        /// End after so many seconds
        #[arg(long = "for", value_name = "SECONDS", value_parser = parse_seconds)]
        time: Option<Duration>,
        #[command(flatten)]
        to: To,
    },
}

/// Which owner, and how the answer is printed.
#[derive(Debug, Args)]
struct To {
    /// The owner's socket
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn failed(refusal: Refusal) -> Failure {
    // Names come from others.
    Failure::usage(printable(&refusal.words))
}

impl To {
    fn store(&self) -> Result<Store> {
        let socket = self.socket.clone().unwrap_or_else(default_socket);
        Ok(Store::open(StoreOptions { socket, patience: PATIENCE }).map_err(failed)?)
    }

    fn ask(&self, request: &Value) -> Result<Value> {
        Ok(self.store()?.request(request).map_err(failed)?)
    }

    /// Prints a reply as JSON, or as its words.
    fn print(&self, mut reply: Value, words: impl FnOnce(&Value) -> String) -> Result<()> {
        if !self.json {
            return sink::print(&words(&reply));
        }
        if let Value::Object(fields) = &mut reply {
            fields.remove("ok");
            fields.insert("version".into(), 1.into());
        }
        sink::print(&(serde_json::to_string_pretty(&reply)? + "\n"))
    }
}

impl Tensors {
    pub(crate) fn run(self) -> Result<u8> {
        match self.command {
            Command::Serve(serve) => return serve.run(),
            Command::Keep(keep) => return keep.run(),
            Command::List { prefix, to } => {
                let reply = to.ask(&json!({"op": "list", "prefix": prefix}))?;
                to.print(reply, tables::list)?;
            }
            Command::Show { name, to } => {
                let reply = to.ask(&json!({"op": "show", "name": name}))?;
                to.print(reply, tables::show)?;
            }
            Command::Get { name, out: Some(file), to } => {
                let count = get_file(&to.store()?, &name, &file).map_err(failed)?;
                let reply = json!({"file": file, "tensors": count});
                to.print(reply, |_| format!("{}: {}\n", file.display(), tables::tensors(count)))?;
            }
            Command::Get { name, out: None, to } => {
                let tensor = to.store()?.get(&name).map_err(failed)?;
                to.print(tensor.entry().clone(), |entry| {
                    format!("The memory of {} can be had here.\n{}", printable(&name), tables::show(entry))
                })?;
            }
            Command::Put { file, name, device, to } => {
                let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
                let name = name.or(stem).unwrap_or_default();
                let (names, are_notes_kept) = put_file(&to.store()?, &file, &name, device).map_err(failed)?;
                if !are_notes_kept {
                    sink::say("the file's own notes (__metadata__) are longer than 2 KiB, and were left out");
                }
                let count = names.len();
                to.print(json!({"name": name, "tensors": names}), |_| {
                    format!("{}: {}\n", printable(&name), tables::tensors(count))
                })?;
            }
            Command::Delete { names, to } => {
                let store = to.store()?;
                let replies = names.iter().map(|name| store.delete(name)).collect::<Result<Vec<_>, _>>();
                to.print(json!({"deleted": replies.map_err(failed)?}), tables::deleted)?;
            }
            Command::Gc { to } => {
                let reply = to.ask(&json!({"op": "gc"}))?;
                to.print(reply, tables::collected)?;
            }
            Command::Watch { time, to } => watch(&to, time)?,
        }
        Ok(0)
    }
}

/// What `watch` knows of each tensor: words about it, by generation.
type Seen = BTreeMap<u64, (String, &'static str)>;

fn look(store: &Store) -> Result<Seen> {
    let reply = store.request(&json!({"op": "list"})).map_err(failed)?;
    let mut seen = Seen::new();
    for (field, state) in [("tensors", "named"), ("quarantine", "quarantined")] {
        for entry in reply[field].as_array().into_iter().flatten() {
            let state = if entry["draft"] == true { "draft" } else { state };
            let name = entry["name"].as_str().unwrap_or_default().to_owned();
            seen.insert(entry["generation"].as_u64().unwrap_or(0), (name, state));
        }
    }
    Ok(seen)
}

fn watch(to: &To, time: Option<Duration>) -> Result<()> {
    let store = to.store()?;
    let until = time.map(|time| Instant::now() + time);
    let mut before = Seen::new();
    loop {
        let now = look(&store)?;
        let gone = before.iter().filter(|(generation, _)| !now.contains_key(generation));
        let changed = now.iter().filter(|(generation, seen)| before.get(generation) != Some(seen));
        let gone = gone.map(|(generation, (name, _))| (generation, name, "gone"));
        for (generation, name, state) in
            gone.chain(changed.map(|(generation, (name, state))| (generation, name, *state)))
        {
            let line = match to.json {
                true => json!({"version": 1, "generation": generation, "name": name, "state": state}).to_string(),
                false => format!("{state:<12} {} (generation {generation})", printable(name)),
            };
            sink::print(&(line + "\n"))?;
        }
        before = now;
        if until.is_some_and(|until| Instant::now() >= until) {
            return Ok(());
        }
        sleep(INTERVAL);
    }
}
