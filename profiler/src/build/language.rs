//! Languages whose functions a machine runs, which allocates for them: Python, JavaScript and Java.
//!
//! Where such a machine names its functions in the process's perf map, stacks hold them where they were called, among
//! the machine's own. Those say little to who wrote the program.

use crate::build::{java, javascript, python};
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
    pub const ALL: [Language; 3] = [Language::Python, Language::JavaScript, Language::Java];

    /// Whose function a location is; none of native code, nor of a function that comes with the machine.
    pub fn of(location: &Location) -> Option<Language> {
        if python::is_python(location) {
            return Some(Language::Python);
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
        }
    }

    /// Whether a location allocates for functions of the language, which say more of who wanted it: the machine, and
    /// libraries that make objects for them.
    pub fn is_served_by(self, location: &Location, module: Option<&Module>) -> bool {
        match self {
            Language::Python => module.is_some_and(python::works_for_python) || location.has_no_name(),
            Language::JavaScript => javascript::is_machine(location, module) || javascript::is_nodes(location),
            Language::Java => java::is_machine(location, module) || java::is_library(location),
        }
    }
}
