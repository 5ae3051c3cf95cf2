//! Call sites as a person tells them apart, where a machine runs a language.
//!
//! A function of such a language lies at several addresses (interpreted, compiled once, compiled again), and allocates
//! through different functions of its machine and of libraries. Its stacks then differ where no name does that a call
//! site is known by ([`SiteName`](crate::build::site_name::SiteName)): a table has one row for them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::build::language::{Language, Languages};
use crate::build::plumbing::is_plumbing;
use crate::model::growth::Growth;
use crate::model::profile::{Held, Location, Profile, Site};

/// What tells sites apart for a person, worked out once for each location of a builder's profiles.
#[derive(Debug, Default)]
pub struct ByNames {
    languages: Vec<Option<Language>>,
    /// Of those that are in a stack with functions of a language.
    of: Vec<Option<OfLocation>>,
}

#[derive(Clone, Copy, Debug)]
struct OfLocation {
    /// It allocates for functions of these languages.
    serves: Languages,
    /// A number of its functions, and one of those that are no plumbing; none if all are.
    all: u64,
    own: Option<u64>,
}

impl OfLocation {
    fn of(profile: &Profile, location: &Location) -> Self {
        let module = profile.module(location);
        let number = |is_meant: &dyn Fn(bool) -> bool| {
            let (mut hasher, mut is_any) = (DefaultHasher::new(), false);
            for frame in &location.frames {
                if is_meant(is_plumbing(frame, module, &profile.naming)) {
                    is_any = true;
                    (&frame.name, &frame.file, frame.line).hash(&mut hasher);
                }
            }
            is_any.then(|| hasher.finish())
        };
        Self {
            serves: Languages::that(|language| language.is_served_by(location, module)),
            all: number(&|_| true).unwrap_or(0),
            own: number(&|is_plumbing| !is_plumbing),
        }
    }
}

impl ByNames {
    /// A number that the sites have which no name tells apart; none of a site without functions of such a language.
    ///
    /// Profiles of one builder have the same locations, and more; for others a new one is needed, and where functions
    /// have other names than before.
    pub fn key(&mut self, profile: &Profile, site: &Site) -> Option<u64> {
        self.languages.extend(profile.locations.iter().skip(self.languages.len()).map(Language::of));
        let language = site.locations.iter().find_map(|&at| *self.languages.get(at)?)?;
        self.of.resize(self.languages.len(), None);
        for &at in site.locations.iter() {
            if let (Some(known @ None), Some(location)) = (self.of.get_mut(at), profile.locations.get(at)) {
                *known = Some(OfLocation::of(profile, location));
            }
        }
        let known = site.locations.iter().filter_map(|&at| self.of.get(at)?.as_ref());
        let counts = known.filter(|location| !location.serves.has(language));
        let mut hasher = DefaultHasher::new();
        (site.place, site.incomplete).hash(&mut hasher);
        if counts.clone().any(|location| location.own.is_some()) {
            counts.filter_map(|location| location.own).for_each(|own| own.hash(&mut hasher));
        } else {
            counts.for_each(|location| location.all.hash(&mut hasher));
        }
        Some(hasher.finish())
    }
}

/// Makes sites one that no name tells apart. They stand where the first of them stood, with its stack. Others stay as
/// they are.
pub(crate) fn merged(mut profile: Profile) -> Profile {
    let mut names = ByNames::default();
    let sites = std::mem::take(&mut profile.sites);
    profile.sites = one_for_each(sites, |site| names.key(&profile, site));
    profile
}

/// For each site the row of a table that it is in: those that no name tells apart are in one, where the first stands.
pub(crate) fn rows_of(profile: &Profile) -> Vec<usize> {
    let (mut names, mut index, mut rows) = (ByNames::default(), HashMap::new(), 0);
    let row = |site: &Site| {
        let row = names.key(profile, site).map_or(rows, |key| *index.entry(key).or_insert(rows));
        rows += usize::from(row == rows);
        row
    };
    profile.sites.iter().map(row).collect()
}

/// The rows of a table of sites and how each develops.
pub(crate) fn with_growths(profile: &Profile, growths: &[Growth]) -> Vec<(Site, Growth)> {
    let mut merged: Vec<(Site, Growth)> = Vec::with_capacity(profile.sites.len());
    for (at, (row, site)) in rows_of(profile).into_iter().zip(&profile.sites).enumerate() {
        let growth = growths.get(at).copied().unwrap_or_default();
        match merged.get_mut(row) {
            Some((known, of_known)) => {
                add(known, site.clone());
                of_known.join(&growth);
            }
            None => merged.push((site.clone(), growth)),
        }
    }
    merged
}

/// Sites of one key as one, where the first of them stood; those without a key stay as they are.
pub(super) fn one_for_each<K: Eq + Hash>(sites: Vec<Site>, mut key: impl FnMut(&Site) -> Option<K>) -> Vec<Site> {
    let mut index: HashMap<K, usize> = HashMap::new();
    let mut merged: Vec<Site> = Vec::with_capacity(sites.len());
    for site in sites {
        let known = key(&site).and_then(|key| match index.entry(key) {
            Entry::Occupied(entry) => Some(*entry.get()),
            Entry::Vacant(entry) => {
                entry.insert(merged.len());
                None
            }
        });
        match known {
            Some(at) => add(&mut merged[at], site),
            None => merged.push(site),
        }
    }
    merged
}

/// Adds what a site has to another one.
fn add(known: &mut Site, other: Site) {
    known.in_use += other.in_use;
    known.in_use_variance += other.in_use_variance;
    known.allocated += other.allocated;
    known.peak += other.peak;
    known.oldest_ns = match (known.oldest_ns, other.oldest_ns) {
        (0, some) | (some, 0) => some,
        (a, b) => a.min(b),
    };
    let mut all = [&*known.held, &*other.held].concat();
    all.sort_by_key(|held| (held.size, held.tid));
    let mut held: Vec<Held> = Vec::with_capacity(all.len());
    for next in all {
        match held.last_mut() {
            Some(last) if (last.size, last.tid) == (next.size, next.tid) => last.amount += next.amount,
            _ => held.push(next),
        }
    }
    known.held = held.into();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::growth::Slope;
    use crate::model::testing::{self, profile};

    #[test]
    fn sites_of_a_language_are_one_where_no_name_tells_them_apart() {
        let mut profile = profile(&[
            ("main;eval;g (a.py);f (a.py);list_resize", 10.0),
            ("main;eval;g (a.py);eval;f (a.py);dict_new", 5.0),
            ("main;eval;h (a.py);f (a.py);list_resize", 4.0),
            ("main;eval;g (a.py);f (a.py);gz_open", 3.0),
            ("main;eval;dict_new", 2.0),
            ("main;dict_new", 1.0),
        ]);
        profile.modules[0].path = "/usr/bin/python3.12".to_owned();
        profile.modules.push(testing::module("/usr/lib/libgz.so"));
        testing::name_python(&mut profile);
        let locations = Arc::make_mut(&mut profile.locations);
        locations.iter_mut().find(|location| location.frames[0].name == "gz_open").unwrap().module = Some(1);
        // Compiled again, somewhere else.
        let copy = locations.iter().position(|location| location.frames[0].name == "f (a.py)").unwrap();
        let copied = Location { address: 0x99_0000, ..locations[copy].clone() };
        locations.push(copied);
        let last = profile.locations.len() - 1;
        let of_second = profile.sites[1].locations.iter().map(|&at| if at == copy { last } else { at });
        profile.sites[1].locations = of_second.collect();
        let growth = |per_minute| Growth { slope: Slope::new(per_minute, 1.0), ..Growth::default() };
        let rows = with_growths(&profile, &[growth(30.0), growth(12.0), growth(1.0)]);
        let of_rows: Vec<(f64, f64)> =
            rows.iter().map(|(site, growth)| (site.in_use.bytes, growth.slope.per_minute())).collect();
        assert_eq!(of_rows, [(15.0, 42.0), (4.0, 1.0), (3.0, 0.0), (2.0, 0.0), (1.0, 0.0)]);
        let merged = merged(profile);
        let bytes: Vec<f64> = merged.sites.iter().map(|site| site.in_use.bytes).collect();
        assert_eq!(bytes, [15.0, 4.0, 3.0, 2.0, 1.0]);
        assert_eq!(merged.sites[0].held[0].amount.bytes, 15.0, "blocks of one size and thread are counted together");
    }
}
