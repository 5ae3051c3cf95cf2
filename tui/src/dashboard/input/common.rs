//! The keys that are no view's own.

use crossterm::event::KeyCode;

use super::key::{Binding, Key, Section, control, named, plain};
use super::moment::Seek;

/// What is asked for in every view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Common {
    /// Leave, or ask first.
    Quit,
    /// Show the help.
    Help,
    /// Freeze or release the picture.
    Pause,
    /// Move in the view.
    Move(Motion),
    /// The view to the right.
    NextView,
    /// The view to the left.
    PreviousView,
    /// Show what a person should know.
    Findings,
    /// Show the processes to choose from.
    Processes,
    /// Write what is shown into a file.
    Export,
    /// Copy what is selected.
    Copy,
    /// Give the mouse to the terminal, or take it.
    Mouse,
    /// Read more often.
    Faster,
    /// Read less often.
    Slower,
    /// Draw everything anew.
    Redraw,
    /// Stop like a job of the shell.
    Suspend,
    /// Type the filter.
    Filter,
    /// Take back what was chosen last.
    Back,
    /// Mark this moment.
    Mark,
    /// Choose what the present is compared with.
    Compare,
    /// Show the moment when most was in use, or now.
    Peak,
    /// Choose the columns of the table.
    Columns,
    /// Show another moment of the recording.
    Seek(Seek),
}

/// A move through rows, lines or cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Motion {
    /// By one.
    Up,
    /// By one.
    Down,
    /// By a page.
    PageUp,
    /// By a page.
    PageDown,
    /// To the start.
    First,
    /// To the end.
    Last,
    /// By the wheel of the mouse.
    WheelUp,
    /// By the wheel of the mouse.
    WheelDown,
}

/// Rows of a page.
const PAGE: isize = 10;
/// Rows that the wheel moves by.
const WHEEL: isize = 3;

impl Motion {
    /// Rows, downwards.
    pub(crate) fn rows(self) -> isize {
        match self {
            Motion::Up => -1,
            Motion::Down => 1,
            Motion::PageUp => -PAGE,
            Motion::PageDown => PAGE,
            Motion::First => isize::MIN,
            Motion::Last => isize::MAX,
            Motion::WheelUp => -WHEEL,
            Motion::WheelDown => WHEEL,
        }
    }

    /// A place among so many, moved.
    pub(crate) fn from(self, at: usize, count: usize) -> usize {
        moved(at, self.rows(), count)
    }
}

/// A place among so many, moved by some.
pub(crate) fn moved(at: usize, by: isize, count: usize) -> usize {
    at.saturating_add_signed(by).min(count.saturating_sub(1))
}

const EVERYWHERE: Section = Section::Everywhere;

/// The keys of every view. In the help, those that open a view stand behind them.
pub(crate) const COMMON: &[Binding<Common>] = &[
    Binding {
        keys: &[plain('q'), control('c')],
        action: Common::Quit,
        label: "quit",
        help: "Quit; asks first while a program started by run still runs",
        section: EVERYWHERE,
        footer: true,
    },
    Binding {
        keys: &[plain('?'), named(KeyCode::F(1))],
        action: Common::Help,
        label: "help",
        help: "Show or hide this help",
        section: EVERYWHERE,
        footer: true,
    },
    Binding {
        keys: &[plain(' ')],
        action: Common::Pause,
        label: "pause",
        help: "Freeze the picture; recording goes on. Of a recording: play it, or stop",
        section: EVERYWHERE,
        footer: true,
    },
    Binding {
        keys: &[named(KeyCode::Up), plain('k')],
        action: Common::Move(Motion::Up),
        label: "up",
        help: "Up: the row before, the caller, older output",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[named(KeyCode::Down), plain('j')],
        action: Common::Move(Motion::Down),
        label: "down",
        help: "Down: the next row, the largest callee, newer output",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[named(KeyCode::PageUp)],
        action: Common::Move(Motion::PageUp),
        label: "page up",
        help: "Up by ten rows",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[named(KeyCode::PageDown)],
        action: Common::Move(Motion::PageDown),
        label: "page down",
        help: "Down by ten rows",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[named(KeyCode::Home), plain('g')],
        action: Common::Move(Motion::First),
        label: "first",
        help: "To the first row",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[named(KeyCode::End), plain('G')],
        action: Common::Move(Motion::Last),
        label: "last",
        help: "To the last row",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[named(KeyCode::Tab)],
        action: Common::NextView,
        label: "next view",
        help: "The next view",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[named(KeyCode::BackTab)],
        action: Common::PreviousView,
        label: "previous view",
        help: "The view before",
        section: EVERYWHERE,
        footer: false,
    },
];

const fn seek(keys: &'static [Key], to: Seek, label: &'static str, help: &'static str) -> Binding<Common> {
    Binding { keys, action: Common::Seek(to), label, help, section: EVERYWHERE, footer: false }
}

/// More keys of every view: what is read, how it is read and drawn.
pub(crate) const READING: &[Binding<Common>] = &[
    Binding {
        keys: &[plain('f')],
        action: Common::Filter,
        label: "filter",
        help: "Filter every view: words, fn: file: module: label: thread: class: size> grow> age> (- for not)",
        section: EVERYWHERE,
        footer: true,
    },
    Binding {
        keys: &[named(KeyCode::Esc)],
        action: Common::Back,
        label: "back",
        help: "Back: out of the zoom, then without filter, range, comparison, peak",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[plain('M')],
        action: Common::Mark,
        label: "mark",
        help: "Mark this moment, to compare with it later",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[plain('D')],
        action: Common::Compare,
        label: "compare",
        help: "Compare with the mark, an earlier moment, the peak, or a file",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[plain('P')],
        action: Common::Peak,
        label: "peak",
        help: "Show the moment when most was in use, or now again",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[plain('C')],
        action: Common::Columns,
        label: "columns",
        help: "Choose the columns of the table",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[plain('!')],
        action: Common::Findings,
        label: "findings",
        help: "Show what you should know, in words",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[plain('o')],
        action: Common::Processes,
        label: "processes",
        help: "Choose another process",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[plain('e')],
        action: Common::Export,
        label: "export",
        help: "Write what is shown into a file: text, SVG, pprof, JSON or CSV",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[plain('y')],
        action: Common::Copy,
        label: "copy",
        help: "Copy what is selected, by the terminal (OSC 52)",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[plain('z')],
        action: Common::Mouse,
        label: "mouse",
        help: "Give the mouse to the terminal for selecting text, or take it",
        section: EVERYWHERE,
        footer: false,
    },
    seek(&[plain('(')], Seek::By(-1), "seek back", "In a recording: earlier by a fiftieth of it"),
    seek(&[plain(')')], Seek::By(1), "seek on", "In a recording: later by a fiftieth of it"),
    seek(&[plain('{')], Seek::First, "rewind", "In a recording: to its start"),
    seek(&[plain('}')], Seek::Last, "to the end", "In a recording: to its end"),
    Binding {
        keys: &[plain('+'), plain('=')],
        action: Common::Faster,
        label: "faster",
        help: "Read the segment more often",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[plain('-')],
        action: Common::Slower,
        label: "slower",
        help: "Read the segment less often",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[control('l')],
        action: Common::Redraw,
        label: "redraw",
        help: "Draw everything anew",
        section: EVERYWHERE,
        footer: false,
    },
    Binding {
        keys: &[control('z')],
        action: Common::Suspend,
        label: "suspend",
        help: "Stop like a job of the shell; fg resumes",
        section: EVERYWHERE,
        footer: false,
    },
];

/// What ends the typing of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Typing {
    /// Keep the text.
    Accept,
    /// Give it up.
    Cancel,
}

/// The keys while a line is typed.
pub(crate) const TYPING: &[Binding<Typing>] = &[
    Binding {
        keys: &[named(KeyCode::Enter)],
        action: Typing::Accept,
        label: "keep",
        help: "Keep the text",
        section: Section::Typing,
        footer: true,
    },
    Binding {
        keys: &[named(KeyCode::Esc), control('c')],
        action: Typing::Cancel,
        label: "clear",
        help: "Give it up and clear it",
        section: Section::Typing,
        footer: true,
    },
];

/// Closes the help. Those of the keys of [`Common::Move`] that are no letters scroll it; letters narrow it.
pub(crate) const HELP: &[Binding] = &[Binding {
    keys: &[named(KeyCode::Esc), plain('?'), named(KeyCode::F(1)), control('c')],
    action: (),
    label: "close",
    help: "Show all keys again, or close the help. What is typed narrows it",
    section: Section::Help,
    footer: true,
}];

/// Closes what else lies over the view.
pub(crate) const CLOSING: &[Binding] = &[Binding {
    keys: &[named(KeyCode::Esc), plain('q'), plain('?'), control('c')],
    action: (),
    label: "close",
    help: "Close the columns, the export or the comparison",
    section: Section::Columns,
    footer: true,
}];

/// What is written into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// The screen.
    Text,
    /// The screen as a picture.
    Picture,
    /// The flamegraph.
    Svg,
    /// The profile.
    Pprof,
    /// The model.
    Json,
    /// The call sites.
    Csv,
}

/// The keys that choose what is written. Esc goes back.
pub(crate) const EXPORTING: &[Binding<Format>] = &[
    Binding {
        keys: &[plain('t')],
        action: Format::Text,
        label: "text",
        help: "this screen as text",
        section: Section::Exporting,
        footer: true,
    },
    Binding {
        keys: &[plain('i')],
        action: Format::Picture,
        label: "picture",
        help: "this screen as a picture, as SVG",
        section: Section::Exporting,
        footer: true,
    },
    Binding {
        keys: &[plain('s')],
        action: Format::Svg,
        label: "SVG",
        help: "a flamegraph of the memory in use, as SVG",
        section: Section::Exporting,
        footer: true,
    },
    Binding {
        keys: &[plain('p')],
        action: Format::Pprof,
        label: "pprof",
        help: "the profile, for go tool pprof",
        section: Section::Exporting,
        footer: true,
    },
    Binding {
        keys: &[plain('j')],
        action: Format::Json,
        label: "JSON",
        help: "all figures, as JSON",
        section: Section::Exporting,
        footer: true,
    },
    Binding {
        keys: &[plain('c')],
        action: Format::Csv,
        label: "CSV",
        help: "the table that is shown, as CSV; of a view without one, the call sites",
        section: Section::Exporting,
        footer: true,
    },
];

/// What the present is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Nothing.
    Nothing,
    /// What was marked.
    Mark,
    /// So many seconds ago.
    Ago(u32),
    /// The first reading.
    First,
    /// The peak.
    Peak,
    /// A file.
    File,
}

/// A row of [`COMPARING`].
const fn compared(
    keys: &'static [super::key::Key],
    with: Compared,
    label: &'static str,
    help: &'static str,
) -> Binding<Compared> {
    Binding { keys, action: with, label, help, section: Section::Comparing, footer: false }
}

/// The keys that choose what the present is compared with. Esc goes back.
pub(crate) const COMPARING: &[Binding<Compared>] = &[
    compared(&[plain('m')], Compared::Mark, "mark", "with what M marked"),
    compared(&[plain('1')], Compared::Ago(60), "a minute", "with a minute ago"),
    compared(&[plain('5')], Compared::Ago(300), "5 minutes", "with five minutes ago"),
    compared(&[plain('3')], Compared::Ago(1800), "30 minutes", "with thirty minutes ago"),
    compared(&[plain('s')], Compared::First, "start", "with the start of the watch, the first reading"),
    compared(&[plain('p')], Compared::Peak, "peak", "with the peak"),
    compared(&[plain('f')], Compared::File, "file", "with a profile in a file: pprof, heaptrack, DHAT, collapsed"),
    compared(&[plain('0'), plain('D')], Compared::Nothing, "nothing", "with nothing"),
];

/// Shows a column, or hides it. The keys of [`Common::Move`] choose one, and those of [`CLOSING`] close the list.
pub(crate) const COLUMNS: &[Binding] = &[Binding {
    keys: &[named(KeyCode::Enter), plain(' ')],
    action: (),
    label: "show or hide",
    help: "Show the selected column, or hide it",
    section: Section::Columns,
    footer: true,
}];

/// An answer to the question what becomes of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Don't leave.
    Stay,
    /// End the program, then leave.
    End,
    /// Leave, and let the program run.
    Detach,
    /// Kill the program, then leave.
    Kill,
}

/// The keys while it is asked what becomes of the program.
pub(crate) const LEAVING: &[Binding<Leaving>] = &[
    Binding {
        keys: &[named(KeyCode::Esc), plain('n')],
        action: Leaving::Stay,
        label: "stay",
        help: "Stay in the dashboard",
        section: Section::Leaving,
        footer: true,
    },
    Binding {
        keys: &[plain('q'), control('c')],
        action: Leaving::End,
        label: "end it and quit",
        help: "Send the program SIGTERM, and quit when it has ended",
        section: Section::Leaving,
        footer: true,
    },
    Binding {
        keys: &[plain('d')],
        action: Leaving::Detach,
        label: "leave it running and quit",
        help: "Quit; the program runs on in the background",
        section: Section::Leaving,
        footer: true,
    },
    Binding {
        keys: &[plain('K')],
        action: Leaving::Kill,
        label: "kill it and quit",
        help: "Send the program SIGKILL, and quit",
        section: Section::Leaving,
        footer: true,
    },
];
