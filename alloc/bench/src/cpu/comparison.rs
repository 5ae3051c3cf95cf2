//! The allocators held against each other, row by row.

use std::collections::BTreeMap;
use std::fmt;

use poolscope_bench::results::RowResult;
use poolscope_bench::statistics::{Spread, geometric_mean};
use serde::Serialize;

use crate::catalogue::Family;
use crate::peers::{Allocator, Role};
use crate::sampling::Sampling;

/// The whole run: what every report is made from.
pub type Results = poolscope_bench::results::Results<Host>;

/// What is known of the host's pool besides its rows.
#[derive(Serialize)]
pub struct Host {
    /// Who takes part, and how it counts.
    pub allocators: Vec<Allocator>,
    pub sampling: Option<Sampling>,
    /// Per cent that an attached dashboard costs.
    pub attach: Option<Spread>,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} allocators", self.allocators.len())
    }
}

/// Which figure of a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    Time,
    Peak,
    Left,
    Waste,
    Mean,
    Worst,
    Instructions,
}

impl Figure {
    /// In the order of the tables.
    pub const ALL: [Figure; 7] =
        [Figure::Time, Figure::Peak, Figure::Left, Figure::Waste, Figure::Mean, Figure::Worst, Figure::Instructions];

    /// As a cell names it.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Time => "ns",
            Figure::Peak => "peak",
            Figure::Left => "left",
            Figure::Waste => "waste",
            Figure::Mean => "mean",
            Figure::Worst => "worst",
            Figure::Instructions => "instructions",
        }
    }

    /// What its numbers are, in a table of that family.
    pub fn unit(self, family: Family) -> String {
        match self {
            Figure::Time => format!("{} {}", family.unit().0, family.operation()),
            Figure::Peak => "largest resident memory in MiB".to_owned(),
            Figure::Left => "resident memory in MiB when all was deleted and the server had been idle".to_owned(),
            Figure::Waste => "per cent of the resident memory that the program did not ask for, at the end".to_owned(),
            Figure::Mean => "resident memory to live bytes at the end of a phase, the mean".to_owned(),
            Figure::Worst => "resident memory to live bytes at the end of a phase, the largest".to_owned(),
            Figure::Instructions => "instructions inside the allocator, per operation".to_owned(),
        }
    }

    /// The memory of every alignment says nothing that the sizes do not.
    pub fn is_shown(self, family: Family) -> bool {
        self != Figure::Peak || !matches!(family, Family::AlignedLifo | Family::AlignedBatch)
    }
}

impl Host {
    /// The name of the pool, if it takes part.
    pub fn ours(&self) -> Option<&str> {
        self.named(Role::Ours)
    }

    /// The name of the pool without sampling, if it takes part.
    pub fn unsampled(&self) -> Option<&str> {
        self.named(Role::SamplingOff)
    }

    fn named(&self, role: Role) -> Option<&str> {
        self.allocators.iter().find(|allocator| allocator.role == role).map(|allocator| allocator.name.as_str())
    }

    /// The least figure among the peers, and whose it is.
    pub fn best_peer(&self, row: &RowResult, figure: Figure) -> Option<(&str, f64)> {
        self.least(row, figure, |role| role == Role::Peer)
    }

    /// The least figure among the peers and the pool.
    pub fn best(&self, row: &RowResult, figure: Figure) -> Option<f64> {
        self.least(row, figure, |role| matches!(role, Role::Peer | Role::Ours)).map(|(_, figure)| figure)
    }

    fn least(&self, row: &RowResult, figure: Figure, takes_part: impl Fn(Role) -> bool) -> Option<(&str, f64)> {
        let part = self.allocators.iter().filter(|allocator| takes_part(allocator.role));
        let figures = part.filter_map(|allocator| {
            let figure = row.get(&allocator.name, figure.name())?;
            Some((allocator.name.as_str(), figure))
        });
        figures.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The pool's figure as a ratio to the best peer's.
    pub fn ratio(&self, row: &RowResult, figure: Figure) -> Option<f64> {
        let ours = row.get(self.ours()?, figure.name())?;
        Some(ours / self.best_peer(row, figure)?.1)
    }
}

/// The ratios of one workload, by the allocator's name.
pub struct Workload<'a> {
    pub name: &'a str,
    pub ratios: BTreeMap<&'a str, f64>,
}

/// The workload that a row is a part of: its own, except that of an alignment.
fn workload(row: &RowResult) -> &str {
    match Family::of(&row.id) {
        Family::AlignedLifo | Family::AlignedBatch => row.id.rsplit_once('/').map_or(&row.id, |(size, _)| size),
        _ => &row.id,
    }
}

/// Each workload with every allocator's figure as a ratio to the best one. The alignments of one size are one
/// workload, by the geometric mean of their ratios.
pub fn workloads(results: &Results, figure: Figure) -> Vec<Workload<'_>> {
    let mut workloads: Vec<(&str, BTreeMap<&str, Vec<f64>>)> = Vec::new();
    for row in &results.rows {
        let Some(best) = results.about.best(row, figure) else { continue };
        let name = workload(row);
        if workloads.last().is_none_or(|(last, _)| *last != name) {
            workloads.push((name, BTreeMap::new()));
        }
        let Some((_, ratios)) = workloads.last_mut() else { continue };
        for (allocator, cell) in &row.cells {
            ratios.entry(allocator).or_default().extend(cell.median(figure.name()).map(|figure| figure / best));
        }
    }
    workloads
        .into_iter()
        .map(|(name, ratios)| Workload {
            name,
            ratios: ratios.into_iter().filter_map(|(name, ratios)| Some((name, geometric_mean(ratios)?))).collect(),
        })
        .collect()
}

/// The geometric mean of the allocator's ratios over all workloads. One in which it has no figure does not count.
pub fn mean(results: &Results, allocator: &str, figure: Figure) -> Option<f64> {
    mean_of(results, allocator, figure, |_| true)
}

/// The same over the workloads of some families.
pub fn mean_of(results: &Results, allocator: &str, figure: Figure, of: impl Fn(Family) -> bool) -> Option<f64> {
    let workloads = workloads(results, figure);
    let workloads = workloads.iter().filter(|workload| of(Family::of(workload.name)));
    geometric_mean(workloads.filter_map(|workload| workload.ratios.get(allocator).copied()))
}
