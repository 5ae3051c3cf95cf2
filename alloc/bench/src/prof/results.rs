//! What the rounds come to.

use std::collections::BTreeMap;

use poolscope_bench::machine::Machine;
use poolscope_bench::statistics::Spread;
use serde::Serialize;

use crate::per_pair;
use crate::programs::Program;
use crate::run::Ran;
use crate::scrape::ScrapeCost;

/// One round of one program, in the order in which the tools ran.
#[derive(Default)]
pub struct Round {
    pub ran: Vec<(&'static str, Ran)>,
}

/// Everything.
#[derive(Serialize)]
pub struct Results {
    pub machine: Machine,
    pub rounds: usize,
    /// The machine's load when it began: what else ran.
    pub load: String,
    pub seconds: f64,
    pub programs: Vec<ProgramResult>,
    pub scrape: Option<ScrapeCost>,
}

/// One program under all tools.
#[derive(Serialize)]
pub struct ProgramResult {
    pub name: &'static str,
    pub pairs: Option<u64>,
    pub cells: BTreeMap<&'static str, Cell>,
    pub failures: BTreeMap<&'static str, String>,
}

/// One program under one tool.
#[derive(Default, Serialize)]
pub struct Cell {
    pub runs: Vec<Ran>,
    /// Seconds from the start to the last byte written.
    pub seconds: Option<Spread>,
    /// Nanoseconds of the program's own processor time for a pair.
    pub processor_ns: Option<Spread>,
    /// Seconds by those on glibc in the same round.
    pub to_glibc: Option<Spread>,
    #[serde(skip)]
    ratios: Vec<f64>,
}

impl Results {
    pub fn new(machine: Machine, rounds: usize, load: String) -> Results {
        Results { machine, rounds, load, seconds: 0.0, programs: Vec::new(), scrape: None }
    }

    fn program(&mut self, name: &'static str, pairs: Option<u64>) -> &mut ProgramResult {
        let at = self.programs.iter().position(|program| program.name == name).unwrap_or_else(|| {
            let (cells, failures) = (BTreeMap::new(), BTreeMap::new());
            self.programs.push(ProgramResult { name, pairs, cells, failures });
            self.programs.len() - 1
        });
        &mut self.programs[at]
    }

    /// A tool that did not run to its end.
    pub fn failed(&mut self, program: &'static str, tool: &'static str, why: String) {
        self.program(program, None).failures.insert(tool, why);
    }

    pub fn add(&mut self, program: &Program, round: Round) {
        let result = self.program(program.name, program.pairs);
        result.pairs = program.pairs;
        let glibc = round.ran.iter().find(|(tool, _)| *tool == "glibc").map(|(_, ran)| ran.seconds);
        for (tool, ran) in round.ran {
            let cell = result.cells.entry(tool).or_default();
            cell.ratios.extend(glibc.map(|glibc| ran.seconds / ran.part / glibc));
            cell.runs.push(ran);
            let of = |figure: fn(&Ran) -> Option<f64>| {
                Spread::of(&cell.runs.iter().filter_map(figure).collect::<Vec<f64>>())
            };
            cell.seconds = of(|ran| Some(ran.seconds / ran.part));
            cell.processor_ns = of(per_pair);
            cell.to_glibc = Spread::of(&cell.ratios);
        }
    }

    pub fn cell(&self, program: &str, tool: &str) -> Option<&Cell> {
        self.programs.iter().find(|known| known.name == program)?.cells.get(tool)
    }

    /// By how many nanoseconds of processor time a pair takes longer under one tool than under another: the median of
    /// the rounds' differences.
    pub fn more(&self, program: &str, tool: &str, than: &str) -> Option<Spread> {
        let (one, other) = (self.cell(program, tool)?, self.cell(program, than)?);
        let pairs = one.runs.iter().zip(&other.runs);
        Spread::of(&pairs.filter_map(|(one, other)| Some(per_pair(one)? - per_pair(other)?)).collect::<Vec<f64>>())
    }

    /// Bytes that our recorder stored for an allocation and its free.
    pub fn stored(&self, program: &str) -> Option<Spread> {
        let cell = self.cell(program, "poolscope record --lossless")?;
        let each = cell.runs.iter().filter_map(|ran| Some(ran.bytes as f64 / ran.allocations? as f64));
        Spread::of(&each.collect::<Vec<f64>>())
    }

    /// Bytes of memory that our recorder took, at most, on any program.
    pub fn recorder_bytes(&self) -> Option<f64> {
        let runs = self.programs.iter().flat_map(|program| program.cells.values()).flat_map(|cell| &cell.runs);
        runs.filter_map(|ran| ran.recorder_bytes).reduce(f64::max)
    }
}
