//! Every view at three sizes, as reviewed snapshots, drawn by ratatui's test backend from a made-up server.

use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use poolscope_profiler::model::snapshot::{Dropped, ProcessState};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::Size;
use ratatui::style::Modifier;

use super::control::dispatch::{self, Effect};
use super::control::mouse::mouse;
use super::events::output::Tail;
use super::frame;
use super::model::fixture;
use super::panes::VIEWS;
use super::state::{Overlay, State};
use super::theme::{Theme, ThemeChoice};
use crate::words::{Ended, numbers};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 36), (200, 60)];

fn state(width: u16, height: u16) -> State {
    let theme = Theme::choose(ThemeChoice::Dark, |_| None);
    let mut state = State::new("kvserver".into(), theme, Size { width, height }, Duration::from_secs(1));
    state.take_reading(Arc::new(fixture::model()));
    state
}

fn draw(state: &State) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(state.size.width, state.size.height)).unwrap();
    terminal.draw(|to| frame::draw(state, to.buffer_mut())).unwrap();
    terminal
}

fn screen(state: &State) -> String {
    draw(state).backend().to_string()
}

fn press(state: &mut State, keys: &str) -> Option<Effect> {
    let mut effect = None;
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            '→' => KeyCode::Right,
            '←' => KeyCode::Left,
            c => KeyCode::Char(c),
        };
        effect = dispatch::key(state, &KeyEvent::new(code, KeyModifiers::NONE));
    }
    effect
}

fn at_every_size(name: &str, prepare: impl Fn(&mut State)) {
    for (width, height) in SIZES {
        let mut state = state(width, height);
        prepare(&mut state);
        insta::assert_snapshot!(format!("{name}_{width}x{height}"), screen(&state));
    }
}

#[test]
fn overview() {
    at_every_size("overview", |_| {});
}

#[test]
fn classes() {
    at_every_size("classes", |state| {
        press(state, "2");
    });
}

#[test]
fn sites() {
    at_every_size("sites", |state| {
        press(state, "3");
    });
}

#[test]
fn flame() {
    at_every_size("flame", |state| {
        press(state, "4↓↓");
    });
}

#[test]
fn threads() {
    at_every_size("threads", |state| {
        press(state, "5");
    });
}

#[test]
fn gpu() {
    at_every_size("gpu", |state| {
        state.take_reading(Arc::new(fixture::model_with_devices()));
        press(state, "6");
    });
}

#[test]
fn the_second_device_is_shown_when_it_is_selected() {
    let mut state = state(120, 36);
    state.take_reading(Arc::new(fixture::model_with_devices()));
    press(&mut state, "6↓");
    let text = screen(&state);
    assert!(text.contains("Memory of device 1") && text.contains("evaluate"), "{text}");
    let at = |row| MouseEvent {
        kind: MouseEventKind::Down(MouseButton::Left),
        column: 8,
        row,
        modifiers: KeyModifiers::NONE,
    };
    let row = text.lines().position(|line| line.contains("First of two")).expect("is listed");
    mouse(&mut state, &at(row as u16));
    assert!(screen(&state).contains("Memory of device 0"));
    press(&mut state, "G");
    assert!(screen(&state).contains("Memory of device 1 pinned"));
}

#[test]
fn a_process_without_devices_says_so() {
    let mut state = state(80, 24);
    press(&mut state, "6");
    assert!(screen(&state).contains("no pool of device memory"));
}

#[test]
fn without_colours_the_map_can_still_be_read() {
    let mut state = state(120, 36);
    state.take_reading(Arc::new(fixture::model_with_devices()));
    state.theme = Theme::choose(ThemeChoice::Mono, |_| None);
    press(&mut state, "6");
    let text = screen(&state);
    for part in ["█ large", "▓ small", "◆ graph", "▒ pending", "░ free", "· not held"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn output() {
    at_every_size("output", |state| {
        state.owns_program = true;
        let lines = (1..=80).map(|i| format!("request {i} served")).collect();
        state.take_output(&Tail { path: "/tmp/poolscope-kvserver-1.log".into(), lines });
        press(state, "9");
    });
}

#[test]
fn the_help_over_a_view() {
    at_every_size("help", |state| {
        press(state, "?");
    });
}

#[test]
fn a_filter_that_is_being_typed() {
    at_every_size("filter", |state| {
        press(state, "3/store::(put|index)");
    });
}

#[test]
fn a_search_in_the_zoomed_flamegraph() {
    at_every_size("search", |state| {
        press(state, "4/store|session\nn\n");
    });
}

#[test]
fn where_the_memory_is_on_a_small_screen() {
    let mut state = state(80, 24);
    press(&mut state, "t");
    insta::assert_snapshot!(screen(&state));
}

#[test]
fn findings() {
    at_every_size("findings", |state| {
        press(state, "!");
    });
}

#[test]
fn the_most_important_finding_has_a_line_and_leads_to_what_it_is_of() {
    let mut state = state(120, 36);
    let model = state.model.clone().expect("a reading");
    let first = model.findings.first().expect("something grows");
    let start: String = first.sentence.chars().take(40).collect();
    let text = screen(&state);
    let line = text.lines().rev().nth(1).expect("a line above the footer");
    assert!(line.contains(&start) && line.contains('!'), "{text}");
    press(&mut state, "!");
    assert_eq!(VIEWS[state.view].title, "Findings");
    press(&mut state, "\n");
    assert_eq!(VIEWS[state.view].title, "Call sites");
    let text = screen(&state);
    let selected = rows(&text, "Call site").into_iter().find(|row| row.contains('▶')).expect("a selected row");
    assert!(selected.contains("remember"), "{selected}");
}

#[test]
fn counters() {
    at_every_size("counters", |state| {
        press(state, "7↓");
    });
}

/// What the panel says adds up to what the kernel says.
#[test]
fn the_parts_of_the_memory_come_to_the_resident_set() {
    for (width, height, keys) in [(120, 36, ""), (200, 60, ""), (80, 24, "t"), (60, 24, "t")] {
        let mut state = state(width, height);
        press(&mut state, keys);
        let text = screen(&state);
        let lines: Vec<&str> = text.lines().collect();
        let bytes = |line: &str| -> Option<f64> {
            let (number, unit) = line.trim().split_once(' ')?;
            let unit = unit.split_whitespace().next()?;
            let power = ["B", "KiB", "MiB", "GiB"].iter().position(|known| *known == unit)?;
            Some(number.parse::<f64>().ok()? * 1024f64.powi(power as i32))
        };
        let parts = ["in use", "thread caches", "transfer cache", "central cache", "free pages", "metadata", "files"];
        let sum: f64 = parts
            .iter()
            .chain(&["not the pool"])
            .map(|part| {
                let found = lines.iter().find_map(|line| bytes(line.rsplit('│').nth(1)?.split_once(part)?.1));
                found.unwrap_or_else(|| panic!("{part} is missing: {text}"))
            })
            .sum();
        let rss = fixture::model().memory.expect("it runs").rss as f64;
        assert!((sum / rss - 1.0).abs() < 0.01, "{sum} and {rss}: {text}");
    }
}

#[test]
fn the_header_has_the_peak_and_says_what_grows() {
    let text = screen(&state(120, 36));
    let lines: Vec<&str> = text.lines().collect();
    let labels = lines.iter().position(|line| line.contains("GROWING")).expect("the labels");
    assert!(lines[labels].contains("PEAK 1m 19s ago"), "{text}");
    assert!(lines[labels + 1].contains("/min ▲"), "{text}");
    assert!(text.contains("Growing call sites first"), "{text}");
    // The one that grows, though another holds more.
    assert!(rows(&text, "Growth/min")[0].contains("remember"), "{text}");
}

#[test]
fn what_must_not_be_missed() {
    let mut state = state(80, 24);
    state.owns_program = true;
    let model = fixture::model_with(|snapshot| {
        snapshot.process.state = ProcessState::Killed;
        snapshot.dropped = Dropped { live: 1234, torn: 2, ..Dropped::default() };
        snapshot.memory = None;
    });
    state.take_reading(Arc::new(model));
    state.ended = Some(Ended::Signal(9));
    insta::assert_snapshot!(screen(&state));
}

#[test]
fn pausing_freezes_the_picture_and_says_how_far_behind_it_is() {
    let mut state = state(80, 24);
    press(&mut state, " ");
    let later = fixture::model_with(|snapshot| snapshot.taken_ns += 12_000_000_000);
    state.take_reading(Arc::new(later));
    let text = screen(&state);
    assert!(text.contains("Paused, 12 s behind"), "{text}");
    assert!(text.contains("up 3m 00s"));
    press(&mut state, " ");
    let text = screen(&state);
    assert!(!text.contains("Paused"));
    assert!(text.contains("up 3m 12s"));
}

#[test]
fn quitting_asks_only_while_a_program_of_ours_runs() {
    let mut state = state(80, 24);
    assert_eq!(press(&mut state, "q"), Some(Effect::Quit));
    state.owns_program = true;
    assert_eq!(press(&mut state, "q"), None);
    assert_eq!(state.overlay, Overlay::Confirm);
    insta::assert_snapshot!(screen(&state));
    assert_eq!(press(&mut state, "q"), Some(Effect::EndProgram));
    assert_eq!(press(&mut state, "\x1b"), Some(Effect::Stay));
    state.ended = Some(Ended::Code(0));
    assert_eq!(press(&mut state, "q"), Some(Effect::Quit));
}

#[test]
fn before_the_first_reading() {
    let theme = Theme::choose(ThemeChoice::Dark, |_| None);
    let mut state = State::new("sleep".into(), theme, Size { width: 80, height: 24 }, Duration::from_secs(1));
    assert!(screen(&state).contains("Waiting for the first reading of sleep"));
    for view in "12345678".chars() {
        press(&mut state, &view.to_string());
        press(&mut state, "↓\n\x1bs/x\nnN ");
        screen(&state);
    }
}

#[test]
fn a_small_terminal_says_so() {
    for (width, height) in [(59, 24), (80, 14), (1, 1), (12, 3)] {
        let state = state(width, height);
        let text = screen(&state);
        if width >= 30 {
            assert!(text.contains("too small") && text.contains("60x15"), "{text}");
        }
    }
    assert!(screen(&state(60, 15)).contains("LIVE"));
}

#[test]
fn every_view_can_be_drawn_at_every_size() {
    for width in (60..=210).step_by(25) {
        for height in (15..=64).step_by(12) {
            let mut state = state(width, height);
            state.owns_program = true;
            for keys in [
                "1",
                "t",
                "2",
                "3",
                "/put\n",
                "[]",
                "\x1b",
                "4",
                "↓↓→\n",
                "/x\n",
                "icct",
                "x",
                "X",
                "5",
                "6↓",
                "7",
                "8",
                "9",
                "M",
                "D",
                "m",
                "3",
                "4",
                "1",
                "P",
                "?",
                "↓",
            ] {
                press(&mut state, keys);
                screen(&state);
            }
        }
    }
}

#[test]
fn drawing_into_a_buffer_of_another_size_does_not_panic() {
    let mut state = state(120, 36);
    let mut terminal = Terminal::new(TestBackend::new(70, 20)).unwrap();
    for view in 0..VIEWS.len() {
        state.open(view);
        terminal.draw(|to| frame::draw(&state, to.buffer_mut())).unwrap();
    }
}

#[test]
fn without_colours_the_selection_is_reversed_and_has_a_mark() {
    let mut state = state(120, 36);
    state.theme = Theme::choose(ThemeChoice::Mono, |_| None);
    press(&mut state, "3");
    let terminal = draw(&state);
    let buffer = terminal.backend().buffer();
    let row = (0..36).find(|&y| buffer[(2, y)].symbol() == "▶").expect("a mark");
    assert!(buffer[(10, row)].modifier.contains(Modifier::REVERSED));
    for cell in buffer.content() {
        assert_eq!((cell.fg, cell.bg), (ratatui::style::Color::Reset, ratatui::style::Color::Reset));
    }
}

/// The rows of the view's table, as they can be seen: those between the titles and the end of the panel.
fn rows(text: &str, title: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let titles = lines.iter().position(|line| line.contains(title)).expect("titles");
    let rows = lines[titles + 1..].iter().take_while(|line| !line.contains('╰'));
    let inner = |line: &str| line.split('│').nth(1).unwrap_or_default().trim().to_owned();
    rows.map(|line| inner(line)).filter(|row| !row.is_empty()).collect()
}

fn left_click(state: &mut State, column: usize, row: usize) {
    let (column, row) = (column as u16, row as u16);
    let kind = MouseEventKind::Down(MouseButton::Left);
    mouse(state, &MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE });
}

#[test]
fn a_filter_keeps_what_matches_and_the_selection() {
    let mut state = state(120, 36);
    press(&mut state, "3↓");
    let selected = |state: &State| rows(&screen(state), "Call site").into_iter().find(|row| row.contains('▶')).unwrap();
    let before = selected(&state);
    let all = rows(&screen(&state), "Call site").len();
    press(&mut state, "/session\n");
    let filtered = rows(&screen(&state), "In use");
    assert!(!filtered.is_empty() && filtered.len() < all, "{filtered:?}");
    assert!(screen(&state).contains("of 37 sites"));
    press(&mut state, "\x1b");
    assert_eq!(selected(&state), before);
    assert_eq!(rows(&screen(&state), "Call site").len(), all);
}

#[test]
fn a_click_on_a_title_sorts_and_one_on_a_row_selects() {
    let mut state = state(120, 36);
    press(&mut state, "3");
    let text = screen(&state);
    let lines: Vec<&str> = text.lines().collect();
    let (y, line) = lines.iter().enumerate().find(|(_, l)| l.contains("Allocated")).expect("titles");
    // TestBackend quotes each line.
    let x = line[..line.find("Allocated").unwrap()].chars().count() - 1;
    left_click(&mut state, x, y);
    let text = screen(&state);
    assert!(text.contains("Allocated▾"), "{text}");
    let mut expected = fixture::model().sites;
    expected.sort_by(|a, b| b.allocated.bytes.total_cmp(&a.allocated.bytes));
    for (row, site) in rows(&text, "Allocated").iter().zip(&expected) {
        assert!(row.contains(&numbers::bytes(site.allocated.bytes)), "{row}");
    }
    left_click(&mut state, x, y + 3);
    assert!(rows(&screen(&state), "Allocated")[2].starts_with('▶'));
    let tabs = frame::layout::Areas::of(&state).tabs;
    left_click(&mut state, 3, tabs.y.into());
    assert_eq!(VIEWS[state.view].title, "Overview");
}

#[test]
fn the_wheel_moves_what_is_under_it() {
    let mut state = state(120, 24);
    press(&mut state, "3");
    let turn = |state: &mut State, row: u16| {
        let kind = MouseEventKind::ScrollDown;
        mouse(state, &MouseEvent { kind, column: 20, row, modifiers: KeyModifiers::NONE });
    };
    let before = screen(&state);
    let stack = before.lines().position(|line| line.contains("╭ Stack")).expect("a stack") as u16;
    turn(&mut state, stack + 1);
    let scrolled = screen(&state);
    let table = |text: &str| text.lines().take(usize::from(stack)).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(table(&scrolled), table(&before), "the table stays");
    turn(&mut state, stack - 3);
    assert_ne!(table(&screen(&state)), table(&before));
}

#[test]
fn a_call_site_leads_to_its_place_in_the_flamegraph() {
    let mut state = state(120, 36);
    press(&mut state, "3\n");
    assert_eq!(VIEWS[state.view].title, "Flamegraph");
    let text = screen(&state);
    // The function that names the row.
    let foot = text.lines().find(|line| line.contains("41.0 MiB  23.5% of all")).expect("what is selected");
    assert!(foot.contains("kv::session::Session::remember"), "{text}");
    // Not the plumbing that a function calls.
    press(&mut state, "3↓\n");
    let text = screen(&state);
    let foot = text.lines().find(|line| line.contains("96.0 MiB  54.9% of all")).expect("what is selected");
    assert!(foot.contains("kv::store::Store::put"), "{text}");
}

#[test]
fn a_call_site_of_the_overview_leads_to_its_row() {
    let mut state = state(120, 36);
    press(&mut state, "↓\n");
    assert_eq!(VIEWS[state.view].title, "Call sites");
    let text = screen(&state);
    let selected = rows(&text, "Call site").into_iter().find(|row| row.contains('▶')).expect("a selected row");
    assert!(selected.contains("Store::put"), "{selected}");
}

#[test]
fn the_arrows_scroll_the_help() {
    let mut state = state(80, 24);
    press(&mut state, "?");
    let top = screen(&state);
    press(&mut state, "↓");
    let below = screen(&state);
    assert!(top.contains("Everywhere") && !below.contains("Everywhere"), "{below}");
    press(&mut state, "↑");
    assert_eq!(screen(&state), top);
    press(&mut state, "G");
    let end = screen(&state);
    assert!(end.contains("quits if there is no"), "{end}");
    press(&mut state, "\x1b");
    assert_eq!(state.overlay, Overlay::None);
}

#[test]
fn a_click_on_a_tab_ends_the_typing() {
    let mut state = state(120, 36);
    press(&mut state, "4/put");
    let tabs = frame::layout::Areas::of(&state).tabs;
    left_click(&mut state, 3, tabs.y.into());
    assert_eq!(VIEWS[state.view].title, "Overview");
    // Keys are keys again, and the search is still there.
    press(&mut state, "3");
    assert_eq!(VIEWS[state.view].title, "Call sites");
    let text = screen(&state);
    assert!(text.contains("f filter") && !text.contains("filter put"), "{text}");
    press(&mut state, "4");
    assert!(screen(&state).contains("search put"));
}

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
    assert_eq!(state.views().count(), 9);
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

#[test]
fn a_moment_is_marked_and_what_changed_since_is_shown_in_every_view() {
    let mut state = state(120, 36);
    press(&mut state, "Dm");
    assert!(screen(&state).contains("nothing is marked yet"));
    press(&mut state, "MDm");
    assert!(screen(&state).contains("Δ Compared with the mark, 0.0 s ago"), "{}", screen(&state));
    let mut later = fixture::model();
    Arc::make_mut(&mut later.snapshot).taken_ns += 60_000_000_000;
    later.sites[1].in_use.bytes += 12.0 * 1048576.0;
    later.in_use = later.in_use.map(|bytes| bytes + (12 << 20));
    state.take_reading(Arc::new(later));
    let text = screen(&state);
    assert!(text.contains("Compared with the mark, 1m 00s ago: +12.0 MiB in use."), "{text}");
    assert!(text.contains("Call sites that changed most"), "{text}");
    press(&mut state, "3");
    let text = screen(&state);
    assert!(text.contains("Change▾") && rows(&text, "Change")[0].contains("+12.0 MiB"), "{text}");
    press(&mut state, "4");
    let text = screen(&state);
    assert!(text.contains("change of bytes in use · +12.0 MiB"), "{text}");
    assert!(text.contains("kv::session::Session::remember  +12.0 MiB") && !text.contains("Store::put"), "{text}");
    press(&mut state, "\x1b");
    assert!(!screen(&state).contains("Compared with"));
}

#[test]
fn the_peak_is_shown_in_every_view_and_a_process_that_is_gone_opens_there() {
    use poolscope_profiler::model::profile::Peak;
    use poolscope_profiler::model::profile::Profile;
    let mut model = fixture::model();
    let mut profile = Profile::clone(&model.whole);
    profile.peak = Some(Peak { bytes: 30e6, after_ns: Some(101_000_000_000) });
    for (at, site) in profile.sites.iter_mut().enumerate() {
        site.peak = site.in_use;
        site.peak.bytes = if at == 3 { 30.0 * 1048576.0 } else { 0.0 };
    }
    (model.whole, model.profile) = (Arc::new(profile.clone()), Arc::new(profile));
    let mut state = state(120, 36);
    state.take_reading(Arc::new(model.clone()));
    press(&mut state, "P");
    let text = screen(&state);
    assert!(text.contains("At the peak, 1m 41s after the start."), "{text}");
    assert!(text.contains("194 MiB") && text.contains("Memory of the pool then"), "{text}");
    press(&mut state, "3");
    let text = screen(&state);
    assert!(rows(&text, "In use")[0].contains("30.0 MiB") && rows(&text, "In use").len() == 1, "{text}");
    press(&mut state, "5");
    assert!(screen(&state).contains("is not kept of it, and is as it is now"));
    press(&mut state, "P");
    assert!(!screen(&state).contains("At the peak"));
    // One that is gone.
    let theme = Theme::choose(ThemeChoice::Dark, |_| None);
    let mut state = State::new("kv".into(), theme, Size { width: 120, height: 36 }, Duration::from_secs(1));
    state.opens_at_peak = true;
    Arc::make_mut(&mut model.snapshot).process.state = ProcessState::Killed;
    state.take_reading(Arc::new(model));
    assert!(screen(&state).contains("At the peak, 1m 41s after the start."));
}

#[test]
fn a_thread_leads_to_its_call_sites_and_a_class_to_those_of_its_blocks() {
    use poolscope_profiler::model::snapshot::LiveBlock;
    let mut model = fixture::model();
    let block = |stack, tid, size| LiveBlock { stack, tid, size, weight: 100.0, time_ns: 1, ..LiveBlock::default() };
    Arc::make_mut(&mut model.snapshot).live = vec![block(0, 4242, 1000), block(1, 4243, 200)];
    model.site_of_stacks = vec![Some(0), Some(1)].into();
    let mut state = state(120, 36);
    state.take_reading(Arc::new(model));
    press(&mut state, "5↓\n");
    assert_eq!(VIEWS[state.view].title, "Call sites");
    let text = screen(&state);
    assert!(text.contains("filter thread:^4243$") && text.contains("1 of 37 sites"), "{text}");
    assert!(rows(&text, "In use")[0].contains("remember"), "{text}");
    press(&mut state, "\x1b2");
    let class = rows(&screen(&state), "Block").iter().position(|row| row.contains("1,024") || row.contains("1.00 KiB"));
    (0..class.expect("a class of 1024")).for_each(|_| drop(press(&mut state, "↓")));
    press(&mut state, "\n");
    let text = screen(&state);
    assert!(text.contains("class:1024") && rows(&text, "In use")[0].contains("Store::put"), "{text}");
}

#[test]
fn a_range_of_the_chart_is_selected_by_keys_or_by_dragging() {
    use poolscope_profiler::model::snapshot::LiveBlock;
    let mut model = fixture::model();
    let block = |stack, second: u64| LiveBlock {
        stack,
        size: 1 << 20,
        weight: 1.0,
        time_ns: second * 1_000_000_000,
        ..LiveBlock::default()
    };
    Arc::make_mut(&mut model.snapshot).live = vec![block(0, 30), block(1, 100), block(1, 101)];
    model.site_of_stacks = vec![Some(0), Some(1)].into();
    let mut state = state(120, 36);
    state.take_reading(Arc::new(model));
    press(&mut state, "←←←←");
    assert!(screen(&state).contains("ago: ") && screen(&state).contains("v begins a range"), "{}", screen(&state));
    // The chart is 60 columns wide and three minutes long: from 6 s ago to 2 minutes ago.
    press(&mut state, "vHHHHv");
    let text = screen(&state);
    assert!(text.contains("and still in use: 2.00 MiB"), "{text}");
    assert!(rows(&text, "In use")[0].contains("remember"), "{text}");
    press(&mut state, "\x1b\x1b");
    assert!(!screen(&state).contains("and still in use"));
    // By the mouse: the left third.
    let at = |state: &mut State, kind, column| {
        mouse(state, &MouseEvent { kind, column, row: 12, modifiers: KeyModifiers::NONE });
    };
    at(&mut state, MouseEventKind::Down(MouseButton::Left), 14);
    at(&mut state, MouseEventKind::Drag(MouseButton::Left), 24);
    at(&mut state, MouseEventKind::Up(MouseButton::Left), 28);
    let text = screen(&state);
    assert!(text.contains("and still in use: 1.00 MiB"), "{text}");
    assert!(rows(&text, "In use")[0].contains("Store::put"), "{text}");
}

#[test]
fn functions() {
    at_every_size("functions", |state| {
        press(state, "3v↓");
    });
}

#[test]
fn tree_of_callees() {
    at_every_size("callees", |state| {
        press(state, "3vvvvvv");
    });
}

#[test]
fn groups_hold_together_what_their_call_sites_hold() {
    let model = fixture::model();
    let total = numbers::bytes(model.live.bytes);
    let mut state = state(200, 60);
    press(&mut state, "3v");
    let text = screen(&state);
    let main = rows(&text, "+ callees").into_iter().find(|row| row.ends_with(" kv::server::worker")).expect("a caller");
    let of_worker = |row: &&crate::dashboard::model::site::SiteRow| {
        row.text.callers.iter().any(|name| name == "kv::server::worker")
    };
    let bytes: f64 = model.sites.iter().filter(of_worker).map(|row| row.in_use.bytes).sum();
    assert!(main.contains(&numbers::bytes(bytes)), "{main}: {}", numbers::bytes(bytes));
    // By module, all come to all.
    press(&mut state, "vv");
    let text = screen(&state);
    let shares: f64 = rows(&text, "Share")
        .iter()
        .filter_map(|row| row.split_whitespace().find_map(|word| word.strip_suffix('%')?.parse::<f64>().ok()))
        .sum();
    assert!((99.5..100.5).contains(&shares), "{shares} of {total}: {text}");
    // A module leads to its call sites.
    press(&mut state, "↓\n");
    let text = screen(&state);
    assert!(text.contains("filter module:") && text.contains("of 37 sites"), "{text}");
}

#[test]
fn a_tree_opens_and_leads_to_the_flamegraph() {
    let mut state = state(120, 36);
    press(&mut state, "3vvvvvv");
    let count = |state: &State| rows(&screen(state), "In use").len();
    let open = count(&state);
    press(&mut state, "←");
    assert!(count(&state) < open, "{}", screen(&state));
    press(&mut state, "→");
    assert_eq!(count(&state), open);
    press(&mut state, "↓↓↓\n");
    assert_eq!(VIEWS[state.view].title, "Flamegraph");
    press(&mut state, "3v");
    assert!(rows(&screen(&state), "In use")[0].contains("kv::store::Store::put"), "{}", screen(&state));
    press(&mut state, "\n");
    let text = screen(&state);
    assert!(text.contains("96.0 MiB  54.9% of all"), "{text}");
}

#[test]
fn a_click_on_a_key_of_the_footer_presses_it() {
    let mut state = state(120, 36);
    let text = screen(&state);
    let footer = text.lines().last().expect("a footer");
    let x = footer.chars().position(|c| c == '?').expect("help") - 1;
    left_click(&mut state, x, 35);
    assert_eq!(state.overlay, Overlay::Help);
}

#[test]
fn columns_are_chosen() {
    let mut state = state(120, 36);
    press(&mut state, "1C");
    assert!(screen(&state).contains("no table here"));
    press(&mut state, "3C");
    assert!(screen(&state).contains("[x] Allocated"), "{}", screen(&state));
    press(&mut state, "↓↓↓↓↓↓↓↓\n\x1b");
    let text = screen(&state);
    assert!(!text.contains("Allocated") && text.contains("Share"), "its room is another's: {text}");
}

#[test]
fn the_filter_is_kept_over_views_and_says_what_it_does_not_understand() {
    let mut state = state(120, 36);
    press(&mut state, "ffn:remember size>30M\n");
    for view in ["1", "3", "4"] {
        press(&mut state, view);
        let text = screen(&state);
        assert!(text.contains("filter fn:remember size>30M") && text.contains("1 of 37 sites"), "{text}");
        assert!(text.contains("remember") && !text.contains("Store::put"), "{text}");
    }
    press(&mut state, "f");
    press(&mut state, " size>x");
    assert!(screen(&state).contains("size>x has no figure: write size>1M"));
    press(&mut state, "\x1b");
    assert!(!screen(&state).contains("filter fn"));
}
