//! The faces of the results in words: for the terminal, and for a page of Markdown. They only read.

use std::fmt::{Display, Write};

use crate::results::Results;
use crate::table::Table;

/// What a benchmark has to say of its results besides goals, machine and versions.
pub struct Report {
    /// In their order.
    pub tables: Vec<Table>,
    /// Lines below all of them.
    pub notes: Vec<String>,
}

impl Report {
    /// For the terminal.
    pub fn text<A>(&self, results: &Results<A>) -> String {
        let mut text: String = self.tables.iter().map(Table::text).collect();
        let notes: Vec<String> = self.notes.iter().cloned().chain(absent(results)).collect();
        if !notes.is_empty() {
            let _ = writeln!(text, "\n{}", notes.join("\n"));
        }
        text += "\nGoals\n";
        let goals = &results.goals;
        let width = |of: fn(&crate::goal::Goal) -> &str| {
            goals.iter().map(|goal| of(goal).chars().count()).max().unwrap_or(0) + 2
        };
        let (what, limit) = (width(|goal| goal.what), width(|goal| &goal.limit));
        for goal in goals {
            let _ = writeln!(text, "  {:<what$}{:<limit$}{:<8}{}", goal.what, goal.limit, goal.verdict(), goal.reached);
        }
        text
    }

    /// For a page.
    pub fn markdown<A: Display>(&self, results: &Results<A>) -> String {
        let Results { machine, about, rounds, seconds, .. } = results;
        let mut text = format!("\n{machine}; {about}; {rounds} rounds in {seconds:.0} s.\n\n");
        let versions = results.contestants.iter().filter(|took| !took.version.is_empty());
        let versions: Vec<String> = versions.map(|took| format!("{} {}", took.name, took.version)).collect();
        if !versions.is_empty() {
            let _ = writeln!(text, "{}.\n", versions.join(", "));
        }
        text += "| goal | limit | | reached |\n|---|---|---|---|\n";
        for goal in &results.goals {
            let verdict = goal.verdict().replace("MISSED", "**missed**");
            let _ = writeln!(text, "| {} | {} | {verdict} | {} |", goal.what, goal.limit, goal.reached);
        }
        let mut group = "";
        for table in &self.tables {
            if table.group != group {
                group = &table.group;
                let _ = writeln!(text, "\n### {group}");
            }
            text += &table.markdown();
        }
        text.push('\n');
        self.notes.iter().cloned().chain(absent(results)).for_each(|note| text += &format!("{note}\n\n"));
        text
    }
}

fn absent<A>(results: &Results<A>) -> impl Iterator<Item = String> {
    results.absent.iter().map(|(name, reason)| format!("{name} did not take part: {reason}."))
}
