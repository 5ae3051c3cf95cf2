//! Call sites of several processes, by their names.

use std::collections::HashMap;

use poolscope_profiler::model::snapshot::Amount;
use serde::Serialize;

use super::processes::ProcessRow;
use crate::dashboard::model::site::{ShortNames, text_of};

/// Call sites of one name, of all processes together.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NamedSite {
    pub(crate) function: String,
    /// File and line.
    pub(crate) place: Option<String>,
    /// How many processes have it.
    pub(crate) processes: usize,
    pub(crate) in_use_bytes: f64,
    pub(crate) in_use_objects: f64,
    pub(crate) samples: u64,
}

/// Those of some processes, the largest first. Whose segment can't be read has none.
pub(super) fn named_sites(processes: &[ProcessRow]) -> Vec<NamedSite> {
    let mut sites: HashMap<(String, Option<String>), (usize, Amount)> = HashMap::new();
    for row in processes {
        let Some(profile) = row.profile() else { continue };
        let mut of_process: HashMap<(String, Option<String>), Amount> = HashMap::new();
        let (memory, mut names) = (profile.usual_memory(), ShortNames::default());
        for site in profile.sites.iter().filter(|site| memory.has(site.place) && site.in_use.samples > 0) {
            let text = text_of(&profile, site, &mut names);
            let key = (text.function.to_string(), text.place.map(|place| place.to_string()));
            *of_process.entry(key).or_default() += site.in_use;
        }
        for (key, amount) in of_process {
            let (processes, sum) = sites.entry(key).or_default();
            *processes += 1;
            *sum += amount;
        }
    }
    let named = |((function, place), (processes, amount)): (_, (usize, Amount))| NamedSite {
        function,
        place,
        processes,
        in_use_bytes: amount.bytes,
        in_use_objects: amount.objects,
        samples: amount.samples,
    };
    let mut sites: Vec<NamedSite> = sites.into_iter().map(named).collect();
    sites.sort_by(|a, b| b.in_use_bytes.total_cmp(&a.in_use_bytes).then_with(|| a.function.cmp(&b.function)));
    sites
}
