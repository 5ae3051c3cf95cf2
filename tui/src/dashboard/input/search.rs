//! A line that a view is searched or filtered by: its text, whether it is being typed, and the pattern that it is.

use crossterm::event::KeyEvent;

use super::find::Pattern;
use super::line_edit::LineEdit;

/// A view's own filter or search.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    line: LineEdit,
    pattern: Option<Pattern>,
    /// It is being typed.
    pub(crate) editing: bool,
}

impl Search {
    /// What was typed.
    pub(crate) fn line(&self) -> &LineEdit {
        &self.line
    }

    /// What is looked for; none if nothing was typed.
    pub(crate) fn pattern(&self) -> Option<&Pattern> {
        self.pattern.as_ref()
    }

    /// There is a text, or one is being typed.
    pub(crate) fn is_shown(&self) -> bool {
        self.editing || !self.line.is_empty()
    }

    /// The text is no regular expression.
    pub(crate) fn is_literal(&self) -> bool {
        self.pattern.as_ref().is_some_and(|pattern| pattern.literal)
    }

    /// Handles a key; whether the text changed.
    pub(crate) fn key(&mut self, event: &KeyEvent) -> bool {
        let changed = self.line.key(event);
        self.compile(changed)
    }

    /// Puts text at the cursor; whether that changed anything.
    pub(crate) fn insert(&mut self, text: &str) -> bool {
        self.line.insert(text);
        self.compile(true)
    }

    /// Takes the text away.
    pub(crate) fn clear(&mut self) {
        self.line.clear();
        self.pattern = None;
    }

    fn compile(&mut self, changed: bool) -> bool {
        if changed {
            self.pattern = Pattern::new(&self.line.text());
        }
        changed
    }
}
