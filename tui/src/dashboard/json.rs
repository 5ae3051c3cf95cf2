//! The model as JSON: the report of the profiler, and what only two readings can tell.

use color_eyre::eyre::Result;
use serde_json::{Value, json};

use super::model::Model;

/// The report's fields, with `uptime_seconds`, `rates` and `history`.
pub(crate) fn to_json(model: &Model) -> Result<Value> {
    let report = poolscope_profiler::faces::json::to_json(&model.snapshot, &model.whole)?;
    let mut value: Value = serde_json::from_str(&report)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("uptime_seconds".into(), json!(model.uptime.map(|u| u.as_secs_f64())));
        let rates = model.rates.map(|r| {
            json!({
                "allocated_bytes_per_second": r.alloc_bytes,
                "allocations_per_second": r.allocs,
                "samples_per_second": r.samples,
            })
        });
        object.insert("rates".into(), json!(rates));
        object.insert("history".into(), json!(model.history.points()));
    }
    Ok(value)
}
