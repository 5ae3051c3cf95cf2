//! Names of functions: from the linker's symbol to what their programmer wrote, and the parts of that.
//!
//! A name may come from a symbol that is demangled, from debug information that knows no more than the function's own
//! name (`handle_request<Store>`), or from a runtime (`insert (cache.py)`).

use crate::model::profile::Frame;

/// Longer symbols are shown as they are: demangling one could take very long.
const LONGEST_MANGLED: usize = 16 * 1024;

/// Template arguments that are longer are left out of a short name.
const LONGEST_ARGUMENTS: usize = 32;

/// A symbol as its programmer wrote it. Only what has the prefix of a mangling scheme is demangled: `a` is a C
/// function, although it is also how C++ mangles `signed char`.
pub(crate) fn demangle(symbol: &str) -> String {
    // The version of a dynamic symbol is no part of its name, nor is the mark of glibc's aliases for its own calls.
    let symbol = symbol.find('@').filter(|&at| at > 0).map_or(symbol, |at| &symbol[..at]);
    let symbol = symbol.strip_prefix("__GI_").filter(|symbol| !symbol.is_empty()).unwrap_or(symbol);
    if symbol.len() > LONGEST_MANGLED {
        return symbol.to_owned();
    }
    if (symbol.starts_with("_R") || symbol.starts_with("_ZN"))
        && let Ok(rust) = rustc_demangle::try_demangle(symbol)
    {
        return format!("{rust:#}");
    }
    let cpp = symbol.starts_with("_Z").then(|| cpp_demangle::Symbol::new(symbol).ok()).flatten();
    cpp.and_then(|symbol| symbol.demangle().ok()).unwrap_or_else(|| symbol.to_owned())
}

/// A symbol with `?` where it says which of a constructor's or destructor's symbols it is: one function may have several
/// (`C1` and `C2`), and tools differ in which they take.
pub(crate) fn any_of_its_symbols(symbol: &str) -> String {
    let mut any = symbol.to_owned();
    if !symbol.starts_with("_Z") {
        return any;
    }
    let plain = demangle(symbol);
    for at in 1..symbol.len() {
        let other = match symbol.get(at - 1..=at) {
            Some("C1" | "D1") => "2",
            Some("C2" | "D2") => "1",
            _ => continue,
        };
        if demangle(&format!("{}{other}{}", &symbol[..at], &symbol[at + 1..])) == plain {
            any.replace_range(at..=at, "?");
        }
    }
    any
}

/// A function of Python's or Ruby's and its file, without the path: many have the same names in several files.
pub(crate) fn in_file(function: &str, file: &str) -> String {
    let short = file.rsplit('/').next().filter(|short| !short.is_empty()).unwrap_or(file);
    format!("{function} ({short})")
}

/// The name of a function without the file that it has in its name, if its line says where it is.
pub fn without_file(frame: &Frame) -> &str {
    let name = frame.name.as_str();
    let file = frame.file.as_deref().filter(|_| frame.line.is_some()).and_then(|file| file.rsplit('/').next());
    let without = file.and_then(|file| name.strip_suffix(')')?.strip_suffix(file)?.strip_suffix(" ("));
    without.unwrap_or(name)
}

/// A function in a sentence, with where it is: `put (store.rs:87)`.
pub(crate) fn with_place(function: &Frame) -> String {
    let name = short(without_file(function));
    match function.short_source().filter(|place| !name.ends_with(&format!("({place})"))) {
        Some(place) => format!("{name} ({place})"),
        None => name,
    }
}

/// Whether a symbol says more than a function's own name.
pub(crate) fn is_mangled(symbol: &str) -> bool {
    symbol.starts_with("_Z") || symbol.starts_with("_R")
}

/// Puts the path that the symbol table has before the name that debug information has: `kv::handle` and `handle<Store>`
/// are `kv::handle<Store>`. `None` if they are not of one function.
pub(crate) fn with_path(own_name: &str, demangled: &str) -> Option<String> {
    let path = path(demangled);
    let last = &path[last_segment(path)..];
    let is_closure = |name: &str| name.starts_with("{closure") || name.starts_with("{{closure");
    let symbols_own = without_arguments(last);
    if is_closure(own_name) && is_closure(last) {
        return Some(demangled.to_owned());
    }
    // A shim bears the name of what it calls: `call_once{{vtable.shim}}`.
    if own_name.is_empty() || symbols_own.split("{{").next() != Some(without_arguments(own_name)) {
        return None;
    }
    // Rust's older mangling leaves the arguments out.
    if demangled.ends_with(symbols_own) && own_name.starts_with(symbols_own) {
        return Some(format!("{}{own_name}", &demangled[..demangled.len() - symbols_own.len()]));
    }
    Some(demangled.to_owned())
}

/// A function's name for a table: without parameters, return type and long arguments of templates.
///
/// `std::pair<int, bool> std::map<int, long>::insert<int>(int const&)` becomes `std::map<int, long>::insert<int>`.
pub fn short(name: &str) -> String {
    let name = path(name);
    // `<Store as Cache>::get` would lose what it is of.
    if name.starts_with('<') {
        return name.to_owned();
    }
    let mut short = String::with_capacity(name.len());
    let mut opened = None;
    for Sign { at, c, depth } in signs(name) {
        match (depth, c) {
            (0, '<') if opened.is_none() && !follows_operator(name, at) => opened = Some(at),
            (0, '>') if opened.is_some() => {
                let arguments = &name[opened.take().unwrap_or(at)..=at];
                short.push_str(match arguments {
                    _ if are_parameters(arguments) => "",
                    _ if arguments.len() > LONGEST_ARGUMENTS => "<…>",
                    _ => arguments,
                });
            }
            _ if opened.is_none() => short.push(c),
            _ => {}
        }
    }
    // Brackets that are not closed.
    short.push_str(opened.map_or("", |at| &name[at..]));
    short
}

/// A function's path without what stands between its first part and the function itself, if it is longer than `most`:
/// `app::…::make_state`.
pub(crate) fn without_middle(path: String, most: usize) -> String {
    if path.chars().count() <= most {
        return path;
    }
    let at_top = signs(&path)
        .into_iter()
        .filter(|sign| sign.depth == 0 && path[sign.at..].starts_with("::"))
        .map(|sign| sign.at);
    let colons: Vec<usize> = at_top.collect();
    match (colons.first(), colons.last()) {
        (Some(&first), Some(&last)) if first + 2 < last => format!("{}::…{}", &path[..first], &path[last..]),
        _ => path,
    }
}

/// `<T, A>`: what Rust's older mangling has for any arguments.
fn are_parameters(list: &str) -> bool {
    let mut names = list[1..list.len() - 1].split(',');
    names.all(|name| matches!(name.trim().as_bytes(), [b'A'..=b'Z'] | [b'A'..=b'Z', b'0'..=b'9']))
}

/// A function's name without parameters, return type and what a compiler adds (`[clone .cold]`).
pub(crate) fn path(name: &str) -> &str {
    let (mut start, mut opened) = (0, None);
    for Sign { at, c, depth } in signs(name) {
        match (depth, c) {
            (0, '(') => opened = Some(at),
            // Nothing but qualifiers stands behind the parameters. Python's files stand behind a blank.
            (0, ')') if matches!(name[at + 1..].chars().next(), None | Some(' ')) => {
                let before = opened.and_then(|opened| name.get(start..opened)).unwrap_or_default();
                let is_part = ["decltype", "operator", " "].iter().any(|word| before.ends_with(word));
                if !is_part && !before.is_empty() {
                    return before;
                }
            }
            (0, ' ') if !follows_operator(name, at) => start = at + 1,
            _ => {}
        }
    }
    // Without parameters it is none of C++'s, and blanks are its own.
    name
}

/// What a function's own declaration calls it: `allocate` of `std::allocator<char>::allocate(unsigned long)`.
pub(crate) fn own(name: &str) -> &str {
    let path = path(name);
    &path[last_segment(path)..]
}

/// Where the last part of a path begins.
fn last_segment(path: &str) -> usize {
    // Rust writes arguments behind colons, too: `push::<u8>`.
    let is_step = |rest: &str| rest.strip_prefix("::").is_some_and(|rest| !rest.starts_with('<'));
    let mut steps = signs(path).into_iter().filter(|sign| sign.depth == 0 && is_step(&path[sign.at..]));
    steps.next_back().map_or(0, |sign| sign.at + 2)
}

/// `push` of `push<u8, Global>`.
fn without_arguments(name: &str) -> &str {
    let opening =
        signs(name).into_iter().find(|sign| sign.depth == 0 && !follows_operator(name, sign.at) && sign.c == '<');
    opening.filter(|sign| sign.at > 0).map_or(name, |sign| name[..sign.at].trim_end_matches("::"))
}

/// What is there belongs to the name of an operator, as in `operator<` and `operator new`.
fn follows_operator(name: &str, at: usize) -> bool {
    name[..at].trim_end_matches(['<', '=', '>', '-']).ends_with("operator")
}

/// A character of a name, and how many brackets it stands in; a bracket stands where its pair does.
#[derive(Clone, Copy)]
struct Sign {
    at: usize,
    c: char,
    depth: usize,
}

fn signs(name: &str) -> Vec<Sign> {
    let mut depth = 0usize;
    let mut before = ' ';
    let signs = name.char_indices().map(|(at, c)| {
        let of_operator = matches!(c, '<' | '>') && follows_operator(name, at);
        match c {
            '>' if before == '-' => {}
            _ if of_operator => {}
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        let sign = Sign { at, c, depth };
        if matches!(c, '<' | '(' | '[' | '{') && !of_operator {
            depth += 1;
        }
        before = c;
        sign
    });
    signs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mangled_names_are_demangled() {
        for (name, expected) in [
            ("a", "a"),
            ("i", "i"),
            ("main", "main"),
            ("St", "St"),
            ("_ZN7mycrate5cache3new17h0123456789abcdefE", "mycrate::cache::new"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_ZN5Cache6insertEi", "Cache::insert(int)"),
            ("_Znwm", "operator new(unsigned long)"),
            ("_Zbroken", "_Zbroken"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("__GI_setlocale", "setlocale"),
            ("_ZN5Cache6insertEi.cold", "Cache::insert(int) [clone .cold]"),
            ("", ""),
        ] {
            assert_eq!(demangle(name), expected, "{name}");
        }
    }

    #[test]
    fn a_constructor_may_have_any_of_its_symbols() {
        for (symbol, expected) in [
            ("main", "main"),
            ("C1", "C1"),
            ("_ZN2C16insertEv", "_ZN2C16insertEv"),
            ("_ZN2C1C1Ev", "_ZN2C1C?Ev"),
            ("_ZN5CacheD2Ev", "_ZN5CacheD?Ev"),
            ("_ZNSt10shared_ptrI1NEC2ISaIvEJEEEv", "_ZNSt10shared_ptrI1NEC?ISaIvEJEEEv"),
            ("_ZN5CacheC*", "_ZN5CacheC*"),
        ] {
            assert_eq!(any_of_its_symbols(symbol), expected, "{symbol}");
        }
    }

    #[test]
    fn the_own_name_is_the_last_part_of_the_path() {
        for (name, expected) in [
            ("main", "main"),
            ("std::allocator<char>::allocate(unsigned long)", "allocate"),
            ("std::shared_ptr<N> std::make_shared<N>()", "make_shared<N>"),
            ("a::b::<u8>", "b::<u8>"),
            ("", ""),
        ] {
            assert_eq!(own(name), expected, "{name}");
        }
    }

    #[test]
    fn short_names_lose_parameters_return_types_and_long_arguments() {
        for (long, expected) in [
            ("main", "main"),
            ("kv::store::Store::put", "kv::store::Store::put"),
            ("std::map<int, long>::insert(int const&)", "std::map<int, long>::insert"),
            ("std::pair<int, bool> std::map<int, long>::insert<int>(int const&)", "std::map<int, long>::insert<int>"),
            ("void grow<char>(char*, unsigned long)", "grow<char>"),
            ("Pool<int, 25>::make() const", "Pool<int, 25>::make"),
            ("alloc::vec::Vec<T,A>::push", "alloc::vec::Vec::push"),
            ("Cache<std::basic_string<char, std::char_traits<char> > >::put(int)", "Cache<…>::put"),
            ("<kv::Store as Default>::default", "<kv::Store as Default>::default"),
            ("operator new(unsigned long)", "operator new"),
            ("Box::operator bool() const", "Box::operator bool"),
            ("Box::operator()(int) const", "Box::operator()"),
            ("bool operator<(Box const&, Box const&)", "operator<"),
            ("std::ostream& operator<< <char>(std::ostream&, char)", "operator<< <char>"),
            ("(anonymous namespace)::fill(int)", "(anonymous namespace)::fill"),
            ("app::(anonymous namespace)::fill(int)", "app::(anonymous namespace)::fill"),
            ("run()::{lambda(int)#1}::operator()(int) const", "run()::{lambda(int)#1}::operator()"),
            ("call_once<fn() -> std::process::ExitCode, ()>", "call_once<…>"),
            ("call<fn() -> u8, ()>", "call<fn() -> u8, ()>"),
            ("kv::start::{closure#0}", "kv::start::{closure#0}"),
            ("Cache.insert (cache.py)", "Cache.insert (cache.py)"),
            ("<module> (cache.py)", "<module> (cache.py)"),
            ("(anonymous)", "(anonymous)"),
            ("[libfoo.so+0x1234]", "[libfoo.so+0x1234]"),
            ("broken<(", "broken<("),
            ("", ""),
        ] {
            assert_eq!(short(long), expected, "{long}");
        }
    }

    #[test]
    fn the_middle_of_a_long_path_is_left_out_and_the_function_stays_whole() {
        for (path, most, expected) in [
            ("gpu_training::training::Training::make_optimizer_state", 40, "gpu_training::…::make_optimizer_state"),
            ("kv_server::server::handle_request", 40, "kv_server::server::handle_request"),
            ("kv::server::handle", 5, "kv::…::handle"),
            ("kv::handle", 5, "kv::handle"),
            ("<kv::server::Store as kv::Cache>::get", 5, "<kv::server::Store as kv::Cache>::get"),
            ("kv::Pool<a::b, c::d>::make", 5, "kv::…::make"),
            ("a_plain_function_of_c", 5, "a_plain_function_of_c"),
        ] {
            assert_eq!(without_middle(path.to_owned(), most), expected, "{path}");
        }
    }

    #[test]
    fn a_path_of_the_symbol_table_goes_before_a_name_of_the_same_function_only() {
        for (own, symbol, expected) in [
            ("handle", "kv::server::handle", Some("kv::server::handle")),
            ("handle<kv::Store>", "kv::server::handle", Some("kv::server::handle<kv::Store>")),
            ("handle<Store>", "kv::server::handle::<kv::Store>", Some("kv::server::handle::<kv::Store>")),
            ("make", "<kv::A as kv::Maker>::make", Some("<kv::A as kv::Maker>::make")),
            ("{closure#0}", "kv::start::{{closure}}", Some("kv::start::{{closure}}")),
            (
                "call_once<kv::F>",
                "core::FnOnce::call_once{{vtable.shim}}",
                Some("core::FnOnce::call_once{{vtable.shim}}"),
            ),
            ("make", "Pool<int, 25>::make()", Some("Pool<int, 25>::make()")),
            ("handle", "kv::server::other", None),
            ("", "kv::server::other", None),
        ] {
            assert_eq!(with_path(own, symbol).as_deref(), expected, "{own} {symbol}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_name_is_too_odd(own in "([a-z<>(){}: -]|operator|λ){0,12}", symbol in "([a-z<>(){}: -]|operator|λ){0,16}") {
            let _ = (short(&symbol), with_path(&own, &symbol));
        }
    }
}
