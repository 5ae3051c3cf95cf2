//! A map of a device's memory: a character for each part of it, by what most of the part is.
//!
//! What a part is shows in its character as well as in its colour, so that the map can be read without colours.

use poolscope_wire::cell;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::dashboard::theme::Theme;
use crate::words::numbers;

/// The states in the order of the legend.
const STATES: [u8; 6] = [cell::LARGE, cell::SMALL, cell::GRAPH, cell::PENDING, cell::FREE, cell::UNMAPPED];

/// The character of a state.
fn symbol(state: u8) -> &'static str {
    match state {
        cell::LARGE => "█",
        cell::SMALL => "▓",
        cell::GRAPH => "◆",
        cell::PENDING => "▒",
        cell::FREE => "░",
        cell::UNMAPPED => "·",
        _ => "?",
    }
}

fn style(state: u8, theme: &Theme) -> Style {
    match state {
        cell::LARGE => theme.live,
        cell::SMALL => theme.alloc,
        cell::GRAPH => theme.accent,
        cell::PENDING => theme.warn,
        cell::FREE => theme.rss,
        _ => theme.faint,
    }
}

/// The word of a state in the legend.
fn word(state: u8) -> &'static str {
    if state == cell::UNMAPPED { "not held" } else { cell::name(state) }
}

/// A map.
pub(crate) struct MemoryMap<'a> {
    /// What each part is: values of [`cell`].
    pub(crate) cells: &'a [u8],
    /// Bytes that a cell stands for.
    pub(crate) cell_bytes: u64,
    /// Bytes of memory in all; what the cells don't reach is not held.
    pub(crate) memory_bytes: u64,
}

impl MemoryMap<'_> {
    /// Cells that all memory has.
    fn len(&self) -> usize {
        let all = self.memory_bytes.div_ceil(self.cell_bytes.max(1)).min(1 << 20) as usize;
        all.max(self.cells.len())
    }

    /// Bytes in a state.
    fn bytes(&self, state: u8) -> u64 {
        let of = |wanted: u8| self.cells.iter().filter(|cell| **cell == wanted).count() as u64 * self.cell_bytes;
        if state == cell::UNMAPPED { of(state).max(self.memory_bytes.saturating_sub(self.held())) } else { of(state) }
    }

    fn held(&self) -> u64 {
        self.cells.iter().filter(|state| **state != cell::UNMAPPED).count() as u64 * self.cell_bytes
    }

    /// What most of the cells from one to another are; of two that are equal, the one that is first in the legend.
    fn most(&self, from: usize, to: usize) -> u8 {
        let part = self.cells.get(from..to.min(self.cells.len())).unwrap_or_default();
        let missing = (to - from) - part.len();
        let count = |state: u8| {
            let there = part.iter().filter(|cell| **cell == state).count();
            if state == cell::UNMAPPED { there + missing } else { there }
        };
        STATES.into_iter().rev().max_by_key(|state| count(*state)).unwrap_or(cell::UNMAPPED)
    }

    /// The character of the cells from one to another: where most of them are in large blocks, as high as the part of
    /// them that is in use, so that holes show that are smaller than a character.
    fn symbol(&self, from: usize, to: usize) -> (&'static str, u8) {
        const HEIGHTS: [&str; 9] = ["▁", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
        let state = self.most(from, to);
        if state != cell::LARGE {
            return (symbol(state), state);
        }
        let part = self.cells.get(from..to.min(self.cells.len())).unwrap_or_default();
        let used = part.iter().filter(|cell| matches!(**cell, cell::LARGE | cell::SMALL | cell::GRAPH)).count();
        (HEIGHTS[(8 * used).div_ceil((to - from).max(1)).min(8)], state)
    }

    /// The lines of the legend, each at most `width` columns wide.
    pub(crate) fn legend(&self, width: usize, theme: &Theme) -> Vec<Line<'static>> {
        let mut lines = vec![Line::default()];
        for state in STATES {
            let bytes = self.bytes(state);
            if bytes == 0 {
                continue;
            }
            let text = format!(" {} {}", word(state), numbers::bytes(bytes as f64));
            let last = lines.last().map_or(0, Line::width);
            if last > 0 && last + 3 + 1 + text.chars().count() > width {
                lines.push(Line::default());
            }
            if let Some(line) = lines.last_mut() {
                if line.width() > 0 {
                    line.push_span(Span::raw("   "));
                }
                line.push_span(Span::styled(symbol(state), style(state, theme)));
                line.push_span(Span::styled(text, theme.text));
            }
        }
        lines
    }

    /// Draws the map with its legend below.
    pub(crate) fn draw(&self, area: Rect, buf: &mut Buffer, theme: &Theme) {
        let legend = self.legend(area.width.into(), theme);
        let rows = (legend.len() as u16).min(area.height / 2);
        let map = Rect { height: area.height - rows, ..area };
        for (line, y) in legend.into_iter().zip(map.bottom()..area.bottom()) {
            buf.set_line(area.x, y, &line, area.width);
        }
        let places = usize::from(map.width) * usize::from(map.height);
        let len = self.len();
        let drawn = places.min(len);
        for place in 0..drawn {
            let (from, to) = (place * len / drawn, (place + 1) * len / drawn);
            let (symbol, state) = self.symbol(from, to.max(from + 1));
            let (x, y) = (place % usize::from(map.width), place / usize::from(map.width));
            buf.set_string(map.x + x as u16, map.y + y as u16, symbol, style(state, theme));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::theme::ThemeChoice;
    use crate::dashboard::widgets::plain::text_of;

    fn drawn(map: &MemoryMap<'_>, width: u16, height: u16) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
        map.draw(buffer.area, &mut buffer, &Theme::choose(ThemeChoice::Mono, |_| None));
        text_of(&buffer)
    }

    #[test]
    fn each_state_has_a_character_and_its_bytes() {
        let cells = [cell::LARGE, cell::LARGE, cell::SMALL, cell::FREE, cell::PENDING, cell::GRAPH];
        let map = MemoryMap { cells: &cells, cell_bytes: 2 << 20, memory_bytes: 16 << 20 };
        let text = drawn(&map, 150, 3);
        assert!(text.starts_with("██▓░▒◆··\n"), "{text}");
        assert!(text.contains("█ large 4.00 MiB   ▓ small 2.00 MiB") && text.contains("· not held 4.00 MiB"), "{text}");
    }

    #[test]
    fn more_cells_than_characters_are_drawn_by_what_most_of_them_are() {
        let cells: Vec<u8> = (0..1000).map(|i| if i < 500 { cell::LARGE } else { cell::FREE }).collect();
        let map = MemoryMap { cells: &cells, cell_bytes: 1, memory_bytes: 1000 };
        let text = drawn(&map, 10, 4);
        assert!(text.starts_with("██████████\n░░░░░░░░░░\n"), "{text}");
    }

    #[test]
    fn holes_that_are_smaller_than_a_character_lower_it() {
        let cells: Vec<u8> = (0..80).map(|i| if i % 8 < i / 16 { cell::FREE } else { cell::LARGE }).collect();
        let text = drawn(&MemoryMap { cells: &cells, cell_bytes: 1, memory_bytes: 80 }, 10, 2);
        assert!(text.starts_with("██▇▇▆▆▅▅▄▄\n"), "{text}");
    }

    #[test]
    fn any_map_can_be_drawn_anywhere() {
        for cells in [&[][..], &[200, 3][..], &[1; 16_384][..]] {
            for (cell_bytes, memory_bytes) in [(0, 0), (1, u64::MAX), (u64::MAX / 16_384, 5)] {
                for (width, height) in [(0, 0), (1, 1), (3, 2), (200, 50)] {
                    drawn(&MemoryMap { cells, cell_bytes, memory_bytes }, width, height);
                }
            }
        }
    }
}
