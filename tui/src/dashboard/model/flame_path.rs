//! How the stack of a call site becomes a path of functions, as the flamegraph draws them: each with one label, those of
//! a language's runtime folded.

use std::collections::HashMap;

use poolscope_profiler::model::profile::{Profile, Site};

use super::runtime::Runtime;
use crate::words::{file_name, printable};

/// What stands for frames that nobody knows.
fn stand_in(site: &Site) -> Option<&'static str> {
    if site.locations.is_empty() {
        Some("(no stack)")
    } else if site.incomplete {
        Some("(outer frames missing)")
    } else {
        None
    }
}

/// What stands for frames of the runtime, however many follow each other.
pub(crate) const RUNTIME: &str = "[runtime]";

/// How stacks become paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Functions of a language's runtime that follow each other are one, and those that the function calls which names
    /// the call site are left out. Those of a machine that runs a language are, too, where functions of that one are.
    pub(crate) folded: bool,
    /// From the function that asked for memory to its callers, not from the outermost to the innermost.
    pub(crate) inverted: bool,
}

/// As it is drawn at first.
pub(crate) const USUAL: Shape = Shape { folded: true, inverted: false };

/// What a function is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Label {
    /// Function.
    pub(crate) name: String,
    /// File and line in the first of its locations, or the module.
    pub(crate) place: String,
    /// The module's file name.
    pub(crate) module: String,
}

/// The names of a profile's functions, each once.
#[derive(Debug, Default)]
pub(super) struct Labels {
    pub(super) all: Vec<Label>,
    index: HashMap<String, u32>,
    /// Of each location, innermost first; empty as long as nobody asked.
    of: Vec<Vec<u32>>,
}

/// A function on a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) label: u32,
    pub(super) inlined: bool,
    runtime: bool,
    /// Its place in the stack, innermost first.
    depth: usize,
}

impl Labels {
    pub(super) fn number(&mut self, name: &str, fill: impl FnOnce(&mut Label)) -> u32 {
        if let Some(&known) = self.index.get(name) {
            return known;
        }
        let number = self.all.len() as u32;
        let mut label = Label { name: name.to_owned(), ..Label::default() };
        fill(&mut label);
        self.all.push(label);
        self.index.insert(name.to_owned(), number);
        number
    }

    fn of_location(&mut self, profile: &Profile, at: usize) {
        if self.of.len() <= at {
            self.of.resize(profile.locations.len().max(at + 1), Vec::new());
        }
        let Some(location) = profile.locations.get(at).filter(|_| self.of[at].is_empty()) else { return };
        let module = profile.module(location).map(|module| printable(file_name(&module.path))).unwrap_or_default();
        let labels = location.frames.iter().map(|frame| {
            self.number(&printable(&frame.name), |label| {
                label.place = frame.source().map_or_else(|| module.clone(), |source| printable(&source));
                label.module.clone_from(&module);
            })
        });
        self.of[at] = labels.collect();
    }

    /// Labels all locations in their order, so that a function's place doesn't depend on who asked first.
    pub(super) fn of_all_locations(&mut self, profile: &Profile) {
        for at in self.of.len()..profile.locations.len() {
            self.of_location(profile, at);
        }
    }

    /// The path of a call site from below the root.
    pub(super) fn path(
        &mut self,
        profile: &Profile,
        site: &Site,
        runtime: &Runtime,
        shape: Shape,
        out: &mut Vec<Step>,
    ) {
        out.clear();
        let language = if shape.folded { runtime.language(site) } else { None };
        let mut depth = 0;
        for &at in site.locations.iter() {
            self.of_location(profile, at);
            let is_left_out = language.is_some_and(|language| runtime.runs(at, language));
            for (frame, &label) in self.of[at].iter().enumerate() {
                let inlined = profile.locations[at].frames[frame].inlined;
                if !is_left_out {
                    out.push(Step { label, inlined, runtime: runtime.has(at, frame), depth });
                }
                depth += 1;
            }
        }
        if shape.folded
            && let Some(own) = out.iter().position(|step| !step.runtime)
        {
            out.drain(..own);
            let folded = self.number(RUNTIME, |_| {});
            for step in out.iter_mut().filter(|step| step.runtime) {
                (step.label, step.inlined) = (folded, false);
            }
            out.dedup_by(|step, before| step.runtime && before.runtime);
        }
        if let Some(stand_in) = stand_in(site) {
            let label = self.number(stand_in, |_| {});
            out.push(Step {
                label,
                inlined: false,
                runtime: false,
                depth: out.last().map_or(0, |last| last.depth + 1),
            });
        }
        if !shape.inverted {
            out.reverse();
        }
    }
}

/// The names on the path of a call site from below the root, up to the function with this place in its stack.
pub(crate) fn path_to(profile: &Profile, site: &Site, runtime: &Runtime, shape: Shape, depth: usize) -> Vec<String> {
    let (mut labels, mut steps) = (Labels::default(), Vec::new());
    labels.path(profile, site, runtime, shape, &mut steps);
    // What was folded away has the next function outwards for it.
    let wanted = steps.iter().map(|step| step.depth).filter(|at| *at >= depth).min();
    let end = steps.iter().position(|step| Some(step.depth) == wanted).map_or(steps.len(), |at| at + 1);
    steps[..end].iter().map(|step| labels.all[step.label as usize].name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use poolscope_profiler::model::profile::Location;
    use std::sync::Arc;

    use super::*;
    use crate::dashboard::model::fixture;

    #[test]
    fn runtime_frames_are_one_and_none_lies_below_the_function_that_names_the_site() {
        let model = fixture::model();
        let names = |shape| path_to(&model.profile, &model.profile.sites[0], &model.runtime, shape, 0);
        let folded = names(USUAL);
        assert_eq!(folded.last().map(String::as_str), Some("kv::store::Store::put"), "{folded:?}");
        let whole = names(Shape { folded: false, inverted: false });
        assert!(whole.len() > folded.len() && whole[whole.len() - 1].contains("RawVec"), "{whole:?}");
        let inverted = names(Shape { folded: true, inverted: true });
        assert_eq!(inverted, [folded[folded.len() - 1].clone()], "up to the innermost");
    }

    #[test]
    fn an_interpreter_is_left_out_where_functions_are_that_it_runs() {
        let profile = fixture::profile_of_python();
        let names = |shape| path_to(&profile, &profile.sites[0], &Runtime::of(&profile), shape, 0);
        assert_eq!(names(USUAL), [RUNTIME, "handle (server.py)"]);
        assert!(names(Shape { folded: false, inverted: false }).contains(&"kv::server::worker".to_owned()));
        // A function that is named only once it was seen.
        let mut unnamed = fixture::profile_of_python();
        let location = &mut Arc::make_mut(&mut unnamed.locations)[3];
        location.frames = vec![Location::placeholder(None, location.address)];
        let model = fixture::model_of([unnamed, profile]);
        let of_first = path_to(&model.profile, &model.profile.sites[0], &model.runtime, USUAL, 0);
        assert_eq!(of_first, [RUNTIME, "handle (server.py)"]);
    }
}
