//! Call sites as a person tells them apart, where a machine runs a language.
//!
//! A function of such a language lies at several addresses (interpreted, compiled once, compiled again), and allocates
//! through different functions of its machine. Its stacks then differ where no name does: a table has one row for them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;

use crate::build::language::{Language, Languages};
use crate::build::python;
use crate::model::memory::Place;
use crate::model::profile::{Frame, Held, Location, Profile, Site};

/// What names the functions of a site: of its locations those that count, each the first with its names.
type Key = (Vec<usize>, Place, bool);

/// Makes sites one whose functions are the same, but for those of a machine and of what makes objects for it. They stand
/// where the first of them stood, with its stack. Others stay as they are.
pub(crate) fn merged(mut profile: Profile) -> Profile {
    let locations = Arc::clone(&profile.locations);
    let languages: Vec<Option<Language>> = locations.iter().map(Language::of).collect();
    if languages.iter().all(Option::is_none) {
        return profile;
    }
    let serves = |location: &Location| {
        let module = profile.module(location);
        Languages::that(|language| language.is_served_by(location, module))
    };
    let serves: Vec<Languages> = locations.iter().map(serves).collect();
    let is_library: Vec<bool> = locations.iter().map(python::is_in_library).collect();
    let first = first_with_the_same_names(&locations);
    let key = |site: &Site| -> Option<Key> {
        let known = site.locations.iter().filter(|&&at| at < locations.len());
        let language = known.clone().find_map(|&at| languages[at])?;
        let counts = known.filter(|&&at| !serves[at].has(language)).map(|&at| first[at]);
        let own: Vec<usize> = counts.clone().filter(|&at| !is_library[at]).collect();
        Some((if own.is_empty() { counts.collect() } else { own }, site.place, site.incomplete))
    };
    let sites = one_for_each(std::mem::take(&mut profile.sites), key);
    profile.sites = sites;
    profile
}

/// For each location the first one that has the same functions.
fn first_with_the_same_names<'a>(locations: &'a [Location]) -> Vec<usize> {
    let mut first: HashMap<(Option<usize>, &[Frame]), usize> = HashMap::new();
    let number =
        |(at, location): (usize, &'a Location)| *first.entry((location.module, &location.frames)).or_insert(at);
    locations.iter().enumerate().map(number).collect()
}

/// Sites of one key as one, where the first of them stood; those without a key stay as they are.
pub(super) fn one_for_each<K: Eq + Hash>(sites: Vec<Site>, key: impl Fn(&Site) -> Option<K>) -> Vec<Site> {
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
    use super::*;
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
        let merged = merged(profile);
        let bytes: Vec<f64> = merged.sites.iter().map(|site| site.in_use.bytes).collect();
        assert_eq!(bytes, [15.0, 4.0, 3.0, 2.0, 1.0]);
        assert_eq!(merged.sites[0].held[0].amount.bytes, 15.0, "blocks of one size and thread are counted together");
    }
}
