//! What is done to a process's instruments.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use poolscope_e2e::{Program, Scratch, poolscope};

use crate::random::Random;

/// The folder of segments, on a file system of its own.
pub struct Folder {
    path: PathBuf,
    scratch: Scratch,
}

/// The file that fills the file system.
pub const FILL: &str = "fill";

impl Folder {
    /// The folder at a path.
    pub fn new(path: &Path) -> Folder {
        Folder { path: path.to_owned(), scratch: Scratch::new() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The command, looking into this folder.
    pub fn poolscope(&self) -> Program {
        Program::new(poolscope()).env("POOLSCOPE_DIR", &self.path).dir(self.scratch.path()).limit(60)
    }

    /// The segment of a process; `None` if a disturbance before took it away.
    fn segment(&self, pid: u32) -> Option<PathBuf> {
        let entries = std::fs::read_dir(&self.path).expect("the folder is readable").flatten();
        let is_its = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name.starts_with(&format!("{pid}.")) && !name.ends_with(".trace")
        };
        entries.map(|entry| entry.path()).find(is_its)
    }

    /// Removes what fills the file system.
    pub fn make_room(&self) {
        let _ = std::fs::remove_file(self.path.join(FILL));
    }
}

/// One thing to do to a process.
pub struct Disturbance {
    /// What it is.
    pub name: &'static str,
    /// Does it to the process with this id.
    pub run: fn(&Folder, u32, &mut Random),
}

/// All that is done.
pub const DISTURBANCES: &[Disturbance] = &[
    Disturbance { name: "record", run: record },
    Disturbance { name: "record and wait", run: record_without_loss },
    Disturbance { name: "kill a recorder", run: kill_recorder },
    Disturbance { name: "pause a recorder", run: pause_recorder },
    Disturbance { name: "read", run: read },
    Disturbance { name: "serve", run: serve },
    Disturbance { name: "dashboard", run: dashboard },
    Disturbance { name: "fill", run: fill },
    Disturbance { name: "make room", run: |folder, _, _| folder.make_room() },
    Disturbance { name: "truncate a trace", run: truncate_trace },
    Disturbance { name: "truncate", run: truncate },
    Disturbance { name: "delete", run: delete },
    Disturbance { name: "close to its owner", run: close },
];

fn a_moment(random: &mut Random) {
    std::thread::sleep(Duration::from_millis(20 + random.below(300) as u64));
}

/// The command may refuse: its segment may be gone or damaged, the file system full. It ends by itself and says why.
#[track_caller]
fn ends_with_a_word(program: Program) {
    let output = program.run();
    if output.code() != 0 {
        assert!(!output.stderr.trim().is_empty(), "it failed without a word: {}", output.report());
        assert!(!output.stderr.contains("panicked"), "{}", output.report());
    }
}

fn recorder(folder: &Folder, pid: u32, options: &[&str]) -> Program {
    folder.poolscope().args(["record", &pid.to_string(), "-o", &format!("{pid}.rec")]).args(options)
}

fn record(folder: &Folder, pid: u32, _: &mut Random) {
    ends_with_a_word(recorder(folder, pid, &["--duration", "0.3"]));
}

fn record_without_loss(folder: &Folder, pid: u32, _: &mut Random) {
    ends_with_a_word(recorder(folder, pid, &["--duration", "0.3", "--lossless"]));
}

fn kill_recorder(folder: &Folder, pid: u32, random: &mut Random) {
    let recorder = recorder(folder, pid, &["--duration", "20", "--lossless"]).start();
    a_moment(random);
    // It ends by SIGKILL when this goes.
    drop(recorder);
}

fn pause_recorder(folder: &Folder, pid: u32, random: &mut Random) {
    let recorder = recorder(folder, pid, &["--duration", "0.5"]).start();
    let group = -(recorder.pid() as i32);
    a_moment(random);
    // SAFETY: no memory is involved; the recorder leads its group and was not waited for.
    unsafe { libc::kill(group, libc::SIGSTOP) };
    a_moment(random);
    // SAFETY: as above.
    unsafe { libc::kill(group, libc::SIGCONT) };
    let output = recorder.finish();
    assert!(output.status.success() || !output.stderr.is_empty(), "{}", output.report());
}

fn read(folder: &Folder, pid: u32, _: &mut Random) {
    let pid = pid.to_string();
    let profile = format!("{pid}.pb.gz");
    for command in [&["top", &pid, "--once"][..], &["stats", &pid], &["dump", &pid, "-o", &profile], &["list"]] {
        ends_with_a_word(folder.poolscope().args(command));
    }
}

fn serve(folder: &Folder, pid: u32, _: &mut Random) {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = socket.local_addr().expect("it has an address").to_string();
    drop(socket);
    let mut server = folder.poolscope().args(["serve", &pid.to_string(), "--listen", &address]).start();
    // The segment may be gone: then there is no server.
    let started = server.started_within(Duration::from_secs(10), |_| std::net::TcpStream::connect(&address).is_ok());
    if !started {
        return;
    }
    for path in ["/metrics", "/debug/pprof/heap", "/flamegraph"] {
        // What it answers of a segment that is cut off meanwhile is an error, and it answers.
        let url = format!("http://{address}{path}");
        let asked = Program::new("curl").args(["-s", "-m", "60", "-o", "/dev/null", &url]).run();
        assert_eq!(asked.code(), 0, "{path} was not answered: {}", asked.report());
    }
}

fn dashboard(folder: &Folder, pid: u32, random: &mut Random) {
    let socket = folder.scratch.join(format!("{pid}.tmux"));
    let tmux = |args: &[&str]| Program::new("tmux").arg("-S").arg(&socket).args(args).run();
    let command = format!("POOLSCOPE_DIR='{}' exec '{}' top {pid}", folder.path.display(), poolscope().display());
    tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "-s", "it", &command]);
    for key in ["1", "3", "4", "2", "p", "p"] {
        tmux(&["send-keys", "-t", "it", key]);
        a_moment(random);
    }
    // At times it goes without a goodbye.
    if random.below(2) == 0 {
        tmux(&["send-keys", "-t", "it", "q"]);
    }
    tmux(&["kill-server"]);
}

fn fill(folder: &Folder, _: u32, _: &mut Random) {
    let file = folder.path.join(FILL);
    // It ends with "no space left".
    let _ =
        Program::new("dd").args(["if=/dev/zero", "bs=4k", "status=none"]).arg(format!("of={}", file.display())).run();
}

fn cut(path: &Path, random: &mut Random) {
    let Ok(file) = std::fs::OpenOptions::new().write(true).open(path) else { return };
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let kept = if random.below(3) == 0 { 0 } else { random.next() % length.max(1) };
    file.set_len(kept).expect("the file can be cut");
}

fn truncate(folder: &Folder, pid: u32, random: &mut Random) {
    if let Some(segment) = folder.segment(pid) {
        cut(&segment, random);
    }
}

/// Cuts the file of events while a recorder reads it and the program writes it.
fn truncate_trace(folder: &Folder, pid: u32, random: &mut Random) {
    let recorder = recorder(folder, pid, &["--duration", "0.6"]).start();
    a_moment(random);
    for entry in std::fs::read_dir(&folder.path).expect("the folder is readable").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&format!("{pid}.")) && name.ends_with(".trace") {
            cut(&entry.path(), random);
        }
    }
    let output = recorder.finish();
    assert!(output.status.success() || !output.stderr.is_empty(), "{}", output.report());
}

fn delete(folder: &Folder, pid: u32, _: &mut Random) {
    if let Some(segment) = folder.segment(pid) {
        let _ = std::fs::remove_file(segment);
    }
}

fn close(folder: &Folder, pid: u32, _: &mut Random) {
    let Some(segment) = folder.segment(pid) else { return };
    let mode = |mode| std::fs::set_permissions(&segment, std::fs::Permissions::from_mode(mode));
    let _ = mode(0);
    ends_with_a_word(folder.poolscope().args(["top", &pid.to_string(), "--once"]));
    let _ = mode(0o600);
}
