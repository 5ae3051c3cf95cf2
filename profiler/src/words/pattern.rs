//! Patterns for names, as LeakSanitizer has them: `*` stands for anything, `^` and `$` tie the pattern to the
//! beginning and the end, and without them it may occur anywhere.

/// Whether `pattern` occurs in `text`.
///
/// Takes time in proportion to `pattern.len() * text.len()` at the most.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (anchored, pattern) = pattern.strip_prefix('^').map_or((false, pattern), |rest| (true, rest));
    let (ends, pattern) = pattern.strip_suffix('$').map_or((false, pattern), |rest| (true, rest));
    let mut rest = text;
    let mut pieces = pattern.split('*').peekable();
    let mut first = true;
    while let Some(piece) = pieces.next() {
        let last = pieces.peek().is_none();
        if first && anchored && !(last && ends) {
            let Some(after) = rest.strip_prefix(piece) else { return false };
            rest = after;
        } else if first && anchored {
            return rest == piece;
        } else if last && ends {
            return rest.ends_with(piece);
        } else {
            let Some(at) = rest.find(piece) else { return false };
            rest = &rest[at + piece.len()..];
        }
        first = false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_leak_sanitizer() {
        for (pattern, text, expected) in [
            ("foo", "a_foo_b", true),
            ("^foo", "a_foo", false),
            ("^foo", "foobar", true),
            ("foo$", "barfoo", true),
            ("foo$", "foobar", false),
            ("^foo$", "foo", true),
            ("^foo$", "foofoo", false),
            ("a*b", "xaybz", true),
            ("b*a", "ab", false),
            ("^a*b*c$", "abbbc", true),
            ("^a*b*c$", "abbbcd", false),
            ("*", "", true),
            ("", "anything", true),
            ("^a*a$", "a", false),
            ("^$", "x", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }
}
