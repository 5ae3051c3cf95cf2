//! The pools of device memory as JSON.

use poolscope_wire::DEVICE_COUNTERS;
use serde::Serialize;

use crate::model::snapshot::DevicePool;

/// The pools as a list in JSON, each with a field of `counters` for each of [`DEVICE_COUNTERS`].
pub fn devices_json(devices: &[DevicePool]) -> serde_json::Result<String> {
    serde_json::to_string(&devices.iter().map(PoolJson::from).collect::<Vec<_>>())
}

/// What a pool says of itself.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct PoolJson<'a> {
    device: u32,
    kind: &'static str,
    name: &'a str,
    memory_bytes: u64,
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::schema::device_counters"))]
    counters: serde_json::Map<String, serde_json::Value>,
}

impl<'a> From<&'a DevicePool> for PoolJson<'a> {
    fn from(pool: &'a DevicePool) -> Self {
        let counters = DEVICE_COUNTERS.iter().zip(&pool.counters);
        Self {
            device: pool.place.device().unwrap_or(0),
            kind: pool.place.kind().name(),
            name: &pool.name,
            memory_bytes: pool.memory_bytes,
            counters: counters.map(|(info, value)| (info.name.to_owned(), (*value).into())).collect(),
        }
    }
}
