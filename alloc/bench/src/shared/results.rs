//! What the rounds come to: the one model that tables, goals, pictures and JSON are made from.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::goal::Goal;
use crate::machine::Machine;
use crate::statistics::Spread;

/// The figures of one measurement, by name.
pub type Figures = BTreeMap<String, f64>;

/// A figure of all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What the rounds come to.
    #[serde(flatten)]
    pub spread: Spread,
    /// What each of them gave, in their order.
    pub rounds: Vec<f64>,
}

/// What one contestant reached in one row.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cell {
    /// By name.
    #[serde(flatten)]
    pub figures: BTreeMap<String, Measured>,
    /// Why there are no more rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Cell {
    /// Adds a round.
    pub fn add(&mut self, figures: Figures) {
        for (name, value) in figures {
            let mut rounds = self.figures.remove(&name).map_or_else(Vec::new, |known| known.rounds);
            rounds.push(value);
            if let Some(spread) = Spread::of(&rounds) {
                self.figures.insert(name, Measured { spread, rounds });
            }
        }
    }

    /// What the rounds of a figure come to.
    pub fn spread(&self, figure: &str) -> Option<Spread> {
        Some(self.figures.get(figure)?.spread)
    }

    /// Their median.
    pub fn median(&self, figure: &str) -> Option<f64> {
        Some(self.spread(figure)?.median)
    }
}

/// One row with all contestants.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RowResult {
    /// Its name, of which the part before a `/` says what kind it is.
    pub id: String,
    /// By the contestant's name.
    pub cells: BTreeMap<String, Cell>,
}

impl RowResult {
    /// Its name among those of its kind.
    pub fn name(&self) -> &str {
        self.id.split_once('/').map_or(&self.id, |(_, name)| name)
    }

    /// The median of a contestant's figure.
    pub fn get(&self, contestant: &str, figure: &str) -> Option<f64> {
        self.cells.get(contestant)?.median(figure)
    }

    /// One contestant's figure held against another's of the same round.
    pub fn against(&self, one: &str, other: &str, figure: &str, of: impl Fn(f64, f64) -> f64) -> Option<Spread> {
        let [one, other] = [one, other].map(|name| Some(&self.cells.get(name)?.figures.get(figure)?.rounds));
        Spread::of(&one?.iter().zip(other?).map(|(one, other)| of(*one, *other)).collect::<Vec<f64>>())
    }

    /// A line for each contestant that failed.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        self.cells
            .iter()
            .filter_map(|(name, cell)| Some(format!("{name} failed in {}: {}", self.id, cell.failure.as_ref()?)))
    }
}

/// Who took part.
#[derive(Clone, Debug, Serialize)]
pub struct Contestant {
    /// As in the tables.
    pub name: String,
    /// Empty where there is none to name.
    pub version: String,
}

/// The whole run. `A` is what only one benchmark knows of its own.
#[derive(Debug, Serialize)]
pub struct Results<A> {
    /// Where it ran.
    pub machine: Machine,
    /// What only this benchmark has.
    #[serde(flatten)]
    pub about: A,
    /// How many there were.
    pub rounds: usize,
    /// How long they took.
    pub seconds: f64,
    /// In the order of the tables.
    pub contestants: Vec<Contestant>,
    /// Who could not take part, and why.
    pub absent: Vec<(String, String)>,
    /// In the order of the tables.
    pub rows: Vec<RowResult>,
    /// In the order of the project's own list.
    pub goals: Vec<Goal>,
}

impl<A> Results<A> {
    /// The row of this name.
    pub fn row(&self, id: &str) -> Option<&RowResult> {
        self.rows.iter().find(|row| row.id == id)
    }

    /// The rows whose names begin so.
    pub fn family<'a>(&'a self, beginning: &'a str) -> impl Iterator<Item = &'a RowResult> {
        self.rows.iter().filter(move |row| row.id.starts_with(beginning))
    }

    /// The same with goals.
    pub fn with_goals(self, goals: impl Fn(&Results<A>) -> Vec<Goal>) -> Results<A> {
        let goals = goals(&self);
        Results { goals, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_held_against_that_of_the_same_round() {
        let mut row = RowResult::default();
        for (name, rounds) in [("one", [2.0, 9.0, 4.0]), ("other", [1.0, 3.0, 2.0])] {
            let cell = row.cells.entry(name.to_owned()).or_default();
            rounds.into_iter().for_each(|value| cell.add(Figures::from([("ns".to_owned(), value)])));
        }
        let ratio = row.against("one", "other", "ns", |one, other| one / other).expect("both were measured");
        assert_eq!((ratio.median, ratio.least, ratio.most, ratio.count), (2.0, 2.0, 3.0, 3));
        assert!(row.against("one", "nobody", "ns", |one, _| one).is_none());
    }
}
