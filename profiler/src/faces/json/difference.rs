//! Two profiles compared, as JSON.
//!
//! Field names are stable, as in [`json`](crate::faces::json). `sites` has each call path that changed in any figure,
//! the largest change in bytes in use first; `function` and `frames` are as there.

use serde::Serialize;

use crate::faces::difference::{rows, shown_site};
use crate::faces::json::{AmountJson, StackJson};
use crate::model::difference::Difference;
use crate::model::profile::{Metric, Totals};

/// The version of the JSON, in its field `version`.
const JSON_VERSION: u32 = 2;

/// Both profiles' figures, path by path.
pub fn difference_json(difference: &Difference<'_>) -> serde_json::Result<String> {
    let rows = rows(difference, Metric::InUseBytes);
    let changed = rows.iter().filter(|row| Metric::ALL.iter().any(|&metric| row.change(metric) != 0.0));
    let json = DifferenceJson {
        version: JSON_VERSION,
        before: FiguresJson::new(&difference.before.totals()),
        after: FiguresJson::new(&difference.after.totals()),
        sites: changed
            .map(|row| SiteJson {
                before: FiguresJson::new(&row.before),
                after: FiguresJson::new(&row.after),
                stack: shown_site(difference, row.path).map(|(profile, site)| StackJson::new(profile, site)),
            })
            .collect(),
    };
    serde_json::to_string_pretty(&json)
}

/// What is written of two profiles.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DifferenceJson<'a> {
    version: u32,
    before: FiguresJson,
    after: FiguresJson,
    sites: Vec<SiteJson<'a>>,
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct FiguresJson {
    in_use: AmountJson,
    allocated: AmountJson,
}

impl FiguresJson {
    fn new(totals: &Totals) -> Self {
        Self { in_use: totals.in_use.into(), allocated: totals.allocated.into() }
    }
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct SiteJson<'a> {
    before: FiguresJson,
    after: FiguresJson,
    #[serde(flatten)]
    stack: Option<StackJson<'a>>,
}
