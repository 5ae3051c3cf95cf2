//! `poolscope serve`, asked by what asks it in practice: `go tool pprof`, promtool, a Prometheus server, curl.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use poolscope_e2e::pprof_rules::{self, Expected};
use poolscope_e2e::{Output, Pool, Program, Running, pprof, sample};

struct Server {
    running: Running,
    /// `127.0.0.1:PORT`.
    address: String,
}

/// A response, taken apart.
struct Response {
    status: u16,
    /// In lower case.
    head: String,
    body: Vec<u8>,
}

impl Response {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Server {
    fn start(pool: &Pool, args: &[&str]) -> Server {
        let mut running = pool.poolscope().arg("serve").args(args).args(["--listen", "127.0.0.1:0"]).start();
        let line = running.wait_for_line("serving on http://");
        let address = line.trim_start_matches("serving on http://").trim_end_matches('/').to_owned();
        Server { running, address }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn get(&self, path: &str) -> Response {
        self.get_with(path, "")
    }

    fn get_with(&self, path: &str, headers: &str) -> Response {
        self.get_from(&self.address, path, headers)
    }

    /// Asks for a page of the host of that name.
    fn get_from(&self, host: &str, path: &str, headers: &str) -> Response {
        let mut stream = TcpStream::connect(&self.address).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("is set");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n").expect("is sent");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("answers");
        let split = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("has a head");
        let head = String::from_utf8_lossy(&bytes[..split]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("has a status");
        assert!(!head.contains("transfer-encoding: chunked"), "{head}");
        Response { status, head, body: bytes[split + 4..].to_vec() }
    }

    fn stop(self, signal: i32) -> Output {
        self.running.signal(signal);
        self.running.finish()
    }
}

/// The sample server, leaking.
fn kv_server(pool: &Pool) -> Running {
    let args = ["--clients", "4", "--rate", "0", "--seconds", "100"];
    let mut server = pool.program(sample("kv-server")).args(args).env("POOLSCOPE_PERIOD", "64K").start();
    server.wait_for_line("kv-server: pid");
    server.wait_until("it leaked some", |running| (pool.segment(running.pid())?.samples() > 2000).then_some(()));
    server
}

const HEAP: Expected<'_> = Expected { main: "kv-server", shown: "inuse_space", delta: false };

#[test]
fn go_tool_pprof_reads_the_heap_and_what_changed_in_a_second() {
    let pool = Pool::new();
    let program = kv_server(&pool);
    let server = Server::start(&pool, &[&program.pid().to_string()]);
    let pprof = |args: &[&str], path: &str| {
        let output = Program::new("go")
            .args(["tool", "pprof"])
            .args(args)
            .arg(server.url(path))
            .env("PPROF_TMPDIR", pool.files().path())
            .env("HOME", pool.files().path())
            .run()
            .success();
        // Beside what it says of each download, it has nothing to say.
        let rest = output.stderr.lines().filter(|line| !line.starts_with("Fetching ") && !line.starts_with("Saved "));
        assert_eq!(rest.collect::<Vec<_>>(), Vec::<&str>::new(), "{}", output.report());
        output.stdout
    };
    let top = pprof(&["-top", "-cum"], "/debug/pprof/heap");
    assert!(top.contains("Type: inuse_space") && top.contains("remember_watch"), "{top}");
    let top = pprof(&["-top", "-cum"], "/debug/pprof/allocs?seconds=1");
    assert!(top.contains("Type: alloc_space") && top.contains("Duration: 1"), "{top}");
    assert!(pprof(&["-svg"], "/debug/pprof/allocs").contains("</svg>"));

    let heap = server.get("/debug/pprof/heap");
    assert_eq!(heap.status, 200);
    for header in [
        "content-type: application/octet-stream",
        "content-disposition: attachment; filename=\"heap\"",
        "x-content-type-options: nosniff",
    ] {
        assert!(heap.head.contains(header), "{header}: {}", heap.head);
    }
    pprof_rules::check_bytes(&heap.body, &HEAP);
    let allocs = server.get("/debug/pprof/allocs");
    pprof_rules::check_bytes(&allocs.body, &Expected { shown: "alloc_space", ..HEAP });
    let delta = server.get("/debug/pprof/heap?seconds=1");
    assert!(delta.head.contains("filename=\"heap-delta\""), "{}", delta.head);
    pprof_rules::check_bytes(&delta.body, &Expected { delta: true, ..HEAP });
}

#[test]
fn pprofs_own_pages_show_the_heap() {
    let pool = Pool::new();
    let program = kv_server(&pool);
    let profile = pool.files().join("heap.pb.gz");
    pool.poolscope().args(["dump", &program.pid().to_string(), "-o"]).arg(&profile).run().success();
    // pprof takes no port 0, so a free one is looked for.
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("binds").local_addr().expect("has one").port();
    let address = format!("127.0.0.1:{port}");
    let running = Program::new("go")
        .args(["tool", "pprof", "-no_browser", "-http", &address])
        .arg(&profile)
        .env("PPROF_TMPDIR", pool.files().path())
        .env("HOME", pool.files().path())
        .start();
    let mut web = Server { running, address: address.clone() };
    web.running.wait_until("it listens", |_| TcpStream::connect(&address).ok());
    for page in ["/ui/", "/ui/top", "/ui/flamegraph", "/ui/peek?f=remember_watch"] {
        let page = Program::new("curl").args(["-sS", "--fail", &web.url(page)]).run().silent_success().stdout;
        assert!(page.contains("remember_watch"), "{page}");
    }
}

#[test]
fn the_other_pages_say_what_they_should() {
    let pool = Pool::new();
    let program = kv_server(&pool);
    let pid = program.pid().to_string();
    let server = Server::start(&pool, &[&pid]);
    for path in ["/", "/debug/pprof/", "/debug/pprof"] {
        let index = server.get(path);
        assert!(index.head.contains("content-type: text/html"), "{}", index.head);
        let index = index.text();
        assert!(
            index.contains(&format!("href=\"/debug/pprof/heap?pid={pid}\"")) && index.contains("kv-server"),
            "{index}"
        );
    }
    let picture = server.get("/flamegraph");
    assert!(picture.head.contains("content-type: image/svg+xml") && picture.text().contains("remember_watch"));
    assert!(server.get("/flamegraph?metric=alloc_objects").text().contains("objects allocated"));
    assert!(server.get("/flamegraph?at=peak").text().contains("at its peak, "));
    pprof_rules::check_bytes(&server.get("/debug/pprof/heap?at=peak").body, &HEAP);
    assert_eq!(server.get("/healthz").text(), "ok\n");
    let cmdline = server.get("/debug/pprof/cmdline").text();
    assert!(cmdline.contains("kv-server\0--clients\x004"), "{cmdline:?}");

    let raw = pool.files().join("heap.pb.gz");
    std::fs::write(&raw, server.get("/debug/pprof/heap").body).expect("is written");
    let raw = pprof::Raw::read(pool.files(), &raw);
    let known = raw.locations.values().find(|text| text.contains("remember_watch")).expect("has the leak");
    let address = known.split_whitespace().next().expect("begins with the address");
    let symbol = server.get(&format!("/debug/pprof/symbol?{address}+0x1")).text();
    assert!(symbol.starts_with("num_symbols: 1\n") && symbol.contains(&format!("{address} ")), "{symbol}");
    assert_eq!(symbol.lines().count(), 2, "nothing is at 1: {symbol}");

    for (path, status, says) in [
        ("/nothing", 404, "/ lists what there is"),
        ("/debug/pprof/heap?pid=1", 404, "process 1 is not served here"),
        ("/debug/pprof/heap?seconds=0", 400, "between 1 and 3600"),
        ("/debug/pprof/heap?seconds=x", 400, "seconds"),
        ("/flamegraph?metric=cpu", 400, "inuse_space, inuse_objects"),
        ("/flamegraph?at=dawn", 400, "at=now or at=peak"),
        ("/flamegraph?at=peak&metric=alloc_space", 400, "about memory in use"),
        ("/debug/pprof/heap?at=peak&seconds=1", 400, "a difference has no peak"),
        ("/debug/pprof/profile", 501, "perf record -F 99 -g -p"),
        ("/debug/pprof/profile?seconds=0", 400, "between 1 and 3600"),
    ] {
        let refused = server.get(path);
        assert_eq!((refused.status, refused.text().contains(says)), (status, true), "{path}: {}", refused.text());
    }

    // The last state of a program that died is served until somebody removes it.
    program.signal(libc::SIGKILL);
    program.finish();
    pprof_rules::check_bytes(&server.get("/debug/pprof/heap").body, &HEAP);
    assert!(server.get("/metrics").text().contains(&format!("poolscope_process_running{{pid=\"{pid}\"}} 0")));
}

#[test]
fn all_processes_are_told_apart_by_their_ids() {
    let pool = Pool::new();
    let (one, other) = (kv_server(&pool), kv_server(&pool));
    let server = Server::start(&pool, &["--all"]);
    let ambiguous = server.get("/debug/pprof/heap");
    assert_eq!(ambiguous.status, 400);
    assert!(ambiguous.text().contains(&one.pid().to_string()) && ambiguous.text().contains("?pid="));
    pprof_rules::check_bytes(&server.get(&format!("/debug/pprof/heap?pid={}", other.pid())).body, &HEAP);
    let metrics = server.get("/metrics").text();
    for pid in [one.pid(), other.pid()] {
        assert!(metrics.contains(&format!("poolscope_process_running{{pid=\"{pid}\"}} 1")), "{metrics}");
    }
    let of_one = server.get(&format!("/metrics?pid={}", one.pid())).text();
    assert!(
        of_one.contains(&format!("pid=\"{}\"", one.pid())) && !of_one.contains(&format!("pid=\"{}\"", other.pid()))
    );
    assert_eq!(server.get("/metrics?pid=1").status, 404);
}

#[test]
fn promtool_finds_nothing_to_say_of_the_metrics() {
    let pool = Pool::new();
    let program = kv_server(&pool);
    let pid = program.pid();
    let server = Server::start(&pool, &[&pid.to_string()]);
    let metrics = server.get("/metrics");
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    let text = metrics.text();
    Program::new("promtool").args(["check", "metrics"]).input(text.clone()).run().silent_success();
    for name in [
        "poolscope_memory_bytes{pid=\"PID\",tier=\"in_use\"}",
        "poolscope_memory_bytes{pid=\"PID\",tier=\"untouched\"}",
        "poolscope_samples_total{pid=\"PID\"}",
        "poolscope_class_allocations_total{pid=\"PID\",size=\"64\"}",
        "poolscope_process_resident_memory_bytes{pid=\"PID\"}",
    ] {
        assert!(text.contains(&name.replace("PID", &pid.to_string())), "{name}: {text}");
    }

    let open = server.get_with("/metrics", "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n");
    assert!(open.head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{}", open.head);
    let open = open.text();
    assert!(open.ends_with("# EOF\n") && open.contains("# UNIT poolscope_memory_bytes bytes\n"), "{open}");
    assert!(open.contains("# TYPE poolscope_process info\n") && open.contains("# TYPE poolscope_samples counter\n"));
}

#[test]
fn the_metrics_have_each_devices_counters() {
    let pool = Pool::new();
    let program = Program::new(sample("gpu-training")).env("POOLSCOPE_DIR", pool.segment_dir());
    let mut program = program.args(["--devices", "2", "--step-ms", "5"]).start();
    program.wait_for_line("gpu-training: pid");
    let server = Server::start(&pool, &[&program.pid().to_string()]);
    let labels = format!("{{pid=\"{}\",device=\"1\",memory=\"device\",name=\"simulated\"}}", program.pid());
    let mut text = String::new();
    let weights = program.wait_until("the weights of device 1 are loaded", |_| {
        text = server.get("/metrics").text();
        let line = format!("poolscope_device_current_usage_bytes{labels} ");
        let value: f64 = text.lines().find_map(|text| text.strip_prefix(&line))?.parse().expect("a number");
        (value >= 72.0 * 28.0 * 1_048_576.0).then_some(value)
    });
    assert!(weights < 17_179_869_184.0, "{text}");
    Program::new("promtool").args(["check", "metrics"]).input(text.clone()).run().silent_success();
    assert!(text.contains(&format!("poolscope_device_memory_bytes{labels} 17179869184")), "{text}");
    assert!(text.contains("# TYPE poolscope_device_driver_calls_total counter"), "{text}");
    assert!(text.contains("# TYPE poolscope_device_waited_for_driver_seconds_total counter"), "{text}");
    let svg = server.get("/flamegraph?device=1").text();
    assert!(svg.contains("of device 1") && svg.contains("load_weights"), "{svg}");
    // What the process has none of is no empty picture.
    for (query, none) in [("kind=pinned", "pinned memory"), ("device=7", "memory of device 7")] {
        let missing = server.get(&format!("/flamegraph?{query}"));
        let says = format!(
            "there is no block of {none}: what is known is host memory, memory of device 0, memory of device 1"
        );
        assert_eq!((missing.status, missing.text().trim_end()), (404, says.as_str()), "{query}");
        let memory = query.split_once('=').map(|(option, value)| [format!("--{option}"), value.to_owned()]);
        let pid = program.pid().to_string();
        let command = pool.poolscope().args(["flamegraph", &pid, "-o", "-"]).args(memory.expect("has one")).run();
        assert!(command.code() == 2 && command.stderr.contains(&says), "{}", command.report());
    }
    program.end_input();
    program.finish().success();
}

#[test]
fn a_prometheus_server_scrapes_it() {
    let pool = Pool::new();
    let program = kv_server(&pool);
    let server = Server::start(&pool, &[&program.pid().to_string()]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("binds").local_addr().expect("has one").port();
    let config = pool.files().write(
        "prometheus.yml",
        &format!(
            "scrape_configs:\n- job_name: poolscope\n  scrape_interval: 1s\n  static_configs:\n  - targets: ['{}']\n",
            server.address
        ),
    );
    let mut prometheus = Program::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", pool.files().join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .start();
    let query = |query: &str| {
        let url = format!("http://127.0.0.1:{port}/api/v1/query");
        let asked = format!("query={query}");
        Program::new("curl").args(["-sS", "-G", "--data-urlencode", &asked, &url]).run().stdout
    };
    let wanted = format!("\"pid\":\"{}\"", program.pid());
    prometheus.wait_until("it scraped", |_| query("poolscope_samples_total > 0").contains(&wanted).then_some(()));
    assert!(query("up{job='poolscope'}").contains("\"1\"]"), "the scrape went well");
    let sum = query("sum(poolscope_memory_bytes)");
    assert!(sum.contains("\"success\"") && sum.contains("\"value\""), "{sum}");
}

#[test]
fn other_machines_need_a_token() {
    let pool = Pool::new();
    let program = kv_server(&pool);
    let pid = program.pid().to_string();
    let open = pool.poolscope().args(["serve", &pid, "--listen", "0.0.0.0:0"]).run();
    assert_eq!(open.code(), 2);
    assert!(open.stderr.contains("can be reached from other machines"), "{}", open.report());
    let empty = pool.files().write("empty", "\n");
    let args = ["serve", &pid, "--token-file", empty.to_str().expect("is text")];
    assert!(pool.poolscope().args(args).run().stderr.contains("the token is empty"));

    let token = pool.files().write("token", "s3cret\n");
    let server = Server::start(&pool, &[&pid, "--token-file", token.to_str().expect("is text")]);
    for (path, headers, status) in [
        ("/debug/pprof/heap", "", 401),
        ("/metrics", "Authorization: Bearer wrong\r\n", 401),
        ("/metrics", "Authorization: Bearer s3cret\r\n", 200),
        ("/metrics", "Authorization: bearer s3cret\r\n", 200),
        ("/debug/pprof/heap?token=s3cret", "", 200),
        ("/debug/pprof/heap?token=s3cre", "", 401),
        ("/healthz", "", 200),
    ] {
        assert_eq!(server.get_with(path, headers).status, status, "{path} {headers}");
    }
    assert!(server.get("/?token=s3cret").text().contains("&amp;token=s3cret"), "links keep the token");
}

/// What a reader does to the program is decided by how it has the segment open: by `pread` from a file that it may not
/// write, it takes part in nothing that the program executes.
#[test]
fn readers_neither_map_the_segment_nor_may_write_to_it() {
    let pool = Pool::new();
    let program = kv_server(&pool);
    let pid = program.pid();
    let server = Server::start(&pool, &[&pid.to_string()]);
    assert_eq!(server.get("/debug/pprof/heap").status, 200);
    assert_eq!(server.get("/metrics").status, 200);
    let reader = server.running.pid();
    let segment = pool.segment(pid).expect("it runs").path;
    let maps = std::fs::read_to_string(format!("/proc/{reader}/maps")).expect("is readable");
    assert!(!maps.contains(segment.to_str().expect("is text")), "{maps}");
    let descriptors = std::fs::read_dir(format!("/proc/{reader}/fd")).expect("is readable").flatten();
    let open = descriptors.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|path| path == segment));
    let open: Vec<String> = open.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(open.len(), 1, "it stays open between requests");
    let info = std::fs::read_to_string(format!("/proc/{reader}/fdinfo/{}", open[0])).expect("is readable");
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("has flags").trim();
    let flags = i32::from_str_radix(flags, 8).expect("is octal");
    assert_eq!(flags & libc::O_ACCMODE, libc::O_RDONLY, "{info}");
    let tracer = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("is readable");
    assert!(tracer.contains("TracerPid:\t0\n"), "{tracer}");
}

#[test]
fn a_page_on_the_web_that_leads_a_browser_here_gets_nothing() {
    let pool = Pool::new();
    let program = kv_server(&pool);
    let pid = program.pid().to_string();
    let server = Server::start(&pool, &[&pid, "--allow-host", "build.example"]);
    for (host, status) in [
        ("rebound.example", 403),
        ("localhost.rebound.example:6060", 403),
        ("localhost:6060", 200),
        ("[::1]:6060", 200),
        ("build.example:6060", 200),
    ] {
        assert_eq!(server.get_from(host, "/debug/pprof/cmdline", "").status, status, "{host}");
    }
    let refused = server.get_from("rebound.example", "/metrics", "").text();
    assert!(refused.contains("not to \"rebound.example\""), "{refused}");
}

#[test]
fn a_signal_ends_it_when_the_requests_are_answered() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let pool = Pool::new();
        let program = kv_server(&pool);
        let server = Server::start(&pool, &[&program.pid().to_string()]);
        let mut stream = TcpStream::connect(&server.address).expect("connects");
        let request = "GET /debug/pprof/heap?seconds=2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).expect("is sent");
        // A second answer shows that the first request was taken up.
        assert_eq!(server.get("/healthz").status, 200);
        let begun = Instant::now();
        let ended = std::thread::spawn(move || server.stop(signal));
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("is answered");
        assert!(bytes.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&bytes[..bytes.len().min(300)]));
        assert_eq!(ended.join().expect("ends").code(), 0);
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}

#[test]
fn an_address_that_is_taken_and_a_process_that_is_none_are_named() {
    let pool = Pool::new();
    let program = kv_server(&pool);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let address = taken.local_addr().expect("has one").to_string();
    let output = pool.poolscope().args(["serve", &program.pid().to_string(), "--listen", &address]).run();
    assert!(
        output.code() == 2 && output.stderr.contains(&format!("cannot listen on {address}")),
        "{}",
        output.report()
    );
    let output = pool.poolscope().args(["serve", "4194305"]).run();
    assert!(output.stderr.contains("there is no process 4194305"), "{}", output.report());
    let output = pool.poolscope().arg("serve").run();
    assert!(output.code() == 2 && output.stderr.contains("--all"), "{}", output.report());
}

#[test]
fn a_server_without_a_token_says_who_can_read_it_and_waits_for_no_half_request() {
    let pool = Pool::new();
    let mut running = pool.program(sample("kv-server")).args(["--seconds", "100"]).start();
    running.wait_for_line("kv-server: pid");
    let server = Server::start(&pool, &[&running.pid().to_string()]);
    assert!(server.running.stderr().contains("every user of this machine can read"), "{}", server.running.stderr());
    let mut stream = TcpStream::connect(&server.address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("is set");
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Half").expect("is sent");
    let begun = Instant::now();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("is closed by the server");
    let waited = begun.elapsed();
    assert!((8..40).contains(&waited.as_secs()), "{waited:?}: {}", String::from_utf8_lossy(&answer));
    assert_eq!(server.get("/healthz").status, 200);
}

/// What a page shows under a name.
fn tile(page: &str, name: &str) -> String {
    let rest = page.split_once(&format!("<span>{name}</span><b>")).unwrap_or_else(|| panic!("no {name}: {page}")).1;
    rest.split('<').next().expect("ends").to_owned()
}

#[test]
fn the_first_page_shows_the_process_as_it_is_now() {
    let pool = Pool::new();
    let program = kv_server(&pool);
    let server = Server::start(&pool, &[&program.pid().to_string()]);
    let first = server.get("/").text();
    assert!(first.contains("remember_watch") && first.contains("class=\"used\""), "{first}");
    // The figure lies between what the kernel has before and after.
    let in_use = tile(&first, "in use");
    assert!(in_use.ends_with("MiB"), "{in_use}");
    std::thread::sleep(Duration::from_millis(1200));
    let now = server.get(&format!("/live?pid={}", program.pid())).text();
    assert!(!now.contains("<html") && now.contains("<polyline class=\"rss\" points=\"") && now != first, "{now}");
    assert_ne!(tile(&now, "in use"), in_use, "it leaks all the time");
    // Three seconds of a life are enough to say what grows of what frees nothing.
    std::thread::sleep(Duration::from_millis(2400));
    let later = server.get(&format!("/live?pid={}", program.pid())).text();
    assert!(later.contains("class=\"grows\""), "{later}");
}

/// A browser runs the page's script, which puts newer figures in the place of the first ones.
#[test]
fn a_browser_shows_the_first_page_and_keeps_it_up_to_date() {
    if Program::new("sh").args(["-c", "command -v chromium"]).run().code() != 0 {
        poolscope_e2e::skip("the first page of serve in a browser: chromium is not installed");
        return;
    }
    let pool = Pool::new();
    let program = kv_server(&pool);
    let server = Server::start(&pool, &[&program.pid().to_string()]);
    let first = tile(&server.get("/").text(), "in use");
    let profile = format!("--user-data-dir={}", pool.files().join("browser").display());
    let shown = Program::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom", &profile])
        .arg(server.url("/"))
        .run()
        .stdout;
    assert!(shown.contains("class=\"tiles\"") && !shown.contains("class=\"stale\""), "{shown}");
    assert_ne!(tile(&shown, "in use"), first);
}

/// In a pipeline of a shell, and in a step of continuous integration, somebody reads the output to its end.
#[test]
fn who_reads_what_a_server_in_the_background_says_does_not_wait_for_its_end() {
    let pool = Pool::new();
    let program = kv_server(&pool);
    let pid = program.pid().to_string();
    let script = "set -o pipefail; \"$0\" serve \"$1\" --listen \"$2\" --background --until-exit 2>&1 9>&1 | cat";
    let start = |place: &str| {
        let shell = Program::new("bash").args(["-c", script]).arg(poolscope_e2e::poolscope()).args([&pid, place]);
        shell.env("POOLSCOPE_DIR", pool.segment_dir()).limit(20).run()
    };
    let output = start("127.0.0.1:0");
    assert!(output.code() == 0 && output.stdout.contains("every user of this machine"), "{}", output.report());
    let url = output.stdout.lines().find_map(|line| line.strip_prefix("serving on ")).expect("says where");
    Program::new("curl").args(["-sS", "--fail", &format!("{url}healthz")]).run().success();
    // Why it could not start reaches the caller, with the code.
    let taken = start(url.trim_start_matches("http://").trim_end_matches('/'));
    assert!(taken.code() == 2 && taken.stdout.contains("cannot listen on"), "{}", taken.report());
}

#[test]
fn a_socket_is_open_to_its_owner_alone_and_goes_with_the_server() {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let pool = Pool::new();
    let program = kv_server(&pool);
    let path = pool.files().join("heap.sock");
    // The socket of a server that was killed makes room; a file that is none stays.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("binds"));
    let place = format!("unix:{}", path.display());
    let mut server = pool.poolscope().args(["serve", &program.pid().to_string(), "--listen", &place]).start();
    server.wait_for_line(&format!("serving on {place}"));
    assert_eq!(server.stderr(), "");
    let metadata = std::fs::symlink_metadata(&path).expect("it is there");
    assert!(metadata.file_type().is_socket() && metadata.mode() & 0o777 == 0o600, "{:o}", metadata.mode());
    let socket = path.to_str().expect("is text");
    let asked = Program::new("curl").args(["-sS", "--fail", "--unix-socket", socket, "http://localhost/metrics"]).run();
    assert!(asked.success().stdout.contains("poolscope_samples_total"));
    let taken = pool.poolscope().args(["serve", &program.pid().to_string(), "--listen", &place]).run();
    assert!(taken.code() == 2 && taken.stderr.contains("cannot listen on"), "{}", taken.report());
    server.signal(libc::SIGTERM);
    assert_eq!(server.finish().code(), 0);
    assert!(!path.exists());
    let file = pool.files().write("file", "kept");
    let place = format!("unix:{}", file.display());
    let refused = pool.poolscope().args(["serve", &program.pid().to_string(), "--listen", &place]).run();
    assert_eq!((refused.code(), std::fs::read_to_string(&file).expect("is read").as_str()), (2, "kept"));
}

/// A program in C that has itself served at its first argument, until its input ends.
const SERVED: &str = "#include <poolscope.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
    static void *volatile kept[100];\n\
    __attribute__((noinline)) void hold(void) { for (int i = 0; i < 100; i++) kept[i] = malloc(4000); }\n\
    int main(int argc, char **argv) {\n\
        hold();\n\
        printf(\"%d\\n\", poolscope_serve(argv[argc - 1])); fflush(stdout);\n\
        char c;\n\
        while (read(0, &c, 1) > 0) {}\n\
        return 0;\n\
    }\n";

#[test]
fn a_program_in_c_serves_its_profiles_by_one_call_and_as_long_as_it_lives() {
    let pool = Pool::new();
    let (source, program) = (pool.files().write("served.c", SERVED), pool.files().join("served"));
    let headers = poolscope_e2e::compiler::headers();
    let gcc = Program::new("gcc").args(["-g", "-O1", "-DPOOLSCOPE_WEAK", "-I"]).arg(headers).arg("-o").arg(&program);
    gcc.arg(source).run().silent_success();
    let start = |place: &str| {
        let mut running = pool.program(&program).arg(place).env("POOLSCOPE_PERIOD", "1").start();
        let said = running.wait_until("it says what came of it", |running| {
            running.stderr().lines().chain(running.stdout().lines()).last().filter(|line| line.len() < 4)?.parse().ok()
        });
        (running, said)
    };
    let socket = pool.files().join("own.sock");
    let (mut running, said): (_, i32) = start(&format!("unix:{}", socket.display()));
    assert_eq!(said, 0, "{}", running.stderr());
    let curl = |path: &str| {
        let socket = socket.to_str().expect("is text");
        Program::new("curl").args(["-sS", "--fail", "--unix-socket", socket, &format!("http://localhost{path}")]).run()
    };
    assert!(curl("/flamegraph").success().stdout.contains("hold"));
    running.end_input();
    assert_eq!(running.finish().code(), 0);
    let gone = Instant::now() + Duration::from_secs(20);
    while socket.exists() {
        assert!(Instant::now() < gone, "the server ends with the program");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (refused, said) = start("0.0.0.0:0");
    assert!(said == libc::EINVAL && refused.stderr().contains("other machines"), "{said}: {}", refused.stderr());
}
