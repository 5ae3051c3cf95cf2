//! The keys by which all tables are ordered.

use super::key::{Binding, Section, plain};

/// Another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reorder {
    /// By the next column.
    Next,
    /// By the column before.
    Previous,
    /// The other way round.
    Reverse,
}

/// Orders by the next column.
pub(crate) const NEXT: Binding<Reorder> = Binding {
    keys: &[plain('s'), plain('>')],
    action: Reorder::Next,
    label: "sort",
    help: "Order by the next column (or click its title)",
    section: Section::Tables,
    footer: true,
};

/// Orders by the column before.
pub(crate) const PREVIOUS: Binding<Reorder> = Binding {
    keys: &[plain('S'), plain('<')],
    action: Reorder::Previous,
    label: "sort back",
    help: "Order by the column before",
    section: Section::Tables,
    footer: false,
};

/// Turns the order round.
pub(crate) const REVERSE: Binding<Reorder> = Binding {
    keys: &[plain('r')],
    action: Reorder::Reverse,
    label: "reverse",
    help: "Turn the order round",
    section: Section::Tables,
    footer: true,
};
