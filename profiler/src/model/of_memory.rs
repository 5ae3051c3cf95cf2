//! What a profile has of one memory: its sites, and the names of their figures.

use crate::model::memory::{Kind, Memory};
use crate::model::profile::{Metric, Profile, Site};

/// The prefix that the sample types of a kind of memory have in pprof: none for the host's, which are Go's.
fn prefix(kind: Kind) -> &'static str {
    match kind {
        Kind::Host => "",
        Kind::Device => "gpu_",
        Kind::Pinned => "pinned_",
    }
}

/// The name by which pprof knows a figure of a kind of memory: `inuse_space`, `gpu_inuse_space`.
pub fn pprof_name(kind: Kind, metric: Metric) -> String {
    format!("{}{}", prefix(kind), metric.pprof_name())
}

impl Site {
    /// Which memory it is of.
    pub fn memory(&self) -> Memory {
        self.place.memory()
    }
}

/// Memory that somebody asks for, of which a profile has no block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no block of {wanted}: what is known is {there}")]
pub struct NoSuchMemory {
    wanted: String,
    there: String,
}

impl Profile {
    /// The call sites of some memory.
    pub fn only(&self, memory: Memory) -> Profile {
        let mut profile = self.clone();
        profile.sites.retain(|site| memory.has(site.place));
        profile
    }

    /// Whether there is a call site of some memory.
    pub fn has(&self, memory: Memory) -> bool {
        self.sites.iter().any(|site| memory.has(site.place))
    }

    /// Whether there is memory that somebody has named; the host's always is.
    pub fn require(&self, memory: Memory) -> Result<(), NoSuchMemory> {
        if matches!(memory, Memory::Host | Memory::All) || self.has(memory) {
            return Ok(());
        }
        let mut there: Vec<String> = self.sites.iter().map(|site| site.memory().name()).collect();
        there.sort();
        there.dedup();
        let there = if there.is_empty() { "nothing".to_owned() } else { there.join(", ") };
        Err(NoSuchMemory { wanted: memory.name(), there })
    }

    /// What is shown where nobody asks for other memory: the host's, or a device's if the process has no other.
    pub fn usual_memory(&self) -> Memory {
        let candidates = [Memory::Host, Memory::Device(None), Memory::Pinned(None)];
        candidates.into_iter().find(|memory| self.has(*memory)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::memory::Place;
    use crate::model::testing;

    fn mixed() -> Profile {
        let mut profile = testing::profile(&[("host", 1.0), ("first", 2.0), ("second", 4.0), ("pinned", 8.0)]);
        let places = [Place::Host, Place::Device(0), Place::Device(1), Place::Pinned(1)];
        profile.sites.iter_mut().zip(places).for_each(|(site, place)| site.place = place);
        profile
    }

    #[test]
    fn memory_is_chosen_by_kind_and_device() {
        let profile = mixed();
        let bytes = |memory| profile.only(memory).totals().in_use.bytes;
        let cases = [
            (Memory::Host, 1.0),
            (Memory::Device(None), 6.0),
            (Memory::Device(Some(1)), 4.0),
            (Memory::Device(Some(2)), 0.0),
            (Memory::Pinned(Some(1)), 8.0),
            (Memory::Pinned(Some(0)), 0.0),
            (Memory::All, 15.0),
        ];
        for (memory, expected) in cases {
            assert_eq!(bytes(memory), expected, "{memory:?}");
        }
    }

    #[test]
    fn memory_that_is_not_there_is_named_beside_what_is() {
        let profile = mixed();
        for memory in [Memory::Host, Memory::Device(Some(1)), Memory::Pinned(None)] {
            assert_eq!(profile.require(memory), Ok(()), "{memory:?}");
        }
        let missing = profile.require(Memory::Pinned(Some(0))).expect_err("is another device's");
        assert_eq!(
            missing.to_string(),
            "there is no block of memory pinned for device 0: what is known is host memory, memory of device 0, \
             memory of device 1, memory pinned for device 1"
        );
        let nothing = Profile::default().require(Memory::Device(None)).expect_err("is empty");
        assert_eq!(nothing.to_string(), "there is no block of memory of devices: what is known is nothing");
    }

    #[test]
    fn a_process_without_host_memory_shows_its_devices() {
        let profile = mixed();
        assert_eq!(profile.usual_memory(), Memory::Host);
        assert_eq!(profile.only(Memory::Device(Some(1))).usual_memory(), Memory::Device(None));
        assert_eq!(Profile::default().usual_memory(), Memory::Host);
    }
}
