//! The keys of the processes to choose from.

use crossterm::event::KeyCode;

use super::key::{Binding, Section, control, named, plain};

/// What is done with the processes to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choosing {
    /// Watch the selected one.
    Open,
    /// Watch what was watched before.
    Back,
    /// Leave.
    Quit,
    /// Another order: by a column that is so many further, or the other way round.
    Order(Option<isize>),
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
        keys: &[plain('s'), plain('>')],
        action: Choosing::Order(Some(1)),
        label: "sort",
        help: "Order by the next column (or click its title)",
        section: Section::Choosing,
        footer: true,
    },
    Binding {
        keys: &[plain('S'), plain('<')],
        action: Choosing::Order(Some(-1)),
        label: "sort back",
        help: "Order by the column before",
        section: Section::Choosing,
        footer: false,
    },
    Binding {
        keys: &[plain('r')],
        action: Choosing::Order(None),
        label: "reverse",
        help: "Turn the order round",
        section: Section::Choosing,
        footer: true,
    },
];
