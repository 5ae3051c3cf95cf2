//! A call stack, innermost frame first: what does not fit is counted.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use crate::dashboard::model::site::FrameText;
use crate::dashboard::theme::Theme;
use crate::words::name::clip_name;
use crate::words::{clip, file_name, numbers};

/// A stack to be drawn.
pub(crate) struct Stack<'a> {
    /// Its frames, innermost first.
    pub(crate) frames: &'a [FrameText<'a>],
    /// The one that names the call site.
    pub(crate) names: usize,
    /// Its outermost frames are missing.
    pub(crate) incomplete: bool,
}

/// The first of `frames` that is shown in `room`: by the user's choice, else so that the one which names the call site
/// can be seen with some of its callers.
pub(crate) fn first_frame(chosen: Option<usize>, names: usize, frames: usize, room: usize) -> usize {
    let wanted = chosen.unwrap_or(if names + 3 < room { 0 } else { names.saturating_sub(room / 3) });
    wanted.min(frames.saturating_sub(room))
}

impl Stack<'_> {
    /// Draws it from a frame on, or with the one that names the call site in sight. `keys` says how to see the rest.
    pub(crate) fn draw(&self, chosen: Option<usize>, keys: Option<&str>, inner: Rect, buf: &mut Buffer, theme: &Theme) {
        let count = self.frames.len();
        let room = usize::from(inner.height);
        let cut = count > room;
        let room = if cut { room.saturating_sub(1) } else { room };
        let first = first_frame(chosen, self.names, count, room);
        let shown = count.saturating_sub(first).min(room);
        for (line, frame) in self.frames.iter().skip(first).take(room).enumerate() {
            self.draw_frame(first + line, frame, Rect { y: inner.y + line as u16, height: 1, ..inner }, buf, theme);
        }
        let mut said = Vec::new();
        if cut {
            let (above, below) = (first, count - first - shown);
            let keys = keys.map(|keys| format!(": {keys}")).unwrap_or_default();
            said.push(format!("{} above, {below} below{keys}", numbers::counted(above as f64, "frame")));
        } else if self.incomplete {
            said.push("… outer frames are missing".to_owned());
        }
        if self.frames.get(self.names).is_some_and(|frame| is_without_symbol(&frame.frame.name)) {
            said.push("no symbols there: call sites are told apart by module and offset".to_owned());
        }
        if shown < usize::from(inner.height) && !said.is_empty() {
            let foot = format!("    {}", said.join(" · "));
            buf.set_string(inner.x, inner.y + shown as u16, clip(&foot, inner.width.into()), theme.dim);
        }
    }

    fn draw_frame(&self, at: usize, frame: &FrameText<'_>, row: Rect, buf: &mut Buffer, theme: &Theme) {
        let width = usize::from(row.width);
        let inlined = frame.frame.inlined;
        let mark = if inlined { "↳ " } else { "  " };
        let place = if inlined { format!("{}  inlined", frame.place()) } else { frame.place() };
        let name_width = frame.name.width().min(width);
        // The file and the line stay, and the folders as far as there is room beside the whole name.
        let least = file_name(&place).width().min(width / 2);
        let place_room = width.saturating_sub(6 + 2 + name_width).max(least).min(place.width());
        let name_room = width.saturating_sub(6 + place_room + 2);
        let name_style = match (at == self.names, inlined) {
            (true, _) => theme.strong,
            (_, true) => theme.dim,
            _ => theme.text,
        };
        buf.set_string(row.x, row.y, format!("{at:>3} "), theme.faint);
        buf.set_string(row.x + 4, row.y, mark, theme.accent);
        buf.set_string(row.x + 6, row.y, clip_name(&frame.name, name_room), name_style);
        let place = tail(&place, place_room);
        let x = row.right().saturating_sub(place.width() as u16);
        buf.set_string(x, row.y, place, theme.dim);
    }
}

/// Whether a frame is named by its module and its offset there.
fn is_without_symbol(name: &str) -> bool {
    name.strip_prefix('[').and_then(|name| name.rsplit_once("+0x")).is_some()
}

/// The end of a text that is too long: of a path, it says more than the start.
fn tail(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let mut out = String::from("…");
    out.extend(text.chars().skip(count - width.saturating_sub(1)));
    out
}
