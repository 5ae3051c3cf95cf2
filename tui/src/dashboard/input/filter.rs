//! The language of filters, which is the same for tables, for the flamegraph and for `--filter`.
//!
//! ```text
//! parse            a word: functions, files and modules have it, as a regular expression in any case
//! fn:parse         functions
//! file:protocol    source files
//! module:libssl    executables and libraries
//! label:cache      labels that the program gave what it was doing
//! thread:worker    names or ids of threads that allocated what is in use
//! class:64         blocks of a size class
//! size>1M          bytes in use; size<64K, too
//! grow>1M          growth in bytes a minute; grow<0, too
//! age>5m           the oldest sample in use
//! -fn:parse        not so
//! "two words"      a space is a part of it
//! ```
//!
//! All terms have to hold.

use poolscope_profiler::model::profile::Profile;

use super::find::Pattern;
use crate::words::{file_name, printable};

/// What a term looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Bytes in use.
    Size,
    /// Bytes a minute.
    Growth,
    /// Seconds since the oldest sample in use was allocated.
    Age,
}

#[derive(Clone, Debug)]
enum Test {
    Word(Pattern),
    Function(Pattern),
    File(Pattern),
    Module(Pattern),
    Label(Pattern),
    Thread(Pattern),
    Class(u64),
    Figure { of: Figure, above: bool, bound: f64 },
}

#[derive(Clone, Debug)]
struct Term {
    test: Test,
    not: bool,
}

/// A filter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    terms: Vec<Term>,
}

/// A call site, as far as figures go.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// Bytes in use.
    pub(crate) size: f64,
    /// Bytes a minute; none if that is not known.
    pub(crate) growth: Option<f64>,
    /// Seconds.
    pub(crate) age: Option<f64>,
}

impl Figures {
    /// Whether one of them is above a bound, or below it. What is not known is neither.
    fn are(&self, of: Figure, above: bool, bound: f64) -> bool {
        let figure = match of {
            Figure::Size => Some(self.size),
            Figure::Growth => self.growth,
            Figure::Age => self.age,
        };
        figure.is_some_and(|figure| if above { figure > bound } else { figure < bound })
    }
}

/// The parts of a text that spaces separate; quotes keep them together.
fn words(text: &str) -> Vec<String> {
    let (mut out, mut word, mut quoted, mut begun) = (Vec::new(), String::new(), false, false);
    for c in text.chars() {
        match c {
            '"' => (quoted, begun) = (!quoted, true),
            c if c.is_whitespace() && !quoted => {
                if begun {
                    out.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            c => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        out.push(word);
    }
    out.retain(|word| !word.is_empty());
    out
}

/// `1M`, `64K`, `1.5G`, `512`: powers of 1024, with or without a B or iB.
fn bytes(text: &str) -> Option<f64> {
    let (sign, text) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let unit = text[end..].to_ascii_lowercase();
    let power = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    Some(sign * number * 1024f64.powi(power))
}

/// `30s`, `5m`, `2h`, or seconds.
fn seconds(text: &str) -> Option<f64> {
    let (number, times) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('m') => (number, 60.0),
        Some(number) if text.ends_with('h') => (number, 3600.0),
        Some(number) => (number, 1.0),
        None => (text, 1.0),
    };
    Some(number.parse::<f64>().ok()? * times)
}

impl Filter {
    /// Reads a filter; says which term is none.
    pub(crate) fn parse(text: &str) -> Result<Filter, String> {
        let terms: Result<Vec<Term>, String> = words(text).iter().map(|word| Filter::term(word)).collect();
        Ok(Filter { terms: terms? })
    }

    fn term(word: &str) -> Result<Term, String> {
        let (not, rest) = match word.strip_prefix('-') {
            Some(rest) if !rest.is_empty() => (true, rest),
            _ => (false, word),
        };
        for (name, of) in [("size", Figure::Size), ("grow", Figure::Growth), ("age", Figure::Age)] {
            let Some(bound) = rest.strip_prefix(name).filter(|bound| bound.starts_with(['<', '>'])) else { continue };
            let (above, bound) = (bound.starts_with('>'), &bound[1..]);
            let (read, example) = match of {
                Figure::Age => (seconds(bound), "age>5m"),
                Figure::Size => (bytes(bound), "size>1M"),
                Figure::Growth => (bytes(bound), "grow>1M"),
            };
            let bound = read.ok_or_else(|| format!("{rest} has no figure: write {example}"))?;
            return Ok(Term { test: Test::Figure { of, above, bound }, not });
        }
        let of = |name: &str| rest.strip_prefix(name).filter(|rest| !rest.starts_with(':'));
        let pattern = |text: &str| Pattern::new(text).ok_or_else(|| format!("nothing stands behind {rest}"));
        let test = if let Some(text) = of("fn:") {
            Test::Function(pattern(text)?)
        } else if let Some(text) = of("file:") {
            Test::File(pattern(text)?)
        } else if let Some(text) = of("module:") {
            Test::Module(pattern(text)?)
        } else if let Some(text) = of("label:") {
            Test::Label(pattern(text)?)
        } else if let Some(text) = of("thread:") {
            Test::Thread(pattern(text)?)
        } else if let Some(text) = of("class:") {
            Test::Class(bytes(text).ok_or_else(|| format!("{rest} has no size: write class:64"))? as u64)
        } else {
            Test::Word(pattern(rest)?)
        };
        Ok(Term { test, not })
    }

    /// It holds for everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Whether blocks of some threads only are meant.
    pub(crate) fn names_threads(&self) -> bool {
        self.terms.iter().any(|term| matches!(term.test, Test::Thread(_)))
    }

    /// Whether blocks of a size class only are meant.
    pub(crate) fn names_classes(&self) -> bool {
        self.terms.iter().any(|term| matches!(term.test, Test::Class(_)))
    }

    /// Whether a thread is meant, by its name and its id.
    pub(crate) fn has_thread(&self, name: Option<&str>, tid: u32) -> bool {
        self.terms.iter().all(|term| match &term.test {
            Test::Thread(pattern) => {
                let found = name.is_some_and(|name| pattern.matches(name)) || pattern.matches(&tid.to_string());
                found != term.not
            }
            _ => true,
        })
    }

    /// Whether blocks of such a size class are meant.
    pub(crate) fn has_class(&self, block_bytes: u64) -> bool {
        self.terms.iter().all(|term| match term.test {
            Test::Class(class) => (class == block_bytes) != term.not,
            _ => true,
        })
    }

    /// Whether a row of a table that is of no call site has the words.
    pub(crate) fn has_words(&self, text: &str) -> bool {
        self.terms.iter().all(|term| match &term.test {
            Test::Word(pattern) => pattern.matches(text) != term.not,
            _ => true,
        })
    }

    /// Whether a row that is of no call site has the figures.
    pub(crate) fn has_figures(&self, figures: &Figures) -> bool {
        self.terms.iter().all(|term| match term.test {
            Test::Figure { of, above, bound } => figures.are(of, above, bound) != term.not,
            _ => true,
        })
    }

    /// The filter for the call sites of a profile.
    pub(crate) fn of<'a>(&'a self, profile: &'a Profile) -> SiteFilter<'a> {
        let marks = self.terms.iter().map(|term| marks(&term.test, profile)).collect();
        SiteFilter { filter: self, profile, marks }
    }
}

/// Which locations have what a term asks for: each is looked at once, however many stacks it is in.
fn marks(test: &Test, profile: &Profile) -> Option<Vec<bool>> {
    let by = |has: &dyn Fn(usize) -> bool| Some((0..profile.locations.len()).map(has).collect());
    let function = |at: usize, pattern: &Pattern| {
        profile.locations[at].frames.iter().any(|frame| pattern.matches(&printable(&frame.name)))
    };
    let file = |at: usize, pattern: &Pattern| {
        let mut sources = profile.locations[at].frames.iter().filter_map(|frame| frame.source());
        sources.any(|source| pattern.matches(&printable(&source)))
    };
    let module = |at: usize, pattern: &Pattern| {
        let module = profile.module(&profile.locations[at]);
        module.is_some_and(|module| pattern.matches(&printable(file_name(&module.path))))
    };
    match test {
        Test::Word(pattern) => by(&|at| function(at, pattern) || file(at, pattern) || module(at, pattern)),
        Test::Function(pattern) => by(&|at| function(at, pattern)),
        Test::File(pattern) => by(&|at| file(at, pattern)),
        Test::Module(pattern) => by(&|at| module(at, pattern)),
        Test::Label(pattern) => {
            by(&|at| profile.locations[at].label().is_some_and(|label| pattern.matches(&printable(label))))
        }
        Test::Thread(_) | Test::Class(_) | Test::Figure { .. } => None,
    }
}

/// A filter, ready for the call sites of one profile.
pub(crate) struct SiteFilter<'a> {
    filter: &'a Filter,
    profile: &'a Profile,
    /// For each term that looks at the stack, which locations have it.
    marks: Vec<Option<Vec<bool>>>,
}

impl SiteFilter<'_> {
    /// Whether a call site is meant, by its place in the profile and its figures. Threads and classes are not looked
    /// at: they choose blocks, not call sites.
    pub(crate) fn has(&self, site: usize, figures: &Figures) -> bool {
        let Some(site) = self.profile.sites.get(site) else { return false };
        self.filter.terms.iter().zip(&self.marks).all(|(term, marks)| {
            let found = match (&term.test, marks) {
                (_, Some(marks)) => site.locations.iter().any(|&at| marks.get(at).copied().unwrap_or(false)),
                (Test::Figure { of, above, bound }, _) => figures.are(*of, *above, *bound),
                _ => return true,
            };
            found != term.not
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_term_is_named() {
        assert_eq!(Filter::parse("fn:a size>x").unwrap_err(), "size>x has no figure: write size>1M");
        assert_eq!(Filter::parse("file:").unwrap_err(), "nothing stands behind file:");
        assert!(Filter::parse("kv::store::put size operator(").is_ok());
        assert_eq!(
            (bytes("1.5K"), bytes("2MiB"), bytes("-1"), bytes("1x")),
            (Some(1536.0), Some(2097152.0), Some(-1.0), None)
        );
        assert_eq!(
            (seconds("5m"), seconds("2h"), seconds("7"), seconds("x")),
            (Some(300.0), Some(7200.0), Some(7.0), None)
        );
    }

    #[test]
    fn threads_and_classes_choose_blocks() {
        let filter = Filter::parse("thread:worker-1 class:64").expect("is a filter");
        assert!(filter.has_thread(Some("worker-1"), 9) && !filter.has_thread(Some("main"), 9));
        assert!(filter.has_class(64) && !filter.has_class(48));
        assert!(filter.names_threads() && filter.names_classes());
    }
}
