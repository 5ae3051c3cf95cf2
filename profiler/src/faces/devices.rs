//! The pools of device memory in statistics: every counter of [`DEVICE_COUNTERS`], as text and as JSON.

use std::fmt::Write as _;

use poolscope_wire::{DEVICE_COUNTERS, Unit, kind};
use serde::Serialize;

use crate::model::memory::Memory;
use crate::model::snapshot::DevicePool;
use crate::words::figures;

const RULE: &str = "------------------------------------------------\n";

/// A section for each pool, in the manner of the statistics of host memory; nothing without any.
pub fn devices_text(devices: &[DevicePool]) -> String {
    let mut text = String::new();
    for pool in devices {
        let memory = Memory::of(pool.kind, pool.device).describe();
        let size = match pool.memory_bytes {
            0 => String::new(),
            bytes => format!(", {}", figures::bytes(bytes as f64)),
        };
        let _ = write!(text, "{RULE}Pool {memory} ({}{size})\n{RULE}", pool.name.trim_end());
        for (counter, value) in DEVICE_COUNTERS.iter().zip(&pool.counters) {
            let human = if counter.unit == Unit::Bytes { figures::bytes(*value as f64) } else { String::new() };
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

/// The pools as a list in JSON, each with a field of `counters` for each of [`DEVICE_COUNTERS`].
pub fn devices_json(devices: &[DevicePool]) -> serde_json::Result<String> {
    serde_json::to_string(&devices.iter().map(PoolJson::from).collect::<Vec<_>>())
}

/// What a pool says of itself.
#[derive(Serialize)]
pub(crate) struct PoolJson<'a> {
    device: u32,
    kind: &'static str,
    name: &'a str,
    memory_bytes: u64,
    counters: serde_json::Map<String, serde_json::Value>,
}

impl<'a> From<&'a DevicePool> for PoolJson<'a> {
    fn from(pool: &'a DevicePool) -> Self {
        let counters = DEVICE_COUNTERS.iter().zip(&pool.counters);
        Self {
            device: pool.device,
            kind: kind::name(pool.kind),
            name: &pool.name,
            memory_bytes: pool.memory_bytes,
            counters: counters.map(|(info, value)| (info.name.to_owned(), (*value).into())).collect(),
        }
    }
}
