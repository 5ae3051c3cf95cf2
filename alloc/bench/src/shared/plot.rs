//! What the pictures have in common.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::TextStyle;

use crate::error::Result;

/// A part of a picture.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// What drawing comes to.
pub type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

/// Told apart by people who do not see all colours, too (Okabe and Ito, and some more).
const COLORS: [RGBColor; 11] = [
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(20, 20, 20),
    RGBColor(0, 114, 178),
    RGBColor(204, 121, 167),
    RGBColor(150, 90, 40),
    RGBColor(130, 130, 130),
    RGBColor(120, 70, 190),
    RGBColor(140, 200, 60),
    RGBColor(240, 130, 150),
];

/// poolscope itself, in every picture.
pub const OURS: RGBColor = RGBColor(213, 34, 0);

/// The colours of contestants that are told apart: ours, and one for each of the others.
pub fn colors(is_ours: impl IntoIterator<Item = bool>) -> Vec<RGBColor> {
    let mut others = COLORS.into_iter().cycle();
    is_ours.into_iter().map(|ours| if ours { OURS } else { others.next().unwrap_or(BLACK) }).collect()
}

/// The letters of a picture, so many pixels high.
pub fn letters(size: u32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&BLACK)
}

/// A picture of so many pixels, as the text of its SVG.
pub fn svg(size: (u32, u32), title: &str, draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String> {
    let mut svg = String::new();
    let drawn = || -> Drawn {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)?;
        area.draw(&Text::new(title.to_owned(), (8, 8), letters(14)))?;
        draw(&area)?;
        area.present()?;
        Ok(())
    };
    drawn().map_err(|error| format!("the picture can't be drawn: {error}"))?;
    Ok(svg)
}

/// A dot and a name for each contestant, so many in a line, below the title. A dot is as large as in the picture.
pub fn legend(area: &Area<'_>, entries: &[(&str, RGBColor, i32)], in_line: usize, step: i32) -> Drawn {
    for (at, (name, color, radius)) in entries.iter().enumerate() {
        let (x, y) = (14 + step * (at % in_line) as i32, 39 + 18 * (at / in_line) as i32);
        area.draw(&Circle::new((x, y), *radius, color.filled()))?;
        area.draw(&Text::new((*name).to_owned(), (x + 9, y - 6), letters(12)))?;
    }
    Ok(())
}
