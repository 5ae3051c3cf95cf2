//! Where the sources of a crate lead to inside of it: the paths that its `use` lines and its expressions name.
//!
//! Sources are read as tokens, so that comments and texts are no code, and what macros are made of is. A path counts
//! from the crate's root: `crate`, `super` and `self` are resolved by the module that the path stands in.

use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path of the crate that a source names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// The source, below the crate's folder of sources.
    pub file: PathBuf,
    /// The module that the source is, from the crate's root.
    pub module: Vec<String>,
    /// The path, from the crate's root.
    pub path: Vec<String>,
}

/// All paths of the crate that the sources in a folder name, and all sources, as modules.
pub fn of_crate(sources: &Path) -> (Vec<Vec<String>>, Vec<Import>) {
    let (mut modules, mut imports) = (Vec::new(), Vec::new());
    for file in files(sources) {
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let below = file.strip_prefix(sources).expect("it was found there");
        let module = module_of(below);
        imports.extend(of_source(&text, &module).into_iter().map(|path| Import {
            file: below.to_owned(),
            module: module.clone(),
            path,
        }));
        modules.push(module);
    }
    (modules, imports)
}

/// The Rust sources in a folder and below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The module that a source is: `pool/mod.rs` and `pool.rs` are `pool`, and `lib.rs` is the root.
fn module_of(file: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        file.with_extension("").components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| last == "mod") || module == ["lib"] || module == ["main"] {
        module.pop();
    }
    module
}

/// The paths of the crate that a source names, which is this module.
fn of_source(text: &str, module: &[String]) -> Vec<Vec<String>> {
    let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{module:?} is no Rust: {error}"));
    let mut paths = Vec::new();
    walk(tokens, module, &mut paths);
    paths
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

/// Whether `::` stands there.
fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')
}

fn walk(tokens: TokenStream, module: &[String], paths: &mut Vec<Vec<String>>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        match token {
            TokenTree::Group(group) => {
                let name = at.checked_sub(2).filter(|from| ident(tokens.get(*from)).as_deref() == Some("mod"));
                match name.and_then(|_| ident(before)).filter(|_| group.delimiter() == Delimiter::Brace) {
                    Some(inner) => walk(group.stream(), &[module, &[inner]].concat(), paths),
                    // What is visible where is no import.
                    None if ident(before).as_deref() == Some("pub") => {}
                    None => walk(group.stream(), module, paths),
                }
            }
            TokenTree::Ident(first) if first == "crate" || first == "super" || first == "self" => {
                let continues = at >= 2 && is_colons(&tokens, at - 2);
                // What a macro for other crates names, it names by what is public.
                let is_of_macro = is_punct(before, '$');
                if is_colons(&tokens, at + 1) && !continues && !is_of_macro {
                    branches(&tokens[at..], module, &mut Vec::new(), paths);
                }
            }
            _ => {}
        }
    }
}

/// Adds the paths that begin here: one, or those of a `use` line's groups. `so_far` is what comes before, unresolved.
fn branches(tokens: &[TokenTree], module: &[String], so_far: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    let depth = so_far.len();
    let mut at = 0;
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(name)) => so_far.push(name.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                for branch in inner.split(|token| is_punct(Some(token), ',')).filter(|branch| !branch.is_empty()) {
                    branches(branch, module, so_far, paths);
                }
                so_far.truncate(depth);
                return;
            }
            // The star at the end of a `use` line, or the brackets of a type.
            _ => break,
        }
        if !is_colons(tokens, at + 1) {
            break;
        }
        at += 3;
    }
    // A macro is the crate's, wherever it was declared.
    if !is_punct(tokens.get(at + 1), '!') {
        paths.push(resolve(so_far, module));
    }
    so_far.truncate(depth);
}

fn resolve(path: &[String], module: &[String]) -> Vec<String> {
    let mut resolved = module.to_vec();
    for part in path {
        match part.as_str() {
            "crate" => resolved.clear(),
            "super" => drop(resolved.pop()),
            "self" => {}
            name => resolved.push(name.to_owned()),
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{module_of, of_source};

    #[test]
    fn a_file_is_the_module_that_rust_takes_it_for() {
        let module = |file: &str| module_of(Path::new(file)).join("::");
        let files = ["lib.rs", "pool.rs", "pool/mod.rs", "pool/slow.rs", "a/b/mod.rs"];
        assert_eq!(files.map(module), ["", "pool", "pool", "pool::slow", "a::b"]);
    }

    #[test]
    fn paths_of_the_crate_are_found_wherever_they_stand_and_nothing_else_is() {
        let source = r#"
            //! crate::comment
            use std::sync::Arc;
            use crate::device::{Device, cuda::{Cuda, CudaDevice as Card}, self};
            use super::shared::*;
            pub(in crate::visible) struct Text(&'static str);
            macro_rules! made { () => { crate::made::here($crate::Public) }; }
            fn f(of: &crate::pending::Point) -> Text {
                crate::exported!(1);
                let is_a_lifetime: &'static str = "crate::text";
                Vec::<super::super::top::Type>::new();
                other::crate_like::f(of)
            }
            mod tests { use super::List; mod deeper { use super::super::f; } }
        "#;
        let module = ["pool".to_owned(), "slow".to_owned()];
        let found: Vec<String> = of_source(source, &module).iter().map(|path| path.join("::")).collect();
        assert_eq!(
            found,
            [
                "device::Device",
                "device::cuda::Cuda",
                "device::cuda::CudaDevice",
                "device",
                "pool::shared",
                "made::here",
                "pending::Point",
                "top::Type",
                "pool::slow::List",
                "pool::slow::f",
            ]
        );
    }
}
