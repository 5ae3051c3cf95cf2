//! What the kernel keeps of the program's and gives back with an event: the data of epoll (epoll_ctl(2)), and the
//! values of timers (timer_create(2)). A program may have the address of a block nowhere else, such as that of a
//! connection. `/proc` says what they are.

use core::ffi::CStr;

use poolscope_wire::reach::holder;

use super::maps::number;
use super::table::Table;
use crate::kernel::os;

/// Most timers that are looked at.
const MAX_TIMERS: usize = 1 << 16;

/// A word that the kernel keeps, and what holds what it points to.
pub type Kept = (usize, u64);

/// Calls `f` with the data of all events that the process's instances of epoll wait for. A server has thousands of
/// descriptors, and to ask for what `/proc` says of one takes many times what it takes to ask for its type. False if there
/// is an instance of which it says nothing.
pub fn of_epoll(mut f: impl FnMut(usize, u64)) -> bool {
    let mut known = true;
    os::for_each_number(c"/proc/thread-self/fdinfo", |descriptor| {
        if !os::is_object_of_the_kernel(descriptor) {
            return;
        }
        let held_by = holder::of_descriptor(descriptor);
        let mut path = [0; 64];
        let path: &CStr = os::path_with(b"/proc/thread-self/fdinfo/", descriptor, b"", &mut path);
        let read = os::for_each_line(path, |line| {
            if let Some(word) = data(line) {
                f(word, held_by);
            }
        });
        known &= read || !os::is_epoll(descriptor);
    });
    known
}

/// The values of the process's timers. Those of a copy of it are none of them. `None` without memory.
pub fn of_timers() -> Option<Table<Kept>> {
    let mut values = Table::new(MAX_TIMERS)?;
    let mut timer = 0;
    os::for_each_line(c"/proc/self/timers", |line| {
        if let Some(id) = line.strip_prefix(b"ID: ").and_then(|id| number(id, 10)) {
            timer = id as u32;
        } else if let Some(value) = value(line) {
            values.push((value, holder::of_timer(timer)));
        }
    });
    Some(values)
}

/// `tfd:        5 events:       19 data:     7f52cc000b70  pos:0 ino:40f sdev:10`
fn data(line: &[u8]) -> Option<usize> {
    let words = line.strip_prefix(b"tfd:")?.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let mut words = words.skip_while(|&word| word != b"data:");
    number(words.nth(1)?, 16)
}

/// `signal: 10/00007f52cc000b70`
fn value(line: &[u8]) -> Option<usize> {
    let rest = line.strip_prefix(b"signal: ")?;
    let slash = rest.iter().position(|&byte| byte == b'/')?;
    number(&rest[slash + 1..], 16)
}

#[cfg(test)]
mod tests {
    use libc::{close, epoll_create1, epoll_ctl, eventfd, timer_create, timer_delete};

    use super::*;

    #[test]
    fn lines_of_the_kernels_are_read() {
        let line = b"tfd:        4 events:       19 data:     123456789abc  pos:0 ino:40f sdev:10";
        assert_eq!(data(line), Some(0x1234_5678_9abc));
        assert_eq!(data(b"tfd:        4 events: 80000019 data: ffffffffffffffff  pos:0"), Some(usize::MAX));
        assert_eq!(data(b"pos:\t0"), None);
        assert_eq!(data(b"tfd: 4 events: 19 data:"), None);
        assert_eq!(value(b"signal: 10/00000000abcd1234"), Some(0xabcd_1234));
        assert_eq!(value(b"notify: signal/pid.8221"), None);
    }

    #[test]
    fn what_waits_in_epoll_and_in_a_timer_is_found() {
        let word = 0x1234_5678_9abc_usize;
        // SAFETY: calls of the kernel with values of this function.
        let (epoll, event, timer) = unsafe {
            let (epoll, event) = (epoll_create1(libc::EPOLL_CLOEXEC), eventfd(0, libc::EFD_CLOEXEC));
            let mut wanted = libc::epoll_event { events: libc::EPOLLIN as u32, u64: word as u64 };
            assert_eq!(epoll_ctl(epoll, libc::EPOLL_CTL_ADD, event, &raw mut wanted), 0);
            let mut asked: libc::sigevent = core::mem::zeroed();
            (asked.sigev_notify, asked.sigev_signo) = (libc::SIGEV_SIGNAL, libc::SIGURG);
            asked.sigev_value.sival_ptr = (word + 1) as *mut libc::c_void;
            let mut timer: libc::timer_t = core::mem::zeroed();
            assert_eq!(timer_create(libc::CLOCK_MONOTONIC, &raw mut asked, &raw mut timer), 0);
            (epoll, event, timer)
        };
        let mut found = Vec::new();
        assert!(of_epoll(|word, held_by| found.push((word, held_by))));
        found.retain(|&(found, _)| found == word);
        assert_eq!(found, [(word, holder::of_descriptor(epoll as u32))]);
        let timers = of_timers().expect("memory");
        assert!(timers.as_slice().iter().any(|&(found, _)| found == word + 1));
        // SAFETY: they are this function's.
        unsafe {
            timer_delete(timer);
            close(event);
            close(epoll);
        }
    }
}
