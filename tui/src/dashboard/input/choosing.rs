//! The keys of the processes to choose from.

use crossterm::event::KeyCode;

use super::key::{Binding, Section, control, named, plain};
use super::ordering::{NEXT, PREVIOUS, REVERSE, Reorder};

/// What is done with the processes to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choosing {
    /// Watch the selected one.
    Open,
    /// Watch what was watched before.
    Back,
    /// Leave.
    Quit,
    /// Another order.
    Reorder(Reorder),
    /// Type what they are filtered by.
    Filter,
    /// Choose the columns.
    Columns,
    /// Copy the selected one's id.
    Copy,
    /// Write them into a file.
    Export,
    /// Show the help.
    Help,
}

/// The keys of the processes to choose from. Those of [`Common::Move`](super::common::Common::Move) hold, too.
pub(crate) const CHOOSING: &[Binding<Choosing>] = &[
    Binding {
        keys: &[named(KeyCode::Enter)],
        action: Choosing::Open,
        label: "watch",
        help: "Watch the selected process",
        section: Section::Choosing,
        footer: true,
    },
    Binding {
        keys: &[named(KeyCode::Esc), plain('o')],
        action: Choosing::Back,
        label: "back",
        help: "Back to the process that was watched; quits if there is none",
        section: Section::Choosing,
        footer: true,
    },
    Binding {
        keys: &[plain('q'), control('c')],
        action: Choosing::Quit,
        label: "quit",
        help: "Quit",
        section: Section::Choosing,
        footer: true,
    },
    Binding {
        keys: &[plain('?'), named(KeyCode::F(1))],
        action: Choosing::Help,
        label: "help",
        help: "Show the help",
        section: Section::Choosing,
        footer: true,
    },
    Binding {
        keys: &[plain('f'), plain('/')],
        action: Choosing::Filter,
        label: "filter",
        help: "Filter the processes: words, size> grow> age> (- for not)",
        section: Section::Choosing,
        footer: true,
    },
    NEXT.with(Choosing::Reorder(Reorder::Next)),
    PREVIOUS.with(Choosing::Reorder(Reorder::Previous)),
    REVERSE.with(Choosing::Reorder(Reorder::Reverse)),
    Binding {
        keys: &[plain('C')],
        action: Choosing::Columns,
        label: "columns",
        help: "Choose the columns of the processes",
        section: Section::Choosing,
        footer: false,
    },
    Binding {
        keys: &[plain('y')],
        action: Choosing::Copy,
        label: "copy",
        help: "Copy the selected process's id, by the terminal (OSC 52)",
        section: Section::Choosing,
        footer: false,
    },
    Binding {
        keys: &[plain('e')],
        action: Choosing::Export,
        label: "export",
        help: "Write the processes into a file, as CSV",
        section: Section::Choosing,
        footer: false,
    },
];
