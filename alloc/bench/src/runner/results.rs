//! The figures of all rounds, and what the reports read from them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::catalogue::Family;
use crate::peers::{Allocator, Role};
use crate::sampling::Sampling;
use poolscope_bench::machine::Machine;
use poolscope_bench::statistics::{Spread, geometric_mean};

/// What one allocator reached in one row.
#[derive(Clone, Default, Serialize)]
pub struct Cell {
    /// Nanoseconds per operation.
    pub time: Option<Spread>,
    /// Largest resident memory, in bytes.
    pub peak: Option<Spread>,
    /// The part of the resident memory that the program did not ask for.
    pub waste: Option<Spread>,
    /// Instructions per operation inside the allocator.
    pub instructions: Option<f64>,
    /// Why there is no figure, where a run failed.
    pub failure: Option<String>,
}

/// One row with all allocators.
#[derive(Serialize)]
pub struct RowResult {
    pub id: String,
    pub family: Family,
    /// By the allocator's name.
    pub cells: BTreeMap<String, Cell>,
}

/// The ratios of one workload, by the allocator's name.
pub struct Workload<'a> {
    pub name: &'a str,
    pub ratios: BTreeMap<&'a str, f64>,
}

impl RowResult {
    /// The workload that the row is a part of: its own, except that of an alignment.
    fn workload(&self) -> &str {
        match self.family {
            Family::AlignedLifo | Family::AlignedBatch => self.id.rsplit_once('/').map_or(&self.id, |(size, _)| size),
            _ => &self.id,
        }
    }
}

/// The whole run: what every report is made from.
#[derive(Serialize)]
pub struct Results {
    pub machine: Machine,
    pub rounds: usize,
    pub allocators: Vec<Allocator>,
    pub rows: Vec<RowResult>,
    pub sampling: Option<Sampling>,
    /// Per cent that an attached dashboard costs.
    pub attach: Option<Spread>,
}

/// Which figure of a cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    Time,
    Peak,
    Waste,
    Instructions,
}

impl Figure {
    /// What its numbers are, in a table of that family.
    pub fn unit(self, family: Family) -> String {
        match self {
            Figure::Time => format!("{} {}", family.unit().0, family.operation()),
            Figure::Peak => "largest resident memory in MiB".to_owned(),
            Figure::Waste => "per cent of the resident memory that the program did not ask for, at the end".to_owned(),
            Figure::Instructions => "instructions inside the allocator, per operation".to_owned(),
        }
    }

    /// The memory of every alignment says nothing that the sizes do not.
    pub fn is_shown(self, family: Family) -> bool {
        self != Figure::Peak || !matches!(family, Family::AlignedLifo | Family::AlignedBatch)
    }
}

impl Cell {
    /// The median, or the count.
    pub fn get(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::Time => self.time.map(|spread| spread.median),
            Figure::Peak => self.peak.map(|spread| spread.median),
            Figure::Waste => self.waste.map(|spread| spread.median),
            Figure::Instructions => self.instructions,
        }
    }
}

impl Results {
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
            let figure = row.cells.get(&allocator.name)?.get(figure)?;
            Some((allocator.name.as_str(), figure))
        });
        figures.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The pool's figure as a ratio to the best peer's.
    pub fn ratio(&self, row: &RowResult, figure: Figure) -> Option<f64> {
        let ours = row.cells.get(self.ours()?)?.get(figure)?;
        Some(ours / self.best_peer(row, figure)?.1)
    }

    /// Each workload with every allocator's figure as a ratio to the best one. The alignments of one size are one
    /// workload, by the geometric mean of their ratios.
    pub fn workloads(&self, figure: Figure) -> Vec<Workload<'_>> {
        let mut workloads: Vec<(&str, BTreeMap<&str, Vec<f64>>)> = Vec::new();
        for row in &self.rows {
            let Some(best) = self.best(row, figure) else { continue };
            let name = row.workload();
            if workloads.last().is_none_or(|(last, _)| *last != name) {
                workloads.push((name, BTreeMap::new()));
            }
            let Some((_, ratios)) = workloads.last_mut() else { continue };
            for (allocator, cell) in &row.cells {
                ratios.entry(allocator).or_default().extend(cell.get(figure).map(|figure| figure / best));
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
    pub fn mean(&self, allocator: &str, figure: Figure) -> Option<f64> {
        let workloads = self.workloads(figure);
        geometric_mean(workloads.iter().filter_map(|workload| workload.ratios.get(allocator).copied()))
    }

    /// The figure of one allocator.
    pub fn figure(&self, row: &RowResult, allocator: &str, figure: Figure) -> Option<f64> {
        row.cells.get(allocator)?.get(figure)
    }
}
