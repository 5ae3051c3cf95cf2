//! How a program ended, as a word and as an exit code.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use poolscope_profiler::process::ending::Ending;
use signal_hook::consts::{SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGSTOP};

/// How a program came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It exited with a code.
    Code(i32),
    /// A signal killed it.
    Signal(i32),
    /// The kernel killed it, since its control group had no more memory.
    OutOfMemory,
}

impl Ended {
    /// The code that this end means for the shell.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Ended::Code(code) => code as u8,
            Ended::Signal(signal) => of_signal(signal),
            Ended::OutOfMemory => of_signal(SIGKILL),
        }
    }

    /// The same as `Display`, where there is little room: `killed by SIGKILL`.
    pub(crate) fn short(self) -> String {
        match self {
            Ended::OutOfMemory => "killed, out of memory".into(),
            _ => self.to_string().trim_start_matches("was ").to_owned(),
        }
    }
}

/// The exit code of what a signal ended, as a shell has it.
pub(crate) fn of_signal(signal: i32) -> u8 {
    128u8.wrapping_add(signal as u8)
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Ended::Code(code),
            (None, Some(signal)) => Ended::Signal(signal),
            (None, None) => Ended::Code(1),
        }
    }
}

/// `exited with code 3`, `was killed by SIGKILL`.
impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Ended::Code(code) => write!(f, "exited with code {code}"),
            Ended::Signal(signal) => write!(f, "was killed by {}", signal_name(signal)),
            Ended::OutOfMemory => {
                f.write_str("was killed by the kernel (SIGKILL): its control group had no more memory")
            }
        }
    }
}

/// `SIGKILL` for 9.
fn signal_name(signal: i32) -> String {
    // signal-hook names the signals that a program may handle with it, and not the others.
    signal_hook::low_level::signal_name(signal).map_or_else(
        || match signal {
            SIGKILL => "SIGKILL".into(),
            SIGSTOP => "SIGSTOP".into(),
            SIGSEGV => "SIGSEGV".into(),
            SIGBUS => "SIGBUS".into(),
            SIGFPE => "SIGFPE".into(),
            SIGILL => "SIGILL".into(),
            SIGABRT => "SIGABRT".into(),
            _ => format!("signal {signal}"),
        },
        str::to_owned,
    )
}

/// What became of a process that did not leave by `exit`, as far as anybody says.
pub(crate) fn gone(ending: Option<&Ending>) -> &'static str {
    match ending {
        Some(Ending::Exited) => "exited",
        Some(Ending::Replaced) => "replaced itself by another program, which is not on the pool",
        Some(Ending::Rebooted) => "is gone: the machine was started again since",
        Some(Ending::OutOfMemory(_)) => "is gone: memory had run out, and the kernel killed it",
        Some(Ending::Fault(_)) => "is gone: it crashed, as the kernel's log says",
        Some(Ending::Unknown) | None => "is gone: a signal ended it, or it left by _exit",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_a_word_and_the_code_of_a_shell() {
        for (ended, word, code) in [
            (Ended::Code(0), "exited with code 0", 0),
            (Ended::Code(7), "exited with code 7", 7),
            (Ended::Signal(SIGKILL), "was killed by SIGKILL", 137),
            (Ended::Signal(SIGSEGV), "was killed by SIGSEGV", 139),
            (Ended::Signal(15), "was killed by SIGTERM", 143),
            (Ended::Signal(64), "was killed by signal 64", 192),
            (Ended::OutOfMemory, "was killed by the kernel (SIGKILL): its control group had no more memory", 137),
        ] {
            assert_eq!((ended.to_string().as_str(), ended.exit_code()), (word, code));
        }
        assert_eq!(Ended::from(ExitStatus::from_raw(0x300)), Ended::Code(3));
        assert_eq!(Ended::from(ExitStatus::from_raw(9)), Ended::Signal(9));
    }
}
