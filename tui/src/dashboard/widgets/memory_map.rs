//! A map of a device's memory: a character for each part of it, by what most of the part is.
//!
//! What a part is shows in its character as well as in its colour, so that the map can be read without colours.

use std::ops::Range;

use poolscope_wire::cell;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Modifier, Style};
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
    /// The cell that a cursor is at.
    pub(crate) cursor: Option<usize>,
}

/// Lines that what is under the cursor is said in.
const SAID: usize = 3;

/// Characters of a map, each for some cells.
struct Grid {
    width: usize,
    drawn: usize,
    len: usize,
}

impl Grid {
    /// The cells of a character.
    fn cells(&self, place: usize) -> Range<usize> {
        let (from, to) = (place * self.len / self.drawn, (place + 1) * self.len / self.drawn);
        from..to.max(from + 1)
    }

    /// The character that a cell is in.
    fn place(&self, cell: usize) -> usize {
        let near = (cell * self.drawn / self.len.max(1)).min(self.drawn - 1);
        (near.saturating_sub(1)..self.drawn).find(|place| self.cells(*place).contains(&cell)).unwrap_or(near)
    }
}

impl MemoryMap<'_> {
    /// The map's part of an area, and how many lines are below it.
    fn split(&self, area: Rect, theme: &Theme) -> (Rect, u16) {
        let legend = self.legend(area, theme).len();
        let rows = match self.cursor {
            Some(_) => (legend.max(SAID) as u16).min(area.height.saturating_sub(1)),
            None => (legend as u16).min(area.height / 2),
        };
        (Rect { height: area.height - rows, ..area }, rows)
    }

    /// The characters of an area; none if it has no room for any.
    fn grid(&self, map: Rect) -> Option<Grid> {
        let (width, len) = (usize::from(map.width), self.len());
        let drawn = (width * usize::from(map.height)).min(len);
        (drawn > 0).then_some(Grid { width, drawn, len })
    }

    /// The cells of the character that the cursor is at, and what most of them are.
    pub(crate) fn under_cursor(&self, area: Rect, theme: &Theme) -> Option<(Range<usize>, u8)> {
        let grid = self.grid(self.split(area, theme).0)?;
        let cells = grid.cells(grid.place(self.cursor?));
        let state = self.most(cells.start, cells.end);
        Some((cells, state))
    }

    /// The cell at which the cursor is after it was moved by so many characters and rows.
    pub(crate) fn moved(&self, area: Rect, theme: &Theme, columns: isize, rows: isize) -> Option<usize> {
        let grid = self.grid(self.split(area, theme).0)?;
        let by = columns.saturating_add(rows.saturating_mul(grid.width as isize));
        let place = grid.place(self.cursor?).saturating_add_signed(by).min(grid.drawn - 1);
        Some(grid.cells(place).start)
    }

    /// The first cell of the character at a point.
    pub(crate) fn cell_at(&self, area: Rect, theme: &Theme, at: Position) -> Option<usize> {
        let map = self.split(area, theme).0;
        let grid = self.grid(map).filter(|_| map.contains(at))?;
        let place = usize::from(at.y - map.y) * grid.width + usize::from(at.x - map.x);
        (place < grid.drawn).then(|| grid.cells(place).start)
    }

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

    /// The lines of the legend for an area. Where there is no room for all states with their figures, each has its word.
    fn legend(&self, area: Rect, theme: &Theme) -> Vec<Line<'static>> {
        let whole = self.legend_lines(area.width.into(), theme, true);
        if whole.len() <= usize::from(area.height / 2) {
            return whole;
        }
        self.legend_lines(area.width.into(), theme, false)
    }

    fn legend_lines(&self, width: usize, theme: &Theme, with_figures: bool) -> Vec<Line<'static>> {
        let mut lines = vec![Line::default()];
        for state in STATES {
            let bytes = self.bytes(state);
            if bytes == 0 {
                continue;
            }
            let figure = if with_figures { format!(" {}", numbers::bytes(bytes as f64)) } else { String::new() };
            let text = format!(" {}{figure}", word(state));
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

    /// The character and the word of a state, as the legend has them.
    pub(crate) fn sign(state: u8, theme: &Theme) -> [Span<'static>; 2] {
        [Span::styled(symbol(state), style(state, theme)), Span::styled(format!(" {}", word(state)), theme.strong)]
    }

    /// Draws the map, and below it some lines, or its legend.
    pub(crate) fn draw(&self, area: Rect, buf: &mut Buffer, theme: &Theme, below: Option<Vec<Line<'_>>>) {
        let (map, _) = self.split(area, theme);
        let below = below.unwrap_or_else(|| self.legend(area, theme));
        for (line, y) in below.into_iter().zip(map.bottom()..area.bottom()) {
            buf.set_line(area.x, y, &line, area.width);
        }
        let Some(grid) = self.grid(map) else { return };
        let cursor = self.cursor.map(|cell| grid.place(cell));
        for place in 0..grid.drawn {
            let cells = grid.cells(place);
            let (symbol, state) = self.symbol(cells.start, cells.end);
            let (x, y) = (map.x + (place % grid.width) as u16, map.y + (place / grid.width) as u16);
            match cursor == Some(place) {
                true => buf.set_string(x, y, "╋", theme.strong.add_modifier(Modifier::REVERSED)),
                false => buf.set_string(x, y, symbol, style(state, theme)),
            }
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
        map.draw(buffer.area, &mut buffer, &Theme::choose(ThemeChoice::Mono, |_| None), None);
        text_of(&buffer)
    }

    #[test]
    fn each_state_has_a_character_and_its_bytes() {
        let cells = [cell::LARGE, cell::LARGE, cell::SMALL, cell::FREE, cell::PENDING, cell::GRAPH];
        let map = MemoryMap { cells: &cells, cell_bytes: 2 << 20, memory_bytes: 16 << 20, cursor: None };
        let text = drawn(&map, 150, 3);
        assert!(text.starts_with("██▓░▒◆··\n"), "{text}");
        assert!(text.contains("█ large 4.00 MiB   ▓ small 2.00 MiB") && text.contains("· not held 4.00 MiB"), "{text}");
    }

    #[test]
    fn where_figures_have_no_room_each_state_has_its_word() {
        let cells = [cell::LARGE, cell::LARGE, cell::SMALL, cell::FREE, cell::PENDING];
        let map = MemoryMap { cells: &cells, cell_bytes: 2 << 20, memory_bytes: 16 << 20, cursor: None };
        let text = drawn(&map, 56, 3);
        assert!(text.contains("█ large   ▓ small   ▒ pending   ░ free   · not held"), "{text}");
        assert!(drawn(&map, 56, 4).contains("░ free 2.00 MiB"), "{}", drawn(&map, 56, 4));
    }

    #[test]
    fn more_cells_than_characters_are_drawn_by_what_most_of_them_are() {
        let cells: Vec<u8> = (0..1000).map(|i| if i < 500 { cell::LARGE } else { cell::FREE }).collect();
        let map = MemoryMap { cells: &cells, cell_bytes: 1, memory_bytes: 1000, cursor: None };
        let text = drawn(&map, 10, 4);
        assert!(text.starts_with("██████████\n░░░░░░░░░░\n"), "{text}");
    }

    #[test]
    fn holes_that_are_smaller_than_a_character_lower_it() {
        let cells: Vec<u8> = (0..80).map(|i| if i % 8 < i / 16 { cell::FREE } else { cell::LARGE }).collect();
        let text = drawn(&MemoryMap { cells: &cells, cell_bytes: 1, memory_bytes: 80, cursor: None }, 10, 2);
        assert!(text.starts_with("██▇▇▆▆▅▅▄▄\n"), "{text}");
    }

    #[test]
    fn any_map_can_be_drawn_anywhere() {
        for cells in [&[][..], &[200, 3][..], &[1; 16_384][..]] {
            for (cell_bytes, memory_bytes) in [(0, 0), (1, u64::MAX), (u64::MAX / 16_384, 5)] {
                for (width, height) in [(0, 0), (1, 1), (3, 2), (200, 50)] {
                    for cursor in [None, Some(0), Some(99_999)] {
                        drawn(&MemoryMap { cells, cell_bytes, memory_bytes, cursor }, width, height);
                    }
                }
            }
        }
    }

    #[test]
    fn the_cursor_comes_to_every_character_and_to_the_cell_that_was_clicked() {
        let theme = Theme::choose(ThemeChoice::Mono, |_| None);
        let (cells, area) = (vec![cell::LARGE; 1000], Rect::new(3, 2, 10, 7));
        let mut map = MemoryMap { cells: &cells, cell_bytes: 1, memory_bytes: 1000, cursor: Some(0) };
        let mut seen = Vec::new();
        while seen.last() != map.under_cursor(area, &theme).map(|(cells, _)| cells).as_ref() {
            seen.push(map.under_cursor(area, &theme).expect("a character").0);
            map.cursor = map.moved(area, &theme, 1, 0);
        }
        // Ten by four characters have all cells, each once.
        assert_eq!((seen.len(), seen[0].start, seen[39].end), (40, 0, 1000));
        assert!(seen.windows(2).all(|two| two[0].end == two[1].start));
        map.cursor = map.moved(area, &theme, 0, -2);
        assert_eq!(map.cursor, Some(seen[19].start), "two rows up");
        assert_eq!(map.cell_at(area, &theme, Position::new(5, 3)), Some(seen[12].start));
        assert_eq!(map.cell_at(area, &theme, Position::new(5, 8)), None, "that is below the map");
    }
}
