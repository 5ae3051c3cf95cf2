//! Programs that nobody here wrote, on the pool. Each does enough work to notice memory that was handed out twice, and
//! has its answer checked; each leaves its segment, which proves that it ran on the pool.

use std::path::{Path, PathBuf};

use poolscope_e2e::compiler::compile_into;
use poolscope_e2e::{Output, Pool, Program};

#[test]
fn bash_forks_200_times() {
    let pool = Pool::new();
    let script = r#"
        total=0
        for i in $(seq 1 100); do
            value=$(printf '%s' "$i" | tr 0-9 1-90)     # a fork for each side of the pipe
            total=$((total + ${#value} + i))
        done
        for i in $(seq 1 100); do ( list=(); for j in {1..50}; do list+=("item $i $j"); done; [ ${#list[@]} = 50 ] ) & done
        failed=0
        for job in $(jobs -p); do wait "$job" || failed=$((failed + 1)); done
        echo "total $total failed $failed"
    "#;
    let output = pool.program("bash").args(["-c", script]).run().silent_success();
    // 9 numbers of one digit, 90 of two, one of three; and the sum of 1 to 100.
    assert_eq!(output.stdout, format!("total {} failed 0\n", 9 + 180 + 3 + 5050));
    pool.assert_ran("bash");
    pool.assert_ran("tr");
}

/// Threads, JSON, TLS and processes. The handshake is a real one, between two ends in memory, without certificates.
const PYTHON: &str = r#"
import json, multiprocessing, ssl, sys, threading

def work(n):
    rows = [{"id": i, "name": "row %d" % i, "tags": ["a" * (i % 50), str(i * n)]} for i in range(200)]
    assert json.loads(json.dumps(rows)) == rows
    return sum(len(row["tags"][1]) for row in rows)

def in_threads():
    results = {}
    def run(n):
        results[n] = [work(n) for _ in range(10)]
    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert all(results[n] == [work(n)] * 10 for n in range(8)), "threads"

def in_processes(how):
    with multiprocessing.get_context(how).Pool(4) as pool:
        assert pool.map(work, range(40)) == [work(n) for n in range(40)], how

def handshake():
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    for context in (server, client):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not waiting, "handshake"
    ends[0].write(b"x" * 10000)
    assert ends[1].read(20000) == b"x" * 10000

if __name__ == "__main__":
    in_threads()
    handshake()
    in_processes("fork")
    in_processes("spawn")
    print("ok", multiprocessing.active_children())
"#;

fn python(interpreter: &str) {
    let pool = Pool::new();
    let script = pool.files().write("work.py", PYTHON);
    let output = pool.program(interpreter).arg(script).run().silent_success();
    assert_eq!(output.stdout, "ok []\n");
    pool.assert_ran("python3");
}

#[test]
fn the_distributions_python_has_threads_processes_json_and_ssl() {
    python("/usr/bin/python3");
}

/// On a developer's machine often another build than the distribution's, with another libc interface.
#[test]
fn the_python_that_is_first_in_path_has_them_too() {
    python("python3");
}

fn git(program: &str) {
    let pool = Pool::new();
    pool.files().write(".gitconfig", "[user]\n name = Test\n email = test@example.org\n[gc]\n auto = 0\n");
    let repository = pool.files().join("repository");
    std::fs::create_dir(&repository).unwrap();
    let git = |args: &[&str]| -> Output {
        let git = pool.program(program).args(args).dir(&repository).env("HOME", pool.files().path());
        git.env("GIT_CONFIG_NOSYSTEM", "1").run().success()
    };
    git(&["init", "-q", "-b", "main"]);
    for commit in 0..3 {
        for file in 0..150 {
            let text = format!("file {file} of commit {commit}\n").repeat(20 + file);
            std::fs::write(repository.join(format!("file-{file}.txt")), text).unwrap();
        }
        git(&["add", "."]);
        git(&["commit", "-q", "-m", &format!("commit {commit}")]);
    }
    git(&["gc", "-q"]);
    git(&["fsck", "--full", "--strict"]);
    assert_eq!(git(&["rev-list", "--count", "HEAD"]).stdout, "3\n");
    assert_eq!(git(&["diff", "--shortstat", "HEAD~1"]).stdout.split_whitespace().next(), Some("150"));
    pool.assert_ran("git");
}

#[test]
fn git_adds_commits_and_collects() {
    git("git");
}

#[test]
fn the_distributions_git_does_too() {
    git("/usr/bin/git");
}

const CPP: &str = r#"
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <regex>
#include <string>
#include <unordered_map>
#include <vector>
int main() {
    std::map<std::string, std::vector<int>> index;
    for (int i = 0; i < 20000; i++) index["key " + std::to_string(i % 700)].push_back(i);
    std::unordered_map<int, std::unique_ptr<std::string>> texts;
    for (int i = 0; i < 5000; i++) texts[i] = std::make_unique<std::string>(i % 300, 'x');
    long sum = 0;
    for (auto &[key, list] : index) sum += std::accumulate(list.begin(), list.end(), 0L);
    for (auto &[key, text] : texts) sum += text->size();
    std::cout << sum << ' ' << std::regex_match("abc-123", std::regex("[a-z]+-[0-9]+")) << '\n';
}
"#;

const C: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }
int main(void) {
    char *lines[1000];
    for (int i = 0; i < 1000; i++) if (asprintf(&lines[i], "%d", (i * 7919) % 1000) < 0) return 1;
    qsort(lines, 1000, sizeof *lines, by_text);
    printf("%s %s\n", lines[0], lines[999]);
    for (int i = 0; i < 1000; i++) free(lines[i]);
}
"#;

fn compile_and_run(compiler: &str, file: &str, source: &str, flags: &[&str], expected: &str) {
    let pool = Pool::new();
    pool.files().write(file, source);
    pool.program(compiler).args(flags).args(["-o", "program", file]).run().silent_success();
    pool.assert_ran("cc1");
    // Debian's `ld` and `gcc` are links to names with the machine and a version in them.
    pool.assert_ran("x86_64-linux-gnu-ld");
    let output = pool.program(pool.files().join("program")).run().silent_success();
    assert_eq!(output.stdout, expected);
    pool.assert_ran("program");
}

#[test]
fn gcc_compiles_c() {
    compile_and_run("gcc", "program.c", C, &["-D_GNU_SOURCE", "-O2", "-g"], "0 999\n");
}

#[test]
fn gxx_compiles_the_standard_library() {
    // The sum of 0 to 19999, and 5000 texts of 0 to 299 characters.
    let texts: usize = (0..5000).map(|i| i % 300).sum();
    let sum = 19_999 * 20_000 / 2 + texts;
    compile_and_run("g++", "program.cpp", CPP, &["-std=c++17", "-O1", "-g"], &format!("{sum} 1\n"));
}

/// stress-ng's stressors with `--verify`, each for so many of its operations. With every allocation recorded, too. Not
/// in the hardened mode, which finds that its `malloc` stressor writes a pointer into blocks of less than 8 bytes.
fn stress_ng(stressors: &[(&str, u32)]) {
    for period in ["512K", "1"] {
        let pool = Pool::new();
        let arguments = stressors.iter().flat_map(|(name, operations)| {
            [format!("--{name}"), "2".to_owned(), format!("--{name}-ops"), operations.to_string()]
        });
        let stress_ng = pool.program("stress-ng").args(["--verify", "--quiet", "--malloc-pthreads", "2"]);
        stress_ng.args(arguments).env("POOLSCOPE_PERIOD", period).run().success();
        pool.assert_ran("stress-ng");
    }
}

#[test]
fn stress_ng_verifies_what_it_allocates() {
    stress_ng(&[("malloc", 50_000), ("heapsort", 4), ("tsearch", 2), ("hsearch", 20), ("zlib", 5), ("jpeg", 5)]);
}

#[test]
fn stress_ng_starts_and_ends_processes_and_threads() {
    stress_ng(&[("fork", 300), ("vfork", 300), ("clone", 100), ("exec", 50), ("pthread", 300), ("dynlib", 50)]);
}

#[test]
fn perl_forks_and_matches() {
    let pool = Pool::new();
    let script = r#"
        my %words; $words{"word$_"} = "x" x ($_ % 97) for 1..20000;
        my @children;
        for my $n (1..50) {
            pipe(my $read, my $write) or die;
            my $pid = fork() // die;
            if (!$pid) { close $read; print $write join(",", map { $_ * $n } 1..500); close $write; exit 0 }
            close $write; push @children, [$pid, $read, $n];
        }
        my $total = 0;
        for (@children) {
            my ($pid, $read, $n) = @$_;
            $total += $_ for split /,/, <$read>;
            waitpid $pid, 0; die "child $n: $?" if $?;
        }
        my $matched = grep { /^word\d*7$/ && length($words{$_}) < 97 } keys %words;
        print "$total $matched\n";
    "#;
    let output = pool.program("perl").args(["-e", script]).run().silent_success();
    assert_eq!(output.stdout, format!("{} 2000\n", 500 * 501 / 2 * (50 * 51 / 2)));
    pool.assert_ran("perl");
}

#[test]
fn redis_serves_its_benchmark_and_saves_in_the_background() {
    let pool = Pool::new();
    let dir = pool.files().path().to_str().unwrap().to_owned();
    let socket = format!("{dir}/redis.sock");
    let mut server = pool
        .program("redis-server")
        .args(["--port", "0", "--unixsocket", &socket, "--dir", &dir, "--save", "", "--io-threads", "2"])
        .limit(180)
        .start();
    server.wait_until("it was ready", |running| running.stdout().contains("eady to accept connections").then_some(()));
    let client = |args: &[&str]| Program::new("redis-cli").args(["-s", &socket]).args(args).run().success().stdout;

    let benchmark = |tests: &str| {
        let quiet = ["-q", "-n", "20000", "-c", "20", "-d", "300", "-r", "5000", "-P", "8", "-t", tests];
        Program::new("redis-benchmark").args(["-s", &socket]).args(quiet).run().success();
    };
    benchmark("set,get,lpush,sadd,hset,zadd");
    assert!(client(&["BGSAVE"]).contains("saving started"));
    // The saving child is a fork of the server: it and the server allocate at the same time.
    benchmark("set,lpop,mset");
    server.wait_until("the background save ended", |_| {
        let info = client(&["INFO", "persistence"]);
        info.contains("rdb_bgsave_in_progress:0").then(|| assert!(info.contains("rdb_last_bgsave_status:ok"), "{info}"))
    });
    assert!(Path::new(&dir).join("dump.rdb").metadata().unwrap().len() > 100_000);
    let keys = client(&["DBSIZE"]);
    client(&["SAVE"]);
    client(&["DEBUG", "RELOAD"]);
    assert_eq!(client(&["DBSIZE"]), keys);

    let segment = pool.segment(server.pid()).expect("the server has a segment");
    assert!(segment.samples() > 10, "{} samples of a busy server", segment.samples());
    client(&["SHUTDOWN", "NOSAVE"]);
    server.finish().success();
}

#[test]
fn sqlite_sorts_joins_and_keeps_a_file() {
    let pool = Pool::new();
    let sql = "
        PRAGMA journal_mode=WAL;
        CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, value INTEGER);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
            INSERT INTO item SELECT i, printf('item %d %s', i, hex(zeroblob(i % 60))), i * 37 % 1009 FROM n;
        CREATE INDEX by_value ON item(value, name);
        SELECT count(*), sum(value) FROM item;
        SELECT count(*) FROM item a JOIN item b ON a.value = b.value AND b.id < 100;
        DELETE FROM item WHERE id % 3 = 0;
        VACUUM;
        PRAGMA integrity_check;
    ";
    let output = pool.program("sqlite3").arg("test.db").input(sql).run().silent_success();
    let value = |i: u64| i * 37 % 1009;
    let sum: u64 = (1..=100_000).map(value).sum();
    let pairs: usize = (1..100).map(|b| (1..=100_000).filter(|&a| value(a) == value(b)).count()).sum();
    assert_eq!(output.stdout, format!("wal\n100000|{sum}\n{pairs}\nok\n"));
    pool.assert_ran("sqlite3");
}

#[test]
fn cargo_builds_a_small_crate() {
    let pool = Pool::new();
    let manifest = "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    let main = r#"
        use std::collections::BTreeMap;
        #[derive(Debug, Clone, PartialEq)]
        struct Row { name: String, values: Vec<u64> }
        fn main() {
            let rows: BTreeMap<u64, Row> = (0..1000)
                .map(|i| (i, Row { name: format!("row {i}"), values: (0..i % 50).collect() }))
                .collect();
            let threads: Vec<_> = (0..4).map(|_| { let rows = rows.clone(); std::thread::spawn(move || rows) }).collect();
            assert!(threads.into_iter().all(|thread| thread.join().unwrap() == rows));
            println!("{}", rows.values().map(|row| row.values.len() + row.name.len()).sum::<usize>());
        }
    "#;
    std::fs::create_dir_all(pool.files().join("src")).unwrap();
    pool.files().write("Cargo.toml", manifest);
    pool.files().write("src/main.rs", main);
    let cargo = pool.program("cargo").args(["run", "-q", "--offline", "--release"]).limit(180);
    let output = cargo.env("CARGO_TARGET_DIR", pool.files().join("target")).run().success();
    let expected: u64 = (0..1000).map(|i: u64| i % 50 + format!("row {i}").len() as u64).sum();
    assert_eq!(output.stdout, format!("{expected}\n"));
    // cargo and rustc come with a jemalloc of their own, linked in ahead of any preload; the linkers and the
    // compiler driver that they start, and the program, have none.
    pool.assert_ran("x86_64-linux-gnu-gcc");
    pool.assert_ran("small");
}

#[test]
fn valgrind_starts() {
    // Valgrind's own tool takes the preload too; the program under it is what counts.
    let pool = Pool::new();
    for program in ["/bin/true", "/bin/ls"] {
        let valgrind = pool.program("valgrind").args(["-q", "--error-exitcode=9", program, "/"]);
        let output = valgrind.run();
        assert_eq!(output.code(), 0, "{}", output.report());
    }
    pool.assert_ran("");
}

#[test]
fn a_limit_of_address_space_leaves_room_for_the_program() {
    let pool = Pool::new();
    let script = "blocks = [bytearray(1 << 20) for _ in range(500)]; print(len(blocks))";
    let limited = format!("ulimit -v 4000000; exec /usr/bin/python3 -c '{script}'");
    let output = pool.program("bash").args(["-c", &limited]).run().silent_success();
    assert_eq!(output.stdout, "500\n");
    pool.assert_ran("python3");
}

/// What does not fit is refused with ENOMEM, as the limit asks for, and the program goes on.
#[test]
fn a_limit_of_address_space_is_a_refusal_and_no_abort() {
    let pool = Pool::new();
    let script = "
held = []
try:
    while True: held.append(bytearray(64 << 20))
except MemoryError:
    count = len(held); held = None
    print(count >= 40, len([bytearray(100) for _ in range(100000)]))";
    let limited = format!("ulimit -v 4000000; exec /usr/bin/python3 -c '{script}'");
    let output = pool.program("bash").args(["-c", &limited]).run().silent_success();
    assert_eq!(output.stdout, "True 100000\n");
}

#[test]
fn a_program_that_closes_every_descriptor_keeps_its_heap() {
    let pool = Pool::new();
    let script = "import os; os.closerange(3, 256); x = [bytes(i % 5000) for i in range(100000)]; print(len(x))";
    let output = pool.program("/usr/bin/python3").args(["-c", script]).run().silent_success();
    assert_eq!(output.stdout, "100000\n");
    pool.assert_ran("python3");
}

#[test]
fn nothing_is_left_behind_by_a_program_that_ended() {
    let pool = Pool::new();
    for program in ["/bin/true", "/usr/bin/python3"] {
        pool.program(program).env_remove("POOLSCOPE_KEEP").run().silent_success();
    }
    let left: Vec<PathBuf> = std::fs::read_dir(pool.segment_dir()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}

#[test]
fn a_program_that_replaces_itself_leaves_one_segment() {
    let pool = Pool::new();
    let mut program = pool.program("bash").args(["-c", "exec bash -c 'exec sleep 60'"]).start();
    let of_sleep = |pool: &Pool| pool.segments().iter().any(|segment| segment.executable().ends_with("sleep"));
    program.wait_until("sleep had its segment", |_| of_sleep(&pool).then_some(()));
    let segments: Vec<_> = pool.segments().iter().map(|segment| segment.path.clone()).collect();
    assert_eq!(segments.len(), 1, "{segments:?}");
    program.signal(libc::SIGTERM);
}

/// PHP loads its extensions so (`RTLD_DEEPBIND`), and they free what PHP has allocated. The library is found by the
/// program's own run path, as without the pool.
#[test]
fn a_library_that_binds_to_its_own_dependencies_has_the_programs_allocator() {
    let pool = Pool::new();
    let (program, library) = (pool.files().join("deepbind"), pool.files().join("libdeepbind.so"));
    let run_path = format!("-Wl,-rpath,{}", pool.files().path().display());
    let source = Path::new("tests/csrc/deepbind.c");
    compile_into(&library, source, &["-DLIBRARY", "-shared", "-fPIC"], &[]);
    compile_into(&program, source, &["-Wl,-z,now"], &[&run_path]);
    for period in ["1", "524288"] {
        let output = pool.program(&program).env("POOLSCOPE_PERIOD", period).run().silent_success();
        assert_eq!(output.stdout, "of the library\n");
    }
}

/// All symbols at once, not each at its first call: the library must not need one that only some programs bring.
#[test]
fn the_library_names_no_missing_symbol() {
    let pool = Pool::new();
    for program in ["/bin/true", "/usr/bin/python3"] {
        pool.program(program).env("LD_BIND_NOW", "1").run().silent_success();
    }
}
