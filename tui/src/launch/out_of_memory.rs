//! Whether the kernel ended a program because its control group had no more memory.
//!
//! The kernel's log, which says whom it killed, is not for a container to read; how many it has killed in a group stands
//! in the group's own files.

use std::process::ExitStatus;

use poolscope_profiler::process::control_group::ControlGroup;
use signal_hook::consts::SIGKILL;

use crate::words::Ended;

/// The processes that the kernel has killed in this control group for lack of memory, before a program is started.
pub(crate) struct Kills(Option<u64>);

impl Kills {
    pub(crate) fn so_far() -> Kills {
        Kills(count())
    }

    /// How a program ended that was started since.
    pub(crate) fn how_ended(&self, status: ExitStatus) -> Ended {
        match (Ended::from(status), self.0) {
            (Ended::Signal(SIGKILL), Some(before)) if count() > Some(before) => Ended::OutOfMemory,
            (ended, _) => ended,
        }
    }
}

fn count() -> Option<u64> {
    ControlGroup::of(std::process::id())?.kills()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn only_a_kill_with_a_higher_count_is_for_lack_of_memory() {
        let killed = ExitStatus::from_raw(SIGKILL);
        assert_eq!(Kills(None).how_ended(killed), Ended::Signal(SIGKILL));
        assert_eq!(Kills(Some(u64::MAX)).how_ended(killed), Ended::Signal(SIGKILL));
        assert_eq!(Kills(Some(0)).how_ended(ExitStatus::from_raw(0x300)), Ended::Code(3));
    }
}
