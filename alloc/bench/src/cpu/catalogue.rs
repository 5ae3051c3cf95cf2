//! Every row of the comparison.

use std::time::Duration;

use crate::redis;

/// Rows that are shown together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Lifo,
    Batch,
    Random,
    Scaling,
    CrossThread,
    ThreadChurn,
    Large,
    Realloc,
    AlignedLifo,
    AlignedBatch,
    Fragmentation,
    Phases,
    Suite,
    Redis,
    Python,
    Small,
}

impl Family {
    /// That of a row's name.
    pub fn of(id: &str) -> Family {
        match id.split('/').next().unwrap_or_default() {
            "lifo" => Family::Lifo,
            "batch" => Family::Batch,
            "random" => Family::Random,
            "threads" => Family::Scaling,
            "pairs" | "exchange" | "handover" | "inherited" => Family::CrossThread,
            "thread-churn" => Family::ThreadChurn,
            "large" => Family::Large,
            "realloc" => Family::Realloc,
            "memalign-lifo" => Family::AlignedLifo,
            "memalign-batch" => Family::AlignedBatch,
            "churn" => Family::Fragmentation,
            "phases" => Family::Phases,
            "suite" => Family::Suite,
            "redis" => Family::Redis,
            "python" => Family::Python,
            // What is left: other programs.
            _ => Family::Small,
        }
    }

    /// The unit in which its times are shown, and how many nanoseconds it has.
    pub fn unit(self) -> (&'static str, f64) {
        match self {
            Family::ThreadChurn | Family::Large | Family::Realloc => ("microseconds", 1e3),
            Family::Python => ("milliseconds", 1e6),
            _ => ("nanoseconds", 1.0),
        }
    }

    /// What its rows do.
    pub fn title(self) -> &'static str {
        match self {
            Family::Lifo => "One block at a time, by size in bytes",
            Family::Batch => "A thousand blocks, then their frees, by size in bytes",
            Family::Random => "Random replacement, by live blocks and their sizes",
            Family::Scaling => "Random replacement in several threads, 4096 live in each",
            Family::CrossThread => {
                "Blocks freed by another thread: producers with a consumer each, a table of all, and tables handed over"
            }
            Family::ThreadChurn => "Short-lived threads, by how many there are at a time",
            Family::Large => "256 KiB to 32 MiB, 16 live, by the pages touched",
            Family::Realloc => "A vector that grows to 64 MiB, by its growth",
            Family::AlignedLifo => "posix_memalign, one at a time, by size and alignment",
            Family::AlignedBatch => "posix_memalign, a thousand at a time, by size and alignment",
            Family::Fragmentation => "64 MiB in random blocks, replaced for long",
            Family::Phases => "200 MiB in six phases of lognormal sizes, down to a tenth between them",
            Family::Suite => "Programs that allocators are usually compared with",
            Family::Redis => "redis-server under redis-benchmark",
            Family::Python => "Python, working on JSON and text",
            Family::Small => "Small programs",
        }
    }

    /// What one time is for.
    pub fn operation(self) -> &'static str {
        match self {
            Family::Scaling | Family::CrossThread | Family::Suite => {
                "of wall time per malloc and free of all threads together"
            }
            Family::ThreadChurn => "of wall time per thread",
            Family::Realloc => "per realloc",
            Family::AlignedLifo | Family::AlignedBatch => "per posix_memalign and free",
            Family::Redis => "of wall time per request",
            Family::Python => "in all",
            _ => "per malloc and free",
        }
    }
}

/// How a row is measured.
pub enum How {
    /// The program `workloads` with these arguments, for so long.
    Workload { args: Vec<String>, duration: Duration },
    /// The program `workloads`, with that kind of churn.
    Churn(&'static str),
    /// The program `workloads`, whose sizes change.
    Phases,
    /// redis-server, with that test of redis-benchmark.
    Redis(&'static str),
    /// redis-server with a million keys, which are deleted again.
    RedisMillion,
    /// A program in Python.
    Python,
    /// The memory of a program with its arguments.
    Memory(&'static [&'static str]),
}

/// One row.
pub struct Row {
    /// What `--only` is matched against. The part before the first `/` says the family.
    pub id: String,
    pub how: How,
}

impl Row {
    /// What it is shown with.
    pub fn family(&self) -> Family {
        Family::of(&self.id)
    }

    /// Whether it takes so long that it is measured only if it is named.
    pub fn is_long(&self) -> bool {
        matches!(self.how, How::RedisMillion)
    }

    /// The programs that the machine must have.
    pub fn needs(&self) -> Vec<&'static str> {
        match self.how {
            How::Workload { .. } | How::Churn(_) | How::Phases => Vec::new(),
            How::Redis(_) | How::RedisMillion => vec![redis::SERVER, redis::BENCHMARK],
            How::Python => vec![PYTHON],
            How::Memory(program) => vec![program[0]],
        }
    }
}

/// What the command line and the machine may change in the rows.
pub struct Extent {
    /// Numbers of threads for the rows that scale.
    pub threads: Vec<usize>,
    /// Threads at a time in the rows that do not.
    pub processors: usize,
}

/// Of the distribution: with another one's, two machines would not be comparable.
pub const PYTHON: &str = "/usr/bin/python3";

const SIZES: [usize; 10] = [16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536];
const ALIGNED_SIZES: [usize; 7] = [64, 128, 256, 512, 1024, 2048, 4096];

const SMALL: [(&str, &[&str]); 5] = [
    ("python", &[PYTHON, "-c", "pass"]),
    ("bash", &["/usr/bin/bash", "-c", "true"]),
    ("ls", &["/usr/bin/ls", "-l", "/usr/bin"]),
    ("perl", &["/usr/bin/perl", "-e", "1"]),
    ("sort", &["/usr/bin/sort", "/etc/passwd"]),
];

fn workload(id: String, args: &str, milliseconds: u64) -> Row {
    let args = args.split(' ').map(str::to_owned).collect();
    Row { id, how: How::Workload { args, duration: Duration::from_millis(milliseconds) } }
}

/// All rows, in the order in which they are shown.
pub fn rows(extent: &Extent) -> Vec<Row> {
    let mut rows = Vec::new();
    for name in ["lifo", "batch"] {
        rows.extend(SIZES.map(|size| workload(format!("{name}/{size}"), &format!("{name} {size}"), 50)));
    }
    for (least, most) in [(8, 511), (16, 4096)] {
        rows.extend([256, 4096, 100_000].map(|live| {
            let id = format!("random/{live}/{least}-{most}");
            workload(id, &format!("random {live} {least} {most}"), 80)
        }));
    }
    for &threads in &extent.threads {
        rows.push(workload(format!("threads/{threads}"), &format!("threads {threads}"), 150));
    }
    for pairs in pairs(&extent.threads) {
        rows.push(workload(format!("pairs/{pairs}"), &format!("pairs {pairs}"), 150));
    }
    let threads = extent.processors.max(2);
    rows.push(workload(format!("exchange/{threads}"), &format!("exchange {threads}"), 200));
    rows.push(workload(format!("handover/{threads}"), &format!("handover {threads}"), 200));
    for heirs in [1, threads] {
        rows.push(workload(format!("inherited/{heirs}"), &format!("inherited {heirs}"), 200));
    }
    rows.push(workload(format!("thread-churn/{threads}"), &format!("thread-churn {threads}"), 200));
    // Where every page is touched, an operation is a thousand page faults.
    for (touch, milliseconds) in [("first", 80), ("every", 300)] {
        rows.push(workload(format!("large/{touch}"), &format!("large {touch}"), milliseconds));
    }
    for growth in ["double", "4096"] {
        rows.push(workload(format!("realloc/{growth}"), &format!("realloc {growth}"), 50));
    }
    for name in ["lifo", "batch"] {
        for size in ALIGNED_SIZES {
            for align in (4..).map(|shift| 1 << shift).take_while(|&align| align <= size) {
                let id = format!("memalign-{name}/{size}/{align}");
                rows.push(workload(id, &format!("{name} {size} {align}"), 15));
            }
        }
    }
    rows.extend(["steady", "shifting"].map(|kind| Row { id: format!("churn/{kind}"), how: How::Churn(kind) }));
    rows.push(Row { id: "phases/lognormal".to_owned(), how: How::Phases });
    // Those of one thread, then those whose threads pass blocks on.
    rows.extend(["sh6", "glibc-simple", "glibc-thread", "alloc-test", "espresso"].map(|name| suite(name, 1)));
    let several = ["sh6", "glibc-thread", "alloc-test", "xmalloc", "rptest", "mstress", "cache-scratch"];
    rows.extend(several.map(|name| suite(name, threads)));
    rows.extend(["set", "get", "lpush", "zadd"].map(|test| Row { id: format!("redis/{test}"), how: How::Redis(test) }));
    rows.push(Row { id: "redis/million".to_owned(), how: How::RedisMillion });
    rows.push(Row { id: "python".to_owned(), how: How::Python });
    rows.extend(SMALL.map(|(name, program)| Row { id: format!("small/{name}"), how: How::Memory(program) }));
    rows
}

fn suite(name: &str, threads: usize) -> Row {
    workload(format!("suite/{name}/{threads}"), &format!("suite {name} {threads}"), 200)
}

/// As many pairs as make up each number of threads.
fn pairs(threads: &[usize]) -> Vec<usize> {
    let mut pairs: Vec<usize> = threads.iter().map(|threads| (threads / 2).max(1)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_an_id_of_its_own() {
        let rows = rows(&Extent { threads: vec![1, 2, 4, 16], processors: 2 });
        let mut ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        ids.sort_unstable();
        let all = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }

    #[test]
    fn rows_of_a_family_follow_each_other_and_every_family_has_some() {
        let rows = rows(&Extent { threads: vec![1, 2], processors: 2 });
        let mut families: Vec<Family> = rows.iter().map(Row::family).collect();
        families.dedup();
        use Family::*;
        let all = [
            Lifo,
            Batch,
            Random,
            Scaling,
            CrossThread,
            ThreadChurn,
            Large,
            Realloc,
            AlignedLifo,
            AlignedBatch,
            Fragmentation,
            Phases,
            Suite,
            Redis,
            Python,
            Small,
        ];
        assert_eq!(families, all);
    }

    #[test]
    fn every_alignment_from_16_up_to_the_size_has_a_row() {
        let rows = rows(&Extent { threads: vec![1], processors: 1 });
        let count = |prefix: &str| rows.iter().filter(|row| row.id.starts_with(prefix)).count();
        assert_eq!(count("memalign-lifo/64/"), 3);
        assert_eq!(count("memalign-batch/4096/"), 9);
    }
}
