//! The keys that hold, from the tables of all who have keys: what the footer and the help show.

use crate::dashboard::input::choosing::CHOOSING;
use crate::dashboard::input::common::{CLOSING, COLUMNS, COMMON, COMPARING, EXPORTING, HELP, LEAVING, READING, TYPING};
use crate::dashboard::input::key::{Binding, Key, Section};
use crate::dashboard::input::keymap;
use crate::dashboard::panes::{Pane, VIEWS, openers};
use crate::dashboard::state::Context;

fn rows<Action: Copy>(table: &[Binding<Action>]) -> impl Iterator<Item = Binding> {
    table.iter().map(|binding| binding.row())
}

/// The keys of every view, in the order of the help.
fn everywhere() -> Vec<Binding> {
    rows(COMMON).chain(openers().map(|binding| binding.row())).chain(rows(READING)).collect()
}

/// The keys that hold in a context of a view.
pub(crate) fn bindings(context: Context, pane: &dyn Pane) -> Vec<Binding> {
    match context {
        Context::View => everywhere().into_iter().chain(pane.bindings()).collect(),
        Context::Typing => rows(TYPING).collect(),
        Context::Help => HELP.to_vec(),
        Context::Leaving => rows(LEAVING).collect(),
        Context::Choosing => rows(CHOOSING).collect(),
        Context::Exporting => rows(EXPORTING).chain(CLOSING.to_vec()).collect(),
        Context::Columns => rows(COLUMNS).chain(CLOSING.to_vec()).collect(),
        Context::Comparing => rows(COMPARING).chain(CLOSING.to_vec()).collect(),
    }
}

/// A part of the help: a title, and its keys.
pub(crate) type HelpSection = (&'static str, Vec<Binding>);

/// The parts of the help. What several views have stands there once.
pub(crate) fn help(panes: &[Box<dyn Pane>]) -> Vec<HelpSection> {
    let mut out: Vec<HelpSection> = Vec::new();
    let of_views = panes.iter().zip(VIEWS).map(|(pane, view)| (view.title, pane.bindings()));
    let all = [("", everywhere())].into_iter().chain(of_views);
    let all = all.chain([(
        "",
        rows(TYPING)
            .chain(HELP.to_vec())
            .chain(rows(COMPARING))
            .chain(rows(COLUMNS))
            .chain(CLOSING.to_vec())
            .chain(rows(EXPORTING))
            .chain(rows(CHOOSING))
            .chain(rows(LEAVING))
            .collect(),
    )]);
    for (view, bindings) in all {
        for binding in bindings {
            let title = match binding.section {
                Section::Everywhere => "Everywhere",
                Section::Tables => "Tables",
                Section::View => view,
                Section::Typing => "While typing",
                Section::Help => "This help",
                Section::Leaving => LEAVING_TITLE,
                Section::Choosing => "Processes",
                Section::Exporting => "Export",
                Section::Comparing => "Compare",
                Section::Columns => "Columns",
            };
            match out.iter_mut().find(|(known, _)| *known == title) {
                None => out.push((title, vec![binding])),
                Some((_, known)) if !known.contains(&binding) => known.push(binding),
                Some(_) => {}
            }
        }
    }
    out
}

/// The title of the keys that only matter with a program of one's own.
pub(crate) const LEAVING_TITLE: &str = "When a program still runs";

/// Every key that there is, with the context in which it holds, and a word for that.
fn all(panes: &[Box<dyn Pane>]) -> Vec<(String, Vec<Binding>)> {
    let mut out = Vec::new();
    for (pane, view) in panes.iter().zip(VIEWS) {
        out.push((view.title.to_owned(), bindings(Context::View, &**pane)));
    }
    for (name, context) in OVERLAYS {
        out.push(((*name).to_owned(), panes.first().map(|pane| bindings(*context, &**pane)).unwrap_or_default()));
    }
    out
}

/// The contexts that are the same in every view.
const OVERLAYS: &[(&str, Context)] = &[
    ("typing", Context::Typing),
    ("the help", Context::Help),
    ("leaving", Context::Leaving),
    ("the choice of a process", Context::Choosing),
    ("the export", Context::Exporting),
    ("the comparison", Context::Comparing),
    ("the columns", Context::Columns),
];

/// Takes the keys that the user chose; says what is wrong with them.
pub(crate) fn choose(text: &str) -> Result<(), String> {
    let panes: Vec<Box<dyn Pane>> = VIEWS.iter().map(|view| (view.make)()).collect();
    let all = all(&panes);
    let mut actions: Vec<String> =
        all.iter().flat_map(|(_, bindings)| bindings).map(|binding| keymap::named_so(binding.label)).collect();
    actions.sort();
    actions.dedup();
    let chosen = keymap::parse(text, &actions)?;
    for (context, bindings) in all {
        let mut seen: Vec<(Key, &str)> = Vec::new();
        for binding in bindings {
            for &key in chosen.get(&keymap::named_so(binding.label)).copied().unwrap_or(binding.keys) {
                if let Some((_, other)) = seen.iter().find(|(known, _)| *known == key) {
                    let key = key.label();
                    return Err(format!("{key} would be both {other} and {} in {context}", binding.label));
                }
                seen.push((key, binding.label));
            }
        }
    }
    keymap::set(chosen);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEXTS: [Context; 8] = [
        Context::View,
        Context::Typing,
        Context::Help,
        Context::Leaving,
        Context::Choosing,
        Context::Exporting,
        Context::Comparing,
        Context::Columns,
    ];

    fn panes() -> Vec<Box<dyn Pane>> {
        VIEWS.iter().map(|view| (view.make)()).collect()
    }

    fn in_each_context(mut check: impl FnMut(&str, Vec<Binding>)) {
        for (pane, view) in panes().iter().zip(VIEWS) {
            for context in CONTEXTS {
                check(&format!("{}, {context:?}", view.name), bindings(context, &**pane));
            }
        }
    }

    #[test]
    fn no_key_means_two_things_in_one_context() {
        in_each_context(|context, bindings| {
            let mut seen: Vec<(Key, &str)> = Vec::new();
            for binding in bindings {
                for &key in binding.keys() {
                    if let Some((_, other)) = seen.iter().find(|(known, _)| *known == key) {
                        panic!("{} is both {other:?} and {:?} in {context}", key.label(), binding.label);
                    }
                    seen.push((key, binding.label));
                }
            }
        });
    }

    #[test]
    fn the_help_has_every_binding_once() {
        let listed: Vec<Binding> = help(&panes()).into_iter().flat_map(|(_, bindings)| bindings).collect();
        in_each_context(|context, bindings| {
            for binding in bindings {
                let times = listed.iter().filter(|known| **known == binding).count();
                assert_eq!(times, 1, "{}, {}", context, binding.help);
            }
        });
    }

    #[test]
    fn every_context_has_a_way_out_in_its_footer() {
        let out = ["quit", "close", "clear", "stay"];
        in_each_context(|context, bindings| {
            assert!(bindings.iter().any(|b| b.footer && out.contains(&b.label)), "{context}");
        });
    }

    #[test]
    fn a_held_modifier_is_another_key() {
        use crate::dashboard::input::common::Common;
        use crate::dashboard::input::key::action;
        use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
        let pressed = |code, modifiers| action(COMMON, &KeyEvent::new(code, modifiers));
        assert_eq!(pressed(KeyCode::Char('q'), KeyModifiers::NONE), Some(Common::Quit));
        assert_eq!(pressed(KeyCode::Char('q'), KeyModifiers::ALT), None);
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Common::Quit));
        assert_eq!(pressed(KeyCode::Char('c'), KeyModifiers::NONE), None);
    }

    #[test]
    fn a_key_that_would_mean_two_things_is_refused() {
        assert_eq!(choose("quit = ?").unwrap_err(), "? would be both quit and help in Overview");
        assert_eq!(choose("zoom = x").unwrap_err(), "x would be both zoom and hide in Flamegraph");
        assert!(choose("zom = x").unwrap_err().starts_with("line 1: there is no action zom"));
    }

    #[test]
    fn every_view_has_a_name_of_its_own() {
        for (at, view) in VIEWS.iter().enumerate() {
            assert_eq!(crate::dashboard::panes::named(view.name), Some(at));
        }
    }
}
