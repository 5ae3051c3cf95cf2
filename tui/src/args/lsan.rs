//! LeakSanitizer's options, from the environment: what they mean for `poolscope check`.
//!
//! `detect_leaks` and `leak_check_at_exit` are the program's, which reads them itself.

use std::path::PathBuf;

/// The options that mean something here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Files of suppressions.
    pub(crate) suppressions: Vec<PathBuf>,
    /// What to end with if anything leaked.
    exitcode: Option<u8>,
}

/// Those of this process's environment.
pub(crate) fn options() -> Options {
    Options::of(&std::env::var("LSAN_OPTIONS").unwrap_or_default())
}

impl Options {
    /// `NAME=VALUE`, separated by colons, commas or blanks; the last value counts. Other names are left to the program.
    fn of(text: &str) -> Self {
        let mut options = Options::default();
        for word in text.split([':', ',', ' ', '\t', '\n']) {
            match word.split_once('=') {
                Some(("suppressions", file)) if !file.is_empty() => {
                    options.suppressions = vec![PathBuf::from(file.trim_matches('"'))];
                }
                Some(("exitcode", code)) => options.exitcode = code.parse().ok().or(options.exitcode),
                _ => {}
            }
        }
        options
    }

    /// What to end with for leaks: `usual` unless something else is asked for, and with `exitcode=0` as the program
    /// did.
    pub(crate) fn exit_code(&self, usual: u8, own: u8) -> u8 {
        match self.exitcode {
            None => usual,
            Some(0) => own,
            Some(code) => code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_leak_sanitizer_reads_them() {
        let options = Options::of("verbosity=1:suppressions=a.supp:exitcode=7,suppressions=\"b.supp\" max_leaks=3");
        assert_eq!(options, Options { suppressions: vec!["b.supp".into()], exitcode: Some(7) });
        assert_eq!((options.exit_code(23, 4), Options::default().exit_code(23, 4)), (7, 23));
        assert_eq!(Options::of("exitcode=0").exit_code(23, 4), 4);
        assert_eq!(Options::of("exitcode=many"), Options::default());
    }
}
