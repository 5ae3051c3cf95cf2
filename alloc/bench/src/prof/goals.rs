//! What we want to reach.

use poolscope_bench::goal::Goal;

use crate::about::{BASE, Results};

const LOSSLESS: &str = "poolscope record --lossless";
const OFF: &str = "poolscope off";
const MIB: f64 = 1_048_576.0;

/// All of them, in the order of the report.
pub fn all(results: &Results) -> Vec<Goal> {
    let ns = |program, tool, limit: f64, what| {
        let more = results.row(program).and_then(|row| row.against(tool, OFF, "processor_ns", |one, off| one - off));
        Goal::of_one(
            what,
            format!("{limit:+.0} ns a pair"),
            more.map(|it| it.median),
            |it| it <= limit,
            |it| {
                let range = more.map(|more| format!(" ({:+.1} to {:+.1})", more.least, more.most));
                format!("{it:+.1} ns{}", range.unwrap_or_default())
            },
        )
    };
    let ratio = |program, what| {
        let ratio = results.row(program).and_then(|row| row.against(LOSSLESS, BASE, "seconds", |one, base| one / base));
        Goal::of_one(
            what,
            "2.0x glibc",
            ratio.map(|it| it.median),
            |it| it <= 2.0,
            |it| {
                let range = ratio.map(|ratio| format!(" ({:.2} to {:.2})", ratio.least, ratio.most));
                format!("{it:.2}x{}", range.unwrap_or_default())
            },
        )
    };
    let stored = results.row("churn-fp").and_then(|row| row.get(LOSSLESS, "stored"));
    let cells = results.rows.iter().flat_map(|row| row.cells.values());
    let recorder = cells.filter_map(|cell| Some(cell.spread("recorder_bytes")?.most)).reduce(f64::max);
    let scrape = results.about.scrape.as_ref();
    let scraped = scrape.map(|cost| cost.percent() + cost.uncertainty);
    vec![
        ns("churn-fp", "poolscope sampling", 1.0, "sampling, more than without"),
        ns("churn-fp", LOSSLESS, 60.0, "recording with frame pointers, more than without"),
        ns("churn", LOSSLESS, 200.0, "recording without frame pointers, more than without"),
        ratio("churn-fp", "recorded to the last byte, one thread"),
        ratio("churn-2-threads", "recorded to the last byte, two threads"),
        ratio("churn-4-threads", "recorded to the last byte, four threads"),
        ratio("sqlite3", "recorded to the last byte, sqlite3"),
        Goal::of_one(
            "stored for an allocation and its free",
            "4 bytes",
            stored,
            |it| it <= 4.0,
            |it| format!("{it:.2} bytes"),
        ),
        Goal::of_one(
            "memory of the recorder",
            "256 MiB",
            recorder,
            |it| it <= 256.0 * MIB,
            |it| format!("{:.1} MiB", it / MIB),
        ),
        Goal::of_one(
            "a scrape each second",
            "1% of the program's processor time",
            scraped,
            |it| it <= 1.0,
            |_| scrape.map(ToString::to_string).unwrap_or_default(),
        ),
    ]
}
