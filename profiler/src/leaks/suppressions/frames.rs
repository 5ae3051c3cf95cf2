//! A stack, as rules look at it.

use crate::model::profile::{Frame, Profile, Site};

/// A function and where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) frame: &'a Frame,
    /// File name of the module.
    pub(super) module: &'a str,
    /// Its path.
    pub(super) path: &'a str,
}

/// The calls of a site, innermost first.
pub(super) fn calls<'a>(profile: &'a Profile, site: &Site) -> Vec<Call<'a>> {
    let locations = site.locations.iter().filter_map(|&index| profile.locations.get(index));
    let calls = locations.flat_map(|location| {
        let module = profile.module(location);
        let (module, path) = module.map_or(("", ""), |module| (module.name(), module.path.as_str()));
        location.frames.iter().map(move |frame| Call { frame, module, path })
    });
    calls.collect()
}
