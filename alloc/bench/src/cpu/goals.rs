//! What the pool is to reach.

use poolscope_bench::goal::Goal;
use poolscope_bench::results::RowResult;

use crate::catalogue::Family;
use crate::comparison::{self, Figure, Results};

/// The churn that the goal for fragmentation is about.
const STEADY: &str = "churn/steady";
/// The row that the goals for resident memory to live bytes are about.
const PHASES: &str = "phases/lognormal";

/// The largest ratio to the best peer that a row's goal allows, if it has one.
fn limit(row: &RowResult, figure: Figure) -> Option<f64> {
    match (Family::of(&row.id), figure) {
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
    match (Family::of(&row.id), figure) {
        (Family::AlignedLifo | Family::AlignedBatch, Figure::Time) => {
            let ratio = to_glibc(results, row)?;
            (ratio > 0.5).then(|| format!("{ratio:.2} of glibc, at most 0.50"))
        }
        (Family::Fragmentation, Figure::Waste) if row.id == STEADY => {
            let waste = row.get(results.about.ours()?, figure.name())?;
            (waste >= 0.1).then(|| "under 10%".to_owned())
        }
        _ => {
            let limit = limit(row, figure)?;
            (results.about.ratio(row, figure)? > limit).then(|| format!("at most {limit:.2}"))
        }
    }
}

fn to_glibc(results: &Results, row: &RowResult) -> Option<f64> {
    let [ours, glibc] = [results.about.ours()?, "glibc"].map(|name| row.get(name, Figure::Time.name()));
    Some(ours? / glibc?)
}

/// All goals, in the order of the project's own list.
pub fn all(results: &Results) -> Vec<Goal> {
    let [mean_of_phases, worst_of_phases] = phases(results);
    let to_peer = |row: &RowResult| results.about.ratio(row, Figure::Time);
    let family = |what, limit: f64, families: &'static [Family]| {
        let rows = results
            .rows
            .iter()
            .filter(|row| families.contains(&Family::of(&row.id)) && self::limit(row, Figure::Time).is_some());
        let values = rows.filter_map(|row| Some((row.id.clone(), to_peer(row)?))).collect();
        Goal::of_rows(what, "of the best peer", limit, values)
    };
    let aligned =
        results.rows.iter().filter(|row| matches!(Family::of(&row.id), Family::AlignedLifo | Family::AlignedBatch));
    let aligned = aligned.filter_map(|row| Some((row.id.clone(), to_glibc(results, row)?))).collect();
    vec![
        family("malloc and free up to 1 KiB", 1.0, &[Family::Lifo, Family::Batch]),
        instructions(results),
        family("random replacement", 0.95, &[Family::Random]),
        family("cross-thread", 1.0, &[Family::CrossThread]),
        collapse(results),
        family("large objects", 1.1, &[Family::Large]),
        Goal::of_rows("posix_memalign and free", "of glibc", 0.5, aligned),
        mean(results, "time, geometric mean", Figure::Time, 1.05),
        mean(results, "memory, geometric mean", Figure::Peak, 1.2),
        suite(results, "time of programs to compare with, geometric mean", Figure::Time, 1.05),
        suite(results, "memory of programs to compare with, geometric mean", Figure::Peak, 1.15),
        worst(results, "time, every row", Figure::Time),
        worst(results, "memory, every row", Figure::Peak),
        sampling(results),
        sample(results),
        fragmentation(results),
        mean_of_phases,
        worst_of_phases,
        dashboard(results),
    ]
}

/// Without samples, of which one falls into a few thousand calls: the goal is the fast path.
fn instructions(results: &Results) -> Goal {
    let row = results.row("lifo/64");
    let count = row.and_then(|row| row.get(results.about.unsampled()?, Figure::Instructions.name()));
    Goal::of_one(
        "instructions of a 64 B pair",
        "at most 31",
        count,
        |it| it <= 31.0,
        |count| format!("{count:.1}, with its share of refills"),
    )
}

/// With more threads than one, all together must get at least as much done as one alone.
fn collapse(results: &Results) -> Goal {
    let ours = |id: &str| {
        let row = results.row(id)?;
        row.get(results.about.ours()?, Figure::Time.name())
    };
    let values = [("threads/16", "threads/1"), ("pairs/8", "pairs/1")]
        .into_iter()
        .filter_map(|(many, one)| Some((format!("{many} to {one}"), ours(many)? / ours(one)?)))
        .collect();
    Goal::of_rows("no collapse at 16 threads", "of the wall time of one", 1.15, values)
}

fn mean(results: &Results, what: &'static str, figure: Figure, limit: f64) -> Goal {
    goal_of_mean(what, limit, results.about.ours().and_then(|ours| comparison::mean(results, ours, figure)))
}

/// The programs that allocators are usually compared with.
fn suite(results: &Results, what: &'static str, figure: Figure, limit: f64) -> Goal {
    let is_one = |family| matches!(family, Family::Suite);
    goal_of_mean(what, limit, results.about.ours().and_then(|ours| comparison::mean_of(results, ours, figure, is_one)))
}

fn goal_of_mean(what: &'static str, limit: f64, mean: Option<f64>) -> Goal {
    Goal::of_one(
        what,
        format!("at most {limit:.2} of each workload's best"),
        mean,
        |it| it <= limit,
        |mean| format!("{mean:.2}"),
    )
}

fn worst(results: &Results, what: &'static str, figure: Figure) -> Goal {
    let ratio =
        |row: &RowResult| Some(row.get(results.about.ours()?, figure.name())? / results.about.best(row, figure)?);
    let values = results.rows.iter().filter_map(|row| Some((row.id.clone(), ratio(row)?))).collect();
    Goal::of_rows(what, "of its best", 1.3, values)
}

/// Missed only by what is more than the measurement's own uncertainty.
fn sampling(results: &Results) -> Goal {
    let mut rows: Vec<_> = results.about.sampling.iter().flat_map(|sampling| &sampling.rows).collect();
    rows.sort_by(|a, b| b.percent().total_cmp(&a.percent()));
    let over = rows.iter().filter(|row| row.percent() - row.uncertainty * 100.0 > 2.0);
    let over: Vec<String> = over.map(ToString::to_string).collect();
    let closest = rows.first().map(|worst| format!("the most is {worst}"));
    Goal::of_rows_over("sampling on against off", "at most 2%", rows.len(), closest, &over)
}

/// Judged by the figure that is known best.
fn sample(results: &Results) -> Goal {
    let samples = results.about.sampling.as_ref().map_or(&[][..], |sampling| &sampling.samples);
    let best = samples.iter().min_by(|a, b| a.uncertainty.total_cmp(&b.uncertainty));
    let words: Vec<String> = samples.iter().map(ToString::to_string).collect();
    let best = best.map(|sample| sample.nanoseconds);
    Goal::of_one("one sample", "at most 1000 ns", best, |it| it <= 1000.0, |_| words.join("; "))
}

/// Resident memory to live bytes at the end of a phase: the mean, then the largest.
fn phases(results: &Results) -> [Goal; 2] {
    let of = |figure: Figure| results.row(PHASES)?.get(results.about.ours()?, figure.name());
    [
        ("resident to live over six phases, the mean", "at most 1.35", Figure::Mean, 1.35),
        ("resident to live over six phases, the largest", "at most 1.5", Figure::Worst, 1.5),
    ]
    .map(|(what, limit, figure, most)| {
        Goal::of_one(what, limit, of(figure), move |it| it <= most, |it| format!("{it:.2}"))
    })
}

fn fragmentation(results: &Results) -> Goal {
    let waste = |id: &str| {
        let row = results.row(id)?;
        row.get(results.about.ours()?, Figure::Waste.name())
    };
    let shifting =
        waste("churn/shifting").map_or(String::new(), |waste| format!("; {:.1}% with shifting sizes", waste * 100.0));
    Goal::of_one(
        "fragmentation after a long churn",
        "under 10%",
        waste(STEADY),
        |it| it <= 0.1,
        |waste| format!("{:.1}%{shifting}", waste * 100.0),
    )
}

fn dashboard(results: &Results) -> Goal {
    Goal::of_one(
        "an attached dashboard",
        "under 2%",
        results.about.attach.map(|cost| cost.median),
        |it| it <= 2.0,
        |cost| format!("{cost:.1}%"),
    )
}
