//! What named tensors cost, beside the driver's own calls on the same device in the same run.
//!
//! `tensor_bench [--device N|sim] [--redis redis+unix:///PATH]`: starts an owner in a process of its own, and prints a
//! line for each figure: the median of its rounds, and the goal where there is one. The process with the argument
//! `owner` or `client` is one of those that it starts.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use poolscope_gpu::{Cuda, GRANULE, Sharing, Simulated};
use poolscope_tensors::{DeviceChoice, NewTensor, Options, Owner, RedisReader, Store, StoreOptions, Transport};
use serde_json::json;

const MIB: u64 = 1 << 20;

/// What the arguments say.
#[derive(Clone)]
struct Wanted {
    device: String,
    redis: Option<String>,
    folder: PathBuf,
}

impl Wanted {
    fn choice(&self) -> DeviceChoice {
        if self.device == "sim" {
            return DeviceChoice::Simulated(64 << 30);
        }
        DeviceChoice::Cuda(self.device.parse().expect("--device takes a number or sim"))
    }

    fn store(&self) -> Store {
        let options = StoreOptions { socket: self.folder.join("tensors.sock"), patience: Duration::from_secs(60) };
        Store::open(options).expect("the owner answers")
    }

    fn start(&self, part: &str) -> Child {
        let mut command = Command::new(std::env::current_exe().expect("this file"));
        command.arg(part).args(["--device", &self.device]).arg("--folder").arg(&self.folder);
        if let Some(redis) = &self.redis {
            command.args(["--redis", redis]);
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        child.expect("it starts")
    }
}

fn line(child: &mut Child) -> String {
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("a pipe");
    BufReader::with_capacity(1, out).read_line(&mut line).expect("it says something");
    line.trim_end().to_owned()
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn timed(rounds: usize, mut work: impl FnMut()) -> f64 {
    let once = |_| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    median((0..rounds).map(once).collect())
}

fn say(what: &str, figure: String, goal: &str) {
    println!("{what:<58} {figure:>14}  {goal}");
}

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let part = arguments.next_if(|argument| !argument.starts_with("--")).unwrap_or_default();
    let folder = std::env::temp_dir().join(format!("tensor-bench-{}", std::process::id()));
    let mut wanted = Wanted { device: "sim".into(), redis: None, folder };
    while let (Some(name), Some(value)) = (arguments.next(), arguments.next()) {
        match name.as_str() {
            "--device" => wanted.device = value,
            "--redis" => wanted.redis = Some(value),
            "--folder" => wanted.folder = value.into(),
            _ => panic!("{name} is no option"),
        }
    }
    match part.as_str() {
        "owner" => owner(&wanted),
        "client" => client(&wanted),
        _ => {
            std::fs::DirBuilder::new().mode(0o700).create(&wanted.folder).expect("a folder");
            bench(&wanted);
            std::fs::remove_dir_all(&wanted.folder).expect("the folder goes");
        }
    }
}

fn owner(wanted: &Wanted) {
    let owner = Owner::start(Options {
        redis: wanted.redis.clone(),
        devices: vec![wanted.choice()],
        socket: wanted.folder.join("tensors.sock"),
        keeper: Vec::new(),
        clients: 2000,
        stall: Duration::from_secs(10),
        token: None,
        metrics: None,
        standby: false,
    });
    let owner = owner.expect("it starts");
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("a pipe");
    owner.end(true).expect("it ends");
}

/// One of those that get and release at the same time.
fn client(wanted: &Wanted) {
    let store = wanted.store();
    drop(store.get("hot").expect("it is there"));
    let _kept = store.get("hot").expect("it is there");
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).expect("a pipe");
    let (start, mut pairs) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(2) {
        drop(store.get("hot").expect("it is there"));
        pairs += 1;
    }
    println!("{}", f64::from(pairs) / start.elapsed().as_secs_f64());
}

fn make(store: &Store, name: &str, bytes: u64) {
    store.create(&NewTensor::new(name, "u8", &[bytes])).expect("made").commit().expect("finished");
}

/// The driver's calls alone: import, map with access, and back.
fn raw_import(device: &Arc<dyn Sharing>, bytes: u64) -> f64 {
    let slab = device.create_slab(bytes).expect("a slab");
    let descriptor = device.export_slab(slab).expect("a descriptor");
    let once = |_| {
        let start = Instant::now();
        let imported = device.import_slab(descriptor.as_fd()).expect("imported");
        let address = device.map_slab(imported, bytes).expect("mapped");
        device.release_slab(imported).expect("released");
        let time = start.elapsed();
        device.unmap_slab(address, bytes).expect("unmapped");
        time
    };
    let time = median((0..20).map(once).collect());
    device.release_slab(slab).expect("released");
    time
}

fn bench(wanted: &Wanted) {
    let mut owner = wanted.start("owner");
    assert_eq!(line(&mut owner), "ready");
    let device: Arc<dyn Sharing> = match wanted.choice() {
        DeviceChoice::Cuda(ordinal) => Arc::new(Cuda::open(ordinal).expect("a device")),
        DeviceChoice::Simulated(bytes) => Arc::new(Simulated::in_process(bytes, 0)),
    };
    let store = wanted.store();
    make(&store, "hot", 4096);

    let kept = store.get("hot").expect("it is there");
    let known = timed(5000, || drop(store.get("hot").expect("it is there")));
    say("get and release of a name whose slab is imported", format!("{known:.1} us"), "at most 50 us");
    drop(kept);

    for size in [64 * MIB, 1024 * MIB] {
        make(&store, "alone", size);
        let alone = raw_import(&device, size.next_multiple_of(GRANULE));
        let get = |_| {
            let start = Instant::now();
            let tensor = store.get("alone").expect("it is there");
            let time = start.elapsed();
            drop(tensor);
            time
        };
        let ours = median((0..20).map(get).collect());
        let ratio = format!("{:.2} x", ours / alone);
        say(&format!("get of a new slab of {} MiB: {ours:.0} us", size / MIB), ratio, "at most 1.3 x the calls alone");
        store.delete("alone").expect("deleted");
    }

    let plain = NewTensor { transport: Transport::Legacy, ..NewTensor::new("legacy", "u8", &[64 * MIB]) };
    drop(store.create(&plain).expect("made").commit().expect("finished"));
    let legacy = timed(20, || drop(store.get("legacy").expect("it is there")));
    say("get and release of 64 MiB by legacy handle", format!("{legacy:.0} us"), "");
    store.delete("legacy").expect("deleted");

    let layer = 8 * MIB + 4096;
    let created: Vec<_> = (0..1000)
        .map(|n| store.create(&NewTensor::new(&format!("model/{n:04}"), "u8", &[layer])).expect("made"))
        .collect();
    store.release(store.commit_all(created).expect("finished"));
    let many = |_| {
        let fresh = wanted.store();
        let start = Instant::now();
        let tensors = fresh.get_many("model/").expect("they are there");
        let time = start.elapsed();
        assert_eq!(tensors.len(), 1000);
        fresh.release(tensors);
        time
    };
    let cold = median((0..9).map(many).collect()) / 1000.0;
    say("get_many of a model of 1,000 tensors, 8 GiB, cold", format!("{cold:.1} ms"), "at most 50 ms");

    let created: Vec<_> =
        (0..10_000).map(|n| store.create(&NewTensor::new(&format!("n/{n}"), "f32", &[64])).expect("made")).collect();
    store.release(store.commit_all(created).expect("finished"));
    let all = timed(5, || store.release(store.get_many("n/").expect("they are there"))) / 1000.0;
    say("get_many and release of 10,000 names", format!("{all:.1} ms"), "");

    let mut clients: Vec<Child> = (0..8).map(|_| wanted.start("client")).collect();
    clients.iter_mut().for_each(|client| assert_eq!(line(client), "ready"));
    clients.iter_mut().for_each(|client| writeln!(client.stdin.as_mut().expect("a pipe")).expect("it listens"));
    let rates: f64 = clients.iter_mut().map(|client| line(client).parse::<f64>().expect("a number")).sum();
    clients.iter_mut().for_each(|client| drop(client.wait()));
    say("8 clients: get and release, pairs a second", format!("{rates:.0}"), "");

    if let Some(url) = &wanted.redis {
        commands(url);
    }
    drop(owner.stdin.take());
    owner.wait().expect("it ends");
}

/// Commands through Redis: 20,000 gets and deletes of one name, pushed in pipelines, until the last reply is there.
fn commands(url: &str) {
    let mut reader = RedisReader::open(url, Duration::from_secs(30)).expect("Redis answers");
    reader
        .request(json!({"op": "create", "name": "r", "dtype": "f32", "shape": [4], "transport": "posix"}))
        .expect("made");
    let client = redis::Client::open(url).expect("an address");
    let mut connection = client.get_connection().expect("Redis answers");
    let start = Instant::now();
    let count = 20_000;
    for part in 0..count / 1000 {
        let mut pipeline = redis::pipe();
        for n in 0..1000 {
            let op = if n % 2 == 0 { "get" } else { "delete" };
            let request = json!({"op": op, "name": "r", "id": format!("b{part}-{n}")}).to_string();
            pipeline.cmd("RPUSH").arg("tensor:cmd").arg(request).ignore();
        }
        let _: () = pipeline.query(&mut connection).expect("pushed");
    }
    let last = format!("tensor:reply:b{}-999", count / 1000 - 1);
    let reply: Option<(String, String)> =
        redis::cmd("BLPOP").arg(last).arg(60).query(&mut connection).expect("an answer");
    assert!(reply.is_some(), "no reply");
    let rate = f64::from(count) / start.elapsed().as_secs_f64();
    say("commands a second through Redis, with entry and reply each", format!("{rate:.0}"), "at least 5,000");
}
