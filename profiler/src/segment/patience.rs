//! How long a reading waits for a writer that is in the middle of what is read.
//!
//! A write takes less than a microsecond, so that a second look is enough mostly. But a writer may lose its processor
//! there, for a time slice or for several on a busy machine: a pool of device memory, a peak or a history must not be
//! missing for that. One that was killed there never goes on.

use std::thread::{sleep, yield_now};
use std::time::Duration;

/// Looks at one thing before a reading sleeps between them.
const LOOKS: u32 = 8;
const NAP: Duration = Duration::from_millis(1);
/// Naps of one reading of a running process, for all that it reads.
const NAPS: u32 = 100;

/// What is left of the time that a reading has for waiting.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    naps: u32,
}

impl Patience {
    /// That of a reading of a process that runs, or does not.
    pub(crate) fn with(runs: bool) -> Self {
        Patience { naps: if runs { NAPS } else { 0 } }
    }

    /// Looks until something is seen whole. `None` if it never was.
    pub(crate) fn look<T, E>(&mut self, mut whole: impl FnMut() -> Result<Option<T>, E>) -> Result<Option<T>, E> {
        for look in 0.. {
            if let Some(seen) = whole()? {
                return Ok(Some(seen));
            }
            match (look < LOOKS, self.naps) {
                (true, _) => yield_now(),
                (false, 0) => break,
                (false, naps) => {
                    self.naps = naps - 1;
                    sleep(NAP);
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::{LOOKS, NAPS, Patience};

    /// Looks at what is never whole.
    fn looks(patience: &mut Patience) -> u32 {
        let mut looks = 0;
        let never = || {
            looks += 1;
            Ok::<Option<()>, ()>(None)
        };
        assert_eq!(patience.look(never), Ok(None));
        looks
    }

    #[test]
    fn what_is_whole_soon_is_waited_for_and_what_never_is_costs_a_reading_its_naps_once() {
        let mut patience = Patience::with(true);
        let mut left = LOOKS + 20;
        let soon = || {
            left -= 1;
            Ok::<_, ()>((left == 0).then_some(7))
        };
        assert_eq!(patience.look(soon), Ok(Some(7)));
        assert!((1..NAPS).contains(&patience.naps));
        assert!(looks(&mut patience) > LOOKS + 50);
        assert_eq!((patience.naps, looks(&mut patience)), (0, LOOKS + 1));
        assert_eq!(looks(&mut Patience::with(false)), LOOKS + 1, "a dead writer is not waited for");
    }
}
