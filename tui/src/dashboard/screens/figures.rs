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

/// The pool looks at its figures now and then; what is in use by now may be more than it saw.
#[test]
fn the_peak_is_never_below_what_is_in_use() {
    let mut state = state(120, 40);
    state.take_reading(Arc::new(fixture::model_with(|snapshot| {
        for total in &mut snapshot.history.totals {
            (total.in_use, total.most) = (1 << 20, 1 << 20);
        }
    })));
    let model = state.model.clone().expect("a reading");
    let (most, in_use) = (model.most.expect("a peak"), model.in_use.expect("a counter"));
    assert_eq!((most.bytes, most.time_ns), (in_use, model.snapshot.taken_ns));
    let text = screen(&state);
    let figures = text.lines().skip_while(|line| !line.contains("PEAK now")).nth(1).expect("the figures");
    assert_eq!(figures.matches(&numbers::bytes(in_use as f64)).count(), 2, "in use, and the peak: {text}");
}

/// Where a chart has no room, the parts of the memory are one bar, as long as the whole, with the share of each.
#[test]
fn the_overview_of_the_smallest_screen_says_where_the_memory_is() {
    let mut state = state(60, 15);
    // A line for the processes that it started takes the chart's third row.
    let mut model = fixture::model();
    let child = poolscope_profiler::process::family::Child { pid: 4, name: "worker".into(), rss: 1 << 20 };
    model.family = vec![crate::dashboard::model::Kin { child, on_pool: true }];
    state.take_reading(Arc::new(model));
    let text = screen(&state);
    let model = state.model.clone().expect("a reading");
    let whole = model.accounting.memory.expect("it runs") as f64;
    let in_use = model.accounting.get(poolscope_profiler::model::accounting::Part::InUse) as f64;
    assert!(text.contains(&format!("in use {}  caches ", numbers::percent(in_use, whole))), "{text}");
    let bar = text.lines().find(|line| line.contains('━')).expect("a bar");
    assert_eq!(bar.chars().filter(|c| *c == '━').count(), 56, "{text}");
}

#[test]
fn the_flow_between_the_tiers_says_what_the_counters_say() {
    use poolscope_profiler::model::accounting::Part;
    let mut state = state(120, 40);
    press(&mut state, "2");
    let model = state.model.clone().expect("a reading");
    let text = screen(&state);
    let row = |tier: &str| text.lines().find(|line| line.contains(tier)).unwrap_or_else(|| panic!("{tier}: {text}"));
    let held = |part: Part| numbers::bytes(model.accounting.get(part) as f64);
    assert!(row("thread caches").contains(&held(Part::ThreadCaches)), "{text}");
    assert!(row("central cache").contains(&held(Part::CentralCache)), "{text}");
    assert!(row("page heap").contains(&held(Part::Free)), "{text}");
    let allocs: u64 = model.classes.iter().map(|class| class.stats.allocs()).sum();
    let hits: u64 = model.classes.iter().map(|class| class.stats.hits()).sum();
    assert!(row("thread caches").contains(&numbers::scaled(allocs as f64)), "{text}");
    assert!(row("thread caches").contains(&numbers::percent(hits as f64, allocs as f64)), "{text}");
}

#[test]
fn the_help_is_whole_at_every_width() {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for width in [60, 80, 120] {
        let mut state = state(width, 24);
        state.owns_program = true;
        press(&mut state, "?");
        let room = usize::from(width) - 8;
        let lines = frame::help::lines(&state);
        assert!(lines.iter().all(|line| line.width() <= room), "{width}: a line is cut");
        let text = plain(&lines.iter().map(|line| format!("{line} ")).collect::<String>());
        for (_, bindings) in frame::keys::help(&state.panes) {
            for binding in bindings {
                assert!(text.contains(&plain(binding.help)), "{width}: {}", binding.help);
            }
        }
    }
}

/// The last reading may be of a moment when it still ran.
#[test]
fn what_a_program_had_started_is_gone_with_it() {
    use poolscope_profiler::findings::{Finding, Severity, Subject};
    let mut state = state(120, 40);
    let mut model = fixture::model();
    let child = poolscope_profiler::process::family::Child { pid: 4, name: "cc1plus".into(), rss: 218 << 20 };
    model.family = vec![crate::dashboard::model::Kin { child, on_pool: true }];
    let sentence = "1 process that it started has 218 MiB of memory.".to_owned();
    let (severity, subject) = (Severity::Warning, Subject::Memory);
    model.findings = vec![Finding { severity, rule: "children", sentence, evidence: Vec::new(), subject }];
    let reading = Arc::new(model);
    state.take_reading(Arc::clone(&reading));
    assert!(screen(&state).contains("It started") && screen(&state).contains("1 process that it started"));
    state.end(Ended::Code(0));
    for _ in 0..2 {
        let text = screen(&state);
        assert!(text.contains("exited with code 0") && !text.contains("started"), "{text}");
        // One that was on its way.
        state.take_reading(Arc::clone(&reading));
    }
}

/// A number is given again; what is shown is of the program that had it first.
#[test]
fn who_has_a_dead_programs_number_now_is_said() {
    use poolscope_profiler::model::snapshot::ProcessState;
    for successor in [None, Some("/usr/bin/sle\u{1b}ep".to_owned())] {
        let mut state = state(80, 24);
        let mut model = fixture::model_with(|snapshot| snapshot.process.state = ProcessState::Killed);
        model.successor.clone_from(&successor);
        let line = format!("Process {} is /usr/bin/sle·ep now.", model.snapshot.process.pid);
        state.take_reading(Arc::new(model));
        let text = screen(&state);
        assert!(text.contains("is gone") && text.contains(&line) == successor.is_some(), "{text}");
    }
}

/// What wobbles hides a small growth, and "level" alone would say that there is none.
#[test]
fn a_level_says_how_uncertain_it_is() {
    use poolscope_profiler::model::growth::Slope;
    const MIB: f64 = 1_048_576.0;
    let mut model = fixture::model();
    let mut said = |slope: Slope| {
        model.trend = Some(slope);
        let mut state = state(120, 36);
        state.take_reading(Arc::new(model.clone()));
        screen(&state)
    };
    assert!(said(Slope::new(MIB, 2.5 * MIB)).contains("level ±2.50 MiB"));
    let text = said(Slope::new(0.0, 0.1 * MIB));
    assert!(text.contains("level") && !text.contains("level ±"), "{text}");
    // What fell and then leaks is not level.
    assert!(said(Slope::of_halves((-20.0 * MIB, 15.0 * MIB), (8.0 * MIB, 0.2 * MIB))).contains("+8.00 MiB/min ▲"));
}
