//! The profilers, and what runs without one.

use std::path::{Path, PathBuf};
use std::process::Command;

use poolscope_bench::Result;

use crate::programs::{Kind, Program};

/// Where things are on this machine.
pub struct Places {
    /// Of what the tools write; emptied before each run.
    pub output: PathBuf,
    /// Of segments.
    pub segments: PathBuf,
    pub poolscope: PathBuf,
    pub library: PathBuf,
    /// A Python with memray, which `scripts/bench-prof.sh` makes.
    pub memray: Option<PathBuf>,
}

const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";

impl Places {
    pub fn find(scratch: &Path) -> Result<Places> {
        let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.to_owned())).unwrap_or_default();
        let found = |name: &str| {
            let path = beside.join(name);
            if path.exists() {
                Ok(path)
            } else {
                Err(format!("{} is missing: make bench-prof builds it", path.display()))
            }
        };
        let made = |name: &str| {
            let path = scratch.join(name);
            std::fs::create_dir_all(&path).map(|()| path).map_err(|error| format!("{name}: {error}"))
        };
        let segments = PathBuf::from(format!("/dev/shm/bench-prof-{}", std::process::id()));
        let memray = std::env::var_os("BENCH_PROF_MEMRAY").map(PathBuf::from).filter(|path| path.exists());
        Ok(Places {
            output: made("output")?,
            segments,
            poolscope: found("poolscope")?,
            library: found("libpoolscope.so")?,
            memray,
        })
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // Programs that end remove their segments themselves.
        let _ = std::fs::remove_dir_all(&self.segments);
    }
}

type Takes = fn(&Program) -> bool;
type Run = fn(&Places, &Program) -> Option<Command>;

/// A way to run a program.
pub struct Tool {
    pub name: &'static str,
    /// An allocator without a profiler, which others are held against.
    pub is_base: bool,
    /// Too slow for more than a part of the work.
    pub slow: bool,
    /// Too slow for more than one round.
    pub once: bool,
    takes: Takes,
    command: Run,
}

impl Tool {
    pub fn takes(&self, program: &Program) -> bool {
        (self.takes)(program)
    }

    /// The command; an error if the tool is not on this machine.
    pub fn command(&self, places: &Places, program: &Program) -> Result<Command> {
        (self.command)(places, program).ok_or_else(|| "it is not on this machine".to_owned())
    }
}

/// The program as it is.
fn plain(program: &Program) -> Command {
    let mut command = Command::new(&program.command[0]);
    command.args(&program.command[1..]);
    command
}

fn preloaded(program: &Program, library: &Path) -> Option<Command> {
    if !library.exists() {
        return None;
    }
    let mut command = plain(program);
    command.env("LD_PRELOAD", library);
    Some(command)
}

/// `tool ARGUMENTS -- program`.
fn wrapped(tool: impl AsRef<Path>, arguments: &[&str], program: &Program) -> Option<Command> {
    let tool = tool.as_ref();
    if !tool.exists() {
        return None;
    }
    let mut command = Command::new(tool);
    command.args(arguments).args(&program.command);
    Some(command)
}

fn pool(places: &Places, program: &Program, period: &str) -> Option<Command> {
    let mut command = preloaded(program, &places.library)?;
    command.env("POOLSCOPE_DIR", &places.segments).env("POOLSCOPE_PERIOD", period);
    Some(command)
}

fn record(places: &Places, program: &Program, arguments: &[&str]) -> Option<Command> {
    let arguments: Vec<&str> = ["record"].into_iter().chain(arguments.iter().copied()).chain(["--"]).collect();
    let mut command = wrapped(&places.poolscope, &arguments, program)?;
    command.env("POOLSCOPE_DIR", &places.segments);
    Some(command)
}

fn library(name: &str) -> PathBuf {
    Path::new(LIBRARIES).join(name)
}

fn any(_: &Program) -> bool {
    true
}

/// All of them; what stands before is what those after it are held against.
pub fn all() -> Vec<Tool> {
    let base = |name, command: Run| Tool { name, is_base: true, slow: false, once: false, takes: any, command };
    let tool =
        |name, takes: Takes, command: Run| Tool { name, is_base: false, slow: false, once: false, takes, command };
    let slow = |name, takes: Takes, command: Run| Tool { slow: true, ..tool(name, takes, command) };
    let mut tools = vec![
        base("glibc", |_, program| Some(plain(program))),
        base("poolscope off", |places, program| pool(places, program, "1024G")),
        tool("poolscope sampling", any, |places, program| pool(places, program, "512K")),
        tool("poolscope record, written away", any, |places, program| {
            record(places, program, &["--lossy", "-o", "/dev/null"])
        }),
        tool("poolscope record --lossless", any, |places, program| {
            record(places, program, &["--lossless", "-o", places.output.join("all.rec").to_str()?])
        }),
        slow("heaptrack, written away", any, |_, program| {
            let mut command = preloaded(program, Path::new("/usr/lib/heaptrack/libheaptrack_preload.so"))?;
            command.env("DUMP_HEAPTRACK_OUTPUT", "/dev/null");
            Some(command)
        }),
        slow("heaptrack", any, |places, program| {
            wrapped("/usr/bin/heaptrack", &["-o", places.output.join("heaptrack").to_str()?], program)
        }),
        base("jemalloc off", |_, program| preloaded(program, &library("libjemalloc.so.2"))),
        tool("jemalloc prof", any, |places, program| {
            let mut command = preloaded(program, &library("libjemalloc.so.2"))?;
            let prefix = places.output.join("jemalloc");
            let settings = format!("prof:true,lg_prof_sample:19,prof_final:true,prof_prefix:{}", prefix.display());
            command.env("MALLOC_CONF", settings);
            Some(command)
        }),
        base("tcmalloc off", |_, program| preloaded(program, &library("libtcmalloc.so.4"))),
        tool("tcmalloc sampling", any, |_, program| {
            let mut command = preloaded(program, &library("libtcmalloc.so.4"))?;
            command.env("TCMALLOC_SAMPLE_PARAMETER", "524288");
            Some(command)
        }),
        // Its own unwinder takes 8 us a stack; by frame pointers it sees nothing where there are none.
        slow(
            "gperftools, every allocation",
            |program| program.kind == Kind::FramePointers,
            |places, program| {
                let mut command = preloaded(program, &library("libtcmalloc.so.4"))?;
                command
                    .env("HEAPPROFILE", places.output.join("gperftools"))
                    .env("TCMALLOC_STACKTRACE_METHOD", "generic_fp");
                Some(command)
            },
        ),
        tool(
            "memray",
            |program| program.kind == Kind::Python,
            |places, program| {
                let file = places.output.join("memray.bin");
                memray(places, program, &["-o", file.to_str()?])
            },
        ),
        tool(
            "memray --native",
            |program| program.kind == Kind::Python,
            |places, program| {
                let file = places.output.join("memray.bin");
                memray(places, program, &["--native", "-o", file.to_str()?])
            },
        ),
    ];
    let massif = slow(
        "valgrind massif",
        |program| program.name == "churn-fp",
        |places, program| {
            let out = format!("--massif-out-file={}", places.output.join("massif").display());
            wrapped("/usr/bin/valgrind", &["-q", "--tool=massif", &out], program)
        },
    );
    tools.push(Tool { once: true, ..massif });
    tools
}

fn memray(places: &Places, program: &Program, arguments: &[&str]) -> Option<Command> {
    let python = places.memray.as_ref()?;
    let mut command = Command::new(python);
    command.args(["-m", "memray", "run", "-q", "--force"]).args(arguments).args(&program.command[1..]);
    Some(command)
}
