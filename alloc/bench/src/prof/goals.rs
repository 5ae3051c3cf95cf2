//! What we want to reach, and whether we did.

use crate::results::Results;

/// One goal.
pub struct Goal {
    pub what: &'static str,
    pub limit: String,
    pub reached: String,
    /// `None` if it was not measured.
    pub met: Option<bool>,
}

const LOSSLESS: &str = "poolscope record --lossless";

/// All of them, in the order of the report.
pub fn all(results: &Results) -> Vec<Goal> {
    let ns = |program, tool, than, limit: f64, what| {
        let more = results.more(program, tool, than);
        Goal {
            what,
            limit: format!("{limit:+.0} ns a pair"),
            reached: more.map_or("not measured".to_owned(), |more| {
                format!("{:+.1} ns ({:+.1} to {:+.1})", more.median, more.least, more.most)
            }),
            met: more.map(|more| more.median <= limit),
        }
    };
    let ratio = |program, what| {
        let ratio = results.cell(program, LOSSLESS).and_then(|cell| cell.to_glibc);
        Goal {
            what,
            limit: "2.0x glibc".to_owned(),
            reached: ratio.map_or("not measured".to_owned(), |ratio| {
                format!("{:.2}x ({:.2} to {:.2})", ratio.median, ratio.least, ratio.most)
            }),
            met: ratio.map(|ratio| ratio.median <= 2.0),
        }
    };
    let stored = results.stored("churn-fp");
    let recorder = results.recorder_bytes();
    let scrape = results.scrape.as_ref();
    vec![
        ns("churn-fp", "poolscope sampling", "poolscope off", 1.0, "sampling, more than without"),
        ns("churn-fp", LOSSLESS, "poolscope off", 60.0, "recording with frame pointers, more than without"),
        ns("churn", LOSSLESS, "poolscope off", 200.0, "recording without frame pointers, more than without"),
        ratio("churn-fp", "recorded to the last byte, one thread"),
        ratio("churn-2-threads", "recorded to the last byte, two threads"),
        ratio("sqlite3", "recorded to the last byte, sqlite3"),
        Goal {
            what: "stored for an allocation and its free",
            limit: "4 bytes".to_owned(),
            reached: stored.map_or("not measured".to_owned(), |stored| format!("{:.2} bytes", stored.median)),
            met: stored.map(|stored| stored.median <= 4.0),
        },
        Goal {
            what: "memory of the recorder",
            limit: "256 MiB".to_owned(),
            reached: recorder.map_or("not measured".to_owned(), |bytes| format!("{:.1} MiB", bytes / 1_048_576.0)),
            met: recorder.map(|bytes| bytes <= 256.0 * 1_048_576.0),
        },
        Goal {
            what: "a scrape each second",
            limit: "1% of the program's processor time".to_owned(),
            reached: scrape.map_or("not measured".to_owned(), ToString::to_string),
            met: scrape.map(|cost| cost.percent() + cost.uncertainty <= 1.0),
        },
    ]
}
