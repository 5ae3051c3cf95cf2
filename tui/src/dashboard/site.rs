//! A call site as a row: its name, its key across readings, and the text that a filter looks through.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use poolscope_profiler::plumbing;
use poolscope_profiler::profile::{Frame, Profile, Site};
use poolscope_profiler::snapshot::Amount;

use super::format::printable;

/// The text of a call site; the same for every reading, so it is made once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SiteText {
    /// The function that asked for memory: the innermost one that is no plumbing of a language's library.
    pub(crate) function: String,
    /// Its place in the stack, innermost first.
    pub(crate) frame: usize,
    /// Its file and line, the file without its folders.
    pub(crate) place: Option<String>,
    /// Its callers, nearest first.
    pub(crate) callers: Vec<String>,
    /// Names and files of all frames, one a line: what a filter looks through.
    pub(crate) haystack: String,
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
    /// Ever allocated.
    pub(crate) allocated: Amount,
    /// Bytes allocated per second since the reading before.
    pub(crate) rate: Option<f64>,
}

fn is_plumbing(frame: &FrameText<'_>) -> bool {
    plumbing::is_plumbing(&frame.name, frame.frame.and_then(|f| f.file.as_deref()))
}

/// A stack's frames with what is inlined, innermost first; addresses without a name are given as `module+0x…`.
pub(crate) fn frames_of<'a>(profile: &'a Profile, site: &'a Site) -> impl DoubleEndedIterator<Item = FrameText<'a>> {
    let mut out = Vec::with_capacity(site.locations.len());
    for &location in &site.locations {
        let Some(location) = profile.locations.get(location) else { continue };
        if location.frames.is_empty() {
            let module = location.module.and_then(|m| profile.modules.get(m));
            let name = match module {
                Some(module) => {
                    format!("{}+{:#x}", file_name(&module.path), location.address.wrapping_sub(module.load_bias))
                }
                None => format!("{:#x}", location.address),
            };
            out.push(FrameText { name, frame: None, module: module.map(|m| m.path.as_str()) });
        }
        let module = location.module.and_then(|m| profile.modules.get(m)).map(|m| m.path.as_str());
        for frame in &location.frames {
            out.push(FrameText { name: printable(&frame.name), frame: Some(frame), module });
        }
    }
    out.into_iter()
}

/// One frame of a stack.
pub(crate) struct FrameText<'a> {
    /// Function, or module and offset.
    pub(crate) name: String,
    /// What the symbols say about it.
    pub(crate) frame: Option<&'a Frame>,
    /// The file of its module.
    pub(crate) module: Option<&'a str>,
}

impl FrameText<'_> {
    /// `server.c:120`, as far as it is known.
    pub(crate) fn short_place(&self) -> Option<String> {
        let frame = self.frame?;
        let file = printable(file_name(frame.file.as_deref()?));
        Some(match frame.line {
            Some(line) => format!("{file}:{line}"),
            None => file,
        })
    }

    /// The whole path and line, or the module when there is none.
    pub(crate) fn place(&self) -> String {
        let file = self.frame.and_then(|f| f.file.as_deref());
        match (file, self.frame.and_then(|f| f.line)) {
            (Some(file), Some(line)) => printable(&format!("{file}:{line}")),
            (Some(file), None) => printable(file),
            _ => self.module.map(|m| printable(file_name(m))).unwrap_or_default(),
        }
    }
}

/// A path without its folders.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The text of a site.
pub(crate) fn text_of(profile: &Profile, site: &Site) -> SiteText {
    let frames: Vec<FrameText<'_>> = frames_of(profile, site).collect();
    let mut haystack = String::new();
    for frame in &frames {
        haystack.push_str(&frame.name);
        haystack.push(' ');
        haystack.push_str(&frame.place());
        haystack.push('\n');
    }
    let Some(at) = frames.iter().position(|f| !is_plumbing(f)).or((!frames.is_empty()).then_some(0)) else {
        return SiteText { function: "(no stack)".into(), haystack: "(no stack)".into(), ..SiteText::default() };
    };
    SiteText {
        function: short_function(&frames[at].name),
        frame: at,
        place: frames[at].short_place(),
        callers: frames[at + 1..].iter().map(|f| short_function(&f.name)).collect(),
        haystack,
    }
}

/// A function's name without arguments, template arguments, hashes and outer paths: `kv::store::put` stays,
/// `std::map<int, std::string>::insert(int const&)` becomes `std::map::insert`.
pub(crate) fn short_function(name: &str) -> String {
    if name.starts_with('<') || name.starts_with("operator") || name.contains("{{") || name.contains("::operator") {
        return name.to_owned();
    }
    let mut out = String::new();
    let mut depth = 0usize;
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0 && !out.is_empty() => break,
            _ if depth == 0 => out.push(c),
            _ => {}
        }
    }
    // A return type stands before templates' names: `void f<int>`.
    match out.trim_end().rsplit(' ').next() {
        Some(last) if name.contains('(') && !last.is_empty() => last.to_owned(),
        _ if out.is_empty() => name.to_owned(),
        _ => out.trim_end().to_owned(),
    }
}

/// A key that is the same for the same stack in every reading.
fn key_of(profile: &Profile, site: &Site) -> u64 {
    let mut hasher = DefaultHasher::new();
    site.kind.hash(&mut hasher);
    for &location in &site.locations {
        profile.locations.get(location).map(|l| l.address).hash(&mut hasher);
    }
    hasher.finish()
}

/// Makes rows and remembers, from reading to reading, the text and the totals of each stack.
#[derive(Debug, Default)]
pub(crate) struct SiteRows {
    known: HashMap<u64, (Arc<SiteText>, f64)>,
}

impl SiteRows {
    /// The rows of a profile, in its order. `seconds` since the reading before, if there was one.
    pub(crate) fn next(&mut self, profile: &Profile, seconds: Option<f64>) -> Vec<SiteRow> {
        let mut known = HashMap::with_capacity(profile.sites.len());
        let mut rows = Vec::with_capacity(profile.sites.len());
        for (index, site) in profile.sites.iter().enumerate() {
            let key = key_of(profile, site);
            let (text, before) = match self.known.get(&key) {
                Some((text, before)) => (Arc::clone(text), *before),
                None => (Arc::new(text_of(profile, site)), 0.0),
            };
            known.insert(key, (Arc::clone(&text), site.allocated.bytes));
            let rate = seconds.map(|s| (site.allocated.bytes - before).max(0.0) / s);
            rows.push(SiteRow { key, index, text, in_use: site.in_use, allocated: site.allocated, rate });
        }
        self.known = known;
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_lose_arguments_and_template_arguments() {
        for (long, short) in [
            ("main", "main"),
            ("kv::store::Store::put", "kv::store::Store::put"),
            ("std::map<int, std::string>::insert(int const&)", "std::map::insert"),
            ("void grow<char>(char*, unsigned long)", "grow"),
            ("<kv::Store as Default>::default", "<kv::Store as Default>::default"),
            ("operator new(unsigned long)", "operator new(unsigned long)"),
            ("libfoo.so+0x1234", "libfoo.so+0x1234"),
        ] {
            assert_eq!(short_function(long), short);
        }
    }

    #[test]
    fn a_site_is_named_by_the_first_frame_that_is_no_plumbing() {
        let profile = crate::dashboard::fixture::profile();
        let site = &profile.sites[0];
        let text = text_of(&profile, site);
        assert_eq!(text.function, "kv::store::Store::put");
        assert_eq!(text.place.as_deref(), Some("store.rs:87"));
        assert!(text.haystack.contains("alloc::raw_vec"), "plumbing can still be searched for");
    }
}
