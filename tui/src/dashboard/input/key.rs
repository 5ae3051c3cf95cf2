//! A key, and what a key is bound to. Dispatch, the footer and the help read the same rows.

use super::keymap;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A key with its modifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    code: KeyCode,
    control: bool,
}

/// A character.
pub(crate) const fn plain(c: char) -> Key {
    Key { code: KeyCode::Char(c), control: false }
}

/// A character with the control key held.
pub(crate) const fn control(c: char) -> Key {
    Key { code: KeyCode::Char(c), control: true }
}

/// A key with a name.
pub(crate) const fn named(code: KeyCode) -> Key {
    Key { code, control: false }
}

impl Key {
    fn matches(self, event: &KeyEvent) -> bool {
        let held = event.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        self.code == event.code && self.control == control && (held == control)
    }

    /// As if it were pressed.
    pub(crate) fn event(self) -> KeyEvent {
        KeyEvent::new(self.code, if self.control { KeyModifiers::CONTROL } else { KeyModifiers::NONE })
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

/// One row of a table of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding<Action = ()> {
    /// The keys; the footer shows the first.
    pub(crate) keys: &'static [Key],
    /// What they do.
    pub(crate) action: Action,
    /// A word or two, for the footer.
    pub(crate) label: &'static str,
    /// A sentence, for the help.
    pub(crate) help: &'static str,
    /// Where the help has it.
    pub(crate) section: Section,
    /// The footer has it.
    pub(crate) footer: bool,
}

impl<Action: Copy> Binding<Action> {
    /// The same keys and words for another action.
    pub(crate) const fn with<Other: Copy>(self, action: Other) -> Binding<Other> {
        Binding {
            keys: self.keys,
            action,
            label: self.label,
            help: self.help,
            section: self.section,
            footer: self.footer,
        }
    }

    /// The row as the footer and the help read it.
    pub(crate) const fn row(self) -> Binding {
        self.with(())
    }

    /// The keys, as the user may have chosen them.
    pub(crate) fn keys(&self) -> &'static [Key] {
        keymap::chosen(self.label).unwrap_or(self.keys)
    }

    /// How the first key is written.
    pub(crate) fn first_label(&self) -> String {
        self.keys().first().map(|key| key.label()).unwrap_or_default()
    }

    /// How the keys are written, all of them.
    pub(crate) fn key_labels(&self) -> String {
        self.keys().iter().map(|key| key.label()).collect::<Vec<_>>().join(" ")
    }
}

/// What a key means in a table.
pub(crate) fn action<Action: Copy>(table: &[Binding<Action>], event: &KeyEvent) -> Option<Action> {
    table.iter().find(|binding| binding.keys().iter().any(|key| key.matches(event))).map(|binding| binding.action)
}

/// A part of the help, in the order in which it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    /// In every view.
    Everywhere,
    /// In views that are tables.
    Tables,
    /// In one view, by the view's title.
    View,
    /// While a line is typed.
    Typing,
    /// In the help.
    Help,
    /// In the question about a running program.
    Leaving,
    /// Among the processes to choose from.
    Choosing,
    /// In the question what to write into a file.
    Exporting,
    /// In the question what the present is compared with.
    Comparing,
    /// Among the columns of a table.
    Columns,
}
