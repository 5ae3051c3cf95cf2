//! How the sentence and the table are drawn.

use std::cmp::Ordering;
use std::time::Duration;

use poolscope_profiler::leaks::LeakKind;
use poolscope_profiler::model::snapshot::ProcessState;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::Leaks;
use super::found::Row;
use crate::dashboard::model::Model;
use crate::dashboard::panes::Scene;
use crate::dashboard::panes::rows::Rows;
use crate::dashboard::widgets::panel::{inside, panel};
use crate::dashboard::widgets::plain::wrapped;
use crate::dashboard::widgets::site_name::{name_line, sites_count};
use crate::dashboard::widgets::table::{Column, cell};
use crate::words::numbers;

/// Indices of columns.
pub(super) const KIND: usize = 0;
pub(super) const BYTES: usize = 1;
pub(super) const AGE: usize = 3;
pub(super) const SITE: usize = 4;

/// The columns.
pub(super) const COLUMNS: &[Column] = &[
    Column { title: "Leaked", width: 10, right: false, rank: 3 },
    Column { title: "Bytes", width: 9, right: true, rank: 0 },
    Column { title: "Blocks", width: 8, right: true, rank: 2 },
    Column { title: "Oldest", width: 8, right: true, rank: 1 },
    Column { title: "Call site", width: 0, right: false, rank: 0 },
];

/// The natural order by a column.
pub(super) fn compare(a: &Row, b: &Row, column: usize) -> Ordering {
    match column {
        KIND => (a.kind == Some(LeakKind::Indirect)).cmp(&(b.kind == Some(LeakKind::Indirect))),
        BYTES => a.bytes.total_cmp(&b.bytes),
        2 => a.blocks.total_cmp(&b.blocks),
        AGE => a.age_ns.cmp(&b.age_ns),
        _ => a.text.function.cmp(&b.text.function),
    }
}

/// The lines of a sentence, of which half the view may be.
fn lines(sentence: &str, inner: Rect) -> Vec<String> {
    let mut lines = wrapped(sentence, usize::from(inner.width));
    lines.truncate(usize::from(inner.height / 2));
    lines
}

/// Where the table lies, below the sentence and a line of air.
pub(super) fn place(sentence: &str, body: Rect) -> Rect {
    let inner = inside(body);
    let above = (lines(sentence, inner).len() as u16 + 1).min(inner.height);
    Rect { y: inner.y + above, height: inner.height - above, ..inner }
}

fn blocks(count: u64) -> String {
    format!("{} {}", numbers::grouped(count), if count == 1 { "block" } else { "blocks" })
}

impl Leaks {
    /// What the table is of, and what the reader can do.
    pub(super) fn sentence(&self, model: &Model) -> String {
        let mut said = String::new();
        if self.is_searching {
            said += "The program looks for what it can't reach any more, and waits meanwhile. ";
        } else if let Some(why) = &self.refused {
            said += &format!("It has not looked: {why}. ");
        } else if let Some(why) = model.snapshot.search.and_then(|search| search.failed) {
            said += &format!("It could not look: {why}. ");
        }
        if let Some(search) = &self.found.search {
            let (count, bytes) = self.found.leaked;
            said += &match count {
                0 => "Nothing is leaked: the program can reach all that it has. ".to_owned(),
                1 => format!(
                    "1 block of {} is leaked: nothing that the program can reach points there. ",
                    numbers::bytes(bytes as f64)
                ),
                _ => format!(
                    "{} in {} are leaked: nothing that the program can reach points there. ",
                    numbers::bytes(bytes as f64),
                    blocks(count)
                ),
            };
            if self.found.suppressed > 0 {
                said += &format!("Of {} rules know that they are no leaks. ", blocks(self.found.suppressed));
            }
            return said + &format!("It {}.", search.looked_at());
        }
        said += match (model.at_peak, model.snapshot.process.state) {
            (true, _) => "In use at the peak. What was leaked then is not kept; P shows now.",
            _ if model.is_recorded() => {
                "In use, the oldest first. A recording does not say what the program could reach."
            }
            (_, ProcessState::Exited) => "It ended, and had not freed this, the oldest first.",
            (_, ProcessState::Killed) => {
                "It was killed, and had this in use, the oldest first. It had no end at which it could have freed it."
            }
            (_, ProcessState::Running) if model.snapshot.exact => {
                "In use, the oldest first. Nobody has looked what of this the program can't reach any more: l has it look, and \
                 wait meanwhile, L has a copy of it look."
            }
            (_, ProcessState::Running) => {
                "In use, the oldest first. A program can look what of this it can't reach any more if every allocation is \
                 recorded: POOLSCOPE_PERIOD=1 at its start."
            }
        };
        said
    }

    /// Draws the view.
    pub(super) fn draw_in(&self, rows: &Rows, scene: &Scene<'_>, buf: &mut Buffer) {
        let Some(model) = scene.model else { return };
        let theme = scene.theme;
        let right = Line::styled(sites_count(self.found.rows.len()), theme.dim);
        let inner = panel(scene.body, buf, theme, "Leaks", right);
        let sentence = self.sentence(model);
        let style = if self.found.search.is_some() && self.found.leaked.0 > 0 { theme.warn } else { theme.text };
        for (line, y) in lines(&sentence, inner).iter().zip(inner.top()..inner.bottom()) {
            buf.set_string(inner.x, y, line, style);
        }
        rows.table().draw(place(&sentence, scene.body), buf, theme, |row, column, width| {
            let Some(row) = self.found.rows.get(rows.order[row]) else { return Line::default() };
            match column {
                KIND => match row.kind {
                    Some(LeakKind::Indirect) => cell("indirectly", theme.dim),
                    _ => cell("directly", theme.warn),
                },
                BYTES => cell(numbers::bytes(row.bytes), theme.strong),
                2 => cell(numbers::scaled(row.blocks), theme.text),
                AGE => match row.age_ns {
                    Some(age) => cell(numbers::duration(Duration::from_nanos(age)), theme.text),
                    None => cell("-", theme.faint),
                },
                _ => name_line(&row.text, usize::from(width), theme),
            }
        });
    }
}
