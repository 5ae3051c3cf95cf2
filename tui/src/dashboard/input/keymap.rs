//! The keys that the user chose, from a file: a line for each action, by the name that the help has for it.
//!
//! ```text
//! # comments
//! quit = Q ctrl-c
//! next-view = n
//! compare = d
//! ```
//!
//! An action has the keys of its line and no others.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use crossterm::event::KeyCode;

use super::key::{Key, control, named, plain};

/// Keys by the names of actions.
type Keymap = HashMap<String, &'static [Key]>;

static CHOSEN: OnceLock<Keymap> = OnceLock::new();

/// The keys of an action, if the user chose some.
pub(crate) fn chosen(label: &str) -> Option<&'static [Key]> {
    CHOSEN.get()?.get(&named_so(label)).copied()
}

/// Takes what the user chose; once, before the dashboard runs.
pub(crate) fn set(keymap: Keymap) {
    // A second call would come from nowhere.
    let _ = CHOSEN.set(keymap);
}

/// How an action is called in the file: `next view` is `next-view`.
pub(crate) fn named_so(label: &str) -> String {
    label.to_ascii_lowercase().replace(' ', "-")
}

/// Where the file is, if nobody says otherwise.
pub(crate) fn usual_path(env: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let of = |name: &str| env(name).filter(|value| value.starts_with('/')).map(PathBuf::from);
    let folder = of("XDG_CONFIG_HOME").or_else(|| Some(of("HOME")?.join(".config")))?;
    Some(folder.join("poolscope/keys"))
}

fn key(name: &str) -> Option<Key> {
    let mut chars = name.chars();
    if let (Some(only), None) = (chars.next(), chars.next()) {
        return Some(plain(only));
    }
    if let Some(rest) = name.strip_prefix("ctrl-") {
        let mut chars = rest.chars();
        return chars.next().filter(|_| chars.next().is_none()).map(control);
    }
    if let Some(number) = name.strip_prefix('F').and_then(|number| number.parse().ok()) {
        return (1..=12).contains(&number).then(|| named(KeyCode::F(number)));
    }
    Some(match name.to_ascii_lowercase().as_str() {
        "space" => plain(' '),
        "enter" => named(KeyCode::Enter),
        "esc" => named(KeyCode::Esc),
        "tab" => named(KeyCode::Tab),
        "backtab" => named(KeyCode::BackTab),
        "backspace" => named(KeyCode::Backspace),
        "up" => named(KeyCode::Up),
        "down" => named(KeyCode::Down),
        "left" => named(KeyCode::Left),
        "right" => named(KeyCode::Right),
        "home" => named(KeyCode::Home),
        "end" => named(KeyCode::End),
        "pageup" => named(KeyCode::PageUp),
        "pagedown" => named(KeyCode::PageDown),
        _ => return None,
    })
}

/// Reads a file's text; `actions` are the names that there are. Says what is wrong, by the line.
pub(crate) fn parse(text: &str, actions: &[String]) -> Result<Keymap, String> {
    let mut keymap = Keymap::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let failed = |why: String| format!("line {}: {why}", at + 1);
        let (action, keys) = line.split_once(" =").or_else(|| line.split_once('=')).unwrap_or((line, ""));
        let action = named_so(action.trim());
        if !actions.contains(&action) {
            return Err(failed(format!("there is no action {action}; the help has their names")));
        }
        let mut read = Vec::new();
        for name in keys.split_whitespace() {
            read.push(key(name).ok_or_else(|| {
                failed(format!("no key is called {name}: write x, X, ctrl-x, F5, space, Enter, Esc, Tab, Up, PageDown"))
            })?);
        }
        if read.is_empty() {
            return Err(failed(format!("{action} has no key: write {action} = x")));
        }
        if keymap.insert(action.clone(), Vec::leak(read)).is_some() {
            return Err(failed(format!("{action} has a line already")));
        }
    }
    Ok(keymap)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Keymap, String> {
        parse(text, &["quit".to_owned(), "next-view".to_owned()])
    }

    #[test]
    fn a_line_gives_an_action_its_keys() {
        let keymap = read("# mine\n\nquit = Q ctrl-c\nnext view = n F5 =\n").expect("is one");
        assert_eq!(keymap["quit"], [plain('Q'), control('c')]);
        assert_eq!(keymap["next-view"], [plain('n'), named(KeyCode::F(5)), plain('=')]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, why) in [
            ("quit = q\nqiut = Q", "line 2: there is no action qiut"),
            ("quit = ctrl-xy", "line 1: no key is called ctrl-xy"),
            ("quit", "line 1: quit has no key"),
            ("quit = a\nquit = b", "line 2: quit has a line already"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.starts_with(why), "{error}");
        }
    }

    #[test]
    fn the_file_is_where_such_files_are() {
        let path = |vars: &[(&str, &str)]| {
            usual_path(|name| vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(path(&[("HOME", "/home/me")]), Some("/home/me/.config/poolscope/keys".into()));
        assert_eq!(path(&[("XDG_CONFIG_HOME", "/c"), ("HOME", "/h")]), Some("/c/poolscope/keys".into()));
        assert_eq!(path(&[]), None);
    }
}
