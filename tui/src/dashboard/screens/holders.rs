//! Who holds the memory of a device, on every screen; and what its counters say.

use poolscope_profiler::model::memory::Place;

use super::*;

/// A person asks who holds the memory on the screen that he has: the largest holder has its bytes there, and its stack.
#[test]
fn who_holds_a_device_has_a_place_on_every_screen() {
    for (width, height) in SIZES {
        let mut state = state(width, height);
        state.take_reading(Arc::new(fixture::model_with_devices()));
        press(&mut state, "6\n");
        let text = screen(&state);
        let is_holder = |line: &str| line.contains('▶') && line.contains("iB ") && line.contains("put");
        assert!(text.contains("Who holds it") && text.lines().any(is_holder), "{width}x{height}: {text}");
        let stack = text.lines().find(|line| line.contains("╭ Stack")).unwrap_or_default();
        assert!(stack.contains(" blocks ") && stack.contains("← the map"), "{width}x{height}: {text}");
        press(&mut state, "↓");
        let below = screen(&state);
        assert!(below.contains("Who holds it") && below != text, "{width}x{height}: {below}");
        press(&mut state, "\x1b");
        assert!(screen(&state).contains("╭ Map") && screen(&state).contains("╭ Devices"), "{width}x{height}");
    }
}

/// Who holds a device is a table as others are: keys and clicks on titles order it, columns can be chosen, and what was
/// selected stays selected.
#[test]
fn who_holds_a_device_can_be_ordered_and_has_columns() {
    let mut state = state(120, 40);
    state.take_reading(Arc::new(fixture::model_with_devices()));
    press(&mut state, "6");
    let held = |state: &State| rows(&screen(state), "Blocks");
    let largest_first = held(&state);
    assert!(largest_first.len() >= 2, "{largest_first:?}");
    press(&mut state, "r");
    let smallest_first: Vec<String> = largest_first.iter().rev().cloned().collect();
    assert_eq!(held(&state), smallest_first);
    let title = screen(&state).lines().position(|line| line.contains("Blocks")).expect("titles");
    let column = screen(&state).lines().nth(title).unwrap().find("Blocks").unwrap();
    let column = screen(&state).lines().nth(title).unwrap()[..column].chars().count();
    left_click(&mut state, column, title);
    assert!(screen(&state).contains("Blocks▾"), "{}", screen(&state));
    // The selected one keeps its stack in every order.
    press(&mut state, "\n");
    let stack = |state: &State| screen(state).lines().find(|line| line.contains("╭ Stack")).map(str::to_owned);
    let (before, marked) = (stack(&state), |state: &State| held(state).iter().position(|row| row.starts_with('▶')));
    let first = marked(&state);
    press(&mut state, "r");
    assert_eq!(stack(&state), before);
    assert!(first.is_some() && marked(&state).is_some() && marked(&state) != first, "{}", screen(&state));
    press(&mut state, "C");
    assert!(screen(&state).contains("[x] Blocks"), "{}", screen(&state));
    press(&mut state, "↓↓↓ \x1b");
    assert!(!screen(&state).contains("Blocks▴") && screen(&state).contains("Who holds it"), "{}", screen(&state));
}

#[test]
fn a_holder_is_named_by_its_caller_by_a_key() {
    let mut state = state(120, 40);
    state.take_reading(Arc::new(fixture::model_with_devices()));
    assert_eq!(press(&mut state, "6x"), None);
    assert!(screen(&state).contains("Enter selects a call site"), "{}", screen(&state));
    let named = press(&mut state, "\nx");
    assert_eq!(named, Some(Effect::ByCaller(Some("kv::store::Store::put".to_owned()))));
    assert_eq!(press(&mut state, "X"), Some(Effect::ByCaller(None)));
}

/// Each counter of a device has its sentence, as those of the host have.
#[test]
fn counters_of_devices_are_explained() {
    let mut state = state(200, 60);
    press(&mut state, "7");
    assert!(!screen(&state).contains("host"), "there are the host's alone: {}", screen(&state));
    state.take_reading(Arc::new(fixture::model_with_devices()));
    let text = screen(&state);
    assert!(text.lines().any(|line| line.contains(" host ") && line.contains("Samples taken.")), "{text}");
    let info = poolscope_wire::DEVICE_COUNTERS.iter().min_by_key(|info| info.name).expect("there are some");
    let row = text.lines().find(|line| line.contains("device 0")).unwrap_or_else(|| panic!("{text}"));
    assert!(row.contains(info.help.split_whitespace().next().expect("a sentence")), "{row}");
}

/// What a thread allocated and is in use stands beside what it allocated, whoever has it now.
#[test]
fn threads_show_what_they_hold() {
    use poolscope_profiler::model::snapshot::LiveBlock;
    let block = |tid, place| LiveBlock { tid, place, size: 1 << 20, weight: 1.5, ..LiveBlock::default() };
    let mut state = state(120, 40);
    state.take_reading(Arc::new(fixture::model_with(|snapshot| {
        let (host, device) = (Place::Host, Place::Device(0));
        snapshot.live =
            vec![block(4243, host), block(4244, host), block(4243, host), block(4244, device), block(9, host)];
    })));
    press(&mut state, "5");
    let text = screen(&state);
    for (tid, held) in [("4242", " 0 B "), ("4243", "3.00 MiB"), ("4244", "1.50 MiB")] {
        let row = text.lines().find(|line| line.contains(&format!(" {tid}  ")) && line.contains(" live "));
        let row = row.unwrap_or_default();
        assert!(row.contains(held), "{tid}: {text}");
    }
}
