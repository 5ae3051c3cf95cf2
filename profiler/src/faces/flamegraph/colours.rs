//! Colours of a flamegraph, which say whose a function is.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use inferno::flamegraph::color::{Color, PaletteMap};

use crate::build::plumbing::is_plumbing;
use crate::model::profile::{Frame, Profile};
use crate::model::snapshot::Module;

/// Whose a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    /// The executable's own.
    Program,
    /// A library's.
    Library,
    /// Of a language's library, or a wrapper of `malloc`: what call sites are not named by.
    Plumbing,
    /// Nobody knows its name.
    Unknown,
}

/// The colours as the legend has them.
pub(super) const LEGEND: [(&str, &str); 4] = [
    ("rgb(226,148,90)", "the program's own"),
    ("rgb(118,170,214)", "a library's"),
    ("rgb(190,190,176)", "of a language's library, or a wrapper"),
    ("rgb(216,216,216)", "without a name"),
];

impl Owner {
    fn of(frame: &Frame, module: Option<&Module>, profile: &Profile) -> Owner {
        if frame.is_placeholder() {
            return Owner::Unknown;
        }
        if is_plumbing(frame, module, &profile.naming) {
            return Owner::Plumbing;
        }
        // Profiles of other tools know no modules: all of it is the program's then.
        match module {
            Some(module) if !profile.main.is_empty() && module.path != profile.main => Owner::Library,
            _ => Owner::Program,
        }
    }

    /// Its colour. Neighbours of one owner differ a little, by their names, so that boxes can be told apart.
    fn colour(self, name: &str) -> Color {
        let (r, g, b) = match self {
            Owner::Program => (226, 148, 90),
            Owner::Library => (118, 170, 214),
            Owner::Plumbing => (190, 190, 176),
            Owner::Unknown => (216, 216, 216),
        };
        let hash = name.bytes().fold(7u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
        let shade = |value: u8| value.saturating_sub(12).saturating_add((hash % 25) as u8);
        Color { r: shade(r), g: shade(g), b: shade(b) }
    }
}

/// The colour of each function of a profile, by its name as folded lines have it ([`Profile::path`]). Where functions
/// of several owners have one name, the program's counts, then a library's.
pub(super) fn palette(profile: &Profile) -> PaletteMap {
    let mut owners: HashMap<String, Owner> = HashMap::new();
    let used = profile.sites.iter().flat_map(|site| site.locations.iter());
    let mut seen = vec![false; profile.locations.len()];
    for &at in used {
        let Some(location) = profile.locations.get(at).filter(|_| !std::mem::replace(&mut seen[at], true)) else {
            continue;
        };
        for frame in &location.frames {
            let owner = Owner::of(frame, profile.module(location), profile);
            match owners.entry(frame.name.replace(';', ":")) {
                Entry::Occupied(mut known) => *known.get_mut() = owner.min(*known.get()),
                Entry::Vacant(place) => drop(place.insert(owner)),
            }
        }
    }
    let mut palette = PaletteMap::default();
    for (name, owner) in owners {
        let colour = owner.colour(&name);
        palette.insert(name, colour);
    }
    palette
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing;

    #[test]
    fn the_colour_says_whose_a_function_is() {
        let mut profile = testing::profile(&[("main;alloc::vec::Vec<T>::push", 10.0), ("main;[libx.so+0x12]", 5.0)]);
        profile.main = "/usr/bin/sample".to_owned();
        let palette = palette(&profile);
        let is = |name: &str, owner: Owner| palette.get(name) == Some(owner.colour(name));
        assert!(is("main", Owner::Program) && is("alloc::vec::Vec<T>::push", Owner::Plumbing));
        assert!(is("[libx.so+0x12]", Owner::Unknown));
        let frame = Frame { name: "deflate".to_owned(), ..Frame::default() };
        let own = &profile.modules[0];
        let library = Module { path: "/usr/lib/libz.so.1".to_owned(), ..own.clone() };
        assert_eq!(Owner::of(&frame, Some(&library), &profile), Owner::Library);
        assert_eq!(Owner::of(&frame, Some(own), &profile), Owner::Program);
    }
}
