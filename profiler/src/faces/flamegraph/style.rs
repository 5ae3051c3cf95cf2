//! What is ours in the pictures that `inferno` draws: a legend, a search that can be seen, and a look for dark screens.

use crate::words::markup::escaped;

/// Height of the legend under the picture.
const LEGEND_HEIGHT: u64 = 28;

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
    let body = svg[..end]
        .replacen(&format!(" height=\"{height}\""), &format!(" height=\"{higher}\""), 1)
        .replacen(&format!(" {height}\""), &format!(" {higher}\""), 1)
        .replacen("</style>", &format!("{RULES}</style>"), 1);
    body + &legend(colours, sentence, height) + &svg[end..]
}

fn legend(colours: &[(&str, &str)], sentence: &str, top: u64) -> String {
    let mut svg = format!(
        "<g id=\"legend\" font-family=\"monospace\" font-size=\"12\">\n\
         <rect class=\"ground\" x=\"0\" y=\"{top}\" width=\"100%\" height=\"{LEGEND_HEIGHT}\" fill=\"#eeeeee\"/>\n"
    );
    let (square, baseline) = (top + 8, top + 18);
    let mut x = 10;
    for (colour, text) in colours {
        svg += &format!(
            "<rect x=\"{x}\" y=\"{square}\" width=\"12\" height=\"12\" fill=\"{colour}\" stroke=\"#888888\"/>\n\
             <text x=\"{}\" y=\"{baseline}\">{}</text>\n",
            x + 18,
            escaped(text)
        );
        x += 18 + 8 * text.len() + 16;
    }
    svg + &format!("<text x=\"{x}\" y=\"{baseline}\">{}</text>\n</g>\n", escaped(sentence))
}
