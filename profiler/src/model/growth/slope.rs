//! A slope with its standard error, and whether it goes on.

use crate::model::snapshot::Amount;

/// A slope and the variance of it, bytes a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Part {
    pub(super) per_minute: f64,
    pub(super) variance: f64,
}

impl Part {
    fn error(self) -> f64 {
        self.variance.sqrt()
    }

    fn errors(self) -> f64 {
        if self.variance > 0.0 { self.per_minute / self.error() } else { 0.0 }
    }

    fn and(self, other: Part) -> Part {
        Part { per_minute: self.per_minute + other.per_minute, variance: self.variance + other.variance }
    }
}

/// The slope of a window of time with its standard error.
///
/// It is that of the whole window, unless the window's second half contradicts it: a program that has filled its caches
/// in the first seconds, and leaks slowly since, is said to grow as fast as it leaks. What has come to an end in the
/// first half does not grow: see [`Slope::goes_on`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slope {
    whole: Kept,
    /// Of the second half.
    late: Kept,
}

/// A [`Part`] in half of its room: each call site has two of them, and seven digits are more than are known of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Kept {
    per_minute: f32,
    variance: f32,
}

impl From<Part> for Kept {
    fn from(part: Part) -> Kept {
        Kept { per_minute: part.per_minute as f32, variance: part.variance as f32 }
    }
}

impl From<Kept> for Part {
    fn from(kept: Kept) -> Part {
        Part { per_minute: kept.per_minute.into(), variance: kept.variance.into() }
    }
}

impl Slope {
    /// A slope and its standard error, both in bytes a minute, that is the same in both halves.
    pub fn new(per_minute: f64, error: f64) -> Slope {
        let whole = Part { per_minute, variance: error * error };
        Slope::of_parts(whole, whole)
    }

    /// A slope and its standard error, both in bytes a minute: of the whole window and of its second half.
    pub fn of_halves(whole: (f64, f64), late: (f64, f64)) -> Slope {
        let part = |(per_minute, error): (f64, f64)| Part { per_minute, variance: error * error };
        Slope::of_parts(part(whole), part(late))
    }

    pub(super) fn of_parts(whole: Part, late: Part) -> Slope {
        Slope { whole: whole.into(), late: late.into() }
    }

    /// What is known of the whole window and of its second half.
    fn parts(self) -> (Part, Part) {
        (self.whole.into(), self.late.into())
    }

    /// The same errors with other slopes.
    pub(super) fn with(self, whole: f64, late: f64) -> Slope {
        let (of_whole, of_late) = self.parts();
        Slope::of_parts(Part { per_minute: whole, ..of_whole }, Part { per_minute: late, ..of_late })
    }

    /// What is said of it: the whole, or the second half if that contradicts it or is known much better. A slope that
    /// does not change has halves that differ by this much once in some thousand windows, and its second half is known
    /// worse than the whole.
    fn told(self) -> Part {
        let (whole, late) = self.parts();
        let apart = (whole.per_minute - late.per_minute).abs();
        let contradicts = apart > 2.0 * (whole.variance + late.variance).sqrt();
        let is_late = contradicts || 8.0 * late.variance < whole.variance;
        if is_late && late.variance > 0.0 { late } else { whole }
    }

    /// Bytes a minute.
    pub fn per_minute(self) -> f64 {
        self.told().per_minute
    }

    /// Its standard error, bytes a minute.
    pub fn error(self) -> f64 {
        self.told().error()
    }

    /// How many standard errors it is from none; 0 if nothing is known.
    pub fn errors(self) -> f64 {
        self.told().errors()
    }

    /// The second half of the window goes the way that is told, by more than two standard errors.
    pub fn goes_on(self) -> bool {
        Part::from(self.late).errors() * self.per_minute().signum() > 2.0
    }

    /// It is a figure worth showing: more than two standard errors from none, and it goes on.
    pub fn is_clear(self) -> bool {
        self.errors().abs() > 2.0 && self.goes_on()
    }

    /// It was clear, and came to an end in the first half of the window.
    pub fn has_ended(self) -> bool {
        self.errors().abs() > 2.0 && !self.goes_on()
    }

    /// It grows: by more than three standard errors, and it goes on.
    pub fn grows(self) -> bool {
        self.errors() > 3.0 && self.goes_on()
    }

    /// Bytes a minute, times the share that is still in use of all that was ever allocated there: what fills up while
    /// much of it is freed comes to an end, as a cache does, and what is never freed does not.
    pub fn for_good(self, in_use: &Amount, allocated: &Amount) -> f64 {
        self.per_minute() * (in_use.bytes / allocated.bytes.max(in_use.bytes).max(1.0))
    }

    /// The slope of both together.
    #[must_use]
    pub fn and(self, other: Slope) -> Slope {
        let (a, b) = (self.parts(), other.parts());
        Slope::of_parts(a.0.and(b.0), a.1.and(b.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_in_the_first_half_neither_grows_nor_has_a_figure() {
        let ramp = Slope::of_halves((400.0, 80.0), (0.0, 0.0));
        assert!(ramp.has_ended() && !ramp.grows() && !ramp.is_clear());
        // What is busy wobbles about nothing after it.
        for late in [-9.0, 9.0] {
            let busy = Slope::of_halves((400.0, 80.0), (late, 8.0));
            assert!(!busy.grows() && !busy.is_clear(), "{late}");
        }
        let turned = Slope::of_halves((400.0, 80.0), (-300.0, 20.0));
        assert!(!turned.grows() && turned.per_minute() < 0.0);
    }

    #[test]
    fn a_leak_after_a_ramp_has_its_own_slope() {
        let leak = Slope::of_halves((400.0, 80.0), (41.0, 6.0));
        assert!(leak.grows());
        assert_eq!((leak.per_minute(), leak.error()), (41.0, 6.0));
    }

    /// What was loaded as it started and thrown away has fallen, and the window has it for minutes.
    #[test]
    fn a_leak_after_a_fall_grows() {
        let leak = Slope::of_halves((-20.0, 15.0), (8.0, 0.2));
        assert!(leak.grows() && !leak.has_ended(), "{leak:?}");
        assert_eq!(leak.per_minute(), 8.0);
        // A fall that came to an end is no growth.
        assert!(!Slope::of_halves((-20.0, 15.0), (0.2, 0.2)).is_clear());
    }

    #[test]
    fn what_goes_on_as_it_began_has_the_slope_of_the_whole_window() {
        let leak = Slope::of_halves((40.0, 5.0), (33.0, 9.0));
        assert!(leak.grows());
        assert_eq!((leak.per_minute(), leak.error()), (40.0, 5.0));
        let falls = Slope::of_halves((-40.0, 5.0), (-33.0, 9.0));
        assert!(falls.is_clear() && !falls.grows());
    }
}
