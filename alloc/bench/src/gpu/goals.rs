//! What the pool is to reach, and whether it does.

use serde::Serialize;

use crate::results::{Results, RowResult};

/// One goal, and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    pub what: &'static str,
    pub limit: &'static str,
    /// In words.
    pub reached: String,
    /// `None` if nothing was measured for it.
    pub met: Option<bool>,
    /// Whether it is the same on every machine.
    pub anywhere: bool,
}

/// Hand-picked names of the figures of phases, in their order.
pub const PHASES: [(&str, &str); 3] =
    [("baseline", "baseline"), ("after_50", "after 50 rounds"), ("after_150", "after 150 rounds")];

fn goal(what: &'static str, limit: &'static str, values: &[(String, f64)], keeps: impl Fn(f64) -> bool) -> Goal {
    let reached: Vec<String> = values.iter().map(|(name, value)| format!("{name} {}", shown(*value))).collect();
    Goal {
        what,
        limit,
        reached: if reached.is_empty() { "not measured".to_owned() } else { reached.join(", ") },
        met: (!values.is_empty()).then(|| values.iter().all(|(_, value)| keeps(*value))),
        anywhere: false,
    }
}

/// With three digits that count.
pub fn shown(value: f64) -> String {
    match value.abs() {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// All goals, in the order of the project's own list.
pub fn all(results: &Results) -> Vec<Goal> {
    let ours = results.ours().unwrap_or_default();
    let name = |row: &RowResult| row.id.split_once('/').map_or(row.id.clone(), |(_, name)| name.to_owned());
    let values = |family: &str, figure: &str, factor: f64| -> Vec<(String, f64)> {
        results.family(family).filter_map(|row| Some((name(row), row.get(ours, figure)? * factor))).collect()
    };
    let pairs = values("pair/", "ns", 1.0);
    let (large, small): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|(size, _)| size == "16M" || size == "256M");
    let threads = values("threads/", "mpairs", 1.0);
    let doublings = values("threads-doublings/", "mpairs", 1.0);
    let (mut most, mut grows) = (Vec::new(), Vec::new());
    for (sizes, of) in [("even sizes", threads), ("doublings", doublings)] {
        most.extend(of.iter().filter(|(count, _)| count == "16").map(|(_, rate)| (sizes.to_owned(), *rate)));
        let step = |two: &[(String, f64)]| (format!("{sizes} {} to {}", two[0].0, two[1].0), two[1].1 / two[0].1);
        grows.extend(of.windows(2).map(step));
    }
    let anywhere = |goal: Goal| Goal { anywhere: true, ..goal };
    let phase = results.family("phases").next();
    let phases: Vec<(String, f64)> = PHASES
        .iter()
        .filter_map(|(key, name)| Some(((*name).to_owned(), phase?.get(ours, &format!("{key}_ns"))?)))
        .collect();
    let drift: Vec<(String, f64)> = PHASES
        .iter()
        .filter_map(|(key, name)| Some(((*name).to_owned(), phase?.get(ours, &format!("{key}_change"))? * 100.0)))
        .collect();

    let mut goals = vec![
        anywhere(goal(
            "traces, 1 - peak live / peak reserved",
            "at most 1 %",
            &values("trace/", "fragmentation", 100.0),
            |it| it <= 1.0,
        )),
        anywhere(goal(
            "driver calls in 1,000 operations, warm",
            "at most 1",
            &values("trace/", "warm_calls", 1.0),
            |it| it <= 1.0,
        )),
    ];
    if results.device.cuda.is_some() {
        goals.extend([
            goal("hot pair, 256 B to 1 MiB", "at most 20 ns", &small, |it| it <= 20.0),
            goal("hot pair, 16 MiB and 256 MiB", "at most 120 ns", &large, |it| it <= 120.0),
            goal("16 threads", "at least 300 million pairs/s", &most, |it| it >= 300.0),
            goal("more with each thread added", "more than 1", &grows, |it: f64| it > 1.0),
            goal("traces, warm, ns per operation", "at most 80", &values("trace/", "warm_ns", 1.0), |it| it <= 80.0),
            goal("four phases, ns per allocation", "at most 80", &phases, |it| it <= 80.0),
            goal("four phases, change to the first in per cent", "within 5", &drift, |it| it.abs() <= 5.0),
        ]);
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_missed_by_one_figure_of_many_and_says_all() {
        let values = [("gnn".to_owned(), 0.5), ("gpt".to_owned(), 12.25)];
        let missed = goal("what", "at most 1", &values, |value| value <= 1.0);
        assert_eq!((missed.met, missed.reached.as_str()), (Some(false), "gnn 0.50, gpt 12.2"));
        assert_eq!(goal("what", "at most 20", &values, |value| value <= 20.0).met, Some(true));
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        assert_eq!(goal("what", "at most 1", &[], |_| false).met, None);
    }

    #[test]
    fn figures_have_three_digits_that_count() {
        assert_eq!([0.123, 9.876, 54.32, 12345.6].map(shown), ["0.12", "9.88", "54.3", "12346"]);
    }
}
