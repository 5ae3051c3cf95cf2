//! What the program wrote: the end of the file that holds it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::super::state::State;
use super::super::widgets::panel::panel;
use crate::words::clip;

/// Draws the view.
pub(crate) fn draw(state: &State, body: Rect, buf: &mut Buffer) {
    let theme = &state.theme;
    let Some(tail) = &state.output else {
        panel(body, buf, theme, "Output", Line::default());
        return;
    };
    let back = state.output_back.min(tail.lines.len());
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
