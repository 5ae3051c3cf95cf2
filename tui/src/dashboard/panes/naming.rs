//! The keys that say by which function call sites are named, of every view that has a selected one.

use crate::dashboard::input::key::{Binding, Section, plain};

/// Names call sites by the callers of the function that names the selected one.
pub(super) const BY_CALLER: Binding = Binding {
    keys: &[plain('x')],
    action: (),
    label: "by caller",
    help: "Name call sites of the selected function by its callers, as --by-caller does",
    section: Section::Tables,
    footer: false,
};

/// Takes that back.
pub(super) const BY_FUNCTION: Binding = Binding {
    keys: &[plain('X')],
    action: (),
    label: "by function",
    help: "Name call sites as at the start again",
    section: Section::Tables,
    footer: false,
};
