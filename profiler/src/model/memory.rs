//! Which memory a figure is of: host memory, that of a device, or host memory that is pinned for one.
//!
//! A process may have all of them, and their bytes are never added up: a picture or a table is of one.

use poolscope_wire::kind;

/// Which memory is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
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
#[cfg_attr(feature = "reading", derive(serde::Serialize, serde::Deserialize))]
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

    /// `memory of device 0`, `pinned memory`, `host memory`.
    pub fn name(self) -> String {
        let described = self.describe();
        match self {
            Memory::Host | Memory::All => "host memory".to_owned(),
            Memory::Device(_) => format!("memory {described}"),
            Memory::Pinned(_) => described.trim_start_matches("of ").to_owned(),
        }
    }
}
