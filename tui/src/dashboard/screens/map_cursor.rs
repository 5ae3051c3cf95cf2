//! The cursor of a device's map.

use poolscope_profiler::Site;
use poolscope_profiler::model::memory::Place;
use poolscope_profiler::model::reach::Verdict;
use poolscope_profiler::model::snapshot::LiveBlock;
use poolscope_wire::place;

use super::*;
use crate::dashboard::model::Model;

/// Two devices; of the first one the first 100 cells of the map are of the default stream and a block of the call site
/// that holds most, and the others of another stream and nobody's.
fn with_a_known_piece() -> Model {
    let mut model = fixture::model_with_devices();
    let is_on_first = |site: &Site| site.place == Place::Device(0);
    let of = model.whole.sites.iter().position(is_on_first).expect("a site of the device");
    model.site_of_stacks = vec![Some(of)].into();
    let pool = &mut model.devices[0].pool;
    for (at, word) in pool.places.iter_mut().enumerate() {
        *word = place::of(fixture::FIRST_CELL + at as u64 * pool.cell_bytes, Some(usize::from(at >= 100)));
    }
    let (place, size) = (Place::Device(0), 100 * pool.cell_bytes);
    let snapshot = Arc::make_mut(&mut model.snapshot);
    let time_ns = snapshot.taken_ns - 90_000_000_000;
    snapshot.live = vec![LiveBlock { place, address: fixture::FIRST_CELL, size, weight: 1.0, time_ns, ..BLOCK }];
    model
}

/// A block of the first stack.
const BLOCK: LiveBlock = LiveBlock {
    stack: 0,
    address: 0,
    size: 0,
    weight: 1.0,
    time_ns: 0,
    tid: 1,
    scope: 0,
    place: Place::Host,
    verdict: Verdict::Unknown,
    holder: None,
};

#[test]
fn the_maps_cursor_says_who_holds_a_piece_and_whose_stream_it_is() {
    at_every_size("gpu_cursor", |state| {
        state.take_reading(Arc::new(with_a_known_piece()));
        press(state, "6m");
    });
    let mut state = state(120, 40);
    state.take_reading(Arc::new(with_a_known_piece()));
    press(&mut state, "6m");
    let text = screen(&state);
    for said in ["█ large", "at 0x7f0000000000", "on the default stream", "200 MiB, 1m 30s old  Store::put:87 ‹ handle"]
    {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(text.contains('╋'), "{text}");
    // A row below lies what is of another stream, and of which no block was sampled.
    press(&mut state, "↓");
    let text = screen(&state);
    assert!(text.contains("on stream 0x55aa1000") && text.contains("nobody is known to hold it"), "{text}");
    press(&mut state, "\n");
    assert!(screen(&state).contains("nobody is known to hold this piece"), "{}", screen(&state));
    press(&mut state, "→↑←\n");
    let text = screen(&state);
    assert!(text.contains("╭ Stack") && rows(&text, "Blocks")[0].starts_with('▶'), "{text}");
    // A click sets the cursor, Esc takes it away.
    press(&mut state, "\x1b");
    let text = screen(&state);
    let row = text.lines().position(|line| line.contains("╭ Map")).expect("a map") + 1;
    left_click(&mut state, 75, row);
    assert!(screen(&state).contains("on the default stream"), "{}", screen(&state));
    press(&mut state, "\x1b");
    assert!(!screen(&state).contains('╋'));
}
