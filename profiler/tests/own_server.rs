//! The example of a server that serves its own profiles, asked by `go tool pprof`.

#[allow(dead_code, reason = "its main is the example's")]
#[path = "../examples/own_server.rs"]
mod own_server;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

struct Server(Child, String);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// This program once more, as the server.
    fn start(folder: &std::path::Path) -> Server {
        let mut child = Command::new(std::env::current_exe().expect("has a path"))
            .args(["--ignored", "--exact", "the_server_itself", "--nocapture"])
            .env("POOLSCOPE_DIR", folder)
            .env("POOLSCOPE_PERIOD", "1")
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("is a pipe")).lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.split_once("http://")?.1.trim_end_matches('/').to_owned()));
        // What it still says must not end it.
        std::thread::spawn(move || lines.for_each(drop));
        Server(child, address.expect("it listens"))
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.1).expect("connects");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("is answered");
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        answer
    }
}

/// A folder for segments, which nobody else may look into.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("there is room");
    let mut permissions = std::fs::metadata(folder.path()).expect("is there").permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o700);
    std::fs::set_permissions(folder.path(), permissions).expect("is set");
    folder
}

/// What `go tool pprof` says of one of its profiles.
fn top(server: &Server, folder: &std::path::Path, path: &str) -> String {
    let mut go = Command::new("go");
    go.args(["tool", "pprof", "-top", "-cum", "-unit=B", "-nodecount=2000"]).arg(format!("http://{}{path}", server.1));
    let output = go.env("HOME", folder).env("PPROF_TMPDIR", folder).output().expect("go runs");
    assert!(output.status.success(), "{path}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The bytes of a function of the server's, with what it called; the fourth column is cumulative.
fn bytes_of(top: &str, function: &str) -> u64 {
    let line = top.lines().find(|line| line.contains(&format!("own_server::{function}")));
    let bytes = line.and_then(|line| line.split_whitespace().nth(3)?.trim_end_matches('B').parse().ok());
    bytes.unwrap_or(0)
}

#[test]
fn a_server_of_its_own_serves_what_it_has_lost_and_not_what_it_has() {
    let folder = folder();
    let server = Server::start(folder.path());
    server.get("/store/one/300000");
    server.get("/lose/70");
    let leak = top(&server, folder.path(), "/debug/pprof/leak");
    assert_eq!((bytes_of(&leak, "lose"), bytes_of(&leak, "store")), (70_000, 0), "{leak}");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "all names take an unoptimised server 20 s: run it with --release")]
fn a_server_of_its_own_serves_heap_allocs_and_processor_time() {
    let folder = folder();
    let server = Server::start(folder.path());
    server.get("/store/one/300000");
    server.get("/lose/70");
    let heap = top(&server, folder.path(), "/debug/pprof/heap");
    // The table that has the value in it comes on top.
    assert!((300_000..302_000).contains(&bytes_of(&heap, "store")), "{}", bytes_of(&heap, "store"));
    assert_eq!(bytes_of(&heap, "lose"), 70_000);
    assert!(top(&server, folder.path(), "/debug/pprof/allocs").contains("Type: alloc_space"));
    // It works until the profile is there, whenever that begins: the server ends before.
    let mut busy = TcpStream::connect(&server.1).expect("connects");
    write!(busy, "GET /compute/60000 HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("is sent");
    let work = top(&server, folder.path(), "/debug/pprof/profile?seconds=1");
    assert!(
        work.contains("Type: cpu") && work.contains("keep_the_processor_busy"),
        "{}",
        &work[..work.len().min(4000)]
    );
}

#[test]
#[ignore = "serves until it is killed: the other test starts it"]
fn the_server_itself() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("is made");
    runtime.block_on(own_server::serve("127.0.0.1:0")).expect("serves");
}
