//! What a call site is called, in every table and report: the function that asked for memory, where that is,
//! and its callers.
//!
//! Functions of a language's library ([`plumbing`](crate::build::plumbing)) are passed over, at the innermost end and
//! between callers; so are those of a machine that runs a language, and of libraries that make objects for it, where the
//! functions are that it runs ([`Language`]). Where nothing else is left, the library of such a language names the site.

use std::fmt::Write as _;

use crate::build::language::Language;
use crate::build::plumbing::is_plumbing;
use crate::model::profile::{Frame, Location, Profile, Site};
use crate::symbols::function_name::{short, without_file, without_middle};

/// A caller's path is left as it is up to here.
const CALLER_COLUMNS: usize = 40;

/// The name of a call site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteName<'a> {
    /// The function that asked for memory: the innermost one that is no plumbing, or the innermost of all if all are.
    pub function: &'a Frame,
    /// Its place among the functions of the site ([`Profile::frames`]), innermost first.
    pub depth: usize,
    /// Those that called it, nearest first, without plumbing.
    pub callers: Vec<&'a Frame>,
}

impl<'a> SiteName<'a> {
    /// The name of a site; none for one without frames.
    pub fn of(profile: &'a Profile, site: &Site) -> Option<Self> {
        let locations = site.locations.iter().filter_map(|&index| profile.locations.get(index));
        let frames = locations.flat_map(|location| location.frames.iter().map(move |frame| (frame, location)));
        let language = Language::of_site(profile, site);
        let serves =
            |location: &Location| language.is_some_and(|it| it.is_served_by(location, profile.module(location)));
        let is_passed_over = |(frame, location): (&Frame, &Location)| {
            serves(location) || is_plumbing(frame, profile.module(location), &profile.naming)
        };
        let is_only_library = language.is_some() && frames.clone().all(is_passed_over);
        let is_left_out = |of: (&Frame, &Location)| if is_only_library { serves(of.1) } else { is_passed_over(of) };
        let asked = frames.clone().enumerate().filter(|&(_, frame)| !is_left_out(frame));
        let mut asked = asked.map(|(depth, (frame, _))| (depth, frame));
        let (depth, function) = asked.next().or_else(|| Some((0, frames.clone().next()?.0)))?;
        Some(Self { function, depth, callers: asked.map(|(_, frame)| frame).collect() })
    }

    /// `store::put  store.rs:87 < server::handle < main`, with so many callers. Of long paths of callers the middle is
    /// left out.
    pub fn text(&self, callers: usize) -> String {
        let mut text = short(without_file(self.function));
        // A function of Python's of which no line is known has its file in its name.
        if let Some(place) = self.function.short_source().filter(|place| !text.ends_with(&format!("({place})"))) {
            let _ = write!(text, "  {place}");
        }
        for caller in self.callers.iter().take(callers) {
            let _ = write!(text, " < {}", without_middle(short(&caller.name), CALLER_COLUMNS));
        }
        text
    }
}

/// The same for a table, also of a site without frames.
pub(crate) fn site_text(profile: &Profile, site: &Site, callers: usize) -> String {
    SiteName::of(profile, site).map_or_else(|| "[no frames]".to_owned(), |name| name.text(callers))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::naming::Naming;
    use crate::model::testing::{self, profile};

    #[test]
    fn a_site_is_named_by_who_asked_for_memory() {
        let profile = profile(&[
            ("_start;main;std::thread::spawn;app::serve;alloc::vec::Vec<T>::push;alloc::raw_vec::grow", 1.0),
            ("alloc::vec::Vec<T>::push;alloc::raw_vec::grow", 1.0),
        ]);
        let name = SiteName::of(&profile, &profile.sites[0]).expect("has frames");
        assert_eq!((name.function.name.as_str(), name.depth), ("app::serve", 2));
        assert_eq!(name.text(9), "app::serve  app::serve.c:3 < main");
        assert_eq!(site_text(&profile, &profile.sites[1], 9), "alloc::raw_vec::grow  alloc::raw_vec::grow.c:1");
        assert_eq!(site_text(&profile, &Site::default(), 9), "[no frames]");
    }

    #[test]
    fn a_site_is_named_by_functions_of_python_and_not_by_their_interpreter() {
        let mut profile = profile(&[
            ("main;_PyEval_EvalFrameDefault;work (app.py);_PyEval_EvalFrameDefault;load (app.py);_PyList_New", 1.0),
            ("main;_PyEval_EvalFrameDefault;PyList_New", 1.0),
        ]);
        profile.modules[0].path = "/usr/bin/python3.13".to_owned();
        testing::name_python(&mut profile);
        assert_eq!(site_text(&profile, &profile.sites[0], 9), "load (app.py) < work (app.py)");
        assert_eq!(
            site_text(&profile, &profile.sites[1], 1),
            "PyList_New  PyList_New.c:6 < _PyEval_EvalFrameDefault",
            "where no function of Python's is"
        );
    }

    #[test]
    fn what_a_person_calls_plumbing_names_no_site() {
        let mut profile = profile(&[("main;app::serve;app::mem::tensor;app::mem::aligned", 1.0)]);
        assert_eq!(site_text(&profile, &profile.sites[0], 0), "app::mem::aligned  app::mem::aligned.c:1");
        let mut naming = Naming::default();
        naming.add("tensor\nfn:::aligned$").expect("are rules");
        profile.naming = Arc::new(naming);
        assert_eq!(site_text(&profile, &profile.sites[0], 9), "app::serve  app::serve.c:3 < main");
        // If nothing else is left, the innermost names it.
        let mut naming = Naming::default();
        naming.add("fn:*a*").expect("is a rule");
        profile.naming = Arc::new(naming);
        assert_eq!(site_text(&profile, &profile.sites[0], 9), "app::mem::aligned  app::mem::aligned.c:1");
    }
}
