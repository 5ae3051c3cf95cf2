//! Which figure of a call site, by the names that pprof has for them, and of which memory.

use clap::{Args, ValueEnum};
use poolscope_profiler::model::memory::Place;
use poolscope_profiler::{Memory, Metric, Profile};

use crate::failure::Failure;

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum MetricName {
    #[default]
    InuseSpace,
    InuseObjects,
    AllocSpace,
    AllocObjects,
}

impl MetricName {
    pub(crate) fn metric(self) -> Metric {
        match self {
            MetricName::InuseSpace => Metric::InUseBytes,
            MetricName::InuseObjects => Metric::InUseObjects,
            MetricName::AllocSpace => Metric::AllocatedBytes,
            MetricName::AllocObjects => Metric::AllocatedObjects,
        }
    }
}

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Host,
    Device,
    Pinned,
}

/// Which memory to look at.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Which memory; by default the host's, or a device's if there is no other
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// The memory of this device
    #[arg(long, value_name = "N")]
    device: Option<u32>,
}

impl MemoryArgs {
    /// Whether some memory is named.
    pub(crate) fn is_given(self) -> bool {
        self.kind.is_some() || self.device.is_some()
    }

    /// Which memory of a profile is meant. Memory that somebody names must be there.
    pub(crate) fn memory(self, profile: &Profile) -> Result<Memory, Failure> {
        let memory = self.named(profile)?;
        if self.kind.is_some() || self.device.is_some() {
            profile.require(memory).map_err(|missing| Failure::usage(missing.to_string()))?;
        }
        Ok(memory)
    }

    /// The same, there or not.
    pub(crate) fn named(self, profile: &Profile) -> Result<Memory, Failure> {
        Ok(match (self.kind, self.device) {
            (None, None) => profile.usual_memory(),
            (Some(Kind::Host), None) => Memory::Host,
            (Some(Kind::Host), Some(_)) => {
                return Err(Failure::usage("host memory is of no device: leave --device out, or --kind".to_owned()));
            }
            (None | Some(Kind::Device), number) => Memory::Device(number),
            (Some(Kind::Pinned), number) => Memory::Pinned(number),
        })
    }

    /// Whether a site of some memory is in the part that is meant.
    pub(crate) fn has(self, place: Place) -> Result<bool, Failure> {
        let is_all = self.kind.is_none() && self.device.is_none();
        Ok(is_all || self.named(&Profile::default())?.has(place))
    }

    /// The part of a profile that is meant; all of it if nothing was said.
    pub(crate) fn part(self, profile: Profile) -> Result<Profile, Failure> {
        if self.kind.is_none() && self.device.is_none() {
            return Ok(profile);
        }
        Ok(profile.only(self.named(&profile)?))
    }
}
