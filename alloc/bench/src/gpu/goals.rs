//! What the pool is to reach.

use poolscope_bench::goal::Goal;
use poolscope_bench::results::RowResult;

use crate::about::{PHASES, Results};

/// What a trace is held to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One stream and hundreds of MiB: what is not known to be another kind.
    Usual,
    /// Streams that take each other's memory.
    Streams,
    /// A footprint at which a few granules count.
    Small,
    /// Made: several streams at any footprint.
    Mix,
}

fn kind_of(trace: &str) -> Kind {
    match trace {
        "experts-4streams" | "generate-and-train" => Kind::Streams,
        "small-generation" | "tiny-serving" => Kind::Small,
        _ if trace.starts_with("mix-") => Kind::Mix,
        _ => Kind::Usual,
    }
}

/// All goals, in the order of the project's own list.
pub fn all(results: &Results) -> Vec<Goal> {
    let ours = results.about.ours.as_deref().unwrap_or_default();
    let name = |row: &RowResult| row.name().to_owned();
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
    let phase = results.family("phases").next();
    let phases: Vec<(String, f64)> = PHASES
        .iter()
        .filter_map(|(key, name)| Some(((*name).to_owned(), phase?.get(ours, &format!("{key}_ns"))?)))
        .collect();
    let drift: Vec<(String, f64)> = PHASES
        .iter()
        .filter_map(|(key, name)| Some(((*name).to_owned(), phase?.get(ours, &format!("{key}_change"))? * 100.0)))
        .collect();

    let figures = |figure, factor| values("trace/", figure, factor);
    let of_kind = |kind: Kind, figure, factor| -> Vec<(String, f64)> {
        figures(figure, factor).into_iter().filter(|(name, _)| kind_of(name) == kind).collect()
    };
    let held = |kind| of_kind(kind, "fragmentation", 100.0);
    let calls = of_kind(Kind::Usual, "warm_calls", 1.0);
    let second = if results.about.is_card() { "second_ns" } else { "second_driver_ns" };
    let cold = if results.about.is_card() { "cold_ns" } else { "cold_driver_ns" };
    let (cold, second) = (figures(cold, 1.0), of_kind(Kind::Usual, second, 1.0));
    let first: Vec<_> = values("first-moment/", "mpairs", 1.0).into_iter().filter(|(count, _)| count == "16").collect();
    let longest = values("tail/", "longest", 1e-6);
    let mut goals = vec![
        Goal::of_all("traces, 1 - peak live / peak reserved", "at most 3 %", &held(Kind::Usual), |it| it <= 3.0)
            .anywhere(),
        Goal::of_all("several streams, the same", "at most 5 %", &held(Kind::Streams), |it| it <= 5.0).anywhere(),
        Goal::of_all("small footprints, the same", "at most 5 %", &held(Kind::Small), |it| it <= 5.0),
        Goal::of_all("mixes, the same", "at most 5 %", &held(Kind::Mix), |it| it <= 5.0),
        Goal::of_all("driver calls in 1,000 operations, warm", "at most 1", &calls, |it| it <= 1.0).anywhere(),
        Goal::of_all("traces, cold, ns per operation", "at most 400", &cold, |it| it <= 400.0),
        Goal::of_all("traces, second pass, ns per operation", "at most 100", &second, |it| it <= 100.0).anywhere(),
        Goal::of_all("longest operation in three passes", "at most 0.3 ms", &longest, |it| it <= 0.3),
    ];
    if results.about.is_card() {
        goals.extend([
            Goal::of_all("hot pair, 256 B to 1 MiB", "at most 20 ns", &small, |it| it <= 20.0),
            Goal::of_all("hot pair, 16 MiB and 256 MiB", "at most 120 ns", &large, |it| it <= 120.0),
            Goal::of_all("16 threads from the first moment", "at least 150 million pairs/s", &first, |it| it >= 150.0),
            Goal::of_all("16 threads", "at least 300 million pairs/s", &most, |it| it >= 300.0),
            Goal::of_all("more with each thread added", "more than 1", &grows, |it: f64| it > 1.0),
            Goal::of_all("traces, warm, ns per operation", "at most 80", &figures("warm_ns", 1.0), |it| it <= 80.0),
            Goal::of_all("four phases, ns per allocation", "at most 80", &phases, |it| it <= 80.0),
            Goal::of_all("four phases, change to the first in per cent", "within 5", &drift, |it| it.abs() <= 5.0),
        ]);
    }
    goals
}
