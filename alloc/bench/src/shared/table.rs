//! A table, on the terminal and as Markdown.

use std::fmt::Write;

/// Where the text of a column's cells stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// At the left, behind a gap.
    Left,
    /// At the right.
    Right,
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    name: String,
    side: Side,
    /// The width that it has at least, with its gap.
    least: usize,
}

/// Columns are so far from what stands before them, at least.
const GAP: usize = 2;

impl Column {
    /// Of figures.
    pub fn right(name: impl Into<String>, least: usize) -> Column {
        Column { name: name.into(), side: Side::Right, least }
    }

    /// Of words.
    pub fn left(name: impl Into<String>, least: usize) -> Column {
        Column { name: name.into(), side: Side::Left, least }
    }

    fn cell(&self, text: &str, width: usize) -> String {
        match self.side {
            Side::Right => format!("{text:>width$}"),
            Side::Left => format!("{:GAP$}{text:<1$}", "", width - GAP),
        }
    }
}

/// A table: what its columns are, and a line for each row or contestant.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Tables that belong together have the same.
    pub group: String,
    /// What its figures are.
    pub title: String,
    /// Without that of the lines' names.
    pub columns: Vec<Column>,
    /// Names, and a cell for each column.
    pub lines: Vec<(String, Vec<String>)>,
    /// The width that the names have at least.
    pub names: usize,
    /// Lines below it.
    pub notes: Vec<String>,
}

impl Table {
    /// For the terminal.
    pub fn text(&self) -> String {
        let heading: Vec<&str> =
            [self.group.as_str(), &self.title].into_iter().filter(|part| !part.is_empty()).collect();
        let mut text = format!("\n{}\n", heading.join(": "));
        if !self.columns.is_empty() {
            let names = self.lines.iter().map(|(name, _)| name.chars().count()).chain([self.names]).max().unwrap_or(0);
            let width = |(at, column): (usize, &Column)| {
                let cells = self.lines.iter().filter_map(|(_, cells)| Some(cells.get(at)?.chars().count()));
                (cells.chain([column.name.chars().count()]).max().unwrap_or(0) + GAP).max(column.least)
            };
            let widths: Vec<usize> = self.columns.iter().enumerate().map(width).collect();
            let head: Vec<String> = self.columns.iter().map(|column| column.name.clone()).collect();
            for (name, cells) in std::iter::once(&(String::new(), head)).chain(&self.lines) {
                let cells = self.columns.iter().zip(cells).zip(&widths);
                let cells: String = cells.map(|((column, cell), width)| column.cell(cell, *width)).collect();
                let _ = writeln!(text, "{}", format!("{name:<names$}{cells}").trim_end());
            }
        }
        self.notes.iter().for_each(|note| text += &format!("  {note}\n"));
        text
    }

    /// For a page, below the heading of its group.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        if !self.title.is_empty() {
            let _ = writeln!(text, "\n{}:", self.title);
        }
        if !self.columns.is_empty() {
            let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
            let sides: String =
                self.columns.iter().map(|column| if column.side == Side::Left { "---|" } else { "---:|" }).collect();
            let _ = writeln!(text, "\n| | {} |\n|---|{sides}", names.join(" | "));
            for (name, cells) in &self.lines {
                let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
            }
        }
        self.notes.iter().for_each(|note| text += &format!("\n{note}\n"));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            group: "Traces".to_owned(),
            title: "ns".to_owned(),
            columns: vec![Column::right("gpt", 6), Column::left("note", 0)],
            lines: vec![("pool".to_owned(), vec!["1.5".to_owned(), "met".to_owned()])],
            names: 6,
            notes: vec!["one failed".to_owned()],
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        assert_eq!(table().text(), "\nTraces: ns\n         gpt  note\npool     1.5  met\n  one failed\n");
        let wide = Table { names: 0, notes: Vec::new(), ..table() };
        assert_eq!(wide.text(), "\nTraces: ns\n       gpt  note\npool   1.5  met\n");
    }

    #[test]
    fn markdown_says_the_same() {
        assert_eq!(
            table().markdown(),
            "\nns:\n\n| | gpt | note |\n|---|---:|---|\n| pool | 1.5 | met |\n\none failed\n"
        );
    }
}
