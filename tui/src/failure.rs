//! Failures that the user can do something about: a message and an exit code.

use std::fmt;

/// A failure with its exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// 2 for what is asked wrongly or cannot be had, 126 and 127 as in a shell.
    pub(crate) code: u8,
    /// What was tried, on what, why it failed, what to do.
    pub(crate) message: String,
}

impl Failure {
    /// A failure.
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    /// One with exit code 2.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(2, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
