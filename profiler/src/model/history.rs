//! The totals of a process since its start, as it keeps them itself ([`poolscope_wire::history`]): a viewer that comes
//! late has the past, and the peak with its time.

use poolscope_wire::Total;

use crate::model::growth::{SHORTEST_NS, Slope};

/// Host memory over the life of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
pub struct History {
    /// Nanoseconds of a span; each total is of one.
    pub span_ns: u64,
    /// The totals, in the order of time. Nothing changed in a span without one.
    #[cfg_attr(feature = "reading", serde(with = "crate::model::carried::totals"))]
    pub totals: Vec<Total>,
    /// It is of a recording that began later than its process: what was in use before is not in the totals.
    pub began_late: bool,
}

/// When most was in use, by the pool's own counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Most {
    /// Bytes in use.
    pub bytes: u64,
    /// When: nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
}

/// Above this relation of each moment to the next one, a line is taken for a walk.
const WALK: f64 = 0.4;

/// Moments of a window that a slope is fitted to.
const MOMENTS: usize = 32;

impl History {
    /// Of what a segment says: totals that are not in the order of time, or later than `now_ns`, are left out.
    pub fn new(span_ns: u64, totals: impl IntoIterator<Item = Total>, now_ns: u64) -> History {
        let mut history = History { span_ns, ..History::default() };
        for total in totals {
            let last = history.totals.last().map_or(0, |last| last.time_ns);
            if total.time_ns > last && total.time_ns <= now_ns {
                history.totals.push(Total { most: total.most.max(total.in_use), ..total });
            }
        }
        history
    }

    /// The most that was in use. What came and went between two looks of the pool's, 80 milliseconds apart, is not in
    /// it.
    pub fn most(&self) -> Option<Most> {
        let highest = self.totals.iter().max_by_key(|total| (total.most, std::cmp::Reverse(total.time_ns)))?;
        let time_ns = if highest.most > highest.in_use { highest.most_ns } else { highest.time_ns };
        Some(Most { bytes: highest.most, time_ns: time_ns.min(highest.time_ns) })
    }

    /// Bytes in use at a moment; `None` before the first total.
    pub fn in_use_at(&self, time_ns: u64) -> Option<u64> {
        let after = self.totals.partition_point(|total| total.time_ns <= time_ns);
        self.totals.get(after.checked_sub(1)?).map(|total| total.in_use)
    }

    /// The time that [`Self::trend`] is about, nanoseconds; 0 if it is too short for one, or if totals begin at nothing
    /// because nobody knew what there was.
    pub fn trend_ns(&self, window_ns: u64, now_ns: u64) -> u64 {
        if self.began_late {
            return 0;
        }
        let first = self.totals.first().map_or(now_ns, |first| first.time_ns);
        let span = now_ns.saturating_sub(first).min(window_ns);
        if span < SHORTEST_NS.max(self.span_ns.saturating_mul(10)) { 0 } else { span }
    }

    /// How the bytes in use developed in the last `window_ns` before `now_ns`; nothing if there was no time for that.
    ///
    /// The figures are exact; the error is that of a line through what goes up and down. How much a moment tells of the
    /// next one is estimated from what the line leaves over. Where that is much, the line is taken for a walk with a
    /// drift.
    pub fn trend(&self, window_ns: u64, now_ns: u64) -> Slope {
        let span = self.trend_ns(window_ns, now_ns);
        if span == 0 {
            return Slope::default();
        }
        let from = now_ns.saturating_sub(span);
        let moment = |at: usize| from.saturating_add((span as f64 * at as f64 / (MOMENTS - 1) as f64) as u64);
        let bytes: Option<Vec<f64>> = (0..MOMENTS).map(|at| Some(self.in_use_at(moment(at))? as f64)).collect();
        bytes.map_or_else(Slope::default, |bytes| trend_of(&bytes, span))
    }
}

/// The slope of exact figures at equal distances, over `span_ns` and over its second half.
pub(super) fn trend_of(figures: &[f64], span_ns: u64) -> Slope {
    let steps_per_minute = 60e9 * (figures.len() - 1) as f64 / span_ns as f64;
    // A straight line has no error by that; a hundredth is what the moments of the looks are uncertain.
    let slope = |(step, error): (f64, f64)| (step * steps_per_minute, error.max(step.abs() / 100.0) * steps_per_minute);
    Slope::of_halves(slope(line(figures)), slope(line(&figures[figures.len() / 2..])))
}

/// The slope of a line through figures at equal distances, for one distance, and its standard error.
fn line(figures: &[f64]) -> (f64, f64) {
    let count = figures.len() as f64;
    let middle = (count - 1.0) / 2.0;
    let square: f64 = (0..figures.len()).map(|at| (at as f64 - middle).powi(2)).sum();
    let weights: Vec<f64> = (0..figures.len()).map(|at| (at as f64 - middle) / square).collect();
    let mean = figures.iter().sum::<f64>() / count;
    let slope: f64 = figures.iter().zip(&weights).map(|(figure, weight)| (figure - mean) * weight).sum();
    let rest: Vec<f64> =
        figures.iter().enumerate().map(|(at, figure)| figure - mean - slope * (at as f64 - middle)).collect();
    let squares: f64 = rest.iter().map(|rest| rest * rest).sum();
    if squares <= 0.0 {
        return (slope, 0.0);
    }
    let common: f64 = rest.windows(2).map(|pair| pair[0] * pair[1]).sum();
    // What a line leaves over seems less related than it is (Marriott and Pope, Biometrika 41, 1954).
    let relation = ((count * common / squares + 2.0) / (count - 4.0)).max(0.0);
    if relation > WALK {
        let steps: Vec<f64> = figures.windows(2).map(|pair| pair[1] - pair[0] - slope).collect();
        let variance = steps.iter().map(|step| step * step).sum::<f64>() / (count - 2.0);
        return (slope, (1.2 * variance / count).sqrt());
    }
    // The variance that the rest has is less than that around the true line, the more so the more it is related.
    let variance = squares / (count - 2.0 * (1.0 + relation) / (1.0 - relation)).max(count / 4.0);
    let mut sum = 0.0;
    for (at, weight) in weights.iter().enumerate() {
        for (other, with) in weights.iter().enumerate() {
            sum += weight * with * relation.powi(at.abs_diff(other) as i32);
        }
    }
    (slope, (variance * sum).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::{ProcessState, Snapshot, Tiers};

    const SECOND: u64 = 1_000_000_000;

    fn history(in_use: impl Fn(u64) -> u64, seconds: u64) -> History {
        let totals = (1..=seconds).map(|second| Total {
            time_ns: second * SECOND,
            in_use: in_use(second),
            most: in_use(second),
            most_ns: second * SECOND,
            ..Total::ZERO
        });
        History::new(SECOND, totals, seconds * SECOND)
    }

    #[test]
    fn the_peak_has_its_time() {
        let mut history = history(|second| if second == 40 { 900 } else { second }, 100);
        assert_eq!(history.most(), Some(Most { bytes: 900, time_ns: 40 * SECOND }));
        history.totals[69] = Total { most: 1000, most_ns: 69 * SECOND + 5, ..history.totals[69] };
        assert_eq!(history.most(), Some(Most { bytes: 1000, time_ns: 69 * SECOND + 5 }));
        assert_eq!(History::default().most(), None);
        assert_eq!((history.in_use_at(0), history.in_use_at(50 * SECOND + 1)), (None, Some(50)));
    }

    /// The pool looks now and then; what is in use at the reading was in use, too.
    #[test]
    fn what_is_in_use_now_is_part_of_the_peak() {
        let mut tiers = vec![0; poolscope_wire::TIER_COUNTERS.len()];
        tiers[poolscope_wire::TierCounter::LargeBytes as usize] = 300;
        let class = poolscope_wire::ClassStats { block_bytes: 16, slab_bytes: 32_768, ..Default::default() };
        let mut snapshot = Snapshot {
            tiers: Tiers::new(tiers),
            classes: vec![class],
            taken_ns: 50 * SECOND,
            history: history(|second| second, 40),
            ..Snapshot::default()
        };
        snapshot.process.state = ProcessState::Running;
        assert_eq!(snapshot.most(), Some(Most { bytes: 300, time_ns: 50 * SECOND }));
        snapshot.process.state = ProcessState::Exited;
        assert_eq!(snapshot.most(), Some(Most { bytes: 300, time_ns: snapshot.history.totals[39].time_ns }));
        snapshot.history.totals[10].most = 900;
        assert_eq!(snapshot.most().map(|most| most.bytes), Some(900));
    }

    #[test]
    fn what_is_not_in_order_is_left_out() {
        let total = |time_ns| Total { time_ns, in_use: time_ns, ..Total::ZERO };
        let history = History::new(1, [5, 3, 0, 7, 7, 100].map(total), 50);
        assert_eq!(history.totals.iter().map(|total| total.time_ns).collect::<Vec<_>>(), [5, 7]);
        assert_eq!(history.most(), Some(Most { bytes: 7, time_ns: 7 }));
    }

    #[test]
    fn a_ramp_grows_and_a_program_that_became_idle_does_not() {
        let now = 300 * SECOND;
        let ramp = history(|second| second << 20, 300).trend(60 * SECOND, now);
        assert!((ramp.per_minute() / f64::from(60 << 20) - 1.0).abs() < 0.03 && ramp.grows(), "{ramp:?}");
        // It says nothing any more once it is idle.
        let mut idle = history(|second| second << 20, 100);
        idle.totals.truncate(100);
        assert_eq!(idle.trend(100 * SECOND, now).per_minute(), 0.0);
        // What filled up as it started is no growth, in a window that has the start as well.
        let started = history(|second| second.min(60) << 20, 300).trend(300 * SECOND, now);
        assert!(!started.grows() && !started.is_clear(), "{started:?}");
        let leaks = history(|second| (second.min(60) << 25) + (second << 20), 300).trend(300 * SECOND, now);
        assert!(leaks.grows() && (leaks.per_minute() / f64::from(60 << 20) - 1.0).abs() < 0.03, "{leaks:?}");
        assert_eq!(History::default().trend(SECOND, now), Slope::default());
    }

    #[test]
    fn a_start_has_no_trend_and_what_went_on_for_a_while_has_one() {
        let total = |tenth: u64| Total { time_ns: tenth * SECOND / 10, in_use: tenth << 20, ..Total::ZERO };
        let history = |tenths: u64| History::new(SECOND / 10, (1..=tenths).map(total), u64::MAX);
        let short = history(30);
        assert_eq!(short.trend_ns(300 * SECOND, 3 * SECOND), 0, "2.9 seconds");
        assert_eq!(short.trend(300 * SECOND, 3 * SECOND), Slope::default());
        let long = history(31);
        let late = History { began_late: true, ..long.clone() };
        assert_eq!(late.trend_ns(300 * SECOND, 31 * SECOND / 10), 0, "it began at nothing, and the process did not");
        assert_eq!(long.trend_ns(300 * SECOND, 31 * SECOND / 10), 3 * SECOND);
        assert!(long.trend(300 * SECOND, 31 * SECOND / 10).grows());
    }

    #[test]
    fn ups_and_downs_and_walks_are_not_called_growth() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut noise = move || {
            let mut sum = 0.0;
            for _ in 0..12 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                sum += (seed >> 11) as f64 / (1u64 << 53) as f64;
            }
            sum - 6.0
        };
        for relation in [0.0, 0.5, 0.8, 1.0] {
            let (mut alarms, mut seen) = (0, 0);
            for _ in 0..400 {
                let mut value = 0.0;
                let figures: Vec<f64> = (0..MOMENTS)
                    .map(|_| {
                        value = relation * value + noise();
                        value
                    })
                    .collect();
                let (slope, error) = line(&figures);
                alarms += usize::from(slope.abs() > 3.0 * error);
                let growing: Vec<f64> = figures.iter().enumerate().map(|(at, figure)| figure + at as f64).collect();
                let (slope, error) = line(&growing);
                seen += usize::from(slope > 3.0 * error);
            }
            assert!(alarms <= 16, "{relation}: {alarms} of 400");
            assert!(relation > 0.7 || seen > 390, "{relation}: {seen} of 400");
        }
    }
}
