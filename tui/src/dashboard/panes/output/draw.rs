//! How the end of the output is drawn.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use unicode_width::UnicodeWidthStr;

use super::Output;
use crate::dashboard::panes::Scene;
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::panel::{inside, panel};
use crate::dashboard::widgets::search_line::search_line;
use crate::dashboard::widgets::table::put;
use crate::words::{clip, numbers};

/// Where the lines lie: above the search, if there is one.
pub(super) fn lines_area(body: Rect, searches: bool) -> Rect {
    let inner = inside(body);
    Rect { height: inner.height.saturating_sub(searches.into()), ..inner }
}

impl Output {
    /// Draws the view.
    pub(super) fn draw_in(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        let (theme, body) = (scene.theme, scene.body);
        let Some(tail) = &self.tail else {
            panel(body, buf, theme, "Output", Line::default());
            return;
        };
        let area = lines_area(body, self.search.is_shown());
        let height = usize::from(area.height);
        let back = self.back.min(tail.lines.len().saturating_sub(height));
        let mut right = if back > 0 { format!("{back} lines from the end") } else { "following".to_owned() };
        if tail.written > tail.lines.len() {
            let (kept, all) = (numbers::grouped(tail.lines.len() as u64), numbers::grouped(tail.written as u64));
            right = format!("the last {kept} of {all} lines · {right}");
        }
        let title = format!("Output · {}", tail.path.display());
        let title = clip(&title, usize::from(body.width).saturating_sub(right.width() + 10));
        panel(body, buf, theme, &title, Line::styled(right, theme.dim));
        if tail.lines.is_empty() {
            buf.set_string(area.x, area.y, "Nothing written yet.", theme.dim);
        }
        let end = tail.lines.len() - back;
        let start = end.saturating_sub(height);
        for (at, y) in (start..end).zip(area.top()..) {
            self.draw_line(theme, &tail.lines[at], Rect { y, height: 1, ..area }, buf);
            if self.found == Some(tail.lines.len() - 1 - at) {
                buf.set_style(Rect { y, height: 1, ..area }, theme.selected);
                buf.set_string(area.x.saturating_sub(2), y, "▶ ", theme.accent);
            }
        }
        if self.search.is_shown() {
            self.draw_search(theme, Rect { y: area.bottom(), height: 1, ..area }, buf);
        }
    }

    /// A line, with what is looked for in it.
    fn draw_line(&self, theme: &Theme, line: &str, place: Rect, buf: &mut Buffer) {
        buf.set_string(place.x, place.y, clip(line, place.width.into()), theme.text);
        let Some(found) = self.search.pattern().and_then(|pattern| pattern.find(line)) else { return };
        let (from, width) = (line[..found.start].width(), line[found].width());
        let to = (from + width).min(usize::from(place.width));
        if from < to {
            buf.set_style(Rect { x: place.x + from as u16, width: (to - from) as u16, ..place }, theme.found);
        }
    }

    fn draw_search(&self, theme: &Theme, line: Rect, buf: &mut Buffer) {
        search_line("search", &self.search, line, buf, theme);
        if self.search.pattern().is_none() {
            return;
        }
        let text = match self.matches().count() {
            0 => "no match".to_owned(),
            1 => "1 line".to_owned(),
            count => format!("{} lines  n above", numbers::grouped(count as u64)),
        };
        put(buf, line.x, line.y, line.width, true, Line::styled(text, theme.warn));
    }
}
