//! The loop on ratatui's test backend, with a clock of its own: an hour passes as fast as it is said.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;

use crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyModifiers};
use ratatui::backend::{Backend, TestBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::{Rect, Size};
use signal_hook::consts::SIGINT;

use super::*;
use poolscope_profiler::model::growth::Slope;

use crate::dashboard::events::processes::{ProcessRow, Processes};
use crate::dashboard::model::fixture;
use crate::dashboard::theme::ThemeChoice;
use crate::words::Ended;

/// A screen that keeps what was drawn.
struct TestScreen {
    backend: TestBackend,
    /// What the next frame compares itself with.
    shown: Buffer,
    /// The size that the terminal has by now.
    terminal: Rc<Cell<Size>>,
    frames: Vec<String>,
    suspended: usize,
    copied: Vec<String>,
    mouse: Vec<bool>,
}

impl TestScreen {
    fn new(terminal: Rc<Cell<Size>>) -> TestScreen {
        let size = terminal.get();
        let backend = TestBackend::new(size.width, size.height);
        let shown = Buffer::empty(Rect::new(0, 0, size.width, size.height));
        TestScreen { backend, shown, terminal, frames: Vec::new(), suspended: 0, copied: Vec::new(), mouse: Vec::new() }
    }
}

impl Screen for TestScreen {
    fn size(&self) -> Size {
        self.shown.area.as_size()
    }

    fn is_resized(&self) -> io::Result<bool> {
        Ok(self.terminal.get() != self.size())
    }

    fn draw(&mut self, draw: &mut dyn FnMut(&mut Buffer)) -> io::Result<()> {
        let mut next = Buffer::empty(self.shown.area);
        draw(&mut next);
        self.backend.draw(self.shown.diff(&next).into_iter()).expect("a test backend takes all");
        self.shown = next;
        self.frames.push(self.backend.to_string());
        Ok(())
    }

    fn forget(&mut self) -> io::Result<()> {
        let size = self.terminal.get();
        self.backend.resize(size.width, size.height);
        self.backend.clear().expect("a test backend takes all");
        self.shown = Buffer::empty(Rect::new(0, 0, size.width, size.height));
        Ok(())
    }

    fn copy(&mut self, text: &str) -> io::Result<()> {
        self.copied.push(text.to_owned());
        Ok(())
    }

    fn take_mouse(&mut self, taken: bool) -> io::Result<()> {
        self.mouse.push(taken);
        Ok(())
    }

    fn suspend(&mut self) -> io::Result<()> {
        self.suspended += 1;
        // Whoever had the terminal meanwhile wrote on it.
        let other = Buffer::with_lines(["$ fg"]);
        let cells = other.content().iter().enumerate().map(|(x, cell)| (x as u16, 0, cell));
        self.backend.draw(cells).expect("a test backend takes all");
        self.forget()
    }
}

/// What happens, and when.
struct Script {
    now: Duration,
    steps: VecDeque<(Duration, Step)>,
    waits: Vec<Duration>,
}

enum Step {
    Event(Event),
    Resize(Rc<Cell<Size>>, Size),
}

impl Events for Script {
    fn now(&self) -> Duration {
        self.now
    }

    fn next(&mut self, wait: Duration) -> Came {
        self.waits.push(wait);
        let Some((at, _)) = self.steps.front() else { return Came::Closed };
        if *at > self.now + wait {
            self.now += wait;
            return Came::Nothing;
        }
        self.now = self.now.max(*at);
        match self.steps.pop_front() {
            Some((_, Step::Event(event))) => Came::Event(event),
            Some((_, Step::Resize(terminal, size))) => {
                terminal.set(size);
                Came::Event(Event::Input(Input::Resize(size.width, size.height)))
            }
            None => Came::Closed,
        }
    }
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Event {
    Event::Input(Input::Key(KeyEvent::new(code, modifiers)))
}

fn typed(c: char) -> Event {
    key(KeyCode::Char(c), KeyModifiers::NONE)
}

fn reading(later_by_s: u64) -> Event {
    Event::Reading(Arc::new(fixture::model_with(|snapshot| snapshot.taken_ns += later_by_s * 1_000_000_000)))
}

struct Ran {
    outcome: Outcome,
    screen: TestScreen,
    waits: Vec<Duration>,
    orders: Vec<Order>,
}

/// Runs the loop on what happens at which millisecond.
fn play(owns_program: bool, steps: Vec<(u64, Step)>, terminal: Rc<Cell<Size>>) -> Ran {
    let (orders, told) = mpsc::channel();
    let theme = Theme::choose(ThemeChoice::Dark, |_| None);
    let mut state = State::new("kvserver".into(), theme, terminal.get(), Duration::from_secs(1));
    state.owns_program = owns_program;
    let steps = steps.into_iter().map(|(at, step)| (Duration::from_millis(at), step)).collect();
    let mut script = Script { now: Duration::ZERO, steps, waits: Vec::new() };
    let mut screen = TestScreen::new(terminal);
    let app =
        App { state, orders, program: None, end: None, leave_at_end: false, to: mpsc::channel().0, with_trees: false };
    let outcome = app.run(&mut screen, &mut script).expect("a test screen takes all");
    Ran { outcome, screen, waits: script.waits, orders: told.try_iter().collect() }
}

fn run_on(events: Vec<(u64, Event)>) -> Ran {
    let steps = events.into_iter().map(|(at, event)| (at, Step::Event(event))).collect();
    play(false, steps, Rc::new(Cell::new(Size::new(80, 24))))
}

#[test]
fn q_leaves_and_nothing_is_drawn_after_it() {
    let ran = run_on(vec![(100, reading(0)), (200, typed('q')), (300, reading(1))]);
    assert_eq!(ran.outcome, Outcome::Left);
    assert_eq!(ran.screen.frames.len(), 2);
    assert!(ran.screen.frames[0].contains("Waiting for the first reading"));
    assert!(ran.screen.frames[1].contains("up 3m 00s"), "{}", ran.screen.frames[1]);
}

#[test]
fn nothing_is_drawn_while_nothing_changes() {
    let ran = run_on(vec![(100, reading(0)), (7_200_000, typed('q'))]);
    assert_eq!(ran.screen.frames.len(), 2);
    // Two hours: the loop wakes once an hour at most.
    assert!(ran.waits.iter().filter(|wait| !wait.is_zero()).count() < 10, "{:?}", ran.waits);
}

#[test]
fn what_comes_at_once_is_drawn_once_and_frames_keep_their_distance() {
    let mut events: Vec<(u64, Event)> = (0..50).map(|at| (100 + at, typed('j'))).collect();
    events.insert(0, (50, reading(0)));
    events.push((1000, typed('q')));
    let ran = run_on(events);
    let most = 2 + 50 / FRAME.as_millis() as usize + 2;
    assert!(ran.screen.frames.len() <= most, "{} frames", ran.screen.frames.len());
}

#[test]
fn a_pause_freezes_the_picture_while_readings_go_on() {
    let ran =
        run_on(vec![(100, reading(0)), (200, typed(' ')), (1200, reading(12)), (2000, typed(' ')), (3000, typed('q'))]);
    let frames = &ran.screen.frames;
    assert!(frames[3].contains("Paused, 12 s behind") && frames[3].contains("up 3m 00s"), "{}", frames[3]);
    assert!(!frames[4].contains("Paused") && frames[4].contains("up 3m 12s"), "{}", frames[4]);
}

#[test]
fn a_resize_is_followed_even_if_its_event_is_late() {
    let terminal = Rc::new(Cell::new(Size::new(80, 24)));
    let wide = Size::new(120, 36);
    let steps = vec![
        (100, Step::Event(reading(0))),
        (200, Step::Resize(Rc::clone(&terminal), wide)),
        (300, Step::Event(typed('q'))),
    ];
    let ran = play(false, steps, Rc::clone(&terminal));
    let last = ran.screen.frames.last().expect("a frame");
    assert_eq!(last.lines().count(), 36);
    assert!(last.contains("q quit"), "the footer is on the last line: {last}");
}

#[test]
fn a_signal_leaves_with_its_number() {
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        assert_eq!(run_on(vec![(100, Event::Signal(signal))]).outcome, Outcome::Signal(signal));
    }
    assert_eq!(run_on(vec![(100, Event::InputLost)]).outcome, Outcome::Signal(SIGHUP));
}

#[test]
fn a_stop_gives_the_terminal_back_and_draws_all_of_it_afterwards() {
    for stop in [Event::Signal(SIGTSTP), key(KeyCode::Char('z'), KeyModifiers::CONTROL)] {
        let ran = run_on(vec![(100, reading(0)), (200, stop), (300, typed('q'))]);
        assert_eq!(ran.screen.suspended, 1);
        let (before, after) = (&ran.screen.frames[1], ran.screen.frames.last().expect("a frame"));
        assert_eq!(before, after, "what the shell wrote is gone");
    }
}

#[test]
fn a_redraw_draws_every_cell() {
    let ran = run_on(vec![(100, reading(0)), (200, key(KeyCode::Char('l'), KeyModifiers::CONTROL)), (300, typed('q'))]);
    assert_eq!(ran.screen.frames[1], ran.screen.frames[2]);
}

fn interval_of(order: &Order) -> Option<u128> {
    match order {
        Order::Interval(interval) => Some(interval.as_millis()),
        _ => None,
    }
}

#[test]
fn the_feed_is_told_of_another_interval() {
    let ran = run_on(vec![(100, typed('+')), (200, typed('-')), (300, typed('q'))]);
    let intervals: Vec<u128> = ran.orders.iter().filter_map(interval_of).collect();
    assert_eq!(intervals, [500, 1000]);
}

#[test]
fn quitting_asks_while_a_program_of_ours_runs_and_its_end_answers() {
    let event = |at, event| (at, Step::Event(event));
    let terminal = || Rc::new(Cell::new(Size::new(80, 24)));
    let steps = vec![
        event(100, reading(0)),
        event(200, typed('q')),
        event(300, Event::Ended(Ended::Code(0))),
        event(400, typed('q')),
        event(500, typed('x')),
    ];
    let ran = play(true, steps, terminal());
    assert_eq!(ran.outcome, Outcome::Left);
    assert!(ran.screen.frames[2].contains("kvserver is still running"), "{}", ran.screen.frames[2]);
    assert!(!ran.screen.frames[3].contains("still running"), "{}", ran.screen.frames[3]);
    let ran = play(true, vec![event(100, typed('q')), event(200, typed('d'))], terminal());
    assert_eq!(ran.outcome, Outcome::Detached);
}

#[test]
fn a_loop_without_events_to_come_ends() {
    assert_eq!(run_on(Vec::new()).outcome, Outcome::Left);
}

fn processes(names: &[&str]) -> Event {
    let row = |(at, name): (usize, &&str)| ProcessRow {
        pid: 100 + at as u32,
        uid: None,
        user: String::new(),
        watched: Watched::Segment(format!("/dev/shm/{name}").into()),
        name: (*name).into(),
        arguments: String::new(),
        in_use: Some(5 << 20),
        rss: Some(9 << 20),
        trend: Slope::default(),
        age: Duration::from_secs(70),
    };
    let running = names.iter().enumerate().map(row).collect();
    Event::Processes(Processes { running, dead: 3, is_read: true, ..Processes::default() })
}

#[test]
fn another_process_is_chosen_from_a_list_that_is_kept_up_to_date() {
    let ran = run_on(vec![
        (100, reading(0)),
        (200, typed('o')),
        (300, processes(&["redis-server", "worker"])),
        (400, typed('j')),
        (500, processes(&["new", "redis-server", "worker"])),
        (600, key(KeyCode::Enter, KeyModifiers::NONE)),
        (700, reading(5)),
        (800, typed('q')),
    ]);
    let frames = &ran.screen.frames;
    assert!(frames[3].contains("redis-server") && frames[3].contains("and 3 that ended"), "{}", frames[3]);
    let chosen = ran.orders.iter().find_map(|order| match order {
        Order::Watch(Watched::Segment(path)) => Some(path.clone()),
        _ => None,
    });
    // The second one, at whichever place it is.
    assert_eq!(chosen.expect("one was chosen"), std::path::Path::new("/dev/shm/redis-server"));
    let last = frames.last().expect("a frame");
    assert!(last.contains("Waiting for the first reading of process 101"), "a late reading is of another: {last}");
}

#[test]
fn the_choice_can_be_left_for_what_was_watched() {
    let ran = run_on(vec![
        (100, reading(0)),
        (200, typed('o')),
        (300, key(KeyCode::Esc, KeyModifiers::NONE)),
        (400, typed('q')),
    ]);
    assert_eq!(ran.screen.frames[1], ran.screen.frames[3]);
    assert!(matches!(ran.orders[..], [Order::List(Some(_)), Order::List(None)]), "{:?}", ran.orders);
}

#[test]
fn what_is_selected_can_be_copied_and_the_mouse_given_back() {
    let ran = run_on(vec![
        (100, reading(0)),
        (200, typed('3')),
        (300, typed('y')),
        (400, typed('z')),
        (500, typed('z')),
        (600, typed('6')),
        (700, typed('y')),
        (800, typed('q')),
    ]);
    assert_eq!(ran.screen.mouse, [false, true]);
    let [copied] = &ran.screen.copied[..] else { panic!("{:?}", ran.screen.copied) };
    let lines: Vec<&str> = copied.lines().collect();
    assert!(lines[0].contains("kv::session::Session::remember") && lines[0].contains("41.0 MiB"), "{copied}");
    assert!(lines.len() > 3 && lines[1].contains("session.rs:58"), "the stack: {copied}");
}
