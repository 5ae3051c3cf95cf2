//! What the figures say, and that none is cut.

use super::*;

/// Every screen of the fixture at this size, with the keys that lead to it.
fn all_screens(width: u16, height: u16) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for devices in [false, true] {
        let mut state = state(width, height);
        state.owns_program = true;
        if devices {
            state.take_reading(Arc::new(fixture::model_with_devices()));
        }
        for keys in [
            "1",
            "t",
            "t",
            "2",
            "3",
            "↓",
            "/put\n",
            "\x1b",
            "4",
            "↓↓→\n",
            "/x\n",
            "5",
            "6",
            "↓",
            "7",
            "8",
            "9",
            "0",
            "M",
            "D",
            "p",
            "1",
            "3",
            "4",
            "i",
            "cc",
            "t",
            "?",
        ] {
            press(&mut state, keys);
            out.push((format!("{width}x{height}, devices: {devices}, {keys:?}"), screen(&state)));
        }
    }
    out
}

#[test]
fn the_header_says_what_the_counters_say() {
    for (width, height) in [(60, 24), (80, 24), (120, 36)] {
        let state = state(width, height);
        let model = state.model.clone().expect("a reading");
        let counted = model.snapshot.stats().usage().in_use;
        let parts: u64 = model.snapshot.classes.iter().map(|class| class.in_use_bytes()).sum();
        assert_eq!(counted, parts + model.tier(poolscope_wire::TierCounter::LargeBytes));
        let text = screen(&state);
        let lines: Vec<&str> = text.lines().collect();
        let labels = lines.iter().position(|line| line.contains("LIVE")).expect("the labels");
        assert!(lines[labels].starts_with("\" LIVE "), "{text}");
        let figure = numbers::bytes(counted as f64);
        assert!(lines[labels + 1].starts_with(&format!("\" {figure}  ")), "{figure}: {text}");
        assert!(!lines[labels + 1].contains('±'), "{text}");
        assert_eq!(model.history.points().last().expect("a point").live_bytes, counted as f64);
        // What grows and the peak have room from 60 columns on; what was dropped has a banner.
        assert!(lines[labels].contains("GROWING") && lines[labels].contains("PEAK"), "{text}");
    }
}

#[test]
fn every_view_can_be_seen_and_clicked_at_any_width() {
    let mut state = state(60, 24);
    state.owns_program = true;
    let area = |width| ratatui::layout::Rect::new(0, 0, width, 1);
    assert_eq!(state.views().count(), 10);
    for width in [60, 80, 120] {
        for view in state.views().collect::<Vec<_>>() {
            state.open(view);
            let places = frame::tabs::places(&state, area(width));
            assert_eq!(places.len(), state.views().count(), "{width} columns, {}", VIEWS[view].title);
            let (_, own) = places.iter().find(|(shown, _)| *shown == view).expect("its own");
            assert_eq!(usize::from(own.width), VIEWS[view].title.chars().count() + 4);
        }
    }
}

#[test]
fn without_a_counter_the_header_says_that_it_estimates() {
    for (width, value) in [(60, "175 MiB ±5%"), (120, "175 MiB ±5%")] {
        let mut state = state(width, 24);
        let model = fixture::model_with(|snapshot| snapshot.classes.clear());
        state.take_reading(Arc::new(model));
        let text = screen(&state);
        assert!(text.contains("LIVE (EST.)") && text.contains(value), "{text}");
        assert_eq!(text.contains("PERIOD"), width > 60, "the last card goes as a whole: {text}");
    }
}

/// A figure that was cut ends in an ellipsis, in a unit that is none, or at a frame or the edge without its unit.
#[test]
fn no_figure_is_ever_cut() {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let whole = |unit: &str| UNITS.contains(&unit.split('/').next().unwrap_or(unit));
    let mut figures = 0;
    for (width, height) in [(60, 24), (60, 36), (80, 24), (120, 36)] {
        for (name, text) in all_screens(width, height) {
            for line in text.lines() {
                let words: Vec<&str> = line.split([' ', '"', '│', '┤', '▏']).filter(|word| !word.is_empty()).collect();
                for (at, word) in words.iter().enumerate() {
                    let number = word.trim_start_matches(['±', '+', '-', '(']);
                    if !number.starts_with(|c: char| c.is_ascii_digit()) {
                        continue;
                    }
                    assert!(!number.ends_with('…') || number.contains(char::is_alphabetic), "{name}: {word}\n{text}");
                    let digits = number.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | ','));
                    let unit = words.get(at + 1).copied().unwrap_or_default();
                    // In a sentence.
                    let unit = unit.trim_end_matches([')', ',', ';', '.']);
                    // Sizes have a unit; a word that begins like one is it.
                    if digits && UNITS.iter().any(|of| !unit.is_empty() && unit.starts_with(&of[..1])) {
                        // As far as it goes, it is a unit: `Mi…`, and not `Times`.
                        let stem = unit.split(['/', '…']).next().unwrap_or_default();
                        let looks = UNITS.iter().any(|of| of.starts_with(stem))
                            && (unit.ends_with('…') || unit.contains(['i', '/']) || unit == "B");
                        assert!(
                            !looks || whole(unit) || ["k/s", "M/s", "G/s"].contains(&unit),
                            "{name}: {word} {unit}\n{text}"
                        );
                        figures += usize::from(whole(unit));
                    }
                    // A count or a share with decimals and nothing behind it has lost its unit.
                    if digits && number.contains('.') {
                        let scaled = ["k", "M", "G", "T", "k/s", "M/s", "G/s", "times"].contains(&unit);
                        assert!(whole(unit) || scaled, "{name}: {word} {unit}\n{text}");
                    }
                    assert!(
                        !number.contains('%') || number.trim_end_matches([')', ':']).ends_with('%'),
                        "{name}: {word}"
                    );
                }
            }
        }
    }
    assert!(figures > 1000, "{figures} figures were seen");
}
