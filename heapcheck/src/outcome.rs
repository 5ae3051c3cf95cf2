//! Whether a test has failed by what it gives back. For the attribute alone.

/// A `Result` fails by being an error.
pub trait FailsAsResult {
    /// Whether it is one.
    fn is_failure(&self) -> bool;
}

/// Everything else does not. Behind a reference, so that the other is found first where both would do.
pub trait FailsNever {
    /// No.
    fn is_failure(&self) -> bool;
}

impl<T, E> FailsAsResult for Result<T, E> {
    fn is_failure(&self) -> bool {
        self.is_err()
    }
}

impl<T> FailsNever for &T {
    fn is_failure(&self) -> bool {
        false
    }
}
