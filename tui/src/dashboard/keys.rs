//! Every key of the dashboard, declared once: dispatch, the footer and the help read the same table.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::View;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Leave, or ask first.
    Quit,
    /// Show or hide the help.
    Help,
    /// Freeze or release the picture.
    Pause,
    /// Go to a view.
    Go(View),
    /// The view to the right.
    NextView,
    /// The view to the left.
    PreviousView,
    /// Move by one.
    Up,
    /// Move by one.
    Down,
    /// Move to the side.
    Left,
    /// Move to the side.
    Right,
    /// Move by a page.
    PageUp,
    /// Move by a page.
    PageDown,
    /// To the start.
    Home,
    /// To the end.
    End,
    /// Open, zoom in.
    Enter,
    /// Close, zoom out, clear.
    Back,
    /// Order by the next column.
    SortNext,
    /// Order by the column before.
    SortPrevious,
    /// Turn the order round.
    Reverse,
    /// Edit the filter or the search.
    Find,
    /// To the next match.
    NextMatch,
    /// To the match before.
    PreviousMatch,
    /// The next figure of the flamegraph.
    Metric,
    /// Read more often.
    Faster,
    /// Read less often.
    Slower,
    /// All counters of the tiers, or some.
    Tiers,
    /// The stack below the table, towards its innermost frame.
    StackUp,
    /// The stack below the table, towards its outermost frame.
    StackDown,
    /// Stop like a job of the shell.
    Suspend,
    /// Draw everything anew.
    Redraw,
    /// Finish editing.
    Accept,
    /// Give editing up.
    Cancel,
    /// End the program, then leave.
    EndProgram,
    /// Kill the program, then leave.
    KillProgram,
    /// Leave, and let the program run.
    Detach,
    /// Don't leave.
    Stay,
}

/// Where a key means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// A view, with nothing over it.
    View(View),
    /// A line is being edited.
    Edit,
    /// The help is open.
    Help,
    /// The question about a running program is open.
    Confirm,
}

impl Context {
    /// All of them.
    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Context> {
        View::ALL.into_iter().map(Context::View).chain([Context::Edit, Context::Help, Context::Confirm])
    }

    fn bit(self) -> u16 {
        match self {
            Context::View(view) => 1 << view as u16,
            Context::Edit => EDIT,
            Context::Help => HELP,
            Context::Confirm => CONFIRM,
        }
    }
}

const OVERVIEW: u16 = 1 << View::Overview as u16;
const CLASSES: u16 = 1 << View::Classes as u16;
const SITES: u16 = 1 << View::Sites as u16;
const FLAME: u16 = 1 << View::Flame as u16;
const THREADS: u16 = 1 << View::Threads as u16;
const GPU: u16 = 1 << View::Gpu as u16;
const OUTPUT: u16 = 1 << View::Output as u16;
const VIEWS: u16 = OVERVIEW | CLASSES | SITES | FLAME | THREADS | GPU | OUTPUT;
const TABLES: u16 = CLASSES | SITES | THREADS;
const EDIT: u16 = 1 << 12;
const HELP: u16 = 1 << 13;
const CONFIRM: u16 = 1 << 14;

/// A key with its modifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    code: KeyCode,
    control: bool,
}

const fn plain(c: char) -> Key {
    Key { code: KeyCode::Char(c), control: false }
}

const fn control(c: char) -> Key {
    Key { code: KeyCode::Char(c), control: true }
}

const fn named(code: KeyCode) -> Key {
    Key { code, control: false }
}

impl Key {
    fn matches(self, event: &KeyEvent) -> bool {
        let held = event.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        self.code == event.code && self.control == control && (held == control)
    }

    /// How it is written.
    pub(crate) fn label(self) -> String {
        let name = match self.code {
            KeyCode::Char(' ') => "space".into(),
            KeyCode::Char(c) => c.to_string(),
            KeyCode::Up => "↑".into(),
            KeyCode::Down => "↓".into(),
            KeyCode::Left => "←".into(),
            KeyCode::Right => "→".into(),
            KeyCode::PageUp => "PgUp".into(),
            KeyCode::PageDown => "PgDn".into(),
            KeyCode::Home => "Home".into(),
            KeyCode::End => "End".into(),
            KeyCode::Enter => "Enter".into(),
            KeyCode::Esc => "Esc".into(),
            KeyCode::Tab => "Tab".into(),
            KeyCode::BackTab => "⇧Tab".into(),
            KeyCode::Backspace => "⌫".into(),
            other => format!("{other}"),
        };
        if self.control { format!("^{}", name.to_uppercase()) } else { name }
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// What it does.
    pub(crate) action: Action,
    /// The keys; the footer shows the first.
    pub(crate) keys: &'static [Key],
    /// A word or two, for the footer.
    pub(crate) label: &'static str,
    /// A sentence, for the help.
    pub(crate) help: &'static str,
    /// Bits of the contexts where it holds.
    scope: u16,
    /// The footer has it.
    pub(crate) footer: bool,
}

const fn bind(
    action: Action,
    keys: &'static [Key],
    label: &'static str,
    help: &'static str,
    scope: u16,
    footer: bool,
) -> Binding {
    Binding { action, keys, label, help, scope, footer }
}

/// The keys, in the order of the footer and the help.
pub(crate) const BINDINGS: &[Binding] = &[
    bind(Action::Stay, &[named(KeyCode::Esc), plain('n')], "stay", "Stay in the dashboard", CONFIRM, true),
    bind(
        Action::EndProgram,
        &[plain('q'), control('c')],
        "end it and quit",
        "Send the program SIGTERM, and quit when it has ended",
        CONFIRM,
        true,
    ),
    bind(
        Action::Detach,
        &[plain('d')],
        "leave it running and quit",
        "Quit; the program runs on in the background",
        CONFIRM,
        true,
    ),
    bind(Action::KillProgram, &[plain('K')], "kill it and quit", "Send the program SIGKILL, and quit", CONFIRM, true),
    bind(Action::Accept, &[named(KeyCode::Enter)], "keep", "Keep the text", EDIT, true),
    bind(Action::Cancel, &[named(KeyCode::Esc), control('c')], "clear", "Give it up and clear it", EDIT, true),
    bind(
        Action::Quit,
        &[plain('q'), control('c')],
        "quit",
        "Quit; asks first while a program started by run still runs",
        VIEWS,
        true,
    ),
    bind(Action::Help, &[plain('?'), named(KeyCode::F(1))], "help", "Show or hide this help", VIEWS, true),
    bind(
        Action::Back,
        &[named(KeyCode::Esc), plain('q'), plain('?'), control('c')],
        "close",
        "Close the help",
        HELP,
        true,
    ),
    bind(Action::Pause, &[plain(' ')], "pause", "Freeze the picture; recording goes on", VIEWS, true),
    bind(
        Action::Enter,
        &[named(KeyCode::Enter)],
        "call site",
        "Open the selected call site in its own view",
        OVERVIEW,
        true,
    ),
    bind(
        Action::Tiers,
        &[plain('t')],
        "tiers",
        "Show all counters of the tiers, or the first ones only",
        OVERVIEW,
        true,
    ),
    bind(Action::Find, &[plain('/')], "filter", "Filter by function, file or module (regex, any case)", SITES, true),
    bind(
        Action::SortNext,
        &[plain('s'), plain('>')],
        "sort",
        "Order by the next column (or click its title)",
        TABLES,
        true,
    ),
    bind(Action::SortPrevious, &[plain('S'), plain('<')], "sort back", "Order by the column before", TABLES, false),
    bind(Action::Reverse, &[plain('r')], "reverse", "Turn the order round", TABLES, true),
    bind(
        Action::Enter,
        &[named(KeyCode::Enter)],
        "flamegraph",
        "Show the selected call site in the flamegraph",
        SITES,
        true,
    ),
    bind(Action::StackDown, &[plain(']')], "stack", "Scroll the stack towards its outermost frame", SITES, true),
    bind(Action::StackUp, &[plain('[')], "stack back", "Scroll the stack towards its innermost frame", SITES, false),
    bind(Action::Enter, &[named(KeyCode::Enter)], "zoom", "Zoom into the selected function", FLAME, true),
    bind(
        Action::Back,
        &[named(KeyCode::Esc), named(KeyCode::Backspace)],
        "zoom out",
        "Zoom out by one function, then clear the search",
        FLAME,
        true,
    ),
    bind(
        Action::Metric,
        &[plain('m')],
        "metric",
        "Switch between bytes and objects, in use and allocated",
        FLAME,
        true,
    ),
    bind(Action::Find, &[plain('/')], "search", "Search for functions, files, modules (regex, any case)", FLAME, true),
    bind(Action::NextMatch, &[plain('n')], "next", "Select the next match", FLAME, false),
    bind(Action::PreviousMatch, &[plain('N')], "previous", "Select the match before", FLAME, false),
    bind(Action::Back, &[named(KeyCode::Esc)], "clear", "Clear the filter", SITES, false),
    bind(
        Action::Up,
        &[named(KeyCode::Up), plain('k')],
        "up",
        "Up: the row before, the caller, older output",
        VIEWS,
        false,
    ),
    bind(
        Action::Down,
        &[named(KeyCode::Down), plain('j')],
        "down",
        "Down: the next row, the largest callee, newer output",
        VIEWS,
        false,
    ),
    bind(Action::Left, &[named(KeyCode::Left), plain('h')], "left", "The neighbour to the left", FLAME, false),
    bind(Action::Right, &[named(KeyCode::Right), plain('l')], "right", "The neighbour to the right", FLAME, false),
    bind(Action::PageUp, &[named(KeyCode::PageUp)], "page up", "Up by ten rows", VIEWS, false),
    bind(Action::PageDown, &[named(KeyCode::PageDown)], "page down", "Down by ten rows", VIEWS, false),
    bind(Action::Home, &[named(KeyCode::Home), plain('g')], "first", "To the first row", VIEWS, false),
    bind(Action::End, &[named(KeyCode::End), plain('G')], "last", "To the last row", VIEWS, false),
    bind(Action::NextView, &[named(KeyCode::Tab)], "next view", "The next view", VIEWS, false),
    bind(Action::PreviousView, &[named(KeyCode::BackTab)], "previous view", "The view before", VIEWS, false),
    bind(
        Action::Go(View::Overview),
        &[plain('1')],
        "overview",
        "Memory over time, tiers, largest call sites",
        VIEWS,
        false,
    ),
    bind(Action::Go(View::Classes), &[plain('2')], "classes", "Size classes and their hit rates", VIEWS, false),
    bind(Action::Go(View::Sites), &[plain('3')], "sites", "Call sites with their stacks", VIEWS, false),
    bind(Action::Go(View::Flame), &[plain('4')], "flame", "Flamegraph", VIEWS, false),
    bind(Action::Go(View::Threads), &[plain('5')], "threads", "Threads", VIEWS, false),
    bind(
        Action::Go(View::Gpu),
        &[plain('6')],
        "gpu",
        "Device memory: pools, a map of what lies where, who holds it",
        VIEWS,
        false,
    ),
    bind(Action::Go(View::Output), &[plain('7')], "output", "Output of the program that run started", VIEWS, false),
    bind(Action::Faster, &[plain('+'), plain('=')], "faster", "Read the segment more often", VIEWS, false),
    bind(Action::Slower, &[plain('-')], "slower", "Read the segment less often", VIEWS, false),
    bind(Action::Redraw, &[control('l')], "redraw", "Draw everything anew", VIEWS, false),
    bind(Action::Suspend, &[control('z')], "suspend", "Stop like a job of the shell; fg resumes", VIEWS, false),
];

/// The bindings of a context.
pub(crate) fn bindings(context: Context) -> impl Iterator<Item = &'static Binding> {
    BINDINGS.iter().filter(move |b| b.scope & context.bit() != 0)
}

/// What a key means in a context.
pub(crate) fn action(context: Context, event: &KeyEvent) -> Option<Action> {
    bindings(context).find(|b| b.keys.iter().any(|k| k.matches(event))).map(|b| b.action)
}

/// How a binding's keys are written, all of them.
pub(crate) fn key_labels(binding: &Binding) -> String {
    binding.keys.iter().map(|k| k.label()).collect::<Vec<_>>().join(" ")
}

/// Sections of the help: a title and its bindings. Every binding is in exactly one.
pub(crate) fn help_sections() -> Vec<(&'static str, Vec<&'static Binding>)> {
    let sections = [
        ("Everywhere", VIEWS),
        ("Overview", OVERVIEW),
        ("Tables", TABLES),
        ("Call sites", SITES),
        ("Flamegraph", FLAME),
        ("While typing", EDIT),
        ("This help", HELP),
        ("When a program still runs", CONFIRM),
    ];
    sections.into_iter().map(|(title, scope)| (title, BINDINGS.iter().filter(|b| b.scope == scope).collect())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things_in_one_context() {
        for context in Context::all() {
            let mut seen: Vec<(Key, &str)> = Vec::new();
            for binding in bindings(context) {
                for &key in binding.keys {
                    if let Some((_, other)) = seen.iter().find(|(k, _)| *k == key) {
                        panic!("{} is both {other:?} and {:?} in {context:?}", key.label(), binding.label);
                    }
                    seen.push((key, binding.label));
                }
            }
        }
    }

    #[test]
    fn the_help_has_every_binding_once() {
        let listed: usize = help_sections().iter().map(|(_, bindings)| bindings.len()).sum();
        assert_eq!(listed, BINDINGS.len());
    }

    #[test]
    fn every_context_has_a_way_out_in_its_footer() {
        for context in Context::all() {
            let out = [Action::Quit, Action::Back, Action::Cancel, Action::Stay];
            assert!(bindings(context).any(|b| b.footer && out.contains(&b.action)), "{context:?}");
        }
    }

    #[test]
    fn a_held_modifier_is_another_key() {
        let press = |code, modifiers| KeyEvent::new(code, modifiers);
        let view = Context::View(View::Sites);
        assert_eq!(action(view, &press(KeyCode::Char('s'), KeyModifiers::NONE)), Some(Action::SortNext));
        assert_eq!(action(view, &press(KeyCode::Char('S'), KeyModifiers::SHIFT)), Some(Action::SortPrevious));
        assert_eq!(action(view, &press(KeyCode::Char('s'), KeyModifiers::ALT)), None);
        assert_eq!(action(view, &press(KeyCode::Char('c'), KeyModifiers::CONTROL)), Some(Action::Quit));
    }
}
