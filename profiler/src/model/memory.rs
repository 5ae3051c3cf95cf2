//! Which memory a figure is of: host memory, that of a device, or host memory that is pinned for one.
//!
//! A process may have all of them, and their bytes are never added up: a picture or a table is of one.

use poolscope_wire::kind;

use crate::model::profile::{Metric, Profile, Site};

/// Which memory is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Memory {
    /// Host memory.
    #[default]
    Host,
    /// Memory of one device, or of all of them.
    Device(Option<u32>),
    /// Host memory pinned for one device, or for any.
    Pinned(Option<u32>),
    /// All of it, where figures are not added up.
    All,
}

/// A kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The host's.
    #[default]
    Host,
    /// A device's.
    Device,
    /// The host's, pinned for a device.
    Pinned,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 3] = [Kind::Host, Kind::Device, Kind::Pinned];

    /// The word for it in JSON and in metrics: `host`, `device`, `pinned`.
    pub fn name(self) -> &'static str {
        kind::name(match self {
            Kind::Host => kind::HOST,
            Kind::Device => kind::DEVICE,
            Kind::Pinned => kind::PINNED,
        })
    }
}

/// Where a block lies: in one memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// In the host's memory.
    #[default]
    Host,
    /// In the memory of the device with this number.
    Device(u32),
    /// In host memory that is pinned for the device with this number.
    Pinned(u32),
}

impl Place {
    /// By a record's number of the kind ([`poolscope_wire::kind`]) and of the device. What is of no kind that is known
    /// is the host's.
    pub fn of_record(kind: u16, device: u32) -> Place {
        match kind {
            kind::DEVICE => Place::Device(device),
            kind::PINNED => Place::Pinned(device),
            _ => Place::Host,
        }
    }

    /// The kind of memory.
    pub fn kind(self) -> Kind {
        match self {
            Place::Host => Kind::Host,
            Place::Device(_) => Kind::Device,
            Place::Pinned(_) => Kind::Pinned,
        }
    }

    /// The number of the device; none for host memory.
    pub fn device(self) -> Option<u32> {
        match self {
            Place::Host => None,
            Place::Device(device) | Place::Pinned(device) => Some(device),
        }
    }

    /// The memory that it is in.
    pub fn memory(self) -> Memory {
        match self {
            Place::Host => Memory::Host,
            Place::Device(device) => Memory::Device(Some(device)),
            Place::Pinned(device) => Memory::Pinned(Some(device)),
        }
    }

    /// A device's memory in few words: `0`, or `0 pinned`; nothing for the host's.
    pub fn label(self) -> String {
        match self {
            Place::Host => String::new(),
            Place::Device(device) => device.to_string(),
            Place::Pinned(device) => format!("{device} pinned"),
        }
    }
}

impl Memory {
    /// Whether a block that lies there is meant, too.
    pub fn has(self, place: Place) -> bool {
        match (self, place) {
            (Memory::All, _) | (Memory::Host, Place::Host) => true,
            (Memory::Device(wanted), Place::Device(device)) | (Memory::Pinned(wanted), Place::Pinned(device)) => {
                wanted.is_none_or(|number| number == device)
            }
            _ => false,
        }
    }

    /// `of device 0`; nothing for host memory, which is what everybody thinks of.
    pub fn describe(self) -> String {
        match self {
            Memory::Host | Memory::All => String::new(),
            Memory::Device(None) => "of devices".to_owned(),
            Memory::Device(Some(number)) => format!("of device {number}"),
            Memory::Pinned(None) => "of pinned memory".to_owned(),
            Memory::Pinned(Some(number)) => format!("of memory pinned for device {number}"),
        }
    }
}

impl Memory {
    /// `memory of device 0`, `pinned memory`, `host memory`.
    fn name(self) -> String {
        let described = self.describe();
        match self {
            Memory::Host | Memory::All => "host memory".to_owned(),
            Memory::Device(_) => format!("memory {described}"),
            Memory::Pinned(_) => described.trim_start_matches("of ").to_owned(),
        }
    }
}

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
