//! What the filter and the search look for: a regular expression in any case, or the text itself if it is none.

use regex::{Regex, RegexBuilder};

/// A compiled search text.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    regex: Regex,
    /// The text is no regular expression and is looked for as it stands.
    pub(crate) literal: bool,
}

impl Pattern {
    /// A pattern for what was typed; none for nothing.
    pub(crate) fn new(text: &str) -> Option<Pattern> {
        if text.is_empty() {
            return None;
        }
        let build = |source: &str| {
            RegexBuilder::new(source).case_insensitive(true).multi_line(true).size_limit(1 << 20).build()
        };
        match build(text) {
            Ok(regex) => Some(Pattern { regex, literal: false }),
            Err(_) => build(&regex::escape(text)).ok().map(|regex| Pattern { regex, literal: true }),
        }
    }

    /// Where it is in `text` first.
    pub(crate) fn find(&self, text: &str) -> Option<std::ops::Range<usize>> {
        self.regex.find(text).map(|found| found.range())
    }

    /// Whether it is in `text`.
    pub(crate) fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regex_in_any_case() {
        let pattern = Pattern::new("store::(put|get)").unwrap();
        assert!(pattern.matches("KV::Store::Put server.rs:1"));
        assert!(!pattern.matches("kv::store::del"));
        assert!(!pattern.literal);
    }

    #[test]
    fn what_is_no_regex_is_looked_for_as_it_stands() {
        let pattern = Pattern::new("operator(").unwrap();
        assert!(pattern.literal);
        assert!(pattern.matches("T::operator()(int)"));
        assert!(Pattern::new("").is_none());
    }
}
