//! What the pool is to reach, and whether it does.

use serde::Serialize;

use crate::catalogue::Family;
use crate::results::{Figure, Results, RowResult};

/// One goal, and what became of it.
#[derive(Serialize)]
pub struct Goal {
    pub what: &'static str,
    pub limit: String,
    /// In words, with the rows that miss it.
    pub reached: String,
    /// `None` if nothing was measured for it.
    pub met: Option<bool>,
}

/// The churn that the goal for fragmentation is about.
const STEADY: &str = "churn/steady";

/// The largest ratio to the best peer that a row's goal allows, if it has one.
fn limit(row: &RowResult, figure: Figure) -> Option<f64> {
    match (row.family, figure) {
        (Family::Lifo | Family::Batch, Figure::Time) => {
            let size: usize = row.id.split('/').nth(1)?.parse().ok()?;
            (size <= 1024).then_some(1.0)
        }
        (Family::Random, Figure::Time) => Some(0.95),
        (Family::CrossThread, Figure::Time) => Some(1.0),
        (Family::Large, Figure::Time) => Some(1.1),
        _ => None,
    }
}

/// The goal of a row, in words, if the pool misses it.
pub fn missed(results: &Results, row: &RowResult, figure: Figure) -> Option<String> {
    match (row.family, figure) {
        (Family::AlignedLifo | Family::AlignedBatch, Figure::Time) => {
            let ratio = to_glibc(results, row)?;
            (ratio > 0.5).then(|| format!("{ratio:.2} of glibc, at most 0.50"))
        }
        (Family::Fragmentation, Figure::Waste) if row.id == STEADY => {
            let waste = results.figure(row, results.ours()?, figure)?;
            (waste >= 0.1).then(|| "under 10%".to_owned())
        }
        _ => {
            let limit = limit(row, figure)?;
            (results.ratio(row, figure)? > limit).then(|| format!("at most {limit:.2}"))
        }
    }
}

fn to_glibc(results: &Results, row: &RowResult) -> Option<f64> {
    let [ours, glibc] = [results.ours()?, "glibc"].map(|name| results.figure(row, name, Figure::Time));
    Some(ours? / glibc?)
}

/// All goals, in the order of the project's own list.
pub fn all(results: &Results) -> Vec<Goal> {
    let to_peer = |row: &RowResult| results.ratio(row, Figure::Time);
    let family = |what, limit: f64, families: &'static [Family]| {
        let rows = results
            .rows
            .iter()
            .filter(|row| families.contains(&row.family) && self::limit(row, Figure::Time).is_some());
        let values = rows.filter_map(|row| Some((row.id.clone(), to_peer(row)?))).collect();
        at_most(what, "of the best peer", limit, values)
    };
    let aligned = results.rows.iter().filter(|row| matches!(row.family, Family::AlignedLifo | Family::AlignedBatch));
    let aligned = aligned.filter_map(|row| Some((row.id.clone(), to_glibc(results, row)?))).collect();
    vec![
        family("malloc and free up to 1 KiB", 1.0, &[Family::Lifo, Family::Batch]),
        instructions(results),
        family("random replacement", 0.95, &[Family::Random]),
        family("cross-thread", 1.0, &[Family::CrossThread]),
        collapse(results),
        family("large objects", 1.1, &[Family::Large]),
        at_most("posix_memalign and free", "of glibc", 0.5, aligned),
        mean(results, "time, geometric mean", Figure::Time, 1.05),
        mean(results, "memory, geometric mean", Figure::Peak, 1.2),
        worst(results, "time, every row", Figure::Time),
        worst(results, "memory, every row", Figure::Peak),
        sampling(results),
        sample(results),
        fragmentation(results),
        dashboard(results),
    ]
}

/// A goal that every one of `values` has to keep. Names those that do not, the worst first.
fn at_most(what: &'static str, of: &str, limit: f64, mut values: Vec<(String, f64)>) -> Goal {
    values.sort_by(|a, b| b.1.total_cmp(&a.1));
    let over: Vec<String> =
        values.iter().filter(|(_, value)| *value > limit).map(|(id, value)| format!("{id} {value:.2}")).collect();
    let reached = match values.first() {
        None => "not measured".to_owned(),
        Some((id, worst)) if over.is_empty() => format!("at most {worst:.2} ({id})"),
        Some(_) => format!("{} of {} rows over it: {}", over.len(), values.len(), shortened(&over)),
    };
    Goal { what, limit: format!("at most {limit:.2} {of}"), reached, met: met(&values, over.is_empty()) }
}

fn met<T>(values: &[T], met: bool) -> Option<bool> {
    (!values.is_empty()).then_some(met)
}

/// The first few.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

fn single(what: &'static str, limit: &str, value: Option<f64>, most: f64, show: impl Fn(f64) -> String) -> Goal {
    Goal {
        what,
        limit: limit.to_owned(),
        reached: value.map_or("not measured".to_owned(), show),
        met: value.map(|value| value <= most),
    }
}

/// Without samples, of which one falls into a few thousand calls: the goal is the fast path.
fn instructions(results: &Results) -> Goal {
    let row = results.rows.iter().find(|row| row.id == "lifo/64");
    let count = row.and_then(|row| results.figure(row, results.unsampled()?, Figure::Instructions));
    single("instructions of a 64 B pair", "at most 31", count, 31.0, |count| {
        format!("{count:.1}, with its share of refills")
    })
}

/// With more threads than one, all together must get at least as much done as one alone.
fn collapse(results: &Results) -> Goal {
    let ours = |id: &str| {
        let row = results.rows.iter().find(|row| row.id == id)?;
        results.figure(row, results.ours()?, Figure::Time)
    };
    let values = [("threads/16", "threads/1"), ("pairs/8", "pairs/1")]
        .into_iter()
        .filter_map(|(many, one)| Some((format!("{many} to {one}"), ours(many)? / ours(one)?)))
        .collect();
    at_most("no collapse at 16 threads", "of the wall time of one", 1.15, values)
}

fn mean(results: &Results, what: &'static str, figure: Figure, limit: f64) -> Goal {
    let mean = results.ours().and_then(|ours| results.mean(ours, figure));
    single(what, &format!("at most {limit:.2} of each workload's best"), mean, limit, |mean| format!("{mean:.2}"))
}

fn worst(results: &Results, what: &'static str, figure: Figure) -> Goal {
    let ratio = |row: &RowResult| Some(results.figure(row, results.ours()?, figure)? / results.best(row, figure)?);
    let values = results.rows.iter().filter_map(|row| Some((row.id.clone(), ratio(row)?))).collect();
    at_most(what, "of its best", 1.3, values)
}

/// Missed only by what is more than the measurement's own uncertainty.
fn sampling(results: &Results) -> Goal {
    let mut rows: Vec<_> = results.sampling.iter().flat_map(|sampling| &sampling.rows).collect();
    rows.sort_by(|a, b| b.percent().total_cmp(&a.percent()));
    let over = rows.iter().filter(|row| row.percent() - row.uncertainty * 100.0 > 2.0);
    let over: Vec<String> = over.map(ToString::to_string).collect();
    let reached = match rows.first() {
        None => "not measured".to_owned(),
        Some(worst) if over.is_empty() => format!("the most is {worst}"),
        Some(_) => format!("{} of {} rows over it: {}", over.len(), rows.len(), shortened(&over)),
    };
    Goal { what: "sampling on against off", limit: "at most 2%".to_owned(), reached, met: met(&rows, over.is_empty()) }
}

/// Judged by the figure that is known best.
fn sample(results: &Results) -> Goal {
    let samples = results.sampling.as_ref().map_or(&[][..], |sampling| &sampling.samples);
    let best = samples.iter().min_by(|a, b| a.uncertainty.total_cmp(&b.uncertainty));
    let reached: Vec<String> = samples.iter().map(ToString::to_string).collect();
    Goal {
        what: "one sample",
        limit: "at most 1000 ns".to_owned(),
        reached: if reached.is_empty() { "not measured".to_owned() } else { reached.join("; ") },
        met: best.map(|sample| sample.nanoseconds <= 1000.0),
    }
}

fn fragmentation(results: &Results) -> Goal {
    let waste = |id: &str| {
        let row = results.rows.iter().find(|row| row.id == id)?;
        results.figure(row, results.ours()?, Figure::Waste)
    };
    let shifting =
        waste("churn/shifting").map_or(String::new(), |waste| format!("; {:.1}% with shifting sizes", waste * 100.0));
    single("fragmentation after a long churn", "under 10%", waste(STEADY), 0.1, |waste| {
        format!("{:.1}%{shifting}", waste * 100.0)
    })
}

fn dashboard(results: &Results) -> Goal {
    single("an attached dashboard", "under 2%", results.attach.map(|cost| cost.median), 2.0, |cost| {
        format!("{cost:.1}%")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(values: &[f64]) -> Vec<(String, f64)> {
        values.iter().enumerate().map(|(index, &value)| (format!("row/{index}"), value)).collect()
    }

    #[test]
    fn a_goal_names_the_rows_that_miss_it_and_the_worst_first() {
        let goal = at_most("what", "of it", 1.0, values(&[0.9, 1.1, 1.5]));
        assert_eq!(goal.met, Some(false));
        assert_eq!(goal.reached, "2 of 3 rows over it: row/2 1.50, row/1 1.10");
    }

    #[test]
    fn a_goal_that_is_kept_says_how_closely() {
        let goal = at_most("what", "of it", 1.0, values(&[0.9, 1.0]));
        assert_eq!((goal.met, goal.reached.as_str()), (Some(true), "at most 1.00 (row/1)"));
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        assert_eq!(at_most("what", "of it", 1.0, Vec::new()).met, None);
    }
}
