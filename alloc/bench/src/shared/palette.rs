//! The colours of pictures.

use plotters::style::RGBColor;

/// Told apart by people who do not see all colours, too (Okabe and Ito, and some more).
pub const COLORS: [RGBColor; 11] = [
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
