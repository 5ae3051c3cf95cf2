//! A call site as a row: its name, its key across readings, and the text that a filter looks through.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::by_place::ByPlace;
use crate::words::{file_name, printable};
use poolscope_profiler::build::by_names::ByNames;
use poolscope_profiler::build::language::{Language, Languages};
use poolscope_profiler::build::plumbing::is_plumbing;
use poolscope_profiler::model::growth::{Growth, SERIES, Slope};
use poolscope_profiler::model::naming::Naming;
use poolscope_profiler::model::profile::{Frame, Location, Metric, Profile, Site};
use poolscope_profiler::model::snapshot::Amount;
use poolscope_profiler::symbols::function_name::{short, without_file};

/// The name of a call site; the same for every reading, so it is made once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SiteText {
    /// The function that asked for memory: the innermost one that is no plumbing of a language's library.
    pub(crate) function: Arc<str>,
    /// Its place in the stack, innermost first.
    pub(crate) frame: usize,
    /// Its file and line, the file without its folders.
    pub(crate) place: Option<Arc<str>>,
    /// Its callers, nearest first, as many as a line may have room for.
    pub(crate) callers: Vec<Arc<str>>,
}

/// A call site with its figures.
#[derive(Clone, Debug)]
pub(crate) struct SiteRow {
    /// The same stack has the same key in every reading.
    pub(crate) key: u64,
    /// Index into [`Profile::sites`].
    pub(crate) index: usize,
    /// Its text.
    pub(crate) text: Arc<SiteText>,
    /// Held now.
    pub(crate) in_use: Amount,
    /// The variance of its bytes, bytes squared.
    pub(crate) in_use_variance: f64,
    /// Ever allocated.
    pub(crate) allocated: Amount,
    /// Bytes allocated per second, over the last ten seconds or so.
    pub(crate) rate: Option<f32>,
    /// How what it holds develops; none if that is not followed.
    pub(crate) growth: Option<Trend>,
    /// When the oldest sample that it holds was allocated: nanoseconds of `CLOCK_MONOTONIC`, 0 if there is none.
    pub(crate) oldest_ns: u64,
    /// How its figures differ from those that it is compared with, indexed by [`Metric`]; none if it is not compared.
    pub(crate) change: Option<Box<[f64; 4]>>,
    /// The same for those that no name tells apart ([`ByNames`]); 0 if only its stack says which it is.
    pub(crate) names: u64,
    /// Keys of the other call sites that are in the row, of which this is the largest.
    pub(crate) others: Box<[u64]>,
}

/// How what a call site holds develops, as a row shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trend {
    pub(crate) slope: Slope,
    /// What it held at the moments of [`Growth::series`], in parts of the most: 255 is that, and 0 is nothing.
    pub(crate) heights: [u8; SERIES],
    /// The most, in bytes.
    pub(crate) most: f32,
}

impl Trend {
    pub(crate) fn of(growth: &Growth) -> Trend {
        Trend::new(growth.slope, growth.series)
    }

    fn new(slope: Slope, series: [f32; SERIES]) -> Trend {
        let most = series.iter().copied().fold(0.0f32, f32::max);
        let height = |bytes: f32| if most > 0.0 { (bytes / most * 255.0).round() as u8 } else { 0 };
        Trend { slope, heights: series.map(height), most }
    }

    /// That of what both hold.
    pub(crate) fn and(self, other: Trend) -> Trend {
        let bytes = |trend: &Trend, at: usize| f32::from(trend.heights[at]) / 255.0 * trend.most;
        let series = std::array::from_fn(|at| bytes(&self, at) + bytes(&other, at));
        Trend::new(self.slope.and(other.slope), series)
    }
}

impl SiteRow {
    /// The names of its exact estimates.
    pub(crate) const FIELDS: &[&str] = &[
        "in_use_bytes",
        "in_use_objects",
        "allocated_bytes",
        "allocated_objects",
        "samples",
        "growth_bytes_per_minute",
        "growth_error_bytes_per_minute",
        "function",
        "file",
        "label",
    ];

    /// Its exact estimates, in the order of [`Self::FIELDS`]; of the profile that it is a row of.
    pub(crate) fn record(&self, profile: &Profile) -> Vec<String> {
        let slope = self.growth.map(|growth| growth.slope).unwrap_or_default();
        let figures = [self.in_use.bytes, self.in_use.objects, self.allocated.bytes, self.allocated.objects];
        let mut out: Vec<String> = figures.iter().map(|figure| format!("{figure:.0}")).collect();
        out.push(self.allocated.samples.to_string());
        out.extend([slope.per_minute(), slope.error()].map(|figure| format!("{figure:.0}")));
        out.push(self.text.function.to_string());
        out.push(self.text.place.as_deref().unwrap_or_default().to_owned());
        out.push(profile.sites.get(self.index).and_then(|site| profile.label(site)).map(printable).unwrap_or_default());
        out
    }

    /// Whether the call site of a key is in the row.
    pub(crate) fn has(&self, key: u64) -> bool {
        self.key == key || self.others.contains(&key)
    }

    /// Its figures, indexed by [`Metric`].
    pub(crate) fn figures(&self) -> [f64; 4] {
        let (in_use, allocated) = (&self.in_use, &self.allocated);
        [in_use.bytes, in_use.objects, allocated.bytes, allocated.objects].map(|figure| figure.max(0.0))
    }

    /// Bytes that were allocated and freed again.
    pub(crate) fn freed(&self) -> f64 {
        (self.allocated.bytes - self.in_use.bytes).max(0.0)
    }

    /// How what it holds differs in bytes, if it is compared.
    pub(crate) fn changed(&self) -> Option<f64> {
        self.change.as_ref().map(|change| change[Metric::InUseBytes as usize])
    }

    /// It grows: by more than three standard errors.
    pub(crate) fn grows(&self) -> bool {
        self.growth.is_some_and(|growth| growth.slope.grows())
    }

    /// Bytes a minute, if that is worth showing.
    pub(crate) fn clear_slope(&self) -> Option<f64> {
        self.growth.map(|growth| growth.slope).filter(|slope| slope.is_clear()).map(|slope| slope.per_minute())
    }
}

/// A stack's frames with what is inlined, innermost first.
pub(crate) fn frames_of<'a>(profile: &'a Profile, site: &'a Site) -> impl DoubleEndedIterator<Item = FrameText<'a>> {
    let mut out = Vec::with_capacity(site.locations.len());
    for &location in site.locations.iter() {
        let Some(location) = profile.locations.get(location) else { continue };
        let module = location.module.and_then(|m| profile.modules.get(m)).map(|m| m.path.as_str());
        for frame in &location.frames {
            out.push(FrameText { name: printable(&frame.name), frame, module });
        }
    }
    out.into_iter()
}

/// One frame of a stack.
pub(crate) struct FrameText<'a> {
    /// Function, or module and offset if no symbol is known.
    pub(crate) name: String,
    /// What the symbols say about it.
    pub(crate) frame: &'a Frame,
    /// The file of its module.
    pub(crate) module: Option<&'a str>,
}

impl FrameText<'_> {
    /// The whole path and line, or the module when there is none.
    pub(crate) fn place(&self) -> String {
        let source = self.frame.source().map(|source| printable(&source));
        source.or(self.module.map(|module| printable(file_name(module)))).unwrap_or_default()
    }
}

/// Callers that a text has at most: no line has room for more.
const CALLERS: usize = 6;

/// What functions are called in tables, found once for each location.
#[derive(Debug, Default)]
pub(crate) struct ShortNames {
    of: Vec<Option<OfLocation>>,
}

#[derive(Clone, Debug, Default)]
struct OfLocation {
    /// Innermost first.
    names: Box<[ShortName]>,
    /// A function of a language that a machine runs.
    language: Option<Language>,
    /// It allocates for functions of these languages.
    serves: Languages,
}

#[derive(Clone, Debug)]
struct ShortName {
    name: Arc<str>,
    /// The same where its place stands beside it.
    at_its_place: Arc<str>,
    /// Its file and line.
    place: Option<Arc<str>>,
    /// It allocates on behalf of its caller.
    is_plumbing: bool,
}

impl ShortNames {
    fn of_location(&mut self, profile: &Profile, at: usize) -> &OfLocation {
        if self.of.len() <= at {
            self.of.resize(profile.locations.len().max(at + 1), None);
        }
        self.of[at].get_or_insert_with(|| {
            let Some(location) = profile.locations.get(at) else { return OfLocation::default() };
            let (module, language) = (profile.module(location), Language::of(location));
            let name = |frame: &Frame| {
                // Python's functions have the file in their names.
                let place = frame.short_source().filter(|_| language != Some(Language::Python) || frame.line.is_some());
                let name = Arc::from(short(&frame.name));
                let alone = without_file(frame);
                let at_its_place = if alone == frame.name { Arc::clone(&name) } else { short(alone).into() };
                let is_plumbing = is_plumbing(frame, module, &profile.naming);
                ShortName { name, at_its_place, place: place.map(Arc::from), is_plumbing }
            };
            OfLocation {
                names: location.frames.iter().map(name).collect(),
                language,
                serves: Languages::that(|language| language.is_served_by(location, module)),
            }
        })
    }
}

/// The text of a site, as [`SiteName`](poolscope_profiler::build::site_name::SiteName) has it.
pub(crate) fn text_of(profile: &Profile, site: &Site, names: &mut ShortNames) -> SiteText {
    let mut text = SiteText { function: "(no stack)".into(), ..SiteText::default() };
    let (mut is_named, mut depth) = (false, 0);
    let language = site.locations.iter().find_map(|&at| names.of_location(profile, at).language);
    // Where nothing but the library of such a language is left, that names the site.
    let is_left = language.is_none_or(|language| {
        site.locations.iter().any(|&at| {
            let location = names.of_location(profile, at);
            !location.serves.has(language) && location.names.iter().any(|name| !name.is_plumbing)
        })
    });
    for &at in site.locations.iter() {
        let location = names.of_location(profile, at);
        let serves = language.is_some_and(|language| location.serves.has(language));
        for name in &location.names {
            let is_passed_over = name.is_plumbing && is_left || serves;
            // All of them may be plumbing: the innermost it is, then.
            if depth == 0 || !is_passed_over && !is_named {
                (text.function, text.frame, text.place) = (Arc::clone(&name.at_its_place), depth, name.place.clone());
                is_named = !is_passed_over;
            } else if !is_passed_over && text.callers.len() < CALLERS {
                text.callers.push(Arc::clone(&name.name));
            }
            depth += 1;
        }
    }
    text.callers.shrink_to_fit();
    text
}

/// A key that is the same for the same stack in every reading.
pub(crate) fn key_of(profile: &Profile, site: &Site) -> u64 {
    let mut hasher = DefaultHasher::new();
    (site.place, site.incomplete).hash(&mut hasher);
    for &location in site.locations.iter() {
        profile.locations.get(location).map(|l| l.address).hash(&mut hasher);
    }
    hasher.finish()
}

/// Makes rows and remembers, from reading to reading, the text and the totals of each stack.
#[derive(Debug, Default)]
pub(crate) struct SiteRows {
    known: Vec<Known>,
    /// The place in `known` of a stack by where its locations lie: readings of one builder share them.
    by_place: ByPlace<u32>,
    /// The same by its key: those of another builder, or of one that began anew, lie elsewhere.
    by_key: HashMap<u64, u32>,
    /// What the names are of: other ones give other texts.
    named: Option<(Arc<Vec<Location>>, Arc<Naming>)>,
    /// The last profile had other names than the one before.
    pub(crate) renamed: bool,
    names: ShortNames,
    by_names: ByNames,
}

/// What is kept of a stack.
#[derive(Clone, Debug)]
struct Known {
    key: u64,
    /// As long as this is kept, nothing else lies there.
    locations: Arc<[usize]>,
    text: Arc<SiteText>,
    /// As in a row.
    names: u64,
    /// Bytes that it had allocated.
    allocated: f64,
    rate: Option<f64>,
}

/// Seconds in which a rate forgets most of what was: that of a second is one sample or none.
const RATE_SECONDS: f64 = 10.0;

/// So many stacks that are gone are kept beside those that there are.
const GONE_MAX: usize = 1024;

impl SiteRows {
    /// The rows of a profile, in its order. `seconds` since the reading before, if there was one.
    pub(crate) fn next(&mut self, profile: &Profile, seconds: Option<f64>) -> Vec<SiteRow> {
        self.renamed = !self.has_the_names_of(profile);
        if self.renamed {
            self.known.iter_mut().for_each(|known| known.text = Arc::default());
            (self.names, self.by_names) = (ShortNames::default(), ByNames::default());
        }
        self.named = Some((Arc::clone(&profile.locations), Arc::clone(&profile.naming)));
        if self.known.len() > profile.sites.len() * 2 + GONE_MAX {
            self.forget_all_but(profile);
        }
        let share = seconds.map(|seconds| 1.0 - (-seconds / RATE_SECONDS).exp());
        let row = |(index, site): (usize, &Site)| {
            let known = self.known(profile, site);
            if let (Some(seconds), Some(share)) = (seconds, share) {
                let now = (site.allocated.bytes - known.allocated).max(0.0) / seconds;
                known.rate = Some(known.rate.map_or(now, |rate| rate + share * (now - rate)));
            }
            known.allocated = site.allocated.bytes;
            SiteRow {
                key: known.key,
                index,
                text: Arc::clone(&known.text),
                in_use: site.in_use,
                in_use_variance: site.in_use_variance,
                allocated: site.allocated,
                rate: known.rate.map(|rate| rate as f32),
                growth: None,
                oldest_ns: site.oldest_ns,
                change: None,
                names: known.names,
                others: Box::default(),
            }
        };
        profile.sites.iter().enumerate().map(row).collect()
    }

    /// Whether the locations that were known have the same names still.
    fn has_the_names_of(&self, profile: &Profile) -> bool {
        let Some((locations, naming)) = &self.named else { return true };
        let same_names = || {
            let pairs = locations.iter().zip(profile.locations.iter());
            locations.len() <= profile.locations.len() && pairs.into_iter().all(|(a, b)| a.frames == b.frames)
        };
        *naming == profile.naming && (Arc::ptr_eq(locations, &profile.locations) || same_names())
    }

    /// What is kept of a stack.
    fn known(&mut self, profile: &Profile, site: &Site) -> &mut Known {
        let place = site.locations.as_ptr() as usize;
        let at = self.by_place.get(&place).map_or(self.known.len(), |&at| at as usize);
        // All empty stacks may lie in one place.
        let is_it = self.known.get(at).is_some_and(|known| !known.locations.is_empty());
        let at = if is_it { at } else { self.find(profile, site, place) };
        let known = &mut self.known[at];
        if known.text.function.is_empty() {
            known.text = Arc::new(text_of(profile, site, &mut self.names));
            known.names = self.by_names.key(profile, site).unwrap_or(0);
        }
        known
    }

    /// The same where it lies elsewhere, or is new.
    fn find(&mut self, profile: &Profile, site: &Site, place: usize) -> usize {
        let key = key_of(profile, site);
        let new = self.known.len();
        let at = *self.by_key.entry(key).or_insert(new as u32) as usize;
        if at == new {
            let (locations, text) = (Arc::clone(&site.locations), Arc::default());
            self.known.push(Known { key, locations, text, names: 0, allocated: 0.0, rate: None });
        } else {
            let old = std::mem::replace(&mut self.known[at].locations, Arc::clone(&site.locations));
            self.by_place.remove(&(old.as_ptr() as usize));
        }
        self.by_place.insert(place, at as u32);
        at
    }

    /// Forgets the stacks that a profile has not.
    fn forget_all_but(&mut self, profile: &Profile) {
        let there: HashSet<u64> = profile.sites.iter().map(|site| key_of(profile, site)).collect();
        self.known.retain(|known| there.contains(&known.key));
        let numbers = || (0u32..).zip(&self.known);
        self.by_key = numbers().map(|(at, known)| (known.key, at)).collect();
        self.by_place = numbers().map(|(at, known)| (known.locations.as_ptr() as usize, at)).collect();
    }
}

#[cfg(test)]
mod tests {
    use poolscope_profiler::build::site_name::SiteName;

    use super::*;

    /// What costs most, names and texts, is made once for each stack: of one builder's readings, of another's, and for
    /// a second time where names came to be others.
    #[test]
    fn texts_are_made_once() {
        let (mut rows, profile) = (SiteRows::default(), crate::dashboard::model::fixture::profile());
        let first = rows.next(&profile, None);
        let same = |rows: &[SiteRow]| first.iter().zip(rows).all(|(a, b)| Arc::ptr_eq(&a.text, &b.text));
        assert!(same(&rows.next(&profile.clone(), Some(1.0))));
        assert!(same(&rows.next(&crate::dashboard::model::fixture::profile(), Some(1.0))), "of another builder");
        assert_eq!(rows.known.len(), profile.sites.len());
        let mut named = profile;
        Arc::make_mut(&mut named.locations)[6].frames[0].name = "kv::session::forget".into();
        let renamed = rows.next(&named, Some(1.0));
        assert!(renamed.iter().any(|row| &*row.text.function == "kv::session::forget"));
        assert!(!first.iter().any(|row| &*row.text.function == "kv::session::forget"));
    }

    #[test]
    fn a_site_is_named_by_the_first_frame_that_is_no_plumbing() {
        let profile = crate::dashboard::model::fixture::profile();
        let site = &profile.sites[0];
        let text = text_of(&profile, site, &mut ShortNames::default());
        assert_eq!(&*text.function, "kv::store::Store::put");
        assert_eq!(text.place.as_deref(), Some("store.rs:87"));
    }

    #[test]
    fn a_site_of_pythons_is_named_as_reports_name_it() {
        let profile = crate::dashboard::model::fixture::profile_of_python();
        let text = text_of(&profile, &profile.sites[0], &mut ShortNames::default());
        assert_eq!((&*text.function, text.place, text.callers.len()), ("handle (server.py)", None, 0));
        let name = SiteName::of(&profile, &profile.sites[0]).expect("it has frames");
        assert_eq!((name.text(9).as_str(), name.depth), ("handle (server.py)", text.frame));
    }
}
