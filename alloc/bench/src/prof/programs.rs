//! The programs that the profilers look at.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use poolscope_bench::Result;

/// Which tools make sense on a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// C++, with frame pointers.
    FramePointers,
    /// C++, without.
    NoFramePointers,
    /// A program of Debian's.
    Debian,
    /// A script for Python.
    Python,
}

/// One program with its arguments.
#[derive(Clone, Debug)]
pub struct Program {
    pub name: &'static str,
    pub kind: Kind,
    pub command: Vec<OsString>,
    /// The same with [`SHORT`] of the work, for tools that are too slow.
    pub short: Option<Vec<OsString>>,
    /// Pairs of allocation and free, where they are known.
    pub pairs: Option<u64>,
    /// What is sent to its standard input.
    pub input: Option<PathBuf>,
}

/// All programs, built.
pub struct Programs {
    pub all: Vec<Program>,
}

/// One part in so many is what slow tools do of the work.
pub const SHORT: u64 = 10;

/// About two million allocations, in memory.
const SQLITE: &str = "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, value REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 150000)
INSERT INTO t SELECT i, printf('%s %d', hex(i * 7919), i * 7919 % 100003), i * 0.5 FROM n;
CREATE INDEX by_name ON t(name);
SELECT sum(length(json_object('id', id, 'name', name, 'more', json_array(value, name)))) FROM t;
SELECT count(*), sum(length(g)) FROM (SELECT group_concat(name) AS g FROM t GROUP BY id % 5000);
UPDATE t SET name = upper(name) || printf(' %g', value) WHERE id % 3 = 0;
SELECT sum(length(replace(name, '1', 'one')) + length(json_extract(json_array(name, id), '$[0]'))) FROM t;
SELECT count(DISTINCT substr(name, 6, 4)) FROM t;
";

const PYTHON: &str = "import json\n\
def make(n):\n    return [{'id': i, 'name': 'name %d' % (i * 7919 % 100003), 'tags': ['t%d' % (i % 7)] * 3} for i in range(n)]\n\
def group(rows):\n    groups = {}\n    for row in rows:\n        groups.setdefault(row['name'][:6], []).append(row)\n    return groups\n\
rows = make(60000)\n\
for _ in range(2):\n    text = json.dumps(rows)\n    rows = json.loads(text)\n    groups = group(rows)\n\
print(len(text), len(groups))\n";

impl Programs {
    /// Compiles and writes them below `folder`.
    pub fn build(folder: &Path, pairs: u64) -> Result<Programs> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples/csrc/churn.cpp");
        let compiled = |name: &str, flag: &str| -> Result<OsString> {
            let path = folder.join(name);
            let mut compiler = Command::new("g++");
            compiler.args(["-O2", "-g", "-std=c++17", "-pthread", flag, "-o"]).arg(&path).arg(&source);
            let status = compiler.status().map_err(|error| format!("g++: {error}"))?;
            if status.success() { Ok(path.into()) } else { Err(format!("g++ {}: {status}", source.display())) }
        };
        let (with, without) =
            (compiled("churn-fp", "-fno-omit-frame-pointer")?, compiled("churn", "-fomit-frame-pointer")?);
        let written = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).map(|()| path).map_err(|error| format!("{name}: {error}"))
        };
        let (sql, script) = (written("workload.sql", SQLITE)?, written("workload.py", PYTHON)?);
        // Threads that share the work do so much of it that they take as long as one does.
        let churn = |name, kind, program: &OsString, threads: u64| {
            let pairs = pairs * threads.min(2);
            let with = |pairs: u64| vec![program.clone(), pairs.to_string().into(), threads.to_string().into()];
            let short = Some(with(pairs / SHORT));
            Program { name, kind, command: with(pairs), short, pairs: Some(pairs), input: None }
        };
        let all = vec![
            churn("churn-fp", Kind::FramePointers, &with, 1),
            churn("churn", Kind::NoFramePointers, &without, 1),
            churn("churn-2-threads", Kind::FramePointers, &with, 2),
            churn("churn-4-threads", Kind::FramePointers, &with, 4),
            Program {
                name: "sqlite3",
                kind: Kind::Debian,
                command: vec!["/usr/bin/sqlite3".into(), ":memory:".into()],
                short: None,
                pairs: None,
                input: Some(sql),
            },
            Program {
                name: "python3",
                kind: Kind::Python,
                command: vec!["/usr/bin/python3".into(), script.into()],
                short: None,
                pairs: None,
                input: None,
            },
        ];
        Ok(Programs { all })
    }
}
