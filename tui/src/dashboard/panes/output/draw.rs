//! How the end of the output is drawn.

use ratatui::buffer::Buffer;
use ratatui::text::Line;

use super::Output;
use crate::dashboard::panes::Scene;
use crate::dashboard::widgets::panel::panel;
use crate::words::clip;

impl Output {
    /// Draws the view.
    pub(super) fn draw_in(&self, scene: &Scene<'_>, buf: &mut Buffer) {
        let (theme, body) = (scene.theme, scene.body);
        let Some(tail) = &self.tail else {
            panel(body, buf, theme, "Output", Line::default());
            return;
        };
        let back = self.back.min(tail.lines.len());
        let right = if back > 0 { format!("{back} lines from the end") } else { "following".to_owned() };
        let title = format!("Output · {}", tail.path.display());
        let title = clip(&title, usize::from(body.width).saturating_sub(right.len() + 10));
        let inner = panel(body, buf, theme, &title, Line::styled(right, theme.dim));
        if tail.lines.is_empty() {
            buf.set_string(inner.x, inner.y, "Nothing written yet.", theme.dim);
            return;
        }
        let height = usize::from(inner.height);
        let end = tail.lines.len() - back.min(tail.lines.len().saturating_sub(height));
        let start = end.saturating_sub(height);
        for (i, line) in tail.lines.range(start..end).enumerate() {
            buf.set_string(inner.x, inner.y + i as u16, clip(line, inner.width.into()), theme.text);
        }
    }
}
