//! The model as JSON: the report of the profiler, and what only two readings can tell.

use poolscope_profiler::faces::json::ProcessReport;
use poolscope_profiler::findings::Facts;
use serde::Serialize;

use poolscope_profiler::Profile;

use super::model::Model;
use super::model::history::Point;

/// The report's fields, and those of the dashboard.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TopJson<'a> {
    #[serde(flatten)]
    report: ProcessReport<'a>,
    /// Null for a process that had ended when it was first looked at.
    uptime_seconds: Option<f64>,
    /// Null at the first reading.
    rates: Option<RatesJson>,
    /// In order of time.
    history: &'a [Point],
}

/// Between the last two readings.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RatesJson {
    /// By the counters of the classes; by samples where large blocks were allocated or every block is recorded.
    allocated_bytes_per_second: f64,
    allocations_per_second: f64,
    samples_per_second: f64,
}

impl<'a> From<&'a Model> for TopJson<'a> {
    fn from(model: &'a Model) -> Self {
        TopJson::of(model, &model.whole)
    }
}

impl<'a> TopJson<'a> {
    /// The same with the call sites of a part of the profile.
    pub(crate) fn of(model: &'a Model, profile: &'a Profile) -> Self {
        // The last reading may not say where the memory is: the kernel is not asked at each one.
        let facts = Facts { accounting: model.accounting, ..Facts::of(&model.snapshot, Some(&model.whole)) };
        TopJson {
            report: ProcessReport::new(&facts, profile, None),
            uptime_seconds: model.uptime.map(|uptime| uptime.as_secs_f64()),
            rates: model.rates.map(|rates| RatesJson {
                allocated_bytes_per_second: rates.alloc_bytes,
                allocations_per_second: rates.allocs,
                samples_per_second: rates.samples,
            }),
            history: model.history.points(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::model::fixture;

    /// The screen and the JSON have the same of one model, also where the kernel was not asked at the last reading.
    #[test]
    fn where_the_memory_is_stands_in_the_json_as_on_the_screen() {
        let model = fixture::model_with(|snapshot| snapshot.residence = None);
        let json = serde_json::to_value(TopJson::from(&model)).expect("is JSON");
        let accounting = &json["accounting"];
        assert!(model.accounting.memory.is_some());
        assert_eq!(accounting["memory_bytes"].as_u64(), model.accounting.memory);
        assert_eq!(accounting["rss_bytes"].as_u64(), model.accounting.rss);
        let parts: u64 =
            accounting["parts"].as_object().expect("parts").values().filter_map(|part| part.as_u64()).sum();
        assert_eq!(Some(parts), model.accounting.memory, "the parts come to the whole");
    }
}
