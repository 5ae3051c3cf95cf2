//! Languages whose functions a machine runs, which allocates for them: Python, Ruby, JavaScript and Java.
//!
//! Where the library reads what the machine runs, or the machine names its functions in the process's perf map, stacks
//! hold them where they were called, among the machine's own. Those say little to who wrote the program.

use std::sync::Arc;

use crate::build::{by_names, java, javascript, python, ruby};
use crate::model::profile::{Location, Profile, Site};
use crate::model::snapshot::Module;

/// A language that a machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// By CPython.
    Python,
    /// By V8, in Node.
    JavaScript,
    /// And others that are compiled to the code of Java's machine.
    Java,
    /// By CRuby.
    Ruby,
}

/// Some of the languages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Languages(u8);

impl Languages {
    /// Those of which something is true.
    pub fn that(is: impl Fn(Language) -> bool) -> Languages {
        let bits = Language::ALL.into_iter().filter(|language| is(*language)).map(|language| 1 << language as u8);
        Languages(bits.sum())
    }

    /// Whether a language is among them.
    pub fn has(self, language: Language) -> bool {
        self.0 & 1 << language as u8 != 0
    }
}

impl Language {
    /// All that are known.
    pub const ALL: [Language; 4] = [Language::Python, Language::JavaScript, Language::Java, Language::Ruby];

    /// Whose function a location is; none of native code, nor of a function that comes with the machine.
    pub fn of(location: &Location) -> Option<Language> {
        if python::is_python(location) {
            return Some(Language::Python);
        }
        if ruby::is_ruby(location) {
            return Some(Language::Ruby);
        }
        if javascript::is_javascript(location) {
            return Some(Language::JavaScript);
        }
        java::is_java(location).then_some(Language::Java)
    }

    /// Whose functions a stack has, the innermost of them.
    pub(crate) fn of_site(profile: &Profile, site: &Site) -> Option<Language> {
        site.locations.iter().filter_map(|&index| profile.locations.get(index)).find_map(Language::of)
    }

    /// Whether a location, in a module if that is known, is in the machine that runs the language.
    pub fn is_run_by(self, location: &Location, module: Option<&Module>) -> bool {
        match self {
            Language::Python => module.is_some_and(python::is_interpreter),
            Language::JavaScript => javascript::is_machine(location, module),
            Language::Java => java::is_machine(location, module),
            Language::Ruby => module.is_some_and(ruby::is_interpreter),
        }
    }

    /// Whether a location allocates for functions of the language, which say more of who wanted it: the machine, and
    /// libraries that make objects for them.
    pub fn is_served_by(self, location: &Location, module: Option<&Module>) -> bool {
        match self {
            Language::Python => module.is_some_and(python::works_for_python) || location.has_no_name(),
            Language::JavaScript => javascript::is_machine(location, module) || javascript::is_nodes(location),
            Language::Java => java::is_machine(location, module) || java::is_library(location),
            Language::Ruby => {
                module.is_some_and(ruby::is_interpreter) || ruby::is_native(location) || location.has_no_name()
            }
        }
    }
}

/// Takes the interpreter's frames out of every stack that has functions of Python's or Ruby's; extension modules that do
/// not come with it and other libraries stay. Stacks that are equal then become one. Gives the number of stacks that had
/// such functions.
pub fn hide_interpreter(profile: &mut Profile) -> usize {
    let of = |language: Language| {
        let is_hidden = |location: &Location| language.is_run_by(location, profile.module(location));
        let is_its = |location: &Location| Language::of(location) == Some(language);
        let (hidden, its): (Vec<bool>, Vec<bool>) =
            profile.locations.iter().map(|location| (is_hidden(location), is_its(location))).unzip();
        its.contains(&true).then_some((hidden, its))
    };
    let languages: Vec<(Vec<bool>, Vec<bool>)> =
        [Language::Python, Language::Ruby].into_iter().filter_map(of).collect();
    let mut found = 0;
    for site in &mut profile.sites {
        let has = |of: &[bool], at: usize| of.get(at) == Some(&true);
        if let Some((hidden, _)) = languages.iter().find(|(_, its)| site.locations.iter().any(|&at| has(its, at))) {
            found += 1;
            site.locations = site.locations.iter().copied().filter(|&at| !has(hidden, at)).collect();
        }
    }
    let key = |site: &Site| Some((Arc::clone(&site.locations), site.place, site.incomplete));
    let mut merged = by_names::one_for_each(std::mem::take(&mut profile.sites), key);
    merged.sort_by(|a, b| b.in_use.bytes.total_cmp(&a.in_use.bytes));
    profile.sites = merged;
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing;

    #[test]
    fn the_interpreter_goes_where_python_is_and_stays_where_it_is_not() {
        let mut profile = testing::profile(&[
            ("main;eval;f (a.py);eval;malloc_of_a", 10.0),
            ("main;eval;f (a.py);eval", 5.0),
            ("main;eval", 3.0),
        ]);
        profile.modules[0].path = "/usr/bin/python3.12".to_owned();
        testing::name_python(&mut profile);
        assert_eq!(hide_interpreter(&mut profile), 2);
        let paths: Vec<(String, f64)> =
            profile.sites.iter().map(|site| (profile.path(site), site.in_use.bytes)).collect();
        assert_eq!(paths, [("f (a.py)".to_owned(), 15.0), ("main;eval".to_owned(), 3.0)]);
        let held = &profile.sites[0].held;
        assert_eq!((held.len(), held[0].amount.bytes), (1, 15.0), "blocks of one size and thread are counted together");
    }
}
