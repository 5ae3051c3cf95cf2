//! Every colour of the dashboard, by role. Views ask for a role and never for a colour.
//!
//! Meaning is never carried by colour alone: a selected row has a marker, a state is a word, and without colours
//! (`NO_COLOR`, or `--theme mono`) a selection is in reverse video.

use poolscope_profiler::findings::Severity;
use ratatui::style::{Color, Modifier, Style};

/// What the user may ask for by `--theme`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ThemeChoice {
    /// By NO_COLOR, COLORTERM, COLORFGBG and TERM
    #[default]
    Auto,
    /// For dark terminals
    Dark,
    /// For light terminals
    Light,
    /// The terminal's own 16 colours
    Ansi,
    /// No colours
    Mono,
}

/// The roles.
#[derive(Clone, Debug)]
pub(crate) struct Theme {
    /// Ordinary text.
    pub(crate) text: Style,
    /// What should be read first.
    pub(crate) strong: Style,
    /// Labels, units, what can wait.
    pub(crate) dim: Style,
    /// Borders, grid lines, empty parts of bars.
    pub(crate) faint: Style,
    /// Titles and keys.
    pub(crate) accent: Style,
    /// The selected tab.
    pub(crate) tab: Style,
    /// Live bytes, wherever they are drawn.
    pub(crate) live: Style,
    /// Resident memory, wherever it is drawn.
    pub(crate) rss: Style,
    /// Allocation, as against holding.
    pub(crate) alloc: Style,
    /// Healthy.
    pub(crate) ok: Style,
    /// Should be looked at.
    pub(crate) warn: Style,
    /// Wrong: drops, death.
    pub(crate) alert: Style,
    /// A word that must not be missed: reversed.
    pub(crate) badge: Style,
    /// The selected row; laid over what is there.
    pub(crate) selected: Style,
    /// A match of the search.
    pub(crate) found: Style,
    /// Flamegraph cells, chosen by a hash of the module and the function.
    pub(crate) flame: Vec<Style>,
    /// The ancestors of the zoomed cell.
    pub(crate) flame_above: Style,
    /// Cells of what grew: by little, and by much.
    pub(crate) grew: [Style; 2],
    /// Cells of what shrank.
    pub(crate) shrank: [Style; 2],
    /// Cells of what stayed as it was.
    pub(crate) level: Style,
    /// There are no colours: areas of a chart are told apart by patterns.
    pub(crate) patterns: bool,
    /// There is nothing but ASCII.
    pub(crate) ascii: bool,
    /// It is read line by line: parts lie below each other, and there are no charts.
    pub(crate) linear: bool,
}

/// How many colours the terminal has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    True,
    Indexed,
}

struct Palette {
    text: u32,
    strong: u32,
    dim: u32,
    faint: u32,
    accent: u32,
    on_accent: u32,
    live: u32,
    rss: u32,
    alloc: u32,
    ok: u32,
    warn: u32,
    alert: u32,
    selected: u32,
    flame_text: u32,
    flame_above: u32,
    flame: [u32; 9],
    grew: [u32; 2],
    shrank: [u32; 2],
    level: u32,
}

const DARK: Palette = Palette {
    text: 0xc5cee0,
    strong: 0xf2f5fb,
    dim: 0x8994ab,
    faint: 0x454e63,
    accent: 0x82aaff,
    on_accent: 0x10141f,
    live: 0x4fd6be,
    rss: 0xffa066,
    alloc: 0xc099ff,
    ok: 0xa5d76e,
    warn: 0xf0c674,
    alert: 0xff757f,
    selected: 0x2d3a5c,
    flame_text: 0x11151f,
    flame_above: 0x5b6479,
    flame: [0x4fd6be, 0x45c0ad, 0x63d8a4, 0x7dcf7b, 0x9ccf6a, 0x5cc7d6, 0x6fb8e8, 0x83a8f0, 0x52cf92],
    grew: [0xf4b19a, 0xff757f],
    shrank: [0x9fb8e8, 0x6f97f5],
    level: 0xa9b2c3,
};

const LIGHT: Palette = Palette {
    text: 0x2b3340,
    strong: 0x05080d,
    dim: 0x667085,
    faint: 0xb9c1cf,
    accent: 0x1f5fbf,
    on_accent: 0xffffff,
    live: 0x0b7f72,
    rss: 0xb4540a,
    alloc: 0x7a3fc4,
    ok: 0x2e7d32,
    warn: 0x8a6100,
    alert: 0xc62828,
    selected: 0xd5e2fa,
    flame_text: 0x0b1a18,
    flame_above: 0xc4cad6,
    flame: [0x8fd8cc, 0x7fcbbd, 0x9adfb8, 0xacd9a0, 0xc0dc9a, 0x93d3dd, 0xa3cdea, 0xb1c2f0, 0x8ed6b0],
    grew: [0xf6c7b5, 0xf08a80],
    shrank: [0xbfd2f5, 0x86aef0],
    level: 0xd3d8e0,
};

impl Theme {
    /// How much a finding matters.
    pub(crate) fn severity(&self, severity: Severity) -> Style {
        match severity {
            Severity::Alarm => self.alert,
            Severity::Warning => self.warn,
            Severity::Note => self.dim,
        }
    }

    /// The theme for a choice; `env` looks up environment variables.
    pub(crate) fn choose(choice: ThemeChoice, env: impl Fn(&str) -> Option<String>) -> Theme {
        let true_color = env("COLORTERM").is_some_and(|v| v.contains("truecolor") || v.contains("24bit"));
        let term = env("TERM").unwrap_or_default();
        let depth = if true_color { Depth::True } else { Depth::Indexed };
        match choice {
            ThemeChoice::Dark => Theme::of(&DARK, depth),
            ThemeChoice::Light => Theme::of(&LIGHT, depth),
            ThemeChoice::Ansi => Theme::ansi(),
            ThemeChoice::Mono => Theme::mono(),
            ThemeChoice::Auto => {
                if env("NO_COLOR").is_some_and(|v| !v.is_empty()) || term == "dumb" || term.ends_with("-mono") {
                    Theme::mono()
                } else if !true_color && !term.contains("256color") {
                    Theme::ansi()
                } else if env("COLORFGBG").is_some_and(|v| matches!(v.rsplit(';').next(), Some("7" | "15"))) {
                    Theme::of(&LIGHT, depth)
                } else {
                    Theme::of(&DARK, depth)
                }
            }
        }
    }

    fn of(p: &Palette, depth: Depth) -> Theme {
        let color = |rgb: u32| match depth {
            Depth::True => Color::from_u32(rgb),
            Depth::Indexed => Color::Indexed(nearest_indexed(rgb)),
        };
        let fg = |rgb| Style::new().fg(color(rgb));
        let bold = |rgb| fg(rgb).add_modifier(Modifier::BOLD);
        Theme {
            text: fg(p.text),
            strong: bold(p.strong),
            dim: fg(p.dim),
            faint: fg(p.faint),
            accent: bold(p.accent),
            tab: bold(p.on_accent).bg(color(p.accent)),
            live: fg(p.live),
            rss: fg(p.rss),
            alloc: fg(p.alloc),
            ok: fg(p.ok),
            warn: bold(p.warn),
            alert: bold(p.alert),
            badge: bold(p.on_accent).bg(color(p.alert)),
            selected: Style::new().bg(color(p.selected)).add_modifier(Modifier::BOLD),
            found: bold(p.on_accent).bg(color(p.warn)),
            flame: p.flame.iter().map(|&bg| fg(p.flame_text).bg(color(bg))).collect(),
            flame_above: fg(p.text).bg(color(p.flame_above)),
            grew: p.grew.map(|bg| fg(p.flame_text).bg(color(bg))),
            shrank: p.shrank.map(|bg| fg(p.flame_text).bg(color(bg))),
            level: fg(p.flame_text).bg(color(p.level)),
            patterns: false,
            ascii: false,
            linear: false,
        }
    }

    fn ansi() -> Theme {
        let plain = Style::new().fg(Color::Reset);
        let bold = plain.add_modifier(Modifier::BOLD);
        Theme {
            text: plain,
            strong: bold,
            dim: plain.fg(Color::DarkGray),
            faint: plain.fg(Color::DarkGray),
            accent: bold.fg(Color::Blue),
            tab: bold.fg(Color::Blue).add_modifier(Modifier::REVERSED),
            live: plain.fg(Color::Cyan),
            rss: plain.fg(Color::Yellow),
            alloc: plain.fg(Color::Magenta),
            ok: plain.fg(Color::Green),
            warn: bold.fg(Color::Yellow),
            alert: bold.fg(Color::Red),
            badge: bold.fg(Color::Red).add_modifier(Modifier::REVERSED),
            selected: bold.add_modifier(Modifier::REVERSED),
            found: bold.fg(Color::Black).bg(Color::Yellow),
            flame: [Color::Cyan, Color::Green, Color::Blue].map(|bg| plain.fg(Color::Black).bg(bg)).to_vec(),
            flame_above: plain.fg(Color::Black).bg(Color::Gray),
            grew: [Color::Yellow, Color::Red].map(|bg| plain.fg(Color::Black).bg(bg)),
            shrank: [Color::Cyan, Color::Blue].map(|bg| plain.fg(Color::Black).bg(bg)),
            level: plain.fg(Color::Black).bg(Color::Gray),
            patterns: false,
            ascii: false,
            linear: false,
        }
    }

    fn mono() -> Theme {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let dim = plain.add_modifier(Modifier::DIM);
        Theme {
            text: plain,
            strong: bold,
            dim: plain,
            faint: dim,
            accent: bold,
            tab: bold.add_modifier(Modifier::REVERSED),
            live: plain,
            rss: plain,
            alloc: plain,
            ok: plain,
            warn: bold,
            alert: bold,
            badge: bold.add_modifier(Modifier::REVERSED),
            selected: bold.add_modifier(Modifier::REVERSED),
            found: bold.add_modifier(Modifier::UNDERLINED),
            flame: vec![plain],
            flame_above: dim,
            grew: [plain, bold],
            shrank: [plain; 2],
            level: plain,
            patterns: true,
            ascii: false,
            linear: false,
        }
    }
}

/// The nearest of the 6x6x6 cube and the greys of a 256-colour terminal.
fn nearest_indexed(rgb: u32) -> u8 {
    const LEVELS: [i32; 6] = [0, 95, 135, 175, 215, 255];
    let part = |shift: u32| ((rgb >> shift) & 0xff) as i32;
    let (r, g, b) = (part(16), part(8), part(0));
    let nearest = |v: i32| (0..6).min_by_key(|&i| (LEVELS[i] - v).abs()).unwrap_or(0);
    let (ri, gi, bi) = (nearest(r), nearest(g), nearest(b));
    let distance = |x: i32, y: i32, z: i32| (x - r).pow(2) + (y - g).pow(2) + (z - b).pow(2);
    let grey_step = (((r + g + b) / 3 - 8).clamp(0, 230) + 5) / 10;
    let grey = 8 + 10 * grey_step.min(23);
    if distance(grey, grey, grey) < distance(LEVELS[ri], LEVELS[gi], LEVELS[bi]) {
        232 + grey_step.min(23) as u8
    } else {
        (16 + 36 * ri + 6 * gi + bi) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto(vars: &[(&str, &str)]) -> Theme {
        Theme::choose(ThemeChoice::Auto, |name| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn no_color_leaves_no_colour_at_all() {
        let theme = auto(&[("NO_COLOR", "1"), ("COLORTERM", "truecolor"), ("TERM", "xterm-256color")]);
        for style in [theme.text, theme.alert, theme.selected, theme.tab, theme.badge, theme.found, theme.flame[0]] {
            assert_eq!((style.fg, style.bg), (None, None));
        }
        assert!(theme.selected.add_modifier.contains(Modifier::REVERSED));
    }

    #[test]
    fn an_empty_no_color_does_not_count() {
        assert!(auto(&[("NO_COLOR", ""), ("COLORTERM", "truecolor")]).text.fg.is_some());
    }

    #[test]
    fn a_plain_terminal_gets_its_own_sixteen() {
        assert_eq!(auto(&[("TERM", "linux")]).live.fg, Some(Color::Cyan));
        assert!(matches!(auto(&[("TERM", "xterm-256color")]).live.fg, Some(Color::Indexed(_))));
    }

    #[test]
    fn indexed_colours_are_near() {
        assert_eq!(nearest_indexed(0xffffff), 231);
        assert_eq!(nearest_indexed(0x000000), 16);
        assert_eq!(nearest_indexed(0xff0000), 196);
        assert_eq!(nearest_indexed(0x808080), 244);
    }
}
