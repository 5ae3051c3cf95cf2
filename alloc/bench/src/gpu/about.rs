//! The device that the figures come from.

use serde::Serialize;

/// The whole run: what every report is made from.
pub type Results = poolscope_bench::results::Results<About>;

/// What is known of the device's pool besides its rows.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    pub device: Device,
    /// The name of the pool, if it takes part.
    pub ours: Option<String>,
}

/// Where it ran.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    pub device: String,
    /// Bytes.
    pub memory: u64,
    /// The version of CUDA that its driver is for, as `1000 * major + 10 * minor`.
    pub cuda: Option<u32>,
}

impl std::fmt::Display for About {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Device { device, memory, cuda } = &self.device;
        write!(f, "{device}, {} GiB", memory >> 30)?;
        cuda.map_or(Ok(()), |cuda| write!(f, ", driver for CUDA {}.{}", cuda / 1000, cuda % 1000 / 10))
    }
}

impl About {
    /// Whether times are this machine's.
    pub fn is_card(&self) -> bool {
        self.device.cuda.is_some()
    }
}

/// Hand-picked names of the figures of phases, in their order.
pub const PHASES: [(&str, &str); 3] =
    [("baseline", "baseline"), ("after_50", "after 50 rounds"), ("after_150", "after 150 rounds")];
