//! Two profiles compared, call path by call path.
//!
//! Paths are matched by the names of their functions, not by addresses: those of two processes, or of two builds, are
//! never the same. So two lines of one function that allocate count as one path here.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::memory::Place;
use crate::model::profile::{Held, Location, Profile, Site, Totals};
use crate::model::snapshot::{Amount, Module};

/// Two profiles, side by side.
#[derive(Debug)]
pub struct Difference<'a> {
    /// The earlier one, or the base.
    pub before: &'a Profile,
    /// The later one.
    pub after: &'a Profile,
    /// Every path that is in one of them.
    pub paths: Vec<PathDifference<'a>>,
}

/// One call path in two profiles.
#[derive(Debug)]
pub struct PathDifference<'a> {
    /// The sites before; those of several lines of one function are several.
    pub before: Vec<&'a Site>,
    /// The sites after.
    pub after: Vec<&'a Site>,
    /// The functions, outermost first, joined by semicolons.
    pub path: String,
}

/// The figures of some sites.
pub(crate) fn totals(sites: &[&Site]) -> Totals {
    let mut totals = Totals::default();
    for site in sites {
        totals.in_use += site.in_use;
        totals.allocated += site.allocated;
    }
    totals
}

impl<'a> Difference<'a> {
    /// Matches the paths of two profiles.
    pub fn new(before: &'a Profile, after: &'a Profile) -> Self {
        let mut paths: BTreeMap<(String, Place), PathDifference<'a>> = BTreeMap::new();
        for (profile, is_after) in [(before, false), (after, true)] {
            for site in &profile.sites {
                let path = profile.path(site);
                let entry = paths.entry((path.clone(), site.place)).or_insert_with(|| PathDifference {
                    before: Vec::new(),
                    after: Vec::new(),
                    path,
                });
                if is_after { entry.after.push(site) } else { entry.before.push(site) }
            }
        }
        Self { before, after, paths: paths.into_values().collect() }
    }

    /// What came after less what was before, as a profile whose figures may be negative.
    ///
    /// Its addresses, and its mappings, are those of the later profile where it has the path, else those of the
    /// earlier.
    pub fn to_profile(&self) -> Profile {
        let (before, after) = (self.before, self.after);
        let mut merged = Merged::new(before, after);
        let mut sites: Vec<Site> = self.paths.iter().map(|path| merged.site(path)).collect();
        sites.retain(|site| has_figures(&site.in_use) || has_figures(&site.allocated) || !site.held.is_empty());
        sites.sort_by(|a, b| b.in_use.bytes.abs().total_cmp(&a.in_use.bytes.abs()));
        let named = |profile: &Profile, word: &str| {
            let of = profile.comments.first().map_or("a profile without a name", String::as_str);
            format!("{word}: {of}")
        };
        Profile {
            period_bytes: after.period_bytes,
            exact: before.exact && after.exact,
            time_realtime_ns: after.time_realtime_ns,
            duration_ns: after.time_realtime_ns.saturating_sub(before.time_realtime_ns),
            comments: vec![
                "a difference: figures may be negative".to_owned(),
                named(before, "before"),
                named(after, "after"),
            ],
            thread_names: merged.thread_names,
            peak: None,
            device_peaks: Vec::new(),
            naming: Arc::clone(&after.naming),
            main: after.main.clone(),
            modules: merged.modules,
            locations: Arc::new(merged.locations),
            sites,
        }
    }
}

fn has_figures(amount: &Amount) -> bool {
    amount.bytes != 0.0 || amount.objects != 0.0
}

fn less(after: Amount, before: Amount) -> Amount {
    Amount {
        objects: after.objects - before.objects,
        bytes: after.bytes - before.bytes,
        samples: after.samples.saturating_add(before.samples),
    }
}

/// The locations of two profiles in one list: those of the later one first.
struct Merged {
    modules: Vec<Module>,
    locations: Vec<Location>,
    /// Where the locations of the earlier profile begin.
    before_from: usize,
    thread_names: BTreeMap<u32, String>,
}

impl Merged {
    fn new(before: &Profile, after: &Profile) -> Self {
        let mut modules = after.modules.clone();
        let places: Vec<usize> = before
            .modules
            .iter()
            .map(|module| {
                let same =
                    |known: &Module| (known.start, known.end, &known.path) == (module.start, module.end, &module.path);
                modules.iter().position(same).unwrap_or_else(|| {
                    modules.push(module.clone());
                    modules.len() - 1
                })
            })
            .collect();
        let mut locations = Vec::clone(&after.locations);
        let moved = |location: &Location| Location {
            module: location.module.and_then(|module| places.get(module).copied()),
            ..location.clone()
        };
        locations.extend(before.locations.iter().map(moved));
        let mut thread_names = before.thread_names.clone();
        thread_names.extend(after.thread_names.clone());
        Self { modules, locations, before_from: after.locations.len(), thread_names }
    }

    fn site(&mut self, path: &PathDifference<'_>) -> Site {
        let (before, after) = (totals(&path.before), totals(&path.after));
        let (shown, from) = match (path.after.first(), path.before.first()) {
            (Some(site), _) => (*site, 0),
            (None, Some(site)) => (*site, self.before_from),
            (None, None) => return Site::default(),
        };
        let mut held: BTreeMap<(u64, u32), Amount> = BTreeMap::new();
        for part in path.after.iter().flat_map(|site| site.held.iter()) {
            *held.entry((part.size, part.tid)).or_default() += part.amount;
        }
        for part in path.before.iter().flat_map(|site| site.held.iter()) {
            let known = held.entry((part.size, part.tid)).or_default();
            *known = less(*known, part.amount);
        }
        let held = held.into_iter().filter(|(_, amount)| has_figures(amount));
        Site {
            locations: shown.locations.iter().map(|location| location + from).collect(),
            place: shown.place,
            incomplete: shown.incomplete,
            allocated: less(after.allocated, before.allocated),
            in_use: less(after.in_use, before.in_use),
            // At most: blocks that are in both are no guess.
            in_use_variance: path.after.iter().chain(&path.before).map(|site| site.in_use_variance).sum(),
            peak: Amount::default(),
            oldest_ns: 0,
            held: held.map(|((size, tid), amount)| Held { size, tid, amount }).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::profile;

    #[test]
    fn paths_are_matched_by_name_and_what_is_gone_is_negative() {
        let before = profile(&[("main;old", 100.0), ("main;kept", 50.0)]);
        let after = profile(&[("main;kept", 80.0), ("main;new", 20.0)]);
        let difference = Difference::new(&before, &after);
        let profile = difference.to_profile();
        let figures: Vec<(String, f64, f64)> =
            profile.sites.iter().map(|site| (profile.path(site), site.in_use.bytes, site.allocated.bytes)).collect();
        assert_eq!(
            figures,
            [
                ("main;old".to_owned(), -100.0, -200.0),
                ("main;kept".to_owned(), 30.0, 60.0),
                ("main;new".to_owned(), 20.0, 40.0)
            ]
        );
        assert_eq!(profile.sites[0].held[0].amount.objects, -10.0);
    }

    #[test]
    fn a_profile_less_itself_is_empty() {
        let one = profile(&[("main;a", 100.0), ("main;b", 7.0)]);
        assert!(Difference::new(&one, &one).to_profile().sites.is_empty());
    }

    #[test]
    fn lines_of_one_function_are_one_path() {
        let mut before = profile(&[("main;a", 10.0), ("main;a", 20.0)]);
        before.sites[1].locations = before.sites[0].locations.clone();
        let after = profile(&[("main;a", 45.0)]);
        let difference = Difference::new(&before, &after).to_profile();
        assert_eq!(difference.sites.len(), 1);
        assert_eq!(difference.sites[0].in_use.bytes, 15.0);
    }
}
