//! A table whose columns make room for each other: on a narrow screen the least important ones go.
//!
//! The table keeps nothing: what is visible follows from the selection and the height, so drawing and hit-testing
//! agree without sharing state.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use crate::dashboard::theme::Theme;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// Title.
    pub(crate) title: &'static str,
    /// Columns of the screen; the one with 0 takes what is left.
    pub(crate) width: u16,
    /// Numbers stand on the right.
    pub(crate) right: bool,
    /// The highest goes first when there is no room; 0 always stays.
    pub(crate) rank: u8,
}

/// Columns that are not shown, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hidden(pub(crate) u32);

impl Hidden {
    /// Whether a column is.
    pub(crate) fn has(self, column: usize) -> bool {
        self.0 >> column & 1 == 1
    }

    /// With a column hidden, or shown.
    pub(crate) fn with(self, column: usize, hidden: bool) -> Hidden {
        Hidden(if hidden { self.0 | 1 << column } else { self.0 & !(1 << column) })
    }
}

/// Between columns.
const GAP: u16 = 2;
/// For the mark of the selected row.
const MARK: u16 = 2;

/// Where the columns lie: `(index, x from the area's left, width)`. `keep` stays whatever its rank.
pub(crate) fn place(
    columns: &[Column],
    hidden: Hidden,
    fill_min: u16,
    width: u16,
    keep: Option<usize>,
) -> Vec<(usize, u16, u16)> {
    let mut shown: Vec<usize> = (0..columns.len()).filter(|&at| !hidden.has(at)).collect();
    let need = |shown: &[usize]| -> u16 {
        let fixed: u16 = shown.iter().map(|&i| if columns[i].width == 0 { fill_min } else { columns[i].width }).sum();
        MARK + fixed + GAP * (shown.len().saturating_sub(1)) as u16
    };
    while need(&shown) > width {
        let least =
            shown.iter().copied().filter(|&i| columns[i].rank > 0 && Some(i) != keep).max_by_key(|&i| columns[i].rank);
        let Some(least) = least else { break };
        shown.retain(|&i| i != least);
    }
    let fixed: u16 = shown.iter().map(|&i| columns[i].width).sum();
    let gaps = GAP * (shown.len().saturating_sub(1)) as u16;
    let fill = width.saturating_sub(MARK + fixed + gaps);
    let mut x = MARK;
    shown
        .into_iter()
        .map(|i| {
            let w = if columns[i].width == 0 { fill } else { columns[i].width };
            let placed = (i, x, w.min(width.saturating_sub(x)));
            x = x.saturating_add(w + GAP);
            placed
        })
        .collect()
}

/// The first row that is drawn: the selection stays in the middle, away from the ends.
pub(crate) fn first_visible(selected: usize, rows: usize, height: usize) -> usize {
    selected.saturating_sub(height / 2).min(rows.saturating_sub(height))
}

/// How a table is drawn.
pub(crate) struct Table<'a> {
    /// Its columns.
    pub(crate) columns: &'a [Column],
    /// Those of them that are not shown.
    pub(crate) hidden: Hidden,
    /// The least that the column without a width is left with, before others have to go.
    pub(crate) fill_min: u16,
    /// The column that orders it, and whether it falls.
    pub(crate) sorted: Option<(usize, bool)>,
    /// The selected row; without one, nothing is marked and the table starts at its top.
    pub(crate) selected: Option<usize>,
    /// Rows there are.
    pub(crate) rows: usize,
}

impl Table<'_> {
    fn keep(&self) -> Option<usize> {
        self.sorted.map(|s| s.0)
    }

    /// Where its columns lie in so much width: `(index, x from the left, width)`.
    pub(crate) fn placed(&self, width: u16) -> Vec<(usize, u16, u16)> {
        place(self.columns, self.hidden, self.fill_min, width, self.keep())
    }

    /// Draws the titles and the rows; `cell` is asked for the row and the column of what is visible.
    pub(crate) fn draw<'c>(
        &self,
        area: Rect,
        buf: &mut Buffer,
        theme: &Theme,
        mut cell: impl FnMut(usize, usize, u16) -> Line<'c>,
    ) {
        if area.height == 0 || area.width < 4 {
            return;
        }
        let placed = self.placed(area.width);
        for &(index, x, width) in &placed {
            let column = &self.columns[index];
            let (title, style) = match self.sorted {
                Some((by, falls)) if by == index => {
                    (format!("{}{}", column.title, if falls { "▾" } else { "▴" }), theme.accent)
                }
                _ => (column.title.to_owned(), theme.dim),
            };
            put(buf, area.x + x, area.y, width, column.right, Line::from(Span::styled(title, style)));
        }
        let height = usize::from(area.height - 1);
        let first = self.selected.map_or(0, |s| first_visible(s, self.rows, height));
        for (line, row) in (first..self.rows).take(height).enumerate() {
            let y = area.y + 1 + line as u16;
            for &(index, x, width) in &placed {
                let right = self.columns[index].right;
                let line = cell(row, index, width);
                // A part of a number is another number.
                let line = if right && line.width() > usize::from(width) { Line::from("…") } else { line };
                put(buf, area.x + x, y, width, right, line);
            }
            if self.selected == Some(row) {
                buf.set_string(area.x, y, "▶", theme.accent);
                buf.set_style(Rect { x: area.x, y, width: area.width, height: 1 }, theme.selected);
            }
        }
        self.scroll_mark(area, buf, theme, first, height);
    }

    /// A thumb on the right border, one column outside of the area's padding.
    fn scroll_mark(&self, area: Rect, buf: &mut Buffer, theme: &Theme, first: usize, height: usize) {
        if self.selected.is_none() || self.rows <= height || height == 0 {
            return;
        }
        let thumb = (height * height / self.rows).max(1);
        let top = first * (height - thumb) / (self.rows - height).max(1);
        for line in top..top + thumb {
            let (x, y) = (area.right() + 1, area.y + 1 + line as u16);
            if buf.area.contains((x, y).into()) {
                buf.set_string(x, y, "┃", theme.dim);
            }
        }
    }

    /// The row under a point.
    pub(crate) fn row_at(&self, area: Rect, x: u16, y: u16) -> Option<usize> {
        if !area.contains((x, y).into()) || y == area.y {
            return None;
        }
        let height = usize::from(area.height - 1);
        let first = self.selected.map_or(0, |s| first_visible(s, self.rows, height));
        Some(first + usize::from(y - area.y - 1)).filter(|&row| row < self.rows)
    }

    /// The column whose title is under a point.
    pub(crate) fn title_at(&self, area: Rect, x: u16, y: u16) -> Option<usize> {
        if y != area.y || x < area.x {
            return None;
        }
        let x = x - area.x;
        self.placed(area.width).into_iter().find(|&(_, left, width)| (left..left + width).contains(&x)).map(|c| c.0)
    }
}

/// Puts a line into `width` columns, on the left or the right of them.
pub(crate) fn put(buf: &mut Buffer, x: u16, y: u16, width: u16, right: bool, line: Line<'_>) {
    let used = (line.width() as u16).min(width);
    let x = if right { x + width - used } else { x };
    line.render(Rect { x, y, width: used, height: 1 }.intersection(buf.area), buf);
}

/// A cell of one style.
pub(crate) fn cell(text: impl Into<String>, style: Style) -> Line<'static> {
    Line::from(Span::styled(text.into(), style))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column { title: "A", width: 10, right: true, rank: 0 },
        Column { title: "B", width: 10, right: true, rank: 2 },
        Column { title: "C", width: 10, right: true, rank: 1 },
        Column { title: "D", width: 0, right: false, rank: 0 },
    ];

    #[test]
    fn the_least_important_column_goes_first_but_not_the_sorted_one() {
        let shown =
            |width, keep| place(COLUMNS, Hidden::default(), 26, width, keep).iter().map(|c| c.0).collect::<Vec<_>>();
        assert_eq!(shown(80, None), [0, 1, 2, 3]);
        assert_eq!(shown(60, None), [0, 2, 3]);
        assert_eq!(shown(60, Some(1)), [0, 1, 3]);
        assert_eq!(shown(45, None), [0, 3]);
    }

    #[test]
    fn columns_fill_the_width_exactly() {
        for width in 40..200 {
            let placed = place(COLUMNS, Hidden::default(), 26, width, None);
            let (_, x, w) = placed[placed.len() - 1];
            assert_eq!(x + w, width);
        }
    }

    #[test]
    fn the_selection_is_always_visible() {
        for rows in 0..40 {
            for selected in 0..rows {
                let first = first_visible(selected, rows, 7);
                assert!((first..first + 7).contains(&selected));
                assert!(first == 0 || first + 7 <= rows);
            }
        }
    }
}
