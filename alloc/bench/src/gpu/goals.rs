//! What the pool is to reach.

use poolscope_bench::goal::Goal;
use poolscope_bench::results::RowResult;

use crate::about::{PHASES, Results};

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
    let (fragmentation, calls) = (figures("fragmentation", 100.0), figures("warm_calls", 1.0));
    let mut goals = vec![
        Goal::of_all("traces, 1 - peak live / peak reserved", "at most 1 %", &fragmentation, |it| it <= 1.0).anywhere(),
        Goal::of_all("driver calls in 1,000 operations, warm", "at most 1", &calls, |it| it <= 1.0).anywhere(),
    ];
    if results.about.is_card() {
        goals.extend([
            Goal::of_all("hot pair, 256 B to 1 MiB", "at most 20 ns", &small, |it| it <= 20.0),
            Goal::of_all("hot pair, 16 MiB and 256 MiB", "at most 120 ns", &large, |it| it <= 120.0),
            Goal::of_all("16 threads", "at least 300 million pairs/s", &most, |it| it >= 300.0),
            Goal::of_all("more with each thread added", "more than 1", &grows, |it: f64| it > 1.0),
            Goal::of_all("traces, warm, ns per operation", "at most 80", &figures("warm_ns", 1.0), |it| it <= 80.0),
            Goal::of_all("four phases, ns per allocation", "at most 80", &phases, |it| it <= 80.0),
            Goal::of_all("four phases, change to the first in per cent", "within 5", &drift, |it| it.abs() <= 5.0),
        ]);
    }
    goals
}
