//! The figures of all rounds.

use std::collections::BTreeMap;

use poolscope_bench::machine::Machine;
use poolscope_bench::statistics::Spread;
use serde::Serialize;

use crate::contestants::{OUR_POLICY, OURS};
use crate::goals::{self, Goal};
use crate::rows::Row;
use crate::worker::Handle;

/// The device that the figures come from.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    pub device: String,
    /// Bytes.
    pub memory: u64,
    /// The version of CUDA that its driver is for, as `1000 * major + 10 * minor`.
    pub cuda: Option<u32>,
}

impl std::fmt::Display for About {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} GiB", self.device, self.memory >> 30)?;
        self.cuda.map_or(Ok(()), |cuda| write!(f, ", driver for CUDA {}.{}", cuda / 1000, cuda % 1000 / 10))
    }
}

/// The rounds of one contestant in one row.
#[derive(Default)]
pub struct Sample {
    pub figures: BTreeMap<String, Vec<f64>>,
    pub failure: Option<String>,
}

/// By row and contestant.
pub type Samples = BTreeMap<String, BTreeMap<String, Sample>>;

/// What a contestant reached in a row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cell {
    #[serde(flatten)]
    pub figures: BTreeMap<String, Spread>,
    /// Why there is no figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

#[derive(Debug, Serialize)]
pub struct RowResult {
    pub id: String,
    pub cells: BTreeMap<String, Cell>,
}

#[derive(Debug, Serialize)]
pub struct Took {
    pub name: String,
    pub version: String,
}

/// The whole run.
#[derive(Serialize)]
pub struct Results {
    pub machine: Machine,
    pub device: About,
    pub rounds: usize,
    pub contestants: Vec<Took>,
    /// Who could not take part, and why.
    pub absent: Vec<(String, String)>,
    pub rows: Vec<RowResult>,
    pub goals: Vec<Goal>,
}

impl Results {
    pub fn new(
        device: About,
        rounds: usize,
        rows: &[Row],
        handles: &[Handle],
        mut samples: Samples,
        absent: Vec<(String, String)>,
    ) -> Results {
        let took = |handle: &Handle| Took { name: handle.name.clone(), version: handle.version.clone() };
        let cell = |sample: Sample| Cell {
            figures: sample.figures.into_iter().filter_map(|(name, of)| Some((name, Spread::of(&of)?))).collect(),
            failure: sample.failure,
        };
        let row = |row: &Row| {
            let cells = samples.remove(&row.id()).unwrap_or_default();
            RowResult { id: row.id(), cells: cells.into_iter().map(|(name, sample)| (name, cell(sample))).collect() }
        };
        let mut results = Results {
            machine: Machine::this(),
            device,
            rounds,
            contestants: handles.iter().map(took).collect(),
            absent,
            rows: rows.iter().map(row).collect(),
            goals: Vec::new(),
        };
        results.goals = goals::all(&results);
        results
    }

    /// The name of the pool, if it takes part.
    pub fn ours(&self) -> Option<&str> {
        let names = self.contestants.iter().map(|took| took.name.as_str());
        names.into_iter().find(|name| *name == OURS || *name == OUR_POLICY)
    }

    /// The rows whose names begin so.
    pub fn family<'a>(&'a self, beginning: &'a str) -> impl Iterator<Item = &'a RowResult> {
        self.rows.iter().filter(move |row| row.id.starts_with(beginning))
    }
}

impl RowResult {
    /// The median of a contestant's figure.
    pub fn get(&self, contestant: &str, figure: &str) -> Option<f64> {
        Some(self.cells.get(contestant)?.figures.get(figure)?.median)
    }
}
