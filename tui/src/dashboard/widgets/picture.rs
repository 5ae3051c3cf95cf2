//! A screen as a picture: SVG, a rectangle for each background and a text for each style.

use std::fmt::Write as _;

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// Width of a cell, in pixels.
const CELL_WIDTH: f64 = 8.4;
/// Its height.
const CELL_HEIGHT: f64 = 18.0;
/// Around the screen.
const EDGE: f64 = 10.0;
/// The colours of a dark terminal.
const BACKGROUND: &str = "#10141f";
const FOREGROUND: &str = "#c5cee0";

/// The sixteen colours of a terminal.
const SIXTEEN: [u32; 16] = [
    0x000000, 0xcd3131, 0x0dbc79, 0xe5e510, 0x2472c8, 0xbc3fbc, 0x11a8cd, 0xe5e5e5, 0x666666, 0xf14c4c, 0x23d18b,
    0xf5f543, 0x3b8eea, 0xd670d6, 0x29b8db, 0xffffff,
];

fn colour(colour: Color, otherwise: &str) -> String {
    let hex = |rgb: u32| format!("#{rgb:06x}");
    match colour {
        Color::Reset => otherwise.to_owned(),
        Color::Rgb(r, g, b) => format!("#{r:02x}{g:02x}{b:02x}"),
        Color::Indexed(index) => hex(indexed(index)),
        named => {
            const NAMES: [Color; 16] = [
                Color::Black,
                Color::Red,
                Color::Green,
                Color::Yellow,
                Color::Blue,
                Color::Magenta,
                Color::Cyan,
                Color::Gray,
                Color::DarkGray,
                Color::LightRed,
                Color::LightGreen,
                Color::LightYellow,
                Color::LightBlue,
                Color::LightMagenta,
                Color::LightCyan,
                Color::White,
            ];
            NAMES.iter().position(|name| *name == named).map_or(otherwise.to_owned(), |at| hex(SIXTEEN[at]))
        }
    }
}

/// A colour of a terminal with 256.
fn indexed(index: u8) -> u32 {
    let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * u32::from(step) };
    match index {
        0..16 => SIXTEEN[usize::from(index)],
        16..232 => {
            let at = index - 16;
            level(at / 36) << 16 | level(at / 6 % 6) << 8 | level(at % 6)
        }
        _ => (8 + 10 * u32::from(index - 232)) * 0x0001_0101,
    }
}

/// Foreground, background and whether it is bold.
fn look(cell: &Cell) -> (String, String, bool) {
    let (mut fg, mut bg) = (colour(cell.fg, FOREGROUND), colour(cell.bg, BACKGROUND));
    if cell.modifier.contains(Modifier::REVERSED) {
        std::mem::swap(&mut fg, &mut bg);
    }
    (fg, bg, cell.modifier.contains(Modifier::BOLD))
}

/// The picture of what is drawn in a buffer.
pub(crate) fn svg(buffer: &Buffer) -> String {
    let area = buffer.area;
    let (width, height) =
        (f64::from(area.width) * CELL_WIDTH + 2.0 * EDGE, f64::from(area.height) * CELL_HEIGHT + 2.0 * EDGE);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n<rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n\
         <g font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\" xml:space=\"preserve\">\n"
    );
    for y in area.top()..area.bottom() {
        let top = EDGE + f64::from(y) * CELL_HEIGHT;
        let mut x = area.left();
        while x < area.right() {
            let style = look(&buffer[(x, y)]);
            let mut end = x;
            let mut text = String::new();
            while end < area.right() && look(&buffer[(end, y)]) == style {
                text.push_str(buffer[(end, y)].symbol());
                end += 1;
            }
            run(&mut out, (f64::from(x), f64::from(end - x), top), &text, &style);
            x = end;
        }
    }
    out += "</g>\n</svg>\n";
    out
}

/// Cells of one style beside each other: from which column, how many, and where their upper edge is.
fn run(out: &mut String, (from, count, top): (f64, f64, f64), text: &str, style: &(String, String, bool)) {
    let (fg, bg, bold) = style;
    let (x, width) = (EDGE + from * CELL_WIDTH, count * CELL_WIDTH);
    if bg != BACKGROUND {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{CELL_HEIGHT:.1}\" fill=\"{bg}\"/>"
        );
    }
    let mut shapes = String::new();
    let weight = if *bold { " font-weight=\"bold\"" } else { "" };
    let mut word = String::new();
    let mut begin = 0.0;
    // Words with one blank between them are one text; frames, charts and bars are drawn.
    for (at, c) in text.chars().chain("  ".chars()).enumerate() {
        let left = x + at as f64 * CELL_WIDTH;
        let drawn = shape(c, left, top);
        let ends = drawn.is_some() || (c == ' ' && word.ends_with(' '));
        if ends && !word.trim().is_empty() {
            let shown = word.trim_end();
            let length = shown.chars().count() as f64 * CELL_WIDTH;
            let escaped = shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let y = top + 0.75 * CELL_HEIGHT;
            let _ = writeln!(
                out,
                "<text x=\"{begin:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\" fill=\"{fg}\"{weight}>{escaped}</text>"
            );
        }
        if ends {
            word.clear();
        }
        match drawn {
            Some(drawn) => shapes += &drawn,
            None if word.is_empty() && c == ' ' => {}
            None => {
                if word.is_empty() {
                    begin = left;
                }
                word.push(c);
            }
        }
    }
    if !shapes.is_empty() {
        let _ = writeln!(out, "<path fill=\"{fg}\" d=\"{shapes}\"/>");
    }
}

/// The path of a character of frames, charts and bars in a cell; none of others, for which there are fonts.
fn shape(c: char, x: f64, y: f64) -> Option<String> {
    let (w, h) = (CELL_WIDTH, CELL_HEIGHT);
    let (middle_x, middle_y) = (w / 2.0, h / 2.0);
    let part = |left: f64, top: f64, width: f64, height: f64| {
        format!("M{:.1} {:.1}h{width:.1}v{height:.1}h-{width:.1}z", x + left, y + top)
    };
    let across = |left: f64, right: f64| part(left, middle_y - 0.5, right - left, 1.0);
    let down = |top: f64, bottom: f64| part(middle_x - 0.5, top, 1.0, bottom - top);
    Some(match c {
        '─' => across(0.0, w),
        '│' => down(0.0, h),
        '╭' => across(middle_x, w) + &down(middle_y, h),
        '╮' => across(0.0, middle_x) + &down(middle_y, h),
        '╰' => across(middle_x, w) + &down(0.0, middle_y),
        '╯' => across(0.0, middle_x) + &down(0.0, middle_y),
        '┤' => across(0.0, middle_x) + &down(0.0, h),
        '┈' => part(1.0, middle_y - 0.5, 2.0, 1.0) + &part(5.2, middle_y - 0.5, 2.0, 1.0),
        '┃' => part(middle_x - 1.0, 0.0, 2.0, h),
        '━' => part(0.0, middle_y - 1.5, w, 3.0),
        '╸' => part(0.0, middle_y - 1.5, middle_x, 3.0),
        '▏' => part(0.0, 0.0, 1.0, h),
        '▁'..='█' => {
            let high = f64::from(c as u32 - 0x2580) / 8.0 * h;
            part(0.0, h - high, w, high)
        }
        '\u{28ff}' => part(0.0, 0.0, w, h),
        '\u{2801}'..='\u{28fe}' => {
            const DOTS: [(f64, f64); 8] =
                [(0., 0.), (0., 1.), (0., 2.), (1., 0.), (1., 1.), (1., 2.), (0., 3.), (1., 3.)];
            let bits = c as u32 - 0x2800;
            let dots = DOTS.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
            dots.map(|(_, (column, row))| part(column * w / 2.0, row * h / 4.0, w / 2.0, h / 4.0)).collect()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    #[test]
    fn each_style_is_a_text_where_it_stands() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 20, 2));
        buffer.set_string(2, 1, "a <b>", Style::new().fg(Color::Rgb(1, 2, 3)));
        buffer.set_string(10, 1, "x", Style::new().add_modifier(Modifier::REVERSED));
        let svg = svg(&buffer);
        assert!(svg.contains("x=\"26.8\" y=\"41.5\" textLength=\"42.0\" fill=\"#010203\">a &lt;b&gt;</text>"), "{svg}");
        assert!(svg.contains("<rect x=\"94.0\" y=\"28.0\" width=\"8.4\" height=\"18.0\" fill=\"#c5cee0\"/>"), "{svg}");
    }

    #[test]
    fn indexed_colours_are_those_of_terminals() {
        assert_eq!((indexed(16), indexed(231), indexed(196), indexed(244)), (0, 0xffffff, 0xff0000, 0x808080));
    }
}
