//! A screen in ASCII, for terminals and locales that have nothing else: each cell gets what comes nearest.

use ratatui::buffer::Buffer;

/// What stands for a character.
pub(crate) fn nearest(c: char) -> char {
    match c {
        ' '..='~' => c,
        '─' | '╸' | '╶' | '╴' => '-',
        '━' => '=',
        '┈' | '┄' | '·' | '░' | '▂' => '.',
        '│' | '┃' | '▏' | '▕' => '|',
        '╭' | '╮' | '╰' | '╯' | '┤' | '├' | '┌' | '┐' | '└' | '┘' | '┼' => '+',
        '▶' | '▸' | '→' | '▾' => '>',
        '…' | '±' => '~',
        '‹' | '←' | '⌫' | '▴' => '<',
        '▼' | '↓' => 'v',
        '▲' | '↑' | '⇧' => '^',
        '●' | '▇' => '*',
        '■' | '█' => '#',
        '‖' => '"',
        'Δ' => 'd',
        '↔' | '▅' => '=',
        '↳' => '\'',
        '┆' | '▄' => ':',
        '▓' => '%',
        '▒' | '▆' => '+',
        '◆' => '@',
        '▁' => '_',
        '▃' => '-',
        '×' => 'x',
        '╋' => 'X',
        '○' => 'o',
        // Braille: as dark as it has dots.
        '\u{2800}'..='\u{28ff}' => match (c as u32 - 0x2800).count_ones() {
            0 => ' ',
            1..=2 => '.',
            3..=5 => ':',
            _ => '#',
        },
        _ => '?',
    }
}

/// Puts what comes nearest into every cell that has anything else.
pub(crate) fn to_ascii(buf: &mut Buffer) {
    for cell in &mut buf.content {
        let symbol = cell.symbol();
        if !symbol.is_ascii() {
            let c = nearest(symbol.chars().next().unwrap_or(' '));
            cell.set_char(c);
        }
    }
}

/// Whether a locale and a terminal have no more than ASCII. `env` looks up environment variables.
pub(crate) fn is_wanted(env: impl Fn(&str) -> Option<String>) -> bool {
    let set = |name: &str| env(name).filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    let term = set("TERM").unwrap_or_default();
    // The console of Linux has no braille, and of frames only some.
    let plain = ["linux", "dumb", "vt52", "vt100", "vt102", "vt220", "ansi"].contains(&term.as_str());
    plain || !(locale.contains("utf-8") || locale.contains("utf8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(vars: &[(&str, &str)]) -> bool {
        is_wanted(|name| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    /// The characters that the sources of the dashboard have in what is no comment; those of tests may be anything.
    #[test]
    fn every_character_that_is_drawn_has_one_that_comes_near() {
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src/dashboard"))];
        let mut seen = std::collections::BTreeSet::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("the sources are there").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|end| end == "rs") {
                    let text = std::fs::read_to_string(path).expect("is text");
                    let drawn = text.split("#[cfg(test)]").next().unwrap_or_default();
                    let lines = drawn.lines().filter(|line| !line.trim_start().starts_with("//"));
                    seen.extend(lines.flat_map(str::chars).filter(|c| !c.is_ascii()));
                }
            }
        }
        assert!(seen.contains(&'○') && seen.len() > 40, "{seen:?}");
        let without: Vec<char> = seen.into_iter().filter(|c| nearest(*c) == '?').collect();
        assert!(without.is_empty(), "{without:?}");
    }

    #[test]
    fn the_locale_and_the_terminal_decide() {
        assert!(!wanted(&[("LANG", "C.UTF-8"), ("TERM", "xterm-256color")]));
        assert!(!wanted(&[("LANG", "de_DE.utf8")]));
        assert!(wanted(&[("LANG", "C"), ("TERM", "xterm")]) && wanted(&[]));
        assert!(wanted(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]));
        assert!(wanted(&[("LANG", "en_US.UTF-8"), ("TERM", "vt100")]));
    }
}
