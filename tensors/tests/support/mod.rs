//! What the tests share: folders, owners and clients in processes of their own, a real redis-server, and what the
//! kernel says of memory.
//!
//! Another process is this program again, with one test of its own (`plays_a_part`), told by its environment.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use poolscope_tensors::{DeviceChoice, NewTensor, Options, Owner, RedisReader, Store, StoreOptions, Tensor};
use serde_json::{Value, json};

const PART: &str = "POOLSCOPE_TENSORS_PART";
const FOLDER: &str = "POOLSCOPE_TENSORS_FOLDER";
pub const MIB: u64 = 1 << 20;

/// A folder for a socket, gone with the value.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pst-{}-{number}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Folder(path)
    }

    pub fn socket(&self) -> PathBuf {
        self.0.join("tensors.sock")
    }

    pub fn redis_url(&self) -> String {
        format!("redis+unix://{}", self.0.join("redis.sock").display())
    }

    pub fn store(&self) -> Store {
        Store::open(StoreOptions { socket: self.socket(), patience: Duration::from_secs(20) }).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn options(folder: &Path, redis: Option<String>) -> Options {
    Options {
        redis,
        devices: vec![DeviceChoice::Simulated(256 * MIB)],
        socket: folder.join("tensors.sock"),
        keeper: Vec::new(),
        clients: 100,
        stall: Duration::from_secs(10),
        token: None,
        metrics: None,
        standby: false,
    }
}

/// An owner in this process, without Redis and keeper.
pub fn owner(folder: &Folder) -> Owner {
    Owner::start(options(&folder.0, None)).unwrap()
}

/// Waits for something, a few seconds at most.
pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "it never was so: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Another process. It is killed when the value goes.
pub struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub fn start(part: &str, folder: &Folder) -> Process {
        Process::start_under(&[], part, folder)
    }

    /// Starts it by another program's means.
    pub fn start_under(by: &[&str], part: &str, folder: &Folder) -> Process {
        let exe = std::env::current_exe().unwrap();
        let mut command = match by.split_first() {
            None => Command::new(exe),
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(exe);
                command
            }
        };
        command.args(["--exact", "plays_a_part", "--ignored", "--nocapture"]);
        command.env(PART, part).env(FOLDER, &folder.0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Process { input: child.stdin.take(), child, output }
    }

    /// What it answers to a line.
    pub fn ask(&mut self, line: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        self.hear()
    }

    /// The next line that it says behind `: `.
    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended");
            if let Some((_, said)) = line.trim_end().split_once("say: ") {
                return said.to_owned();
            }
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: plain numbers; the process is ours and not waited for yet.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Says a line and does not wait for the answer.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Closes its input, and waits for its end.
    pub fn finish(&mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An owner of its own process, with a keeper, and with Redis if there is one.
pub fn owner_process(folder: &Folder, redis: bool) -> Process {
    let mut process = Process::start(if redis { "owner redis" } else { "owner" }, folder);
    assert_eq!(process.hear(), "ready");
    process
}

fn keeper_command(folder: &Path) -> Vec<OsString> {
    let exe = std::env::current_exe().unwrap();
    let words = ["/usr/bin/env", &format!("{PART}=keeper"), &format!("{FOLDER}={}", folder.display())];
    let mut command: Vec<OsString> = words.iter().map(OsString::from).collect();
    command.push(exe.into());
    command.extend(["--exact", "plays_a_part", "--ignored", "--nocapture"].map(OsString::from));
    command
}

fn say(words: &str) {
    // The test's harness has written its own words before on this line.
    println!("say: {words}");
}

fn told(result: Result<String, poolscope_tensors::Refusal>) -> String {
    result.unwrap_or_else(|refusal| format!("refused {}: {}", refusal.code.text(), refusal.words))
}

/// What another process does.
pub fn play_a_part() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let part = std::env::var(PART).unwrap();
    match part.as_str() {
        "keeper" => poolscope_tensors::keep(&folder, Duration::from_secs(20)).unwrap(),
        "owner" | "owner redis" | "owner standby" => {
            let redis =
                (part == "owner redis").then(|| format!("redis+unix://{}", folder.join("redis.sock").display()));
            let standby = part == "owner standby";
            let options = Options { keeper: keeper_command(&folder), standby, ..options(&folder, redis) };
            let owner = Owner::start(options).unwrap();
            say("ready");
            // Until the other side closes the pipe: an orderly end, which frees everything.
            let _ = std::io::stdin().lines().count();
            owner.end(true).unwrap();
        }
        // One that waits for so many milliseconds for those that stall.
        stalled if stalled.starts_with("owner stall ") => {
            let stall = Duration::from_millis(stalled["owner stall ".len()..].parse().unwrap());
            let owner = Owner::start(Options { stall, clients: 2000, ..options(&folder, None) }).unwrap();
            say("ready");
            let _ = std::io::stdin().lines().count();
            owner.end(true).unwrap();
        }
        "client" => client(&folder),
        "redis reader" => redis_reader(&folder),
        other => panic!("no part {other}"),
    }
}

fn client(folder: &Path) {
    let options = StoreOptions { socket: folder.join("tensors.sock"), patience: Duration::from_secs(20) };
    // The owner may have been killed a moment ago.
    let store = wait_until("an owner answered", || Store::open(options.clone()).ok());
    let mut held: Vec<Tensor> = Vec::new();
    let mut drafts = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let done = match words[..] {
            ["get", name] => store.get(name).map(|tensor| {
                let first = tensor.to_vec().unwrap_or_default();
                held.push(tensor);
                format!("got {}", first.first().copied().unwrap_or(0))
            }),
            ["draft", name, bytes] => {
                let shape = [bytes.parse().unwrap()];
                store.create(&NewTensor::new(name, "u8", &shape)).map(|created| {
                    drafts.push(created);
                    "created".to_owned()
                })
            }
            // A stream writes it for an hour.
            ["create-busy", name, bytes] => {
                let device = std::sync::Arc::new(poolscope_gpu::Simulated::in_process(256 * MIB, 0));
                let store = store.clone().with_device("GPU-simulated-0", device.clone());
                let stream = device.non_blocking_stream();
                let work = poolscope_gpu::Kernel { duration: 3_600_000_000_000, accesses: Vec::new() };
                device.launch(stream, work);
                let shape = [bytes.parse().unwrap()];
                let created = store.create(&NewTensor::new(name, "u8", &shape));
                created.and_then(|created| created.commit_on(stream)).map(|tensor| {
                    held.push(tensor);
                    "created".to_owned()
                })
            }
            ["create", name, bytes, fill] => {
                let shape = [bytes.parse().unwrap()];
                let created = store.create(&NewTensor::new(name, "u8", &shape)).and_then(|created| {
                    created.write(0, &vec![fill.parse().unwrap(); shape[0] as usize])?;
                    created.commit()
                });
                created.map(|tensor| {
                    held.push(tensor);
                    "created".to_owned()
                })
            }
            ["read", name] => {
                let tensor = held.iter().find(|tensor| tensor.name() == name).unwrap();
                tensor.to_vec().map(|bytes| {
                    let same = bytes.iter().all(|byte| *byte == bytes[0]);
                    format!("{} {}", bytes[0], if same { "all" } else { "mixed" })
                })
            }
            ["drop", name] => {
                held.retain(|tensor| tensor.name() != name);
                Ok("dropped".to_owned())
            }
            ["delete", name] => store.delete(name).map(|_| "deleted".to_owned()),
            _ => panic!("no such line: {line}"),
        };
        say(&told(done));
    }
}

fn redis_reader(folder: &Path) {
    let url = format!("redis+unix://{}", folder.join("redis.sock").display());
    let mut reader = RedisReader::open(&url, Duration::from_secs(5)).unwrap();
    let mut held: Vec<Value> = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let done = match line.split(' ').collect::<Vec<_>>()[..] {
            ["get", name] => reader.get(name).and_then(|(entry, address)| {
                let mut byte = [0];
                let device = reader.device(&entry)?;
                device.copy_out(address, &mut byte).unwrap();
                device.copy_in(address + 1, &[byte[0] + 1]).unwrap();
                held.push(entry);
                Ok(format!("got {}", byte[0]))
            }),
            ["drop"] => {
                let entry = held.pop().unwrap();
                reader.release(&entry).map(|()| "dropped".to_owned())
            }
            _ => panic!("no such line: {line}"),
        };
        say(&told(done));
    }
}

/// A redis-server on a socket in the folder.
pub struct Redis {
    child: Child,
    folder: PathBuf,
}

impl Redis {
    pub fn start(folder: &Folder) -> Redis {
        let socket = folder.0.join("redis.sock");
        let _ = std::fs::remove_file(&socket);
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--dir"])
            .arg(&folder.0)
            .arg("--unixsocket")
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed by scripts/install-test-tools.sh");
        wait_until("redis listened", || UnixStream::connect(&socket).ok());
        Redis { child, folder: folder.0.clone() }
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn connect(&self) -> redis::Connection {
        let url = format!("redis+unix://{}", self.folder.join("redis.sock").display());
        let connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        connection
    }

    /// A command as anybody would push it, and its reply.
    pub fn ask(&self, mut request: Value) -> Value {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let id = format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed));
        request["id"] = id.clone().into();
        let mut connection = self.connect();
        let _: u64 = redis::cmd("RPUSH").arg("tensor:cmd").arg(request.to_string()).query(&mut connection).unwrap();
        let key = format!("tensor:reply:{id}");
        let reply: Option<(String, String)> = redis::cmd("BLPOP").arg(key).arg(15).query(&mut connection).unwrap();
        serde_json::from_str(&reply.expect("a reply").1).unwrap()
    }

    /// A tensor's hash.
    pub fn hash(&self, name: &str) -> std::collections::HashMap<String, String> {
        redis::cmd("HGETALL").arg(format!("tensor:name:{name}")).query(&mut self.connect()).unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many different slabs this process has mapped, as the kernel says.
pub fn mapped_slabs() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let slabs = maps.lines().filter(|line| line.contains("memfd:poolscope-slab"));
    let inodes: std::collections::BTreeSet<&str> = slabs.filter_map(|line| line.split_whitespace().nth(4)).collect();
    inodes.len()
}

/// Inodes of slabs that a process has open or mapped, as the kernel says.
pub fn slabs_of(pid: u32) -> usize {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let open = links.filter(|link| link.to_string_lossy().contains("memfd:poolscope-slab")).count();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    open + maps.lines().filter(|line| line.contains("memfd:poolscope-slab")).count()
}

/// The processes that were started for a folder and still run: as the kernel says, by their environment.
pub fn processes_of(folder: &Folder) -> Vec<u32> {
    let wanted = format!("{FOLDER}={}", folder.0.display());
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_ours = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    pids.filter(is_ours).collect()
}

/// Whether a process is a keeper that has everything: the journal comes last.
pub fn is_whole_keeper(pid: u32) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let is_keeper = environment.split(|byte| *byte == 0).any(|it| it == format!("{PART}=keeper").as_bytes());
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    is_keeper && links.any(|link| link.to_string_lossy().contains("memfd:poolscope-tensors-journal"))
}

pub fn stats(store: &Store) -> Value {
    store.request(&json!({"op": "stats"})).unwrap()
}

pub fn list(store: &Store) -> Value {
    store.request(&json!({"op": "list"})).unwrap()
}
