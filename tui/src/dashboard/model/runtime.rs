//! Which functions are a language's runtime and library, and say nothing about the program: a flamegraph folds them.

use poolscope_profiler::build::language::{Language, Languages};
use poolscope_profiler::build::plumbing::is_plumbing;
use poolscope_profiler::model::profile::{Profile, Site};

/// What is known of each location.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runtime {
    of: Vec<OfLocation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct OfLocation {
    /// A bit for each of its functions, the innermost the lowest.
    bits: u64,
    /// A function of a language that a machine runs.
    language: Option<Language>,
    /// It is in a machine that runs these languages.
    runs: Languages,
}

impl Runtime {
    /// Of a profile.
    pub(crate) fn of(profile: &Profile) -> Runtime {
        let mut runtime = Runtime::default();
        runtime.extend(profile);
        runtime
    }

    /// Takes the locations that have come to be known since; none of those before has changed.
    pub(crate) fn extend(&mut self, profile: &Profile) {
        self.of.truncate(profile.locations.len());
        for location in &profile.locations[self.of.len()..] {
            let module = profile.module(location);
            let frames = location.frames.iter().take(64).enumerate();
            let bits = frames.filter(|(_, frame)| is_plumbing(frame, module, &profile.naming));
            self.of.push(OfLocation {
                bits: bits.fold(0, |bits, (at, _)| bits | 1 << at),
                language: Language::of(location),
                runs: Languages::that(|language| language.is_run_by(location, module)),
            });
        }
    }

    /// How many locations are known.
    pub(crate) fn len(&self) -> usize {
        self.of.len()
    }

    /// Whether a function of a location is.
    pub(crate) fn has(&self, location: usize, frame: usize) -> bool {
        frame < 64 && self.of.get(location).is_some_and(|of| of.bits >> frame & 1 == 1)
    }

    /// Whose functions a stack has, of the languages that a machine runs: then those of the machine are left out.
    pub(crate) fn language(&self, site: &Site) -> Option<Language> {
        site.locations.iter().filter_map(|&at| self.of.get(at)).find_map(|of| of.language)
    }

    /// Whether a location is in the machine that runs a language.
    pub(crate) fn runs(&self, location: usize, language: Language) -> bool {
        self.of.get(location).is_some_and(|of| of.runs.has(language))
    }
}
