//! Tables of the page.

use crate::words::markup::escaped;

/// A cell of a table with a text.
pub(super) fn cell(text: &str) -> String {
    format!("<td>{}</td>", escaped(text))
}

/// A cell with a text that stands for a number, by which tables are sorted.
pub(super) fn number(value: u64, text: &str) -> String {
    format!("<td data-v=\"{value}\">{}</td>", escaped(text))
}

/// A row of cells.
pub(super) fn row(cells: &[String]) -> String {
    format!("<tr>{}</tr>", cells.concat())
}

/// A table of a class, with its heads and rows.
pub(super) fn table(class: &str, heads: &[&str], rows: &str) -> String {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let heads: String = heads.iter().map(|head| format!("<th>{}</th>", escaped(head))).collect();
    format!("<table{class}><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>\n")
}
