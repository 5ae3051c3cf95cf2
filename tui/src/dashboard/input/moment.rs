//! Moments of a recording, and how keys lead from one to another.

/// Which moment of a recording is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Microseconds since the start.
    pub(crate) at_us: u64,
    /// Those of the last event.
    pub(crate) end_us: u64,
    /// It goes on by itself.
    pub(crate) plays: bool,
}

/// Another moment of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seek {
    /// By so many fiftieths of it.
    By(i8),
    /// Its start.
    First,
    /// Its end.
    Last,
    /// This one, in microseconds.
    To(u64),
    /// Go on by itself, or no longer.
    Play,
}

impl Seek {
    /// The moment that it leads to.
    pub(crate) fn from(self, moment: Moment) -> Moment {
        let Moment { at_us, end_us, plays } = moment;
        let by = |fiftieths: i64| at_us.saturating_add_signed(fiftieths * (end_us / 50).max(1) as i64).min(end_us);
        match self {
            Seek::By(fiftieths) => Moment { at_us: by(fiftieths.into()), ..moment },
            Seek::First => Moment { at_us: 0, ..moment },
            Seek::Last => Moment { at_us: end_us, plays: false, ..moment },
            Seek::To(at_us) => Moment { at_us: at_us.min(end_us), ..moment },
            // At its end it begins anew.
            Seek::Play if !plays && at_us >= end_us => Moment { at_us: 0, plays: true, ..moment },
            Seek::Play => Moment { plays: !plays, ..moment },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_has_a_start_and_an_end() {
        let middle = Moment { at_us: 500, end_us: 1000, plays: false };
        let at = |seek: Seek, from: Moment| seek.from(from).at_us;
        assert_eq!((at(Seek::By(1), middle), at(Seek::By(-1), middle)), (520, 480));
        let (start, end) = (Seek::First.from(middle), Seek::Last.from(middle));
        assert_eq!((start.at_us, end.at_us), (0, 1000));
        assert_eq!((at(Seek::By(-1), start), at(Seek::By(1), end), at(Seek::To(7000), start)), (0, 1000, 1000));
        assert!(Seek::Play.from(middle).plays && !Seek::Play.from(Seek::Play.from(middle)).plays);
        assert_eq!(Seek::Play.from(end), Moment { at_us: 0, end_us: 1000, plays: true });
        assert_eq!(at(Seek::By(1), Moment { at_us: 3, end_us: 20, plays: false }), 4, "a short one has steps, too");
    }
}
