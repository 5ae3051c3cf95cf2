//! A line of text that is being typed: the filter and the search.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The text and the place of the cursor, in characters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LineEdit {
    text: Vec<char>,
    cursor: usize,
}

impl LineEdit {
    /// What was typed.
    pub(crate) fn text(&self) -> String {
        self.text.iter().collect()
    }

    /// The text before and after the cursor.
    pub(crate) fn parts(&self) -> (String, String) {
        (self.text[..self.cursor].iter().collect(), self.text[self.cursor..].iter().collect())
    }

    /// Nothing was typed.
    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Takes everything away.
    pub(crate) fn clear(&mut self) {
        *self = LineEdit::default();
    }

    /// Puts text at the cursor; control characters are left out.
    pub(crate) fn insert(&mut self, text: &str) {
        for c in text.chars().filter(|c| !c.is_control()) {
            self.text.insert(self.cursor, c);
            self.cursor += 1;
        }
    }

    /// Handles a key; whether the text changed.
    pub(crate) fn key(&mut self, event: &KeyEvent) -> bool {
        let control = event.modifiers.contains(KeyModifiers::CONTROL);
        let before = self.text.len();
        match event.code {
            KeyCode::Char('u') if control => drop(self.text.drain(..std::mem::take(&mut self.cursor))),
            KeyCode::Char('k') if control => self.text.truncate(self.cursor),
            KeyCode::Char('w') if control => {
                let kept = self.text[..self.cursor].iter().collect::<String>();
                let kept = kept.trim_end().rfind(' ').map_or(0, |at| kept[..=at].chars().count());
                self.text.drain(kept..self.cursor);
                self.cursor = kept;
            }
            KeyCode::Char('a') if control => self.cursor = 0,
            KeyCode::Char('e') if control => self.cursor = self.text.len(),
            KeyCode::Char(c) if !control && !event.modifiers.contains(KeyModifiers::ALT) => {
                self.insert(c.encode_utf8(&mut [0; 4]));
            }
            KeyCode::Backspace if self.cursor > 0 => {
                self.cursor -= 1;
                self.text.remove(self.cursor);
            }
            KeyCode::Delete if self.cursor < self.text.len() => drop(self.text.remove(self.cursor)),
            KeyCode::Left => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Right => self.cursor = (self.cursor + 1).min(self.text.len()),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = self.text.len(),
            _ => {}
        }
        before != self.text.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(keys: &[(KeyCode, KeyModifiers)]) -> LineEdit {
        let mut line = LineEdit::default();
        line.insert("put é store");
        for &(code, modifiers) in keys {
            line.key(&KeyEvent::new(code, modifiers));
        }
        line
    }

    #[test]
    fn edits_by_characters_not_bytes() {
        let none = KeyModifiers::NONE;
        let line = typed(&[(KeyCode::Home, none), (KeyCode::Right, none), (KeyCode::Delete, none)]);
        assert_eq!(line.text(), "pt é store");
        assert_eq!(typed(&[(KeyCode::Char('w'), KeyModifiers::CONTROL)]).text(), "put é ");
        assert_eq!(typed(&[(KeyCode::Char('u'), KeyModifiers::CONTROL)]).text(), "");
        assert_eq!(typed(&[(KeyCode::Backspace, none)]).parts().0, "put é stor");
    }
}
