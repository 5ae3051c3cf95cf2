//! How the findings are drawn.

use poolscope_profiler::findings::Severity;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

use super::Findings;
use crate::dashboard::panes::Scene;
use crate::dashboard::theme::Theme;
use crate::dashboard::widgets::panel::{inside, panel};
use crate::dashboard::widgets::plain::wrapped;

/// Columns before a sentence: the mark of the selected one, and the word for how much it matters.
const BEFORE: u16 = 11;

fn style(severity: Severity, theme: &Theme) -> Style {
    match severity {
        Severity::Alarm => theme.alert,
        Severity::Warning => theme.warn,
        Severity::Note => theme.dim,
    }
}

impl Findings {
    /// Where each finding lies, with a line of air behind it; the selected one is among them.
    pub(super) fn places(&self, scene: &Scene<'_>) -> Vec<(usize, Rect)> {
        let Some(model) = scene.model else { return Vec::new() };
        let inner = inside(scene.body);
        let width = usize::from(inner.width.saturating_sub(BEFORE));
        let heights: Vec<u16> =
            model.findings.iter().map(|finding| wrapped(&finding.sentence, width).len() as u16 + 1).collect();
        let mut first = 0;
        let end = (self.selected + 1).min(heights.len());
        while first < self.selected && heights[first..end].iter().sum::<u16>() > inner.height {
            first += 1;
        }
        let mut y = inner.y;
        let mut places = Vec::new();
        for (at, height) in heights.into_iter().enumerate().skip(first) {
            if y >= inner.bottom() {
                break;
            }
            places.push((at, Rect { y, height: height.min(inner.bottom() - y), ..inner }));
            y += height;
        }
        places
    }

    /// Draws the view.
    pub(super) fn draw_in(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        let Some(model) = scene.model else { return };
        let theme = scene.theme;
        let right = Line::styled("the most important first", theme.dim);
        let inner = panel(scene.body, buf, theme, "Findings", right);
        if model.findings.is_empty() {
            let text = "Nothing to say: nothing grows for certain, and no memory lies idle that matters.";
            for (line, y) in wrapped(text, usize::from(inner.width)).iter().zip(inner.top()..inner.bottom()) {
                buf.set_string(inner.x, y, line, theme.dim);
            }
            return;
        }
        for (at, place) in self.places(scene) {
            let finding = &model.findings[at];
            let style = style(finding.severity, theme);
            if at == self.selected {
                buf.set_string(place.x, place.y, "▶", theme.accent);
            }
            buf.set_string(place.x + 2, place.y, finding.severity.word(), style);
            let words = if at == self.selected { theme.strong } else { theme.text };
            let lines = wrapped(&finding.sentence, usize::from(place.width.saturating_sub(BEFORE)));
            for (line, y) in lines.iter().zip(place.top()..place.bottom()) {
                buf.set_string(place.x + BEFORE, y, line, words);
            }
        }
    }
}
