//! Which functions are a language's runtime and library, and say nothing about the program: a flamegraph folds them.

use poolscope_profiler::build::plumbing::is_plumbing;
use poolscope_profiler::model::profile::Profile;

/// For each location a bit for each of its functions, the innermost the lowest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runtime {
    bits: Vec<u64>,
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
        self.bits.truncate(profile.locations.len());
        for location in &profile.locations[self.bits.len()..] {
            let module = profile.module(location);
            let frames = location.frames.iter().take(64).enumerate();
            let bits = frames.filter(|(_, frame)| is_plumbing(frame, module, &profile.naming));
            self.bits.push(bits.fold(0, |bits, (at, _)| bits | 1 << at));
        }
    }

    /// How many locations are known.
    pub(crate) fn len(&self) -> usize {
        self.bits.len()
    }

    /// Whether a function of a location is.
    pub(crate) fn has(&self, location: usize, frame: usize) -> bool {
        frame < 64 && self.bits.get(location).is_some_and(|bits| bits >> frame & 1 == 1)
    }
}
