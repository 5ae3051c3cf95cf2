//! Signals by their numbers and by their names.

use core::ffi::c_int;

use poolscope_wire::quantity::decimal;

/// The signals that have a name in Linux (signal(7)), but for those of [`has_no_use`].
const NAMES: [(&str, c_int); 24] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("STKFLT", libc::SIGSTKFLT),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("PWR", libc::SIGPWR),
];

/// The highest number of a signal.
pub const LAST: u64 = 64;

/// Signals that nothing can be asked with: they can't be handled, or a handler that returns comes back at once, or they
/// are the C library's own (nptl(7)).
pub fn has_no_use(signal: u64) -> bool {
    const FAULTS: [c_int; 4] = [libc::SIGILL, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV];
    const LIBRARY: [c_int; 2] = [32, 33];
    [libc::SIGKILL, libc::SIGSTOP].iter().chain(&FAULTS).chain(&LIBRARY).any(|&none| none as u64 == signal)
}

/// The number of a signal that is written as `12`, `USR2`, `SIGUSR2` or `RTMIN+3`.
pub fn parse(text: &[u8]) -> Option<u64> {
    if let Some(number) = decimal(text) {
        return Some(number);
    }
    let upper = |byte: &u8| byte.to_ascii_uppercase();
    let is = |text: &[u8], name: &str| text.iter().map(upper).eq(name.bytes());
    let name = match text.split_at_checked(3) {
        Some((sig, name)) if is(sig, "SIG") => name,
        _ => text,
    };
    let (base, rest) = name.split_at_checked(5).unwrap_or((name, b""));
    let (first, last) = (libc::SIGRTMIN() as u64, libc::SIGRTMAX() as u64);
    let real_time = if is(base, "RTMIN") {
        if rest.is_empty() { first } else { first.checked_add(decimal(rest.strip_prefix(b"+")?)?)? }
    } else if is(base, "RTMAX") {
        if rest.is_empty() { last } else { last.checked_sub(decimal(rest.strip_prefix(b"-")?)?)? }
    } else {
        return NAMES.iter().find(|(known, _)| is(name, known)).map(|&(_, number)| number as u64);
    };
    (first..=last).contains(&real_time).then_some(real_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_by_number_and_by_name() {
        // Each C library keeps some of them for itself.
        let first = libc::SIGRTMIN() as u64;
        for (text, number) in [
            ("0", 0),
            ("12", 12),
            ("USR2", 12),
            ("SIGUSR1", 10),
            ("sigusr1", 10),
            ("hup", 1),
            ("IO", 29),
            ("RTMIN", first),
            ("SIGRTMIN+3", first + 3),
            ("rtmin+0", first),
            ("RTMAX", 64),
            ("SIGRTMAX-1", 63),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(number), "{text}");
        }
        for bad in [
            "",
            "SIG",
            "USR3",
            "USR",
            "SIGSIGUSR1",
            "RTMIN+31",
            "RTMAX-31",
            "RTMIN-1",
            "RTMAX+1",
            "RTMIN+",
            "1x",
            "SEGV",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn every_named_signal_can_be_used() {
        for (name, number) in NAMES {
            assert!(!has_no_use(number as u64), "{name}");
        }
        assert!([4, 7, 8, 9, 11, 19, 32, 33].into_iter().all(has_no_use));
    }
}
