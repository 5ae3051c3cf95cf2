//! What is to be reached, and whether it is.

use serde::Serialize;

use crate::statistics::shown;

/// One goal, and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    /// What is measured.
    pub what: &'static str,
    /// What it has to keep to, in words.
    pub limit: String,
    /// What was reached, in words.
    pub reached: String,
    /// `None` if nothing was measured for it.
    pub met: Option<bool>,
    /// Whether it is the same on every machine.
    pub anywhere: bool,
}

/// What stands there where nothing was measured.
const NOT_MEASURED: &str = "not measured";

impl Goal {
    /// A goal for one figure.
    pub fn of_one(
        what: &'static str,
        limit: impl Into<String>,
        value: Option<f64>,
        keeps: impl Fn(f64) -> bool,
        show: impl Fn(f64) -> String,
    ) -> Goal {
        let reached = value.map_or(NOT_MEASURED.to_owned(), show);
        Goal { what, limit: limit.into(), reached, met: value.map(keeps), anywhere: false }
    }

    /// A goal for some named figures, each of which has to keep it. Names all.
    pub fn of_all(
        what: &'static str,
        limit: impl Into<String>,
        values: &[(String, f64)],
        keeps: impl Fn(f64) -> bool,
    ) -> Goal {
        let words: Vec<String> = values.iter().map(|(name, value)| format!("{name} {}", shown(*value))).collect();
        let met = (!values.is_empty()).then(|| values.iter().all(|(_, value)| keeps(*value)));
        let reached = if words.is_empty() { NOT_MEASURED.to_owned() } else { words.join(", ") };
        Goal { what, limit: limit.into(), reached, met, anywhere: false }
    }

    /// A goal for many rows. Names those that are over the limit, the worst first, or else the row that is closest.
    pub fn of_rows(what: &'static str, of: &str, limit: f64, mut values: Vec<(String, f64)>) -> Goal {
        values.sort_by(|a, b| b.1.total_cmp(&a.1));
        let over: Vec<String> =
            values.iter().filter(|(_, value)| *value > limit).map(|(id, value)| format!("{id} {value:.2}")).collect();
        let closest = values.first().map(|(id, worst)| format!("at most {worst:.2} ({id})"));
        Goal::of_rows_over(what, format!("at most {limit:.2} {of}"), values.len(), closest, &over)
    }

    /// The same with the rows that are over the limit known already, in words; and in words what is closest to it.
    pub fn of_rows_over(
        what: &'static str,
        limit: impl Into<String>,
        rows: usize,
        closest: Option<String>,
        over: &[String],
    ) -> Goal {
        let reached = match closest {
            None => NOT_MEASURED.to_owned(),
            Some(closest) if over.is_empty() => closest,
            Some(_) => format!("{} of {rows} rows over it: {}", over.len(), shortened(over)),
        };
        Goal { what, limit: limit.into(), reached, met: (rows > 0).then_some(over.is_empty()), anywhere: false }
    }

    /// The same on every machine.
    pub fn anywhere(self) -> Goal {
        Goal { anywhere: true, ..self }
    }

    /// In a word.
    pub fn verdict(&self) -> &'static str {
        match self.met {
            None => "-",
            Some(true) => "met",
            Some(false) => "MISSED",
        }
    }
}

/// The first few.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[f64]) -> Vec<(String, f64)> {
        values.iter().enumerate().map(|(index, &value)| (format!("row/{index}"), value)).collect()
    }

    #[test]
    fn a_goal_names_the_rows_that_miss_it_and_the_worst_first() {
        let goal = Goal::of_rows("what", "of it", 1.0, rows(&[0.9, 1.1, 1.5]));
        assert_eq!(goal.met, Some(false));
        assert_eq!(goal.reached, "2 of 3 rows over it: row/2 1.50, row/1 1.10");
    }

    #[test]
    fn a_goal_that_is_kept_says_how_closely() {
        let goal = Goal::of_rows("what", "of it", 1.0, rows(&[0.9, 1.0]));
        assert_eq!((goal.met, goal.reached.as_str()), (Some(true), "at most 1.00 (row/1)"));
    }

    #[test]
    fn a_goal_is_missed_by_one_figure_of_many_and_says_all() {
        let values = [("gnn".to_owned(), 0.5), ("gpt".to_owned(), 12.25)];
        let missed = Goal::of_all("what", "at most 1", &values, |value| value <= 1.0);
        assert_eq!((missed.met, missed.reached.as_str()), (Some(false), "gnn 0.50, gpt 12.2"));
        assert_eq!(Goal::of_all("what", "at most 20", &values, |value| value <= 20.0).met, Some(true));
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        assert_eq!(Goal::of_rows("what", "of it", 1.0, Vec::new()).met, None);
        assert_eq!(Goal::of_all("what", "at most 1", &[], |_| false).met, None);
        assert_eq!(Goal::of_one("what", "at most 1", None, |_| false, |_| String::new()).reached, NOT_MEASURED);
    }
}
