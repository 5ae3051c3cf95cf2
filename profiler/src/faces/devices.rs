//! The pools of device memory in statistics: every counter of [`DEVICE_COUNTERS`], as text.

use std::fmt::Write as _;

use poolscope_wire::{DEVICE_COUNTERS, Unit};

use crate::model::snapshot::DevicePool;
use crate::words::figures;

const RULE: &str = "------------------------------------------------\n";

/// A section for each pool, in the manner of the statistics of host memory; nothing without any.
pub fn devices_text(devices: &[DevicePool]) -> String {
    let mut text = String::new();
    for pool in devices {
        let memory = pool.place.memory().describe();
        let size = match pool.memory_bytes {
            0 => String::new(),
            bytes => format!(", {}", figures::bytes(bytes as f64)),
        };
        let _ = write!(text, "{RULE}Pool {memory} ({}{size})\n{RULE}", pool.name.trim_end());
        for (counter, value) in DEVICE_COUNTERS.iter().zip(&pool.counters) {
            let human = match counter.unit {
                Unit::Bytes => figures::bytes(*value as f64),
                Unit::Nanoseconds => figures::nanoseconds(*value as f64),
                Unit::Count => String::new(),
            };
            let _ = writeln!(
                text,
                "device {:>9}: {:<22} {value:>16} {human:>10}  {}",
                pool.label(),
                counter.name,
                counter.help
            );
        }
    }
    text
}
