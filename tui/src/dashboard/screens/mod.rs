//! Every view at four sizes, as reviewed snapshots, drawn by ratatui's test backend from a made-up server.

mod chooser;
mod figures;
mod holders;
mod leaks;
mod lens;
mod map_cursor;
mod pictures;
mod pressed;
mod tensors;

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

const SIZES: [(u16, u16); 4] = [(60, 15), (80, 24), (120, 40), (200, 60)];

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

/// A snapshot of what is written at every size, one of the colours that it is written in, and one in ASCII.
fn at_every_size(name: &str, prepare: impl Fn(&mut State)) {
    let (mut texts, mut colours, mut ascii) = (String::new(), String::new(), String::new());
    for (width, height) in SIZES {
        let mut state = state(width, height);
        prepare(&mut state);
        let terminal = draw(&state);
        texts += &format!("{width}x{height}\n{}\n", terminal.backend());
        colours += &format!("{width}x{height}\n{}\n", styles(terminal.backend().buffer()));
        state.theme.ascii = true;
        let text = screen(&state);
        assert!(text.is_ascii(), "{text}");
        ascii += &format!("{width}x{height}\n{text}\n");
    }
    insta::assert_snapshot!(name.to_owned(), texts);
    insta::assert_snapshot!(format!("{name}_colours"), colours);
    insta::assert_snapshot!(format!("{name}_ascii"), ascii);
}

/// The styles of a screen, a line for each of its lines: where each begins, and which it is by the list at the end.
fn styles(buffer: &ratatui::buffer::Buffer) -> String {
    let mut known: Vec<ratatui::style::Style> = Vec::new();
    let mut out = String::new();
    for y in buffer.area.top()..buffer.area.bottom() {
        let mut last = None;
        for x in buffer.area.left()..buffer.area.right() {
            let style = buffer[(x, y)].style();
            let number = known.iter().position(|other| *other == style).unwrap_or_else(|| {
                known.push(style);
                known.len() - 1
            });
            if last != Some(number) {
                out += &format!("{x}:{number} ");
                last = Some(number);
            }
        }
        out += "\n";
    }
    for (number, style) in known.iter().enumerate() {
        let name = |colour: Option<ratatui::style::Color>| colour.map_or("-".to_owned(), |colour| colour.to_string());
        out += &format!("{number}: {} on {} {:?}\n", name(style.fg), name(style.bg), style.add_modifier);
    }
    out
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
fn who_holds_a_device_is_selected_and_shows_its_stack() {
    at_every_size("gpu_holder", |state| {
        state.take_reading(Arc::new(fixture::model_with_devices()));
        press(state, "6\n");
    });
    let mut state = state(120, 40);
    state.take_reading(Arc::new(fixture::model_with_devices()));
    press(&mut state, "6\n");
    let text = screen(&state);
    assert!(text.contains("╭ Stack") && text.contains("kv::server::worker") && !text.contains("╭ Map"), "{text}");
    let holders = rows(&text, "Blocks");
    assert!(holders[0].starts_with('▶'), "{holders:?}");
    press(&mut state, "↓");
    let below = screen(&state);
    assert!(rows(&below, "Blocks").iter().position(|row| row.starts_with('▶')).is_some_and(|at| at > 0), "{below}");
    assert!(below.contains("Memory of device 0"), "the device stays");
    press(&mut state, "\x1b");
    assert!(screen(&state).contains("╭ Map"));
    let row = text.lines().position(|line| line.contains('▶') && line.contains("put")).expect("a holder");
    left_click(&mut state, 10, row);
    assert!(screen(&state).contains("╭ Stack"));
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
        state.take_output(&requests(80, 80));
        press(state, "0");
    });
}

/// What a program has written, of which the last lines are kept.
fn requests(written: usize, kept: usize) -> Tail {
    let lines = (written - kept + 1..=written).map(|i| format!("request {i} served")).collect();
    Tail { path: "/tmp/poolscope-kvserver-1.log".into(), lines, written }
}

#[test]
fn output_is_searched_from_its_end() {
    let mut state = state(80, 24);
    state.owns_program = true;
    state.take_output(&requests(80, 80));
    press(&mut state, "0/request .*5 ");
    let text = screen(&state);
    assert!(text.contains("▶ request 75 served") && text.contains("8 lines"), "{text}");
    press(&mut state, "\nnn");
    let text = screen(&state);
    assert!(text.contains("▶ request 55 served"), "{text}");
    // What is written meanwhile moves nothing.
    state.take_output(&requests(180, 150));
    assert!(screen(&state).contains("▶ request 55 served"), "{}", screen(&state));
    press(&mut state, "N");
    assert!(screen(&state).contains("▶ request 65 served"), "{}", screen(&state));
    press(&mut state, "\u{1b}/nothing like it\n");
    assert!(screen(&state).contains("no match"), "{}", screen(&state));
}

#[test]
fn output_that_is_read_stays_where_it_is() {
    let mut state = state(80, 24);
    state.owns_program = true;
    state.take_output(&requests(2080, 2000));
    press(&mut state, "0↑↑↑");
    let before = screen(&state);
    assert!(before.contains("request 2077 served") && before.contains("the last 2,000 of 2,080 lines"), "{before}");
    state.take_output(&requests(2090, 2000));
    let text = screen(&state);
    assert!(text.contains("request 2077 served") && !text.contains("request 2078 served"), "{text}");
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
    // What it says of the function counts more than the function's path.
    let (_, said) = first.sentence.split_once("Session::").expect("a path");
    let start: String = said.chars().take(60).collect();
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
fn functions() {
    at_every_size("functions", |state| {
        press(state, "3v↓");
    });
}

#[test]
fn tree_of_callees() {
    at_every_size("callees", |state| {
        press(state, "3vvvvvvv");
    });
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

/// Where there is no row for each part, the smallest ones have one together: nothing is missing.
#[test]
fn the_parts_come_to_the_resident_set_where_there_are_more_of_them_than_rows() {
    let mut state = state(60, 15);
    let mut model = fixture::model();
    let child = poolscope_profiler::process::family::Child { pid: 77, name: "worker".into(), rss: 1 << 20 };
    model.family = vec![crate::dashboard::model::Kin { child, on_pool: true }];
    state.take_reading(Arc::new(model));
    press(&mut state, "t");
    let text = screen(&state);
    let bytes = |row: &String| -> f64 {
        let words: Vec<&str> = row.split_whitespace().collect();
        let of = |pair: &[&str]| {
            let power = ["B", "KiB", "MiB", "GiB"].iter().position(|known| *known == pair[1])?;
            Some(pair[0].parse::<f64>().ok()? * 1024f64.powi(power as i32))
        };
        words.windows(2).find_map(of).unwrap_or_else(|| panic!("no figure in {row}: {text}"))
    };
    let parts = rows(&text, "Where the memory is");
    let sum: f64 = parts.iter().map(bytes).sum();
    let rss = fixture::model().memory.expect("it runs").rss as f64;
    assert!(parts.len() < 8 && (sum / rss - 1.0).abs() < 0.01, "{sum} and {rss}: {text}");
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
fn a_picture_from_before_the_end_is_not_called_the_last_reading() {
    let mut state = state(80, 24);
    state.owns_program = true;
    state.end(Ended::Code(0));
    let text = screen(&state);
    assert!(text.contains("exited with code 0.") && !text.contains("last reading"), "{text}");
    state.take_reading(Arc::new(fixture::model_with(|snapshot| snapshot.process.state = ProcessState::Exited)));
    let text = screen(&state);
    assert!(text.contains("exited with code 0. This is the last reading."), "{text}");
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
    for view in "123456789".chars() {
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
    let narrow = screen(&state(20, 5)).replace('"', " ");
    let words = narrow.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words, "The terminal is too small. 20x5, and it takes 60x15 q quits");
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
                "lL",
                "0",
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
pub(super) fn rows(text: &str, title: &str) -> Vec<String> {
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

/// The largest size that the layouts are for.
#[test]
fn the_main_views_on_a_large_screen() {
    let mut text = String::new();
    for (view, keys) in
        [("overview", ""), ("classes", "2"), ("sites", "3"), ("flame", "4↓↓"), ("threads", "5"), ("gpu", "6")]
    {
        let mut state = state(300, 80);
        state.take_reading(Arc::new(fixture::model_with_devices()));
        press(&mut state, keys);
        text += &format!("{view}\n{}\n", screen(&state));
    }
    insta::assert_snapshot!("large", text);
}
