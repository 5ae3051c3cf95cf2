//! Where the memory of a process is, its peak, its growth, and what else a person should know, as text.

use std::fmt::Write as _;
use std::time::Duration;

use crate::findings::{self, Facts};
use crate::model::growth::SHORTEST_NS;
use crate::words::figures::{bytes, duration};

const RULE: &str = "------------------------------------------------\n";

/// Sections in the manner of the statistics.
pub fn process_text(facts: &Facts<'_>) -> String {
    let mut text = String::new();
    let _ = write!(text, "{RULE}{}\n{RULE}", title(facts));
    let whole = facts.accounting.memory.unwrap_or_else(|| facts.accounting.pool()).max(1);
    for (part, size) in facts.accounting.parts() {
        let _ = writeln!(
            text,
            "{:>10} {:>5.1}%  {:<15} {}",
            bytes(size as f64),
            100.0 * size as f64 / whole as f64,
            part.label(),
            part.sentence()
        );
    }
    let _ = writeln!(text, "Most in use: {}", most(facts));
    let _ = writeln!(text, "Growth:      {}", growth(facts));
    let findings = facts.findings();
    if !findings.is_empty() {
        let _ = write!(text, "{RULE}What to know\n{RULE}{}", findings::text(&findings));
    }
    text
}

fn title(facts: &Facts<'_>) -> String {
    let Some(memory) = facts.accounting.memory else {
        return format!("Memory of the pool: {} (the process is gone)", bytes(facts.accounting.pool() as f64));
    };
    let rss = facts.accounting.rss.unwrap_or(memory);
    let beyond = match memory.saturating_sub(rss) {
        0 => String::new(),
        beyond => format!(" and {} that is swapped out or in explicit huge pages", bytes(beyond as f64)),
    };
    format!("Memory of the process: {} resident{beyond}", bytes(rss as f64))
}

fn most(facts: &Facts<'_>) -> String {
    let Some(most) = facts.snapshot.most() else { return "unknown".to_owned() };
    let after = most.time_ns.saturating_sub(facts.snapshot.process.start_monotonic_ns);
    format!("{}, {} after the start", bytes(most.bytes as f64), duration(Duration::from_nanos(after)))
}

/// `+1.13 MiB a minute (±102 KiB) over the last 5m 00s`.
fn growth(facts: &Facts<'_>) -> String {
    let (slope, watched) = (facts.total, duration(Duration::from_nanos(facts.total_ns)));
    if facts.total_ns < SHORTEST_NS {
        return format!("not known before {} of it were seen", duration(Duration::from_nanos(SHORTEST_NS)));
    }
    if slope.error() <= 0.0 {
        return format!("none over the last {watched}");
    }
    let amount = format!("{:+}", Signed(slope.per_minute()));
    let what = match slope.is_clear() {
        true => "",
        false if slope.has_ended() => ", all of it in the first half of that",
        false => ", which may be chance",
    };
    format!("{amount} a minute (±{}) over the last {watched}{what}", bytes(slope.error()))
}

/// Bytes with their sign.
struct Signed(f64);

impl std::fmt::Display for Signed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if f.sign_plus() && self.0 >= 0.0 { "+" } else { "" };
        write!(f, "{sign}{}", bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use poolscope_wire::{TIER_COUNTERS, TierCounter, Total};

    use super::*;
    use crate::model::growth::Slope;
    use crate::model::history::History;
    use crate::model::snapshot::{Residence, Snapshot, Tiers};

    #[test]
    fn a_process_is_said_in_sections() {
        let mut tiers = vec![0; TIER_COUNTERS.len()];
        tiers[TierCounter::SystemUsed as usize] = 40 << 20;
        tiers[TierCounter::LargeBytes as usize] = 40 << 20;
        let total =
            Total { time_ns: 5_000_000_000, in_use: 40 << 20, most: 90 << 20, most_ns: 3_000_000_000, ..Total::ZERO };
        let snapshot = Snapshot {
            tiers: Tiers::new(tiers),
            exact: true,
            residence: Some(Residence { rss: 45 << 20, files: 4 << 20, ..Residence::default() }),
            history: History { span_ns: 100_000_000, totals: vec![total], began_late: false },
            ..Snapshot::default()
        };
        let facts =
            Facts { total: Slope::new(2_097_152.0, 100_000.0), total_ns: 60_000_000_000, ..Facts::of(&snapshot, None) };
        let text = process_text(&facts);
        for line in [
            "Memory of the process: 45.0 MiB resident\n",
            "  40.0 MiB  88.9%  in use          Blocks that the program has, as far as it touched them.\n",
            "  4.00 MiB   8.9%  files           Code",
            "Most in use: 90.0 MiB, 3.0 s after the start\n",
            "Growth:      +2.00 MiB a minute (±97.7 KiB) over the last 1m 00s\n",
            "What to know\n",
            "warning  Memory in use grows by 2.00 MiB a minute",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        let dead = Snapshot { residence: None, history: History::default(), ..snapshot };
        let text = process_text(&Facts::of(&dead, None));
        assert!(
            text.contains("Memory of the pool: 40.0 MiB (the process is gone)") && !text.contains("files"),
            "{text}"
        );
        assert!(text.contains("Most in use: unknown\n") && !text.contains("What to know"), "{text}");
    }
}
