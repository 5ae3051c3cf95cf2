//! What is ours in the pictures that `inferno` draws: a legend, a search that can be seen, and a look for dark screens.

use crate::words::markup::escaped;

/// Height of the legend under the picture.
const LEGEND_HEIGHT: u64 = 28;

/// Height of each further row of a legend that has a row for each colour, as on the screens that `style.css` calls narrow.
const ROW: u64 = 18;

/// `inferno` shows the word "Search" at a tenth of its strength until the pointer is over it.
const RULES: &str = include_str!("style.css");

/// The picture with our rules, made higher by a row that says what the colours mean: each colour with its words, and a
/// sentence behind them. A picture that is built otherwise than `inferno`'s stays as it is.
pub(super) fn finished(svg: &str, colours: &[(&str, &str)], sentence: &str) -> String {
    let value = |name: &str| -> Option<u64> {
        let rest = &svg[svg.find(name)? + name.len()..];
        rest[..rest.find('"')?].parse().ok()
    };
    let (Some(height), Some(end)) = (value(" height=\""), svg.rfind("</svg>")) else { return svg.to_owned() };
    let higher = height + LEGEND_HEIGHT;
    let rows = (colours.len() + usize::from(!sentence.is_empty())).saturating_sub(1) as u64;
    let more = rows * ROW;
    let narrow = RULES
        .replace("{{height}}", &(higher + more).to_string())
        .replace("{{legend_height}}", &(LEGEND_HEIGHT + more).to_string())
        .replace("{{row}}", &ROW.to_string());
    let body = svg[..end]
        .replacen(&format!(" height=\"{height}\""), &format!(" height=\"{higher}\""), 1)
        .replacen(&format!(" {height}\""), &format!(" {higher}\""), 1)
        .replacen("</style>", &format!("{narrow}</style>"), 1);
    body + &legend(colours, sentence, height) + &svg[end..]
}

fn legend(colours: &[(&str, &str)], sentence: &str, top: u64) -> String {
    let mut svg = format!(
        "<g id=\"legend\" font-family=\"monospace\" font-size=\"12\">\n\
         <rect class=\"ground\" x=\"0\" y=\"{top}\" width=\"100%\" height=\"{LEGEND_HEIGHT}\" fill=\"#eeeeee\"/>\n"
    );
    let (square, baseline) = (top + 8, top + 18);
    let mut x = 0;
    let item =
        |row: usize, x: usize| format!("<g class=\"item\" style=\"--row:{row}\" transform=\"translate({x},0)\">");
    for (row, (colour, text)) in colours.iter().enumerate() {
        svg += &format!(
            "{}<rect x=\"10\" y=\"{square}\" width=\"12\" height=\"12\" fill=\"{colour}\" stroke=\"#888888\"/>\n\
             <text x=\"28\" y=\"{baseline}\">{}</text></g>\n",
            item(row, x),
            escaped(text)
        );
        x += 18 + 8 * text.len() + 16;
    }
    let item = item(colours.len(), x);
    svg + &format!("{item}<text x=\"10\" y=\"{baseline}\">{}</text></g>\n</g>\n", escaped(sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_screen_has_room_for_a_row_of_the_legend_for_each_colour() {
        let svg = "<svg width=\"1200\" height=\"100\" viewBox=\"0 0 1200 100\"><style>text {}</style></svg>";
        let finished = finished(svg, &[("red", "a"), ("blue", "b"), ("green", "c")], "d");
        assert!(finished.contains(" height=\"128\" viewBox=\"0 0 1200 128\""), "{finished}");
        assert!(finished.contains("svg { height:182px; }") && !finished.contains("{{"), "{finished}");
        let rows: Vec<&str> = finished.match_indices("--row:").map(|(at, _)| &finished[at + 6..at + 7]).collect();
        assert_eq!(rows, ["0", "1", "2", "3"]);
    }
}
