//! The garbage collector of thread caches: gives back what threads that sleep keep to themselves.
//!
//! A thread's cache is its own, and its fast path has no instruction for anyone else. So the collector takes a cache
//! only while its thread can't be using it: the thread is blocked in a system call, and the next thing that it does
//! with the pool is the slow path, where it waits for the collector.
//!
//! 1. The thread's fast path is closed ([`crate::detour::take_from_sleeper`]).
//! 2. *Then* the kernel says that the thread is blocked in a system call (`/proc/self/task/TID/syscall`). There is no
//!    system call in the fast path: the thread is not in the middle of it, and when it goes on it finds it closed.
//!    In `vfork` and its like a child has the thread's memory meanwhile: those do not count.
//! 3. Only a signal handler can have interrupted a fast path and be the one that is blocked. So a stack that has the
//!    return address of a signal handler on it is left alone.
//! 4. The word must still say that the path is closed (a thread in the slow path has another one there) and the heap
//!    must not be pinned. Then its cache goes back, and the path stays closed: the thread opens it itself.
//!
//! Threads are asked after only if they have not been in the slow path between two looks, `POOLSCOPE_GC_MS` apart: whoever
//! allocates is there every few dozen blocks. Without `/proc`, or where it is not the kernel's own (valgrind, qemu), nothing
//! is collected.

use core::cell::Cell;

use crate::detour;
use crate::message::decimal;
use crate::os;
use crate::registry;
use crate::spin_lock::SlowPath;
use crate::thread_cache::Heap;

/// What the collector knows of a heap. Zeroed memory is nothing.
#[derive(Default)]
pub struct Idle {
    /// What [`Heap::visits`] was at the last look.
    visits: Cell<u64>,
    /// When that was, in milliseconds of the monotonic clock.
    since: Cell<u64>,
    /// Its cache was given back, and its thread has not been in the slow path since.
    collected: Cell<bool>,
}

/// A cache of fewer bytes is not worth a thread that waits for it.
const IDLE_MIN: usize = 64 * 1024;

/// Gives back the caches of all threads that have not allocated for `after_ms`. Whether any thread has one left.
pub fn collect(slow: SlowPath, now_ms: u64, after_ms: u64) -> bool {
    let mut left = false;
    let mut handlers = None;
    registry::for_each_heap(|heap| {
        if registry::has_no_thread(heap) {
            return;
        }
        if heap.idle.collected.get() {
            if detour::is_closed(heap) {
                return;
            }
            heap.idle.collected.set(false);
        }
        left |= heap.idle_bytes() >= IDLE_MIN;
        let visits = heap.visits();
        if heap.idle.visits.replace(visits) != visits {
            heap.idle.since.set(now_ms);
        } else if now_ms - heap.idle.since.get() >= after_ms {
            heap.idle.since.set(now_ms);
            if collect_heap(slow, heap, handlers.get_or_insert_with(Handlers::installed)) {
                heap.idle.collected.set(true);
            }
        }
    });
    left
}

/// Gives back the caches of all threads that sleep, whether or not they ran a moment ago.
pub fn collect_sleeping(slow: SlowPath) {
    let handlers = Handlers::installed();
    registry::for_each_heap(|heap| {
        if !registry::has_no_thread(heap) && collect_heap(slow, heap, &handlers) {
            heap.idle.collected.set(true);
        }
    });
}

fn collect_heap(slow: SlowPath, heap: &'static Heap, handlers: &Handlers) -> bool {
    let Some(_closing) = heap.closing.try_lock(slow) else { return false };
    let sleeps = || sleeps_outside_handlers(heap.thread_id.get(), handlers);
    detour::take_from_sleeper(heap, sleeps, || {
        let may_be_taken = !heap.pinned.get();
        if may_be_taken {
            heap.retire_all(slow);
        }
        may_be_taken
    })
}

/// `/proc/self/task/TID/FILE`, read into `buffer`.
fn read_task<'a>(tid: u32, file: &[u8], buffer: &'a mut [u8]) -> &'a [u8] {
    let mut path = [0u8; 64];
    let (digits, first) = decimal(u64::from(tid));
    let mut len = 0;
    for part in [&b"/proc/self/task/"[..], &digits[first..], b"/", file] {
        path[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    let read = core::ffi::CStr::from_bytes_until_nul(&path).map_or(0, |path| os::read_file(path, buffer));
    &buffer[..read]
}

/// System calls during which a child may run in the caller's memory, on its stack and with its thread-local storage.
const LENDING: [i64; 3] = [LENDING_VFORK, libc::SYS_clone, libc::SYS_clone3];
#[cfg(target_arch = "x86_64")]
const LENDING_VFORK: i64 = libc::SYS_vfork;
#[cfg(not(target_arch = "x86_64"))]
const LENDING_VFORK: i64 = libc::SYS_clone;

/// Whether a thread is blocked in a system call, and no signal handler of it has interrupted anything.
fn sleeps_outside_handlers(tid: u32, handlers: &Handlers) -> bool {
    let mut buffer = [0; 256];
    // "NUMBER ARG1 ... ARG6 SP PC"; "running"; "-1 SP PC" if it is blocked elsewhere (proc_pid_syscall(5)).
    let text = read_task(tid, b"syscall", &mut buffer).trim_ascii();
    let mut fields = text.split(|&byte| byte == b' ');
    let number = fields.next().and_then(|number| core::str::from_utf8(number).ok()?.parse::<i64>().ok());
    if number.is_none_or(|number| number < 0 || LENDING.contains(&number)) {
        return false;
    }
    let Some(sp) = fields.nth(6).and_then(hexadecimal) else { return false };
    handlers.are_not_on_stack(sp)
}

fn hexadecimal(text: &[u8]) -> Option<usize> {
    let digits = core::str::from_utf8(text.strip_prefix(b"0x")?).ok()?;
    usize::from_str_radix(digits, 16).ok()
}

/// Different return addresses of handlers: the C library has one, and what brings its own rarely more.
const RETURNS: usize = 4;
/// A stack is searched this far; what is deeper is left alone.
const STACK_MAX: usize = 256 * 1024;

/// Where signal handlers return to.
struct Handlers {
    returns: [usize; RETURNS],
    count: usize,
    /// There are more, or nobody knows.
    unknown: bool,
}

/// `struct sigaction` of the kernel on x86-64.
#[repr(C)]
#[derive(Default)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

impl Handlers {
    /// Those of all handlers that are installed now.
    fn installed() -> Handlers {
        let mut handlers = Handlers { returns: [0; RETURNS], count: 0, unknown: !cfg!(target_arch = "x86_64") };
        for signal in 1..=64 {
            let mut action = KernelAction::default();
            // SAFETY: the kernel writes the action; 8 is the size of its mask.
            let result = unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, 0usize, &raw mut action, 8usize) };
            if result != 0 || action.handler <= 1 {
                continue;
            }
            if handlers.returns[..handlers.count].contains(&action.restorer) {
                continue;
            }
            match handlers.returns.get_mut(handlers.count) {
                Some(place) if action.restorer != 0 => {
                    *place = action.restorer;
                    handlers.count += 1;
                }
                _ => handlers.unknown = true,
            }
        }
        handlers
    }

    /// Whether none of them is on the stack from `sp` up.
    fn are_not_on_stack(&self, sp: usize) -> bool {
        if self.unknown || self.count == 0 {
            return !self.unknown;
        }
        let mut words = [0usize; 512];
        let mut at = sp & !7;
        while at < sp + STACK_MAX {
            // Up to the next page's end, so that the last part of the stack is read whole.
            let end = (at | 4095) + 1;
            let wanted = end - at;
            let read = os::read_own_memory(at, &mut words[..wanted / 8]);
            if words[..read].iter().any(|word| self.returns[..self.count].contains(word)) {
                return false;
            }
            if read < wanted / 8 {
                return true;
            }
            at = end;
        }
        false
    }
}
