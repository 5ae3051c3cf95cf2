//! How the findings are drawn: a table whose sentences take as many lines as they need.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::Findings;
use crate::dashboard::panes::Scene;
use crate::dashboard::panes::rows::Rows;
use crate::dashboard::widgets::panel::panel;
use crate::dashboard::widgets::plain::wrapped;
use crate::dashboard::widgets::table::{Column, Table};

/// Index of the column of the word for how much it matters.
pub(super) const SEVERITY: usize = 0;
/// Index of the column of what it is about.
pub(super) const ABOUT: usize = 1;
/// Index of the column of the sentences.
pub(super) const SENTENCE: usize = 2;

/// The columns.
pub(super) const COLUMNS: &[Column] = &[
    Column { title: "Severity", width: 9, right: false, rank: 0 },
    Column { title: "About", width: 8, right: false, rank: 1 },
    Column { title: "Finding", width: 0, right: false, rank: 0 },
];

/// Columns that a sentence has.
fn room(rows: &Rows, inner: Rect) -> usize {
    let placed = rows.table().placed(inner.width);
    placed.iter().find(|&&(column, ..)| column == SENTENCE).map_or(1, |&(_, _, width)| usize::from(width.max(1)))
}

/// Where each row lies below the titles, with a line of air behind it; the selected one is among them.
pub(super) fn places(findings: &Findings, rows: &Rows, inner: Rect) -> Vec<(usize, Rect)> {
    let below = Rect { y: inner.y + 1, height: inner.height.saturating_sub(1), ..inner };
    let room = room(rows, inner);
    let shown = rows.order.iter().filter_map(|&at| findings.rows.get(at));
    let heights: Vec<u16> = shown.map(|row| wrapped(&row.finding.sentence, room).len() as u16 + 1).collect();
    let mut first = 0;
    let end = (rows.selected + 1).min(heights.len());
    while first < rows.selected && heights[first..end].iter().sum::<u16>() > below.height {
        first += 1;
    }
    let mut y = below.y;
    let mut places = Vec::new();
    for (at, height) in heights.into_iter().enumerate().skip(first) {
        if y >= below.bottom() {
            break;
        }
        places.push((at, Rect { y, height: height.min(below.bottom() - y), ..below }));
        y += height;
    }
    places
}

/// Draws the view.
pub(super) fn draw(findings: &Findings, rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer) {
    let theme = scene.theme;
    let right = match (rows.order.len(), findings.rows.len()) {
        (shown, all) if shown < all => format!("{shown} of {all}"),
        _ if rows.sort.column == SEVERITY && rows.sort.falls => "the most important first".to_owned(),
        (_, all) => all.to_string(),
    };
    let inner = panel(scene.body, buf, theme, "Findings", Line::styled(right, theme.dim));
    if rows.order.is_empty() {
        let text = match findings.rows.is_empty() {
            true => "Nothing to say: nothing grows for certain, and no memory lies idle that matters.",
            false => "No finding matches.",
        };
        for (line, y) in wrapped(text, usize::from(inner.width)).iter().zip(inner.top()..inner.bottom()) {
            buf.set_string(inner.x, y, line, theme.dim);
        }
        return;
    }
    let titles = Table { rows: 0, selected: None, ..rows.table() };
    titles.draw(Rect { height: inner.height.min(1), ..inner }, buf, theme, |_, _, _| Line::default());
    let placed = rows.table().placed(inner.width);
    for (at, place) in places(findings, rows, inner) {
        let Some(row) = findings.rows.get(rows.order[at]) else { continue };
        let is_selected = at == rows.selected;
        if is_selected {
            buf.set_string(place.x, place.y, "▶", theme.accent);
        }
        for &(column, x, width) in &placed {
            let (text, style) = match column {
                SEVERITY => (row.finding.severity.word(), theme.severity(row.finding.severity)),
                ABOUT => (row.finding.subject.name(), theme.dim),
                _ => (&*row.finding.sentence, if is_selected { theme.strong } else { theme.text }),
            };
            for (line, y) in wrapped(text, usize::from(width.max(1))).iter().zip(place.top()..place.bottom()) {
                buf.set_string(place.x + x, y, line, style);
            }
        }
    }
}
