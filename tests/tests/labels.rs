//! Labels, by which a program says what it is doing, in what people read.

use std::path::PathBuf;

use poolscope_e2e::terminal::Terminal;
use poolscope_e2e::{Pool, Program, compiler};

/// Holds 1,000 blocks of 1,000 bytes from `fill`: 600 under a label, 300 under another one within it, 100 under none.
/// Then a thread of its own takes 50 more.
const SOURCE: &str = "#include <poolscope.h>\n#include <pthread.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
    static char *volatile kept[2000];\n\
    static int at;\n\
    __attribute__((noinline)) void fill(int n) { while (n-- > 0) { kept[at] = malloc(1000); kept[at++][0] = 1; } }\n\
    static void *in_thread(void *p) { fill(50); return p; }\n\
    int main(void) {\n\
        pthread_t thread;\n\
        fill(100);\n\
        uint32_t outer = poolscope_label_enter(\"cache\");\n\
        fill(400);\n\
        uint32_t inner = poolscope_label_enter(\"index, \\\"b\\\"\");\n\
        fill(300);\n\
        poolscope_label_leave(inner);\n\
        fill(200);\n\
        inner = poolscope_label_enter(\"threads\");\n\
        pthread_create(&thread, 0, in_thread, 0); pthread_join(thread, 0);\n\
        poolscope_label_leave(inner);\n\
        poolscope_label_leave(outer);\n\
        for (int i = 0; i < 150; i++) { free(kept[100 + i]); }\n\
        printf(\"%llu\\n\", (unsigned long long)poolscope_label_in_use(\"cache\")); fflush(stdout);\n\
        char c; while (read(0, &c, 1) > 0) {}\n\
        return 0;\n\
    }\n";

fn compiled(pool: &Pool, name: &str, source: &str) -> PathBuf {
    let (source, program) = (pool.files().write(&format!("{name}.c"), source), pool.files().join(name));
    let gcc = Program::new("gcc").args(["-g", "-O1", "-pthread", "-DPOOLSCOPE_WEAK", "-I"]).arg(compiler::headers());
    gcc.arg("-o").arg(&program).arg(source).run().silent_success();
    program
}

#[test]
fn labels_are_in_profiles_and_metrics_with_what_is_in_use_under_each() {
    let pool = Pool::new();
    let program = compiled(&pool, "labelled", SOURCE);
    let mut running = pool.program(&program).env("POOLSCOPE_PERIOD", "1").start();
    let said =
        running.wait_until("it says what is in use", |running| running.stdout().lines().next().map(str::to_owned));
    // 600 under the label, of which 150 were freed; the thread is under none.
    assert_eq!(said, "450000");
    let pid = running.pid().to_string();
    let profile = pool.files().join("labels.pb.gz");
    pool.poolscope().args(["dump", &pid, "-o"]).arg(&profile).run().silent_success();
    let top = |focus: &[&str]| {
        let go = Program::new("go").args(["tool", "pprof", "-top", "-unit=B"]).args(focus).arg(&profile);
        let top = go.env("HOME", pool.files().path()).env("PPROF_TMPDIR", pool.files().path()).run().success().stdout;
        let line = top.lines().find(|line| line.ends_with(" fill")).unwrap_or_else(|| panic!("{top}"));
        line.trim().split(' ').next().expect("a figure").to_owned()
    };
    assert_eq!(top(&["-tagfocus=label=cache"]), "450000B");
    assert_eq!(top(&["-tagfocus=label=index"]), "300000B");
    assert_eq!(top(&["-tagignore=label=."]), "150000B");
    let lines = pool.poolscope().args(["convert", &pid, "-", "--format", "collapsed"]).run().success().stdout;
    assert!(lines.lines().any(|line| line.starts_with("label:cache;") && line.ends_with(";fill 450000")), "{lines}");
    // A profile that is read again has them, too.
    let from = profile.to_str().expect("is text");
    let again = pool.poolscope().args(["convert", from, "-", "--format", "collapsed"]).run().success().stdout;
    assert!(again.lines().any(|line| line.starts_with("label:cache;") && line.ends_with(";fill 450000")), "{again}");

    // The dashboard groups by them, and its filter knows them.
    let of_label = |filter: &str| -> u64 {
        let csv = pool.poolscope().args(["top", &pid, "--csv", "--filter", filter]).run().silent_success().stdout;
        let bytes = csv.lines().filter(|line| line.contains("\"fill\"") || line.contains(",fill,"));
        bytes.map(|line| line.split(',').next().and_then(|bytes| bytes.parse::<u64>().ok()).expect("bytes")).sum()
    };
    assert_eq!((of_label("label:^cache$"), of_label("label:index"), of_label("-label:.")), (450_000, 300_000, 150_000));
    let csv = pool.poolscope().args(["top", &pid, "--csv", "--view", "sites"]).run().silent_success().stdout;
    assert!(csv.lines().next().is_some_and(|names| names.ends_with(",function,file,label")), "{csv}");
    let of = |label: &str| -> u64 {
        let lines = csv.lines().filter(|line| line.ends_with(label));
        lines.filter_map(|line| line.split(',').next()?.parse::<u64>().ok()).sum()
    };
    assert_eq!((of(",cache"), of(",\"index, \"\"b\"\"\"")), (450_000, 300_000), "{csv}");
    let terminal = Terminal::top(&pool, "labels", &pid);
    terminal.press(&["3", "v", "v", "v", "v"]);
    let by_label = terminal.wait_for("labels", |screen| screen.contains("╭ By label") && screen.contains("(no label)"));
    let row = |name: &str| by_label.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{by_label}"));
    // 450,000 and 300,000 bytes.
    assert!(row(" cache ").contains("439 KiB") && row(" index,").contains("293 KiB"), "{by_label}");
    drop(terminal);

    let mut serve = pool.poolscope().args(["serve", &pid, "--listen", "127.0.0.1:0"]).start();
    let url = serve.wait_for_line("serving on ").trim_start_matches("serving on ").to_owned();
    let metrics = Program::new("curl").args(["-sS", &format!("{url}metrics")]).run().success().stdout;
    for line in [
        format!("poolscope_label_in_use_bytes{{pid=\"{pid}\",label=\"cache\"}} 450000\n"),
        format!("poolscope_label_in_use_bytes{{pid=\"{pid}\",label=\"index, \\\"b\\\"\"}} 300000\n"),
        format!("poolscope_label_allocated_bytes_total{{pid=\"{pid}\",label=\"cache\"}} 600000\n"),
    ] {
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    Program::new("promtool").args(["check", "metrics"]).input(metrics).run().silent_success();
}

/// Passes a limit of 100,000 bytes under each of three labels, and says how many blocks of 1,000 bytes it got of 300.
const LIMITED: &str = "#include <poolscope.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
    static char *volatile kept[900];\n\
    static int called; static unsigned long long seen;\n\
    static void call(const char *name, uint64_t in_use, uint64_t limit, void *context) {\n\
        char *copy = malloc(100); free(copy);\n\
        called += *(int *)context; seen = in_use;\n\
    }\n\
    int main(void) {\n\
        int one = 1, at = 0;\n\
        poolscope_label_limit(\"warned\", 100000, POOLSCOPE_OVER_WARN, 0, 0);\n\
        poolscope_label_limit(\"refused\", 100000, POOLSCOPE_OVER_REFUSE, 0, 0);\n\
        poolscope_label_limit(\"called\", 100000, POOLSCOPE_OVER_CALL, call, &one);\n\
        const char *names[] = {\"warned\", \"refused\", \"called\"};\n\
        int got[3] = {0};\n\
        for (int n = 0; n < 3; n++) {\n\
            uint32_t outer = poolscope_label_enter(names[n]);\n\
            for (int i = 0; i < 300; i++) if ((kept[at++] = malloc(1000))) got[n]++;\n\
            poolscope_label_leave(outer);\n\
        }\n\
        printf(\"%d %d %d, %d %llu\\n\", got[0], got[1], got[2], called, seen);\n\
        for (int i = 0; i < 900; i++) free(kept[i]);\n\
        uint32_t outer = poolscope_label_enter(\"refused\");\n\
        printf(\"%d\\n\", malloc(1000) != 0);\n\
        poolscope_label_leave(outer);\n\
        return poolscope_label_limit(\"called\", 1, 7, 0, 0);\n\
    }\n";

#[test]
fn a_label_beyond_its_limit_is_named_refused_or_called_for() {
    let pool = Pool::new();
    let program = compiled(&pool, "limited", LIMITED);
    let output = pool.program(&program).env("POOLSCOPE_PERIOD", "1").run();
    assert_eq!(output.code(), libc::EINVAL, "{}", output.report());
    assert_eq!(output.stdout, "300 100 300, 1 101000\n1\n", "{}", output.report());
    let said: Vec<&str> = output.stderr.lines().collect();
    let beyond = |name: &str, bytes: u32| {
        format!("poolscope: what is labelled {name} has {bytes} bytes in use, and its limit is 100000")
    };
    // Who gets no memory is told why, once until it has given some back.
    let refused = beyond("refused", 100_000) + ": requests for more are refused";
    assert_eq!(said, [beyond("warned", 101_000), refused]);
}

/// A large block that grows under a label with a limit, and 2,000 requests beyond that, beside 8 MiB that are free: how
/// large the block became, and how many requests were served, and how many bytes went back to the kernel meanwhile.
const GROWING: &str = "#include <poolscope.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
    static char *volatile kept[2000];\n\
    static long long released(void) {\n\
        static char text[1 << 20];\n\
        poolscope_stats_json(text, sizeof text);\n\
        char *at = strstr(text, \"\\\"system_released_bytes\\\"\");\n\
        return at ? atoll(strchr(at, ':') + 1) : -1;\n\
    }\n\
    int main(void) {\n\
        for (int i = 0; i < 2000; i++) { kept[i] = malloc(4000); memset(kept[i], 1, 4000); }\n\
        poolscope_label_limit(\"grows\", 3000000, POOLSCOPE_OVER_REFUSE, 0, 0);\n\
        uint32_t outer = poolscope_label_enter(\"grows\");\n\
        char *block = malloc(500000);\n\
        memset(block, 7, 500000);\n\
        size_t grown = 500000;\n\
        for (char *more; grown < 100000000 && (more = realloc(block, grown * 2)); grown *= 2) { block = more; }\n\
        poolscope_label_leave(outer);\n\
        for (int i = 0; i < 2000; i++) { free(kept[i]); }\n\
        long long before = released();\n\
        outer = poolscope_label_enter(\"grows\");\n\
        int got = 0;\n\
        for (int i = 0; i < 2000; i++) { got += malloc(4000) != 0; }\n\
        poolscope_label_leave(outer);\n\
        printf(\"%zu %d %d %lld\\n\", grown, block[0] + block[499999], got, before < 0 ? before : released() - before);\n\
        return 0;\n\
    }\n";

#[test]
fn a_label_beyond_its_limit_grows_no_block_and_sends_no_free_memory_away() {
    let pool = Pool::new();
    let program = compiled(&pool, "growing", GROWING);
    let settings = pool.program(&program).env("POOLSCOPE_PERIOD", "1").env("POOLSCOPE_SCAVENGE_MS", "-1");
    let output = settings.run();
    assert_eq!((output.code(), output.stdout.as_str()), (0, "4000000 14 0 0\n"), "{}", output.report());
    assert_eq!(output.stderr.matches("requests for more are refused").count(), 1, "{}", output.report());
}
