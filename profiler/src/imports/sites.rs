//! Sites of a profile that is made of names: equal frames are one location, equal stacks of one memory one site.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::memory::Place;
use crate::model::profile::{Frame, Location, Profile, Site};

/// Sites that are being gathered.
#[derive(Debug, Default)]
pub(super) struct Sites {
    profile: Profile,
    locations: HashMap<Frame, usize>,
    sites: HashMap<(Vec<usize>, Place), usize>,
}

impl Sites {
    /// The number of a location with this one function.
    pub(super) fn location(&mut self, frame: Frame) -> usize {
        let Self { profile, locations, .. } = self;
        *locations.entry(frame).or_insert_with_key(|frame| {
            let at = profile.locations.len();
            // No address is known; reports tell locations apart by it.
            let location = Location { address: at as u64 + 1, module: None, frames: vec![frame.clone()] };
            Arc::make_mut(&mut profile.locations).push(location);
            at
        })
    }

    /// The number of the site of a stack, innermost first.
    pub(super) fn site(&mut self, locations: Vec<usize>, place: Place) -> usize {
        let Self { profile, sites, .. } = self;
        *sites.entry((locations, place)).or_insert_with_key(|(locations, place)| {
            profile.sites.push(Site { locations: locations.as_slice().into(), place: *place, ..Site::default() });
            profile.sites.len() - 1
        })
    }

    /// A site's figures.
    pub(super) fn at(&mut self, site: usize) -> &mut Site {
        &mut self.profile.sites[site]
    }

    /// Goes through all sites, with their numbers.
    pub(super) fn each(&mut self, mut work: impl FnMut(usize, &mut Site)) {
        self.profile.sites.iter_mut().enumerate().for_each(|(at, site)| work(at, site));
    }

    /// The profile, largest in use first.
    pub(super) fn finish(mut self, main: String) -> Profile {
        self.profile.sites.sort_by(|a, b| b.in_use.bytes.total_cmp(&a.in_use.bytes));
        Profile { period_bytes: 1, exact: true, main, ..self.profile }
    }
}
