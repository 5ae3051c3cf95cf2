//! What the ages of blocks tell of the time before anybody watched: of a call site that never freed anything, what was
//! in use at a moment is what was allocated before it and still is in use. So one reading tells how it grew, also of a
//! process that is gone.
//!
//! # The rate
//!
//! It is what was allocated in the window and is in use, divided by the window. What was ever freed may have been in
//! use as it began: half of that is taken off, and is an error. Where it is much, nothing is said.
//!
//! # Its error
//!
//! The window is cut into spans. The error is that of a count of samples, or that of a mean of what was allocated in
//! each span, whichever is more: a table that was made in one go lies in one span, and its rate is as uncertain as
//! itself.

use super::{Growth, Part, SERIES, SHORTEST_NS, Slope};
use crate::model::snapshot::Snapshot;

/// Of what was allocated in the window and is in use, the part that was freed since the start, at most.
const FREED: f64 = 0.25;

/// The samples of the second half of the window, at least: of fewer no rate is two standard errors from none.
const SAMPLES: u32 = 5;

/// What is known of a call site.
#[derive(Clone, Copy, Debug, Default)]
struct Site {
    /// Bytes that were ever freed.
    freed: f64,
    /// Bytes that were in use at the beginning of the window and still are.
    before: f64,
    /// Bytes that were allocated in the window and are in use, and their variance: in each half of the window.
    born: [f64; 2],
    variance: [f64; 2],
    /// How many were allocated in the second half.
    late: u32,
}

/// How call sites develop by the ages of their blocks; `sites` has the site of each stack. Those of which too much was
/// freed, or too little is new, are left as they are.
pub(super) fn tell(growths: &mut [Growth], snapshot: &Snapshot, sites: &[Option<usize>], window_ns: u64) {
    // A recording that began late does not know what was there.
    let Some(now_ns) = snapshot.moment_ns().filter(|_| !snapshot.history.began_late) else { return };
    let from_ns = now_ns.saturating_sub(window_ns).max(snapshot.process.start_monotonic_ns);
    let over_ns = now_ns.saturating_sub(from_ns);
    if over_ns < SHORTEST_NS {
        return;
    }
    let span_of = |time_ns: u64| {
        let since = time_ns.checked_sub(from_ns)?;
        Some(((since as f64 / over_ns as f64 * SERIES as f64) as usize).min(SERIES - 1))
    };
    let site_of = |stack: u32| sites.get(stack as usize).copied().flatten().filter(|&site| site < growths.len());
    let mut known = vec![Site::default(); growths.len()];
    for (stack, figures) in (0u32..).zip(&snapshot.stacks) {
        if let Some(site) = site_of(stack) {
            known[site].freed += figures.freed.bytes;
        }
    }
    for block in &snapshot.live {
        let (Some(site), bytes) = (site_of(block.stack), block.weight * block.size as f64) else { continue };
        let site = &mut known[site];
        match span_of(block.time_ns) {
            Some(span) => {
                site.born[span * 2 / SERIES] += bytes;
                site.variance[span * 2 / SERIES] += bytes * bytes;
                site.late += (span * 2 / SERIES) as u32;
            }
            None => site.before += bytes,
        }
    }
    // Of those that are told of, what was allocated in each span.
    let is_told = |site: &Site| {
        let born: f64 = site.born.iter().sum();
        site.late >= SAMPLES && site.freed <= born * FREED
    };
    let mut spans: Vec<[f32; SERIES]> = Vec::new();
    let places: Vec<Option<usize>> = known
        .iter()
        .map(|site| {
            is_told(site).then(|| {
                spans.push([0.0; SERIES]);
                spans.len() - 1
            })
        })
        .collect();
    if spans.is_empty() {
        return;
    }
    for block in &snapshot.live {
        let place = site_of(block.stack).and_then(|site| places[site]);
        if let (Some(place), Some(span)) = (place, span_of(block.time_ns)) {
            spans[place][span] += (block.weight * block.size as f64) as f32;
        }
    }
    for ((growth, site), place) in growths.iter_mut().zip(&known).zip(&places) {
        if let Some(place) = *place {
            *growth = site.growth(&spans[place], over_ns);
        }
    }
}

impl Site {
    fn growth(&self, spans: &[f32; SERIES], over_ns: u64) -> Growth {
        let minutes = over_ns as f64 / 60e9;
        let part = |spans: &[f32], variance: f64, minutes: f64| {
            let (count, sum) = (spans.len() as f64, spans.iter().copied().map(f64::from).sum::<f64>());
            let squares: f64 = spans.iter().map(|&span| (f64::from(span) - sum / count).powi(2)).sum();
            let (of_mean, half) = (count * squares / (count - 1.0), self.freed / 2.0);
            let variance = variance.max(of_mean) + half * half;
            Part { per_minute: (sum - half) / minutes, variance: variance / (minutes * minutes) }
        };
        let whole = part(spans, self.variance.iter().sum(), minutes);
        let late = part(&spans[SERIES / 2..], self.variance[1], minutes / 2.0);
        let mut sum = self.before;
        let series = spans.map(|span| {
            sum += f64::from(span);
            sum as f32
        });
        Growth { slope: Slope::of_parts(whole, late), series, over_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::growth::USUAL_WINDOW_NS;
    use crate::model::snapshot::{Amount, LiveBlock, ProcessInfo, ProcessState, Stack};

    const SECOND: u64 = 1_000_000_000;
    const MIB: f64 = 1_048_576.0;

    /// A reading 100 seconds after the start: blocks of half a mebibyte, allocated so many seconds after it.
    fn reading(born: &[f64], freed: f64) -> Snapshot {
        let block = |&second: &f64| LiveBlock {
            size: 1 << 19,
            weight: 1.0,
            time_ns: SECOND + (second * 1e9) as u64,
            ..LiveBlock::default()
        };
        let freed = Amount { objects: freed, bytes: freed * MIB / 2.0, samples: freed as u64 };
        Snapshot {
            process: ProcessInfo { pid: 7, start_monotonic_ns: SECOND, ..ProcessInfo::default() },
            taken_ns: 101 * SECOND,
            stacks: vec![Stack { freed, ..Stack::default() }],
            live: born.iter().map(block).collect(),
            ..Snapshot::default()
        }
    }

    fn told(snapshot: &Snapshot, window_ns: u64) -> Growth {
        let mut growths = [Growth::default()];
        tell(&mut growths, snapshot, &[Some(0)], window_ns);
        growths[0]
    }

    fn each_second(from: u32, to: u32) -> Vec<f64> {
        (from..to).map(|second| f64::from(second) + 0.5).collect()
    }

    #[test]
    fn one_reading_tells_how_a_leak_has_grown() {
        let leak = told(&reading(&each_second(0, 100), 0.0), USUAL_WINDOW_NS);
        assert!(leak.slope.grows(), "{leak:?}");
        assert!((leak.slope.per_minute() / (30.0 * MIB) - 1.0).abs() < 0.01, "{leak:?}");
        // A count of 100 samples.
        assert!((leak.slope.error() / (3.0 * MIB) - 1.0).abs() < 0.01, "{leak:?}");
        assert_eq!(leak.over_ns, 100 * SECOND);
        assert!(leak.series.is_sorted() && f64::from(leak.series[SERIES - 1]) == 50.0 * MIB, "{:?}", leak.series);
        // In a shorter window, what was there before is in the line, and the rate is the same.
        let late = told(&reading(&each_second(0, 100), 0.0), 40 * SECOND);
        assert!((late.slope.per_minute() / (30.0 * MIB) - 1.0).abs() < 0.03 && late.over_ns == 40 * SECOND, "{late:?}");
        assert!(f64::from(late.series[0]) > 30.0 * MIB, "{:?}", late.series);
    }

    #[test]
    fn what_was_made_in_one_go_or_has_come_to_an_end_does_not_grow() {
        for at in [0.2, 20.0, 55.0, 80.0, 99.0] {
            let table: Vec<f64> = (0..60).map(|part| at + f64::from(part) / 100.0).collect();
            let table = told(&reading(&table, 0.0), USUAL_WINDOW_NS);
            assert!(!table.slope.is_clear(), "made after {at} s: {table:?}");
        }
        for few in [0, 3, 9] {
            let ramp = [each_second(0, 45), each_second(51, 51 + few)].concat();
            let ramp = told(&reading(&ramp, 0.0), USUAL_WINDOW_NS);
            assert!(!ramp.slope.is_clear(), "and {few}: {ramp:?}");
        }
        assert_eq!(told(&reading(&[], 0.0), USUAL_WINDOW_NS), Growth::default());
    }

    #[test]
    fn what_frees_much_is_not_told_by_its_ages_and_what_frees_little_is_known_worse() {
        assert_eq!(told(&reading(&each_second(0, 100), 26.0), USUAL_WINDOW_NS), Growth::default());
        let little = told(&reading(&each_second(0, 100), 10.0), USUAL_WINDOW_NS);
        assert!(little.slope.grows(), "{little:?}");
        // 95 and five more or less: between what it would be if all of the ten had been there, and none.
        assert!((little.slope.per_minute() / (28.5 * MIB) - 1.0).abs() < 0.01, "{little:?}");
        assert!(little.slope.error() > 3.3 * MIB, "{little:?}");
    }

    #[test]
    fn who_is_gone_has_grown_until_its_end_and_who_has_just_begun_has_not() {
        let mut gone = reading(&each_second(0, 100), 0.0);
        gone.process.state = ProcessState::Killed;
        gone.taken_ns = 5_000 * SECOND;
        assert_eq!(told(&gone, USUAL_WINDOW_NS), Growth::default(), "nobody knows when it ended");
        let last = poolscope_wire::Total { time_ns: 101 * SECOND, ..poolscope_wire::Total::ZERO };
        gone.history.totals.push(last);
        assert!(told(&gone, USUAL_WINDOW_NS).slope.grows());
        gone.history.began_late = true;
        assert_eq!(told(&gone, USUAL_WINDOW_NS), Growth::default());
        let mut young = reading(&each_second(0, 2), 0.0);
        young.taken_ns = 3 * SECOND;
        assert_eq!(told(&young, USUAL_WINDOW_NS), Growth::default());
    }
}
