//! Names of functions for a place of some width. What a name begins with says least: the function's own name stays.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::clip;

/// In fewer columns a text loses its end, for a beginning and an end would both say too little.
const LEAST_WITHOUT_MIDDLE: usize = 8;

/// A function's name in at most `width` columns. Its path goes first, from the outside; then its arguments; then its
/// middle, so that its beginning and its end still tell it from others.
pub(crate) fn clip_name(name: &str, width: usize) -> String {
    let rest = without_path(name, width);
    if rest.width() <= width {
        return rest.to_owned();
    }
    let own = without_arguments(rest);
    match own.len() < rest.len() {
        true if own.width() < width => format!("{own}…"),
        // Half an address is another address.
        _ if width < LEAST_WITHOUT_MIDDLE || own.contains("+0x") => clip(own, width),
        _ => without_middle(own, width),
    }
}

/// A text of which the names lose their paths as far as it takes to come to `width` columns, the longest first.
pub(crate) fn with_shorter_names(text: &str, width: usize) -> String {
    let mut words: Vec<&str> = text.split(' ').collect();
    loop {
        let used = words.iter().map(|word| word.width() + 1).sum::<usize>().saturating_sub(1);
        let longest = words.iter_mut().filter(|word| inner(word).is_some()).max_by_key(|word| word.width());
        match longest {
            Some(word) if used > width => *word = inner(word).unwrap_or(word),
            _ => return words.join(" "),
        }
    }
}

/// A path without as many of its outermost parts as it takes: `Session::remember`.
pub(crate) fn without_path(name: &str, width: usize) -> &str {
    let mut rest = name;
    while rest.width() > width
        && let Some(inner) = inner(rest)
    {
        rest = inner;
    }
    rest
}

/// A function's own name, without its path and its arguments.
pub(crate) fn own_name(name: &str) -> &str {
    without_arguments(without_path(name, 0))
}

/// The same with what it is of: `Session::remember`. Brackets take too much room.
pub(crate) fn typed_name(name: &str) -> &str {
    let mut rest = name;
    while let Some(inside) = inner(rest)
        && inner(inside).is_some()
    {
        rest = inside;
    }
    if rest.contains(['<', '(']) { own_name(name) } else { rest }
}

/// A path without its outermost part. What stands in brackets is of one part.
fn inner(path: &str) -> Option<&str> {
    let mut depth = 0_usize;
    let mut before = ' ';
    for (at, c) in path.char_indices() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' if before == '-' => {}
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ':' if depth == 0 && before == ':' && at + 1 < path.len() => {
                let inner = &path[at + 1..];
                return Some(inner.strip_prefix("…::").unwrap_or(inner));
            }
            _ => {}
        }
        before = c;
    }
    None
}

/// A function's name without what stands in brackets behind it.
fn without_arguments(name: &str) -> &str {
    match name.find(['<', '(']) {
        Some(at) if at > 0 && !name[..at].ends_with("operator") => &name[..at],
        _ => name,
    }
}

/// The beginning and the end of a text.
fn without_middle(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width - 1;
    let take = |room: usize, chars: &mut dyn Iterator<Item = char>| -> Vec<char> {
        let mut used = 0;
        let fits = |c: &char| {
            used += c.width().unwrap_or(0);
            used <= room
        };
        chars.take_while(fits).collect()
    };
    let end = take(room / 2, &mut text.chars().rev());
    let mut out: String = take(room - room / 2, &mut text.chars()).into_iter().collect();
    out.push('…');
    out.extend(end.into_iter().rev());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_cut_keeps_the_functions_own_name() {
        for (name, width, clipped) in [
            ("kv_server::audit::AuditTrail::remember_watch", 44, "kv_server::audit::AuditTrail::remember_watch"),
            ("kv_server::audit::AuditTrail::remember_watch", 30, "AuditTrail::remember_watch"),
            ("kv_server::…::remember_watch", 20, "remember_watch"),
            ("remember_watch", 9, "reme…atch"),
            ("remember_watch", 7, "rememb…"),
            ("remember_watch", 1, "…"),
            ("[libssl.so.3+0x1240]", 16, "[libssl.so.3+0x…"),
            ("remember_watch", 0, ""),
            ("<kv::Store as kv::Cache<kv::Key>>::get", 12, "get"),
            ("std::vector<std::string, A>::push_back(int const&)", 32, "push_back(int const&)"),
            ("std::vector<std::string, A>::push_back(std::string const&)", 16, "push_back…"),
            ("(anonymous namespace)::Table::operator()(int)", 16, "operator()(int)"),
            ("app::run<fn(u8) -> app::Out>::call", 10, "call"),
            ("_PyEval_EvalFrameDefault", 13, "_PyEva…efault"),
            ("日本語::名前の長い関数", 9, "名前…関数"),
        ] {
            assert_eq!(clip_name(name, width), clipped, "{name} in {width}");
        }
    }

    #[test]
    fn a_function_is_known_by_its_own_name_and_its_type() {
        for (name, typed, own) in [
            ("kv_server::audit::AuditTrail::remember_watch", "AuditTrail::remember_watch", "remember_watch"),
            ("main", "main", "main"),
            ("std::vector<std::string, A>::push_back(int const&)", "push_back", "push_back"),
            ("kv::parse", "kv::parse", "parse"),
            ("", "", ""),
        ] {
            assert_eq!((typed_name(name), own_name(name)), (typed, own));
        }
    }

    #[test]
    fn a_sentence_keeps_its_words_and_loses_paths() {
        let said = "kv_server::audit::AuditTrail::remember_watch (audit.rs:41) grows: see http://host/x::y.";
        assert_eq!(with_shorter_names(said, 200), said);
        let shorter = with_shorter_names(said, 62);
        assert_eq!(shorter, "remember_watch (audit.rs:41) grows: see http://host/x::y.");
    }
}
