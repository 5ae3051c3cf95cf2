//! Functions by which a person does not want call sites to be named: those of a program that allocate for their
//! callers, such as its own `xmalloc`. What comes with a language is known anyway (`poolscope_profiler::build`).
//!
//! A rule is a line:
//!
//! ```text
//! xmalloc               a function, by its whole path or by the end of it: `mem::xmalloc`, too
//! fn:^tensor_           a function whose path has this pattern, as suppressions have them: `*`, `^` and `$`
//! file:/third_party/    functions of these source files
//! module:^libutil.so    functions of these executables and libraries
//! # a comment
//! ```

use crate::model::profile::Frame;
use crate::model::snapshot::Module;
use crate::words::pattern;

/// The rules of one person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Naming {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    Function(String),
    Path(String),
    File(String),
    Module(String),
}

/// A line that is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule:?} is no rule for names: write a function, fn:PATTERN, file:PATTERN or module:PATTERN, one a line")]
pub struct NamingError {
    rule: String,
}

impl Naming {
    /// Adds the rules of a text, one a line.
    pub fn add(&mut self, text: &str) -> Result<(), NamingError> {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            // `module::f` is a function.
            let of = |word: &str| line.strip_prefix(word).filter(|rest| word == "fn:" || !rest.starts_with(':'));
            let rule = if let Some(pattern) = of("fn:") {
                Rule::Path(pattern.trim().to_owned())
            } else if let Some(pattern) = of("file:") {
                Rule::File(pattern.trim().to_owned())
            } else if let Some(pattern) = of("module:") {
                Rule::Module(pattern.trim().to_owned())
            } else if line.replace("::", "").contains(':') {
                return Err(NamingError { rule: line.to_owned() });
            } else {
                Rule::Function(line.to_owned())
            };
            let (Rule::Function(text) | Rule::Path(text) | Rule::File(text) | Rule::Module(text)) = &rule;
            // It would hold for everything.
            if text.trim_matches(['*', '^', '$']).is_empty() {
                return Err(NamingError { rule: line.to_owned() });
            }
            self.rules.push(rule);
        }
        Ok(())
    }

    /// Whether a rule holds for a function with this path, in a module if that is known.
    pub fn has(&self, path: &str, frame: &Frame, module: Option<&Module>) -> bool {
        self.rules.iter().any(|rule| match rule {
            Rule::Function(name) => {
                path.strip_suffix(name.as_str()).is_some_and(|before| before.is_empty() || before.ends_with("::"))
            }
            Rule::Path(text) => pattern::matches(text, path),
            Rule::File(text) => frame.file.as_ref().is_some_and(|file| pattern::matches(text, file)),
            Rule::Module(text) => module.is_some_and(|module| pattern::matches(text, module.name())),
        })
    }

    /// There are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(rules: &str, path: &str, file: &str) -> bool {
        let mut naming = Naming::default();
        naming.add(rules).expect("are rules");
        let file = Some(file.to_owned()).filter(|file| !file.is_empty());
        naming.has(path, &Frame { name: path.to_owned(), file, ..Frame::default() }, None)
    }

    #[test]
    fn a_function_is_meant_by_its_path_or_by_the_end_of_it() {
        assert!(has("xmalloc", "xmalloc", "") && has("xmalloc", "mem::xmalloc", ""));
        assert!(!has("xmalloc", "my_xmalloc", "") && !has("xmalloc", "xmalloc_stats", ""));
        assert!(has("mem::xmalloc", "app::mem::xmalloc", "") && !has("mem::xmalloc", "xmalloc", ""));
        assert!(has("a::b::c", "a::b::c", ""));
    }

    #[test]
    fn patterns_are_of_paths_files_and_modules() {
        assert!(has("fn:^tensor_", "tensor_new", "") && !has("fn:^tensor_", "my_tensor_", ""));
        assert!(has("# ours\n\n  file:/third_party/ ", "f", "/src/third_party/f.c"));
        assert!(!has("file:/third_party/", "f", ""));
        let mut naming = Naming::default();
        naming.add("module:^libutil.so").expect("is a rule");
        let module = Module {
            start: 0,
            end: 1,
            load_bias: 0,
            build_id: Vec::new(),
            file: 0,
            path: "/usr/lib/libutil.so.1".to_owned(),
            stacks: 0..1,
        };
        assert!(naming.has("f", &Frame::default(), Some(&module)) && !naming.has("f", &Frame::default(), None));
    }

    #[test]
    fn what_is_no_rule_is_an_error_that_says_so() {
        for text in ["line: 3", "fn:", "fn:*", "size:3"] {
            let error = Naming::default().add(text).expect_err(text);
            assert!(error.to_string().starts_with(&format!("{text:?} is no rule for names")), "{error}");
        }
        assert!(Naming::default().is_empty());
    }
}
