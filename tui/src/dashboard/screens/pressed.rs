//! What keys and the mouse do, as it can be seen.

use super::*;
use crate::dashboard::export::export;
use crate::dashboard::input::common::Format;
use crate::dashboard::input::moment::{Moment, Seek};

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

/// A row that was selected is the same one after the next reading, whichever table it is in.
#[test]
fn a_selected_row_stays_selected_when_others_pass_it() {
    let mut state = state(120, 36);
    press(&mut state, "5↓");
    let selected = |state: &State| {
        let text = screen(state);
        let row = text.lines().find(|line| line.contains('▶')).expect("a row").to_owned();
        row.split_whitespace().find_map(|word| word.parse::<u32>().ok()).expect("a thread's id")
    };
    let before = selected(&state);
    let mut later = fixture::model();
    let mut bytes: Vec<u64> = later.threads.iter().map(|thread| thread.stats.alloc_bytes).collect();
    bytes.reverse();
    later.threads.iter_mut().zip(bytes).for_each(|(thread, bytes)| thread.stats.alloc_bytes = bytes);
    state.take_reading(Arc::new(later));
    assert_eq!(selected(&state), before);
    // The first one of another order is what a person looks for next.
    press(&mut state, "s");
    let text = screen(&state);
    assert!(rows(&text, "Allocs")[0].starts_with('▶'), "{text}");
}

#[test]
fn counters_are_filtered_by_the_words_of_their_sentences() {
    let mut state = state(120, 36);
    press(&mut state, "7");
    assert!(screen(&state).contains(" Central misses "));
    press(&mut state, "fhuge\n");
    let text = screen(&state);
    assert!(text.contains(" Huge advised ") && !text.contains(" Central misses "), "{text}");
    // Those of a device, by its name.
    press(&mut state, "\x1b");
    state.take_reading(Arc::new(fixture::model_with_devices()));
    press(&mut state, "f\"device 1\"\n");
    let text = screen(&state);
    let of_host = |row: &String| row.trim_start_matches(['▶', ' ']).starts_with("host ");
    assert!(text.contains(" device 1 ") && !rows(&text, "What it says").iter().any(of_host), "{text}");
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
    let turn = |state: &mut State, kind| {
        mouse(state, &MouseEvent { kind, column: 20, row: 9, modifiers: KeyModifiers::NONE });
    };
    turn(&mut state, MouseEventKind::ScrollDown);
    assert!(!screen(&state).contains("Everywhere"), "the wheel scrolls it");
    turn(&mut state, MouseEventKind::ScrollUp);
    assert_eq!(screen(&state), top);
    dispatch::key(&mut state, &KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
    let end = screen(&state);
    assert!(end.contains("quits if there is") && end.contains("Copy the selected process"), "the last of it: {end}");
    press(&mut state, "\x1b");
    assert_eq!(state.overlay, Overlay::None);
}

#[test]
fn what_is_typed_narrows_the_help() {
    let mut state = state(120, 40);
    press(&mut state, "?");
    let shown = |state: &State| -> Vec<String> {
        let text = screen(state);
        let lines = text.lines().skip_while(|line| !line.contains(" only "));
        let rows = lines.skip(1).filter_map(|line| line.split('│').nth(1)).map(|line| line.trim().to_owned());
        rows.filter(|line| !line.is_empty()).collect()
    };
    let all = shown(&state);
    press(&mut state, "quit whi");
    assert_eq!(shown(&state), ["Everywhere", "q ^C        Quit; asks first while a program started by run still runs"]);
    // Esc shows all again, and only then closes it.
    press(&mut state, "\x1b");
    assert_eq!((shown(&state), state.overlay), (all.clone(), Overlay::Help));
    // A letter alone is the key, as it is written.
    press(&mut state, "P");
    let of_key = shown(&state);
    assert!(of_key.len() < 6 && of_key.iter().any(|line| line.starts_with("P ")), "{of_key:?}");
    dispatch::key(&mut state, &KeyEvent::new(KeyCode::Backspace, KeyModifiers::NONE));
    assert_eq!(shown(&state), all);
    press(&mut state, "xyzzy");
    assert_eq!(shown(&state), ["No key is about that. Esc shows all."]);
    press(&mut state, "\x1b\x1b");
    assert_eq!(state.overlay, Overlay::None);
    // The next time it has all again.
    press(&mut state, "?");
    assert_eq!(shown(&state), all);
    press(&mut state, "?");
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

#[test]
fn a_recording_is_played_and_sought_by_keys_and_says_where_it_is() {
    let mut state = state(120, 36);
    assert_eq!(press(&mut state, ")"), None);
    assert!(screen(&state).contains("poolscope replay shows other moments"), "of a process there are none");
    let moment = Moment { at_us: 1_500_000, end_us: 6_000_000, plays: false };
    state.moment = Some(moment);
    let text = screen(&state);
    assert!(text.contains(" 1.50 s of 6.00 s.") && text.contains("‖ recorded"), "{text}");
    for (key, seek) in
        [(" ", Seek::Play), ("(", Seek::By(-1)), (")", Seek::By(1)), ("{", Seek::First), ("}", Seek::Last)]
    {
        assert_eq!(press(&mut state, key), Some(Effect::Seek(seek)));
    }
    assert!(!state.paused, "space plays it");
    state.moment = Some(Moment { plays: true, ..moment });
    assert!(screen(&state).contains("▶ playing"));
}

#[test]
fn the_exported_flamegraph_is_the_one_on_the_screen() {
    let folder = std::env::temp_dir().join(format!("poolscope-zoomed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut state = state(120, 36);
    press(&mut state, "4");
    let svg = |state: &mut State| {
        let exported = export(state, Format::Svg, &folder).unwrap();
        (std::fs::read_to_string(exported.path).unwrap(), exported.command)
    };
    let (whole, command) = svg(&mut state);
    assert!(whole.contains("SSL_CTX_new") && whole.contains("Session::remember"));
    assert_eq!(command, None, "no command folds the runtime");
    // Zoomed into what a request takes.
    press(&mut state, "/Session::remember\nn\n");
    let zoomed = svg(&mut state).0;
    assert!(zoomed.contains("Session::remember") && !zoomed.contains("SSL_CTX_new"), "{}", screen(&state));
    assert!(zoomed.contains("bytes in use: 41.0 MiB"), "{zoomed}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_call_site_is_named_by_its_caller_by_a_key() {
    let mut state = state(120, 36);
    let function = "kv::session::Session::remember".to_owned();
    assert_eq!(press(&mut state, "3x"), Some(Effect::ByCaller(Some(function))));
    assert!(screen(&state).contains("as --by-caller 'kv::session::Session::remember' names them"));
    assert_eq!(press(&mut state, "X"), Some(Effect::ByCaller(None)));
    assert_eq!(press(&mut state, "vx"), None);
}
