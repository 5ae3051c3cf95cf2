//! What the view of leaks says of a program that runs, of one that has looked, and of those that are gone.

use super::*;

fn of(prepare: impl FnOnce(&mut poolscope_profiler::Snapshot)) -> State {
    let mut state = state(120, 36);
    state.take_reading(Arc::new(fixture::model_with(prepare)));
    press(&mut state, "9");
    state
}

#[test]
fn leaks() {
    at_every_size("leaks", |state| {
        state.take_reading(Arc::new(fixture::model_with_leaks()));
        press(state, "9");
    });
}

#[test]
fn what_is_in_use_while_nobody_has_looked() {
    at_every_size("leaks_not_looked", |state| {
        press(state, "9");
    });
}

#[test]
fn what_a_search_found_is_listed_with_what_it_leads_to() {
    let mut state = state(200, 36);
    state.take_reading(Arc::new(fixture::model_with_leaks()));
    press(&mut state, "9");
    let text = screen(&state);
    // 100 blocks of 208 bytes, and behind them 30 of 1,024.
    assert!(text.contains("50.3 KiB in 130 blocks are leaked"), "{text}");
    assert!(text.contains("checked 190,000 blocks, 178,257,920 bytes, 7 of 7 threads stopped"), "{text}");
    let listed = rows(&text, "Blocks");
    assert_eq!(listed.len(), 2, "{text}");
    for (row, parts) in
        listed.iter().zip([["indirectly", "30.0 KiB", "30", "Store::put"], ["directly", "20.3 KiB", "100", "remember"]])
    {
        assert!(parts.iter().all(|part| row.contains(part)), "{row}");
    }
    press(&mut state, "↓\n");
    assert_eq!(VIEWS[state.view].title, "Call sites");
    let selected = rows(&screen(&state), "Call site").into_iter().find(|row| row.contains('▶')).expect("a row");
    assert!(selected.contains("remember"), "{selected}");
}

#[test]
fn a_program_that_was_killed_has_leaked_nothing() {
    let found = fixture::model_with_leaks();
    for (process, words) in [
        (ProcessState::Killed, "It was killed, and had this in use, the oldest first."),
        (ProcessState::Exited, "It ended, and had not freed this, the oldest first."),
    ] {
        let state = of(|snapshot| {
            snapshot.process.state = process;
            if process == ProcessState::Killed {
                (snapshot.search, snapshot.live) = (found.snapshot.search, found.snapshot.live.clone());
            }
        });
        let text = screen(&state);
        let view = text.split_once("╭ Leaks").expect("the view").1;
        assert!(view.contains(words) && !view.contains("leaked") && !view.contains("Leaked"), "{text}");
    }
}

#[test]
fn the_program_is_asked_by_a_key_and_what_it_answers_is_said() {
    let mut state = of(|snapshot| snapshot.exact = true);
    assert!(screen(&state).contains("Nobody has looked what of this the program can't reach any more"));
    assert_eq!(press(&mut state, "L"), Some(Effect::Search { copy: true }));
    assert_eq!(press(&mut state, "l"), Some(Effect::Search { copy: false }));
    assert!(screen(&state).contains("The program looks for what it can't reach any more, and waits meanwhile."));
    state.take_search(&Err("it is stopped (kill -CONT 4242 has it go on)".into()));
    assert!(screen(&state).contains("It has not looked: it is stopped (kill -CONT 4242 has it go on)."));
    press(&mut state, "l");
    state.take_search(&Ok(()));
    let mut none = fixture::model_with_leaks();
    let snapshot = Arc::make_mut(&mut none.snapshot);
    snapshot.live.clear();
    state.take_reading(Arc::new(none));
    let text = screen(&state);
    assert!(text.contains("Nothing is leaked: the program can reach all that it has."), "{text}");

    assert!(text.lines().last().is_some_and(|footer| footer.contains("l look for leaks")), "{text}");

    let mut gone = of(|snapshot| snapshot.process.state = ProcessState::Exited);
    assert!(!screen(&gone).contains("look for leaks"), "it is not offered");
    assert_eq!(press(&mut gone, "l"), None);
    assert!(screen(&gone).contains("only a program that runs can look"));
}
