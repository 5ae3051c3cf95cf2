//! What every benchmark's command line has.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::Result;

/// Fewer rounds show whether something works, and are no result.
pub const LEAST_ROUNDS: usize = 5;

/// Part of a benchmark's own options.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// Rounds of all rows on all contestants; 5, and 1 where all rounds are the same
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Begin no round that would end later than so many seconds after the start; there is always one
    #[arg(long, value_name = "SECONDS")]
    pub within: Option<u64>,
    /// Only rows whose name begins with one of these
    #[arg(long, value_name = "BEGINNING", value_delimiter = ',')]
    pub only: Vec<String>,
    /// List the rows and the contestants, and end
    #[arg(long)]
    pub list: bool,
    /// Put the figures as Markdown between the marks of this page
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Folder of what is written
    #[arg(long, value_name = "DIR", default_value = "out")]
    pub output: PathBuf,
}

impl Common {
    /// In how much time the rounds are to end.
    pub fn within(&self) -> Option<Duration> {
        self.within.map(Duration::from_secs)
    }

    /// The rows that were asked for; an error if there are none.
    pub fn rows<T>(&self, all: Vec<T>, id: impl Fn(&T) -> String) -> Result<Vec<T>> {
        let wanted = |row: &T| self.only.iter().any(|beginning| id(row).starts_with(beginning.as_str()));
        let rows: Vec<T> = all.into_iter().filter(|row| self.only.is_empty() || wanted(row)).collect();
        if rows.is_empty() { Err("no row's name begins so; --list shows them".to_owned()) } else { Ok(rows) }
    }

    /// Prints names of rows, and contestants with what they are.
    pub fn show(rows: impl IntoIterator<Item = String>, contestants: impl IntoIterator<Item = (String, String)>) {
        rows.into_iter().for_each(|row| println!("{row}"));
        println!();
        contestants.into_iter().for_each(|(name, what)| println!("{}", format!("{name:<18}{what}").trim_end()));
    }
}

/// The known one of this name; an error that lists the others if there is none. `what` is what they are called.
pub fn named<'a, T>(known: &'a [T], name: &str, what: &str, name_of: impl Fn(&T) -> &str) -> Result<&'a T> {
    known.iter().find(|one| name_of(one) == name).ok_or_else(|| {
        let known: Vec<&str> = known.iter().map(name_of).collect();
        format!("no {what} {name}; there are {}", known.join(", "))
    })
}
