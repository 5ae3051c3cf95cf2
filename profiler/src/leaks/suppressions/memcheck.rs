//! Suppressions as valgrind's memcheck has them, for leaks: several frames, innermost first.
//!
//! ```text
//! {
//!    a name
//!    Memcheck:Leak
//!    match-leak-kinds: definite,indirect
//!    fun:malloc
//!    fun:load_*
//!    ...
//!    obj:*/libplugin.so
//! }
//! ```
//!
//! `*` stands for any characters, `?` for one, and `...` for any number of frames. A stack may go on behind the last.
//! What valgrind's users know as the innermost frame (`malloc`, `operator new`) is left out of the stacks here: a rule
//! may name it or not.

use super::frames::Call;
use crate::leaks::LeakKind;
use crate::symbols::function_name;

/// How valgrind names what allocates, as C++'s linker does, and as a person reads it.
const ALLOCATORS: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "valloc",
    "_Znwm",
    "_Znam",
    "_ZnwmRKSt9nothrow_t",
    "_ZnamRKSt9nothrow_t",
    "_ZnwmSt11align_val_t",
    "_ZnamSt11align_val_t",
    "operator new(unsigned long)",
    "operator new[](unsigned long)",
];
/// The library that has them there.
const ALLOCATORS_MODULE: &str = "/usr/libexec/valgrind/vgpreload_memcheck-amd64-linux.so";
/// What valgrind calls everything outside `main`.
const BELOW_MAIN: &str = "(below main)";
const BELOW_MAIN_FUNCTIONS: &[&str] =
    &["__libc_start_main", "__libc_start_call_main", "_start", "__libc_start_main_impl"];

/// Kinds of rules that Memcheck has beside `Leak`; `Value` and `Addr` stand before a number of bytes.
const OTHER_RULES: &[&str] =
    &["Param", "User", "Cond", "Jump", "Free", "Overlap", "Value", "Addr", "ReallocZero", "BadAlign"];

/// Kinds of leaks that a rule may be for.
const KINDS: &[&str] = &["definite", "indirect", "possible", "reachable"];

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) name: String,
    kinds: Vec<&'static str>,
    lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Function(String),
    Object(String),
    /// A file, and a line in it.
    Source(String, Option<u32>),
    /// Any number of frames.
    Any,
}

/// Reads the lines between `{` and `}`, with their numbers. `None` if they are a rule for something else than leaks. Or
/// which line is wrong, and what should stand there.
pub(super) fn read(lines: &[(usize, &str)], opened: usize) -> Result<Option<Rule>, (usize, String)> {
    let mut lines = lines.iter().copied();
    let Some((_, name)) = lines.next() else { return Err((opened, "a rule has a name in its first line".into())) };
    let Some((at, kind)) = lines.next() else {
        return Err((opened, format!("the rule {name:?} has no second line: write Memcheck:Leak")));
    };
    let Some((tools, kind)) = kind.split_once(':') else {
        return Err((at, format!("{kind:?} is no kind of rule: write Memcheck:Leak")));
    };
    let kind = kind.trim();
    if !tools.split(',').any(|tool| tool.trim() == "Memcheck") {
        return Ok(None);
    }
    if kind != "Leak" {
        let of_memcheck = kind.trim_end_matches(|c: char| c.is_ascii_digit());
        return match OTHER_RULES.contains(&of_memcheck) {
            true => Ok(None),
            false => Err((at, format!("{kind:?} is no kind of rule that Memcheck has: write Memcheck:Leak"))),
        };
    }
    let mut rule = Rule { name: name.to_owned(), kinds: KINDS.to_vec(), lines: Vec::new() };
    for (at, line) in lines {
        let (key, value) = line.split_once(':').map_or((line, ""), |(key, value)| (key.trim(), value.trim()));
        match key {
            "match-leak-kinds" => rule.kinds = kinds(value).map_err(|error| (at, error))?,
            "fun" if !value.is_empty() => {
                rule.lines.push(Line::Function(function_name::any_of_its_symbols(value)));
            }
            "obj" if !value.is_empty() => rule.lines.push(Line::Object(value.to_owned())),
            "src" if !value.is_empty() => rule.lines.push(source(value)),
            "..." => rule.lines.push(Line::Any),
            _ => {
                return Err((at, format!("{line:?} is no frame: write fun:NAME, obj:PATH, src:FILE or ...")));
            }
        }
    }
    if rule.lines.iter().all(|line| *line == Line::Any) {
        return Err((opened, format!("the rule {name:?} names no frame, and would suppress everything")));
    }
    Ok(Some(rule))
}

fn kinds(value: &str) -> Result<Vec<&'static str>, String> {
    match value {
        "all" => return Ok(KINDS.to_vec()),
        "none" => return Ok(Vec::new()),
        _ => {}
    }
    let known = |kind: &str| {
        let found = KINDS.iter().copied().find(|known| *known == kind.trim());
        found.ok_or_else(|| format!("{kind:?} is no kind of leak: write all, none or some of {}", KINDS.join(",")))
    };
    value.split(',').map(known).collect()
}

fn source(value: &str) -> Line {
    match value.rsplit_once(':').map(|(file, line)| (file, line.parse())) {
        Some((file, Ok(line))) => Line::Source(file.to_owned(), Some(line)),
        _ => Line::Source(value.to_owned(), None),
    }
}

impl Rule {
    /// Whether it is for a stack, innermost call first, of blocks of this kind.
    pub(super) fn matches(&self, calls: &[Call<'_>], kind: LeakKind) -> bool {
        let has = |kind| self.kinds.contains(&kind);
        let is_for = match kind {
            LeakKind::Direct => has("definite"),
            LeakKind::Indirect => has("indirect"),
            LeakKind::Possible => has("possible"),
            LeakKind::Reachable | LeakKind::Retained => has("reachable"),
            // Nobody has looked whether it can be reached.
            LeakKind::Grew => has("definite") || has("reachable"),
        };
        is_for
            && (follow(&self.lines, calls)
                || self.lines.first().is_some_and(Line::is_allocator) && follow(&self.lines[1..], calls))
    }
}

/// Whether the lines match the calls from the innermost on. Takes time in proportion to both at the most.
fn follow(lines: &[Line], calls: &[Call<'_>]) -> bool {
    // Where a line may begin: calls that those before it can end at.
    let mut begins = vec![false; calls.len() + 1];
    begins[0] = true;
    for line in lines {
        if *line == Line::Any {
            let first = begins.iter().position(|&begins| begins);
            let Some(first) = first else { return false };
            begins[first..].fill(true);
            continue;
        }
        let mut next = vec![false; calls.len() + 1];
        for (at, call) in calls.iter().enumerate().filter(|&(at, _)| begins[at]) {
            next[at + 1] = line.matches(*call);
        }
        begins = next;
    }
    begins.contains(&true)
}

impl Line {
    fn matches(&self, call: Call<'_>) -> bool {
        let Call { frame, path, .. } = call;
        match self {
            Line::Function(pattern) if pattern == BELOW_MAIN => {
                BELOW_MAIN_FUNCTIONS.contains(&frame.name.as_str()) || frame.name.starts_with("[libc.so")
            }
            Line::Function(pattern) => {
                glob(pattern, &frame.name)
                    || frame.symbol.as_ref().is_some_and(|symbol| glob(pattern, symbol))
                    || as_valgrind_has(call).is_some_and(|name| glob(pattern, name))
            }
            Line::Object(pattern) => glob(pattern, path),
            Line::Source(pattern, line) => {
                let is_file = |file: &String| {
                    glob(pattern, file) || file.rsplit('/').next().is_some_and(|name| glob(pattern, name))
                };
                frame.file.as_ref().is_some_and(is_file) && line.is_none_or(|line| frame.line == Some(line))
            }
            Line::Any => true,
        }
    }

    /// Whether it can stand for the function that allocates.
    fn is_allocator(&self) -> bool {
        match self {
            Line::Function(pattern) => ALLOCATORS.iter().any(|name| glob(pattern, name)),
            Line::Object(pattern) => glob(pattern, ALLOCATORS_MODULE),
            Line::Source(..) | Line::Any => false,
        }
    }
}

/// Another name that valgrind has for a function. Of the C library's names for one, it takes that without underscores
/// (`strdup`, where debug information has `__strdup`). Of a function that was inlined it knows the own name only.
fn as_valgrind_has(call: Call<'_>) -> Option<&str> {
    let name = call.frame.name.as_str();
    if call.frame.inlined {
        return Some(function_name::own(name));
    }
    let public = name.trim_start_matches('_');
    (call.module.starts_with("libc.so") && public.len() < name.len()).then_some(public)
}

/// Whether all of `text` is as `pattern` says: `*` stands for any characters, `?` for one.
///
/// Takes time in proportion to `pattern.len() * text.len()` at the most.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // The last `*`, and how much of the text it stands for so far.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&sign) if sign == '?' || sign == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, upto)) = star else { return false };
                star = Some((at, upto + 1));
                p = at + 1;
                t = upto + 1;
            }
        }
    }
    pattern[p..].iter().all(|&sign| sign == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::Frame;

    fn rule(text: &str) -> Rule {
        let lines: Vec<(usize, &str)> = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())).collect();
        read(&lines, 0).expect("it is right").expect("it is for leaks")
    }

    /// Whether a rule of these frames is for a stack of functions.
    fn matches(frames: &str, stack: &[&str], kind: LeakKind) -> bool {
        let rule = rule(&format!("name\nMemcheck:Leak\n{frames}"));
        let named = |name: &&str| Frame {
            name: (*name).to_owned(),
            file: Some("/src/a.c".into()),
            line: Some(7),
            ..Frame::default()
        };
        let stack: Vec<Frame> = stack.iter().map(named).collect();
        let call = |frame| Call { frame, module: "liba.so", path: "/lib/liba.so" };
        rule.matches(&stack.iter().map(call).collect::<Vec<_>>(), kind)
    }

    #[test]
    fn frames_match_from_the_innermost_on() {
        let stack = ["inner", "middle_one", "outer", "main"];
        for (frames, expected) in [
            ("fun:inner", true),
            ("fun:malloc\nfun:inner", true),
            ("fun:_Znwm\nfun:inner\nfun:middle_*", true),
            ("obj:*/vgpreload_memcheck*\nfun:inner", true),
            ("fun:*alloc\nfun:inner", true),
            ("fun:middle_one", false),
            ("fun:malloc\nfun:outer", false),
            ("...\nfun:outer", true),
            ("fun:malloc\n...\nfun:outer\nfun:main", true),
            ("fun:inner\n...\nfun:main", true),
            ("fun:inner\nfun:outer", false),
            ("fun:inner\n...\nfun:middle_???\n...\nfun:main", true),
            ("fun:inner\nfun:middle_????", false),
            ("obj:/lib/liba.so\nobj:*liba*", true),
            ("obj:liba.so", false),
            ("src:a.c", true),
            ("src:/src/a.c:7", true),
            ("src:a.c:8", false),
            ("fun:inner\nfun:middle_one\nfun:outer\nfun:main\nfun:(below main)", false),
            ("...\nfun:main\n...", true),
        ] {
            assert_eq!(matches(frames, &stack, LeakKind::Direct), expected, "{frames}");
        }
        assert!(matches("fun:main\nfun:(below main)", &["main", "__libc_start_call_main"], LeakKind::Direct));
    }

    #[test]
    fn functions_have_the_names_that_valgrind_gives_them() {
        let frame = |name: &str, inlined| Frame { name: name.to_owned(), inlined, ..Frame::default() };
        let duplicate = frame("__strdup", false);
        let allocate = frame("std::allocator<char>::allocate(unsigned long)", true);
        let called = frame("std::allocator<char>::allocate(unsigned long)", false);
        for (frame, module, pattern, expected) in [
            (&duplicate, "libc.so.6", "strdup", true),
            (&duplicate, "libc.so.6", "__strdup", true),
            (&duplicate, "libc.so.6", "dup", false),
            (&duplicate, "libmine.so", "strdup", false),
            (&allocate, "libmine.so", "allocate", true),
            (&called, "libmine.so", "allocate", false),
        ] {
            let rule = rule(&format!("name\nMemcheck:Leak\nfun:{pattern}"));
            let calls = [Call { frame, module, path: module }];
            assert_eq!(rule.matches(&calls, LeakKind::Direct), expected, "{pattern} in {module}");
        }
    }

    #[test]
    fn kinds_are_those_of_the_rule() {
        for (kinds, direct, indirect, grew) in [
            ("definite", true, false, true),
            ("indirect", false, true, false),
            ("definite,indirect", true, true, true),
            ("reachable", false, false, true),
            ("all", true, true, true),
            ("none", false, false, false),
        ] {
            let frames = format!("match-leak-kinds: {kinds}\nfun:f");
            let found =
                [LeakKind::Direct, LeakKind::Indirect, LeakKind::Grew].map(|kind| matches(&frames, &["f"], kind));
            assert_eq!(found, [direct, indirect, grew], "{kinds}");
        }
    }

    #[test]
    fn many_wildcards_take_no_time() {
        let stack = vec!["f"; 200];
        let frames = "...\nfun:*f*\n".repeat(40) + "fun:g";
        assert!(!matches(&frames, &stack, LeakKind::Direct));
        assert!(!glob(&"*a".repeat(40), &"a".repeat(10_000).replace('a', "ab")));
    }
}
