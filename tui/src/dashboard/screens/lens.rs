//! What is looked at, in every view: moments, changes, ranges, filters, groups.

use poolscope_profiler::process::family::Child;

use super::*;
use crate::dashboard::frame::export;
use crate::dashboard::input::common::EXPORTING;
use crate::dashboard::model::Kin;

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
    state.take_reading(Arc::new(model.clone()));
    assert!(screen(&state).contains("At the peak, 1m 41s after the start."));
    // Where most was in use later, the header and the banner are of two moments.
    let most = model.most.as_mut().expect("it is counted");
    most.time_ns += 5_000_000_000;
    state.take_reading(Arc::new(model));
    let text = screen(&state);
    assert!(text.contains("Near the peak, 1m 41s after the start: call sites are kept as it grows by 3 %."), "{text}");
    assert!(text.contains("PEAK after 1m 46s"), "{text}");
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
fn groups_hold_together_what_their_call_sites_hold() {
    let model = fixture::model();
    let total = numbers::bytes(model.live.bytes);
    let mut state = state(200, 60);
    press(&mut state, "3v");
    let text = screen(&state);
    let main = rows(&text, "+ callees").into_iter().find(|row| row.ends_with(" kv::server::worker")).expect("a caller");
    let of_worker = |row: &&crate::dashboard::model::site::SiteRow| {
        row.text.callers.iter().any(|name| &**name == "kv::server::worker")
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
    press(&mut state, "3vvvvvvv");
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
fn a_click_on_a_row_of_the_exports_and_on_the_line_of_children_does_what_their_keys_do() {
    let mut state = state(120, 36);
    press(&mut state, "e");
    let text = screen(&state);
    let row = text.lines().position(|line| line.contains("all figures, as JSON")).expect("a row");
    let chosen = export::row_at(&state, 40, row as u16).expect("a row of the choice");
    assert!(EXPORTING[chosen].help.starts_with("all figures, as JSON"));
    left_click(&mut state, 1, 1);
    assert_eq!(state.overlay, Overlay::None);
    let mut model = fixture::model();
    let child = Child { pid: 77, name: "worker".into(), rss: 1 << 20 };
    model.family = vec![Kin { child, on_pool: true }];
    state.take_reading(Arc::new(model));
    let text = screen(&state);
    let row = text.lines().position(|line| line.contains("● worker 77")).expect("a line");
    left_click(&mut state, 10, row);
    assert_eq!(state.overlay, Overlay::Choose);
}

#[test]
fn what_a_gone_process_held_gets_no_older() {
    let mut model = fixture::model();
    let snapshot = Arc::make_mut(&mut model.snapshot);
    let last = snapshot.history.totals.last().expect("totals").time_ns;
    let oldest = last - 5_000_000_000;
    assert_eq!(model.age_ns(0), None);
    let snapshot = Arc::make_mut(&mut model.snapshot);
    snapshot.process.state = ProcessState::Killed;
    for later in [0, 3_600_000_000_000] {
        Arc::make_mut(&mut model.snapshot).taken_ns = last + later;
        assert_eq!(model.age_ns(oldest), Some(5_000_000_000));
    }
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
