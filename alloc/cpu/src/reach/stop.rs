//! Stops the other threads of the process by a signal, and lets them go.
//!
//! The signal's handler notes where the thread's stack pointer was and where the kernel left its registers, and sleeps
//! on a word until that changes. It allocates nothing, takes no lock and calls nothing of the C library that does.
//!
//! The signal is chosen when it is needed: one without a handler, so that it is nobody's. The first choices are
//! 32 and 33, which the C library keeps for itself and which it therefore never lets a program block (nptl(7)). The
//! first has no handler before the first `pthread_cancel`, the second none before the first thread. A signal that a
//! thread could not take by the time that others did is left with its handler: its default action would end the
//! process.
//!
//! A thread that blocks all signals, as the C library does where threads begin and end, may wait for a lock of one that
//! is stopped. So after a short time without progress all are let go for a moment, and the stop is tried anew. A thread
//! that only waits for a processor, or in the kernel (as after `vfork`), is tried again until the time is over. The C
//! library's own thread for timers takes no handler and has nothing of the program's: it is not counted.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::maps;
use super::table::Table;
use crate::kernel::os;
use crate::kernel::system_call::system_call;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod handler;

/// Elsewhere there is none: registers are not known.
#[cfg(any(not(target_arch = "x86_64"), miri))]
mod handler {
    pub(super) fn action() -> Option<super::Action> {
        None
    }
}

/// The C library's own signals, and then the real-time signals of programs.
const CHOICES: core::ops::RangeInclusive<c_int> = 32..=64;
/// Time that threads have, all together.
const LIMIT_NS: u64 = 30_000_000_000;
/// Milliseconds after which a try is given up if no other thread came to a stop meanwhile, for each try but the last.
const PATIENCE_MS: [u64; 8] = [10, 10, 20, 20, 50, 100, 200, 500];
/// The same for the last one.
const LAST_PATIENCE_MS: u64 = 2_000;
/// Milliseconds in which threads that were let go may give locks back, after each try. On a loaded machine it takes
/// them long to get a processor.
const PAUSE_MS: [u32; 8] = [1, 1, 1, 2, 5, 10, 20, 50];
/// The same after any other try.
const LAST_PAUSE_MS: u32 = 50;
/// Ticks of a processor (of 10 ms) between two tries after which a thread did not wait for one.
const RAN_TICKS: u64 = 5;
/// What the kernel says of each thread lies here.
const TASKS: &[u8] = b"/proc/self/task/";
/// The folder itself.
const TASKS_FOLDER: &CStr = c"/proc/self/task";
/// Most threads that are stopped.
const MAX_THREADS: usize = 1 << 16;

/// A thread that was stopped.
#[derive(Clone, Copy)]
pub struct Stopped {
    /// Kernel id.
    pub tid: u32,
    /// Its stack pointer.
    pub sp: usize,
    /// Its pointer to thread-local storage.
    pub thread_pointer: usize,
    /// Where the stack begins that it has named for its signals; 0 if it has none.
    pub signal_stack: usize,
    /// Where its registers lie: general ones, and those for vectors. Each range ends with the second address.
    pub registers: [(usize, usize); 2],
}

/// Odd while threads are stopped.
static SESSION: AtomicU32 = AtomicU32::new(0);
/// Notes of handlers, with room for [`MAX_THREADS`].
static NOTES: AtomicPtr<Stopped> = AtomicPtr::new(core::ptr::null_mut());
/// Places that were taken of these, and in the upper half the session that they are of. A handler that comes late takes
/// none.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// Handlers that have written their note. The thread that stops the others sleeps on it.
static NOTED: AtomicU32 = AtomicU32::new(0);

/// The fewest bytes of an alternate stack that the program has ever named (sigaltstack(2)).
static SMALLEST_STACK: AtomicUsize = AtomicUsize::new(usize::MAX);
/// To be called when a thread of the program's has named an alternate stack of `bytes`. The kernel ends a process for a
/// signal that has no room there.
pub fn note_alternate_stack(bytes: usize) {
    SMALLEST_STACK.fetch_min(bytes, Ordering::Relaxed);
}

/// The kernel's form of an action. The C library's function does not take its own signals.
#[repr(C)]
#[derive(Clone, Copy)]
struct Action {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

const NO_ACTION: Action = Action { handler: libc::SIG_DFL, flags: 0, restorer: 0, mask: 0 };

/// Sets a signal's action, or asks for it.
fn action(signal: c_int, new: Option<&Action>, old: Option<&mut Action>) -> bool {
    let new = new.map_or(core::ptr::null(), |new| &raw const *new);
    let old = old.map_or(core::ptr::null_mut(), |old| &raw mut *old);
    // SAFETY: the kernel reads and writes its form of an action, with a mask of 8 bytes.
    os::keep_errno(|| unsafe { system_call!(libc::SYS_rt_sigaction, signal, new, old, 8usize) == 0 })
}

/// A signal that is nobody's, with the handler installed, and its action as it was.
fn choose() -> Option<(c_int, Action)> {
    let handler = handler::action()?;
    CHOICES.into_iter().find_map(|signal| {
        let mut before = NO_ACTION;
        let known = action(signal, None, Some(&mut before));
        let is_free = [libc::SIG_DFL, libc::SIG_IGN, handler.handler].contains(&before.handler);
        (known && is_free && action(signal, Some(&handler), None)).then_some((signal, before))
    })
}

/// In a forked child: nobody stops its threads.
pub fn forget() {
    TAKEN.store(0, Ordering::Release);
    SESSION.store(0, Ordering::Release);
}

/// A thread that the signal was sent to.
#[derive(Clone, Copy)]
struct Asked {
    tid: u32,
    /// It has ended since.
    gone: bool,
}

/// The other threads are stopped, as far as that could be done, until this is dropped.
pub struct World {
    notes: Option<Table<Stopped>>,
    stopped: usize,
    signal: c_int,
    /// The signal's action, as it was.
    before: Action,
    /// The signal gets its action back: none is on its way, and none will be sent.
    restores: bool,
    /// Threads that could not be stopped, and one of them.
    pub missing: usize,
    /// Kernel id of one of these; 0 if there is none.
    pub unstopped: u32,
}

/// Stops the other threads, and again where that is to be tried anew.
pub struct Stops {
    signal: c_int,
    /// The signal's action, as it was.
    before: Action,
    /// When the last try ends, at the latest.
    end: u64,
    tries: usize,
    /// The thread that the last try could not stop, and its time on processors by then.
    unstopped: (u32, u64),
    /// That thread was kept from running.
    is_kept: bool,
}

impl Stops {
    /// `None` if there is no signal for it.
    pub fn new() -> Option<Stops> {
        let (signal, before) = choose()?;
        let end = os::clock_ns(libc::CLOCK_MONOTONIC) + LIMIT_NS;
        Some(Stops { signal, before, end, tries: 0, unstopped: (0, 0), is_kept: false })
    }

    /// Whether the next try is the last: whoever can't be stopped then is missing.
    pub fn is_last(&self) -> bool {
        (self.tries >= PATIENCE_MS.len() && !self.is_kept) || os::clock_ns(libc::CLOCK_MONOTONIC) > self.end
    }

    /// One try. The threads of the one before were let go. `None` if the threads can't be listed.
    pub fn stop(&mut self) -> Option<World> {
        if self.tries > 0 {
            os::sleep_us(PAUSE_MS.get(self.tries - 1).copied().unwrap_or(LAST_PAUSE_MS) * 1000);
        }
        let patience_ms = PATIENCE_MS.get(self.tries).copied().unwrap_or(LAST_PATIENCE_MS);
        self.tries += 1;
        let world = self.stop_within(patience_ms * 1_000_000)?;
        let before = self.unstopped;
        let state = state(world.unstopped);
        self.unstopped = (world.unstopped, state.map_or(0, |(_, ticks)| ticks));
        let ran = if before.0 == self.unstopped.0 { self.unstopped.1.saturating_sub(before.1) } else { 0 };
        self.is_kept = matches!(state, Some((b'R' | b'D', _))) && ran < RAN_TICKS;
        Some(world)
    }

    /// Takes a try's threads as those that are stopped: there will be no other try.
    pub fn accept(self, mut world: World) -> World {
        world.restores = self.tries == 1 && world.missing == 0;
        world
    }

    fn stop_within(&self, patience: u64) -> Option<World> {
        let mut asked = Table::<Asked>::new(MAX_THREADS)?;
        // SAFETY: zeroes are a note.
        let notes = unsafe { Table::<Stopped>::zeroed(MAX_THREADS) }?;
        let session = SESSION.load(Ordering::Relaxed) + 1;
        NOTES.store(notes.as_slice().as_ptr().cast_mut(), Ordering::Release);
        TAKEN.store(u64::from(session) << 32, Ordering::Release);
        NOTED.store(0, Ordering::Relaxed);
        SESSION.store(session, Ordering::Release);
        let (signal, end, before) = (self.signal, self.end, self.before);
        let mut world =
            World { notes: Some(notes), stopped: 0, signal, before, restores: false, missing: 0, unstopped: 0 };
        let (own, process) = (os::thread_id(), os::process_id());
        let sent_by = os::clock_ns(libc::CLOCK_MONOTONIC) + patience;
        // Threads that are not stopped yet make others.
        loop {
            let before = asked.as_slice().len();
            let listed = for_each_thread(own, |tid| {
                if tid != own && !asked.as_slice().iter().any(|known| known.tid == tid) {
                    let gone = !send(process, tid, signal, sent_by);
                    asked.push(Asked { tid, gone });
                }
            });
            if !listed {
                world.missing = asked.as_slice().len();
                return None;
            }
            if asked.as_slice().len() == before || os::clock_ns(libc::CLOCK_MONOTONIC) > end {
                break;
            }
            wait(asked.as_mut_slice(), patience, end);
        }
        world.stopped = (TAKEN.load(Ordering::Acquire) as u32 as usize).min(MAX_THREADS);
        for thread in asked.as_slice() {
            let is_stopped = || world.threads().iter().any(|stopped| stopped.tid == thread.tid);
            if !thread.gone && !is_stopped() && !waits_for_timers(thread.tid) {
                world.missing += 1;
                world.unstopped = thread.tid;
            }
        }
        Some(world)
    }
}

/// Calls `f` with each thread, of which `own` is one. False if they can't be listed.
///
/// `/proc` may be that of another process-id namespace, as in a sandbox that has kept its parent's: threads have other
/// numbers there, and say their own in `status` (pid_namespaces(7)).
fn for_each_thread(own: u32, mut f: impl FnMut(u32)) -> bool {
    let mut is_ours = false;
    if !os::for_each_number(TASKS_FOLDER, |tid| is_ours |= tid == own) {
        return false;
    }
    let mut known = true;
    let listed = os::for_each_number(TASKS_FOLDER, |tid| {
        let own_number = if is_ours { Some(tid) } else { innermost(tid) };
        match own_number {
            Some(tid) => f(tid),
            // It may have ended since.
            None => known &= !is_listed(tid),
        }
    });
    listed && known
}

/// The number of a thread in its own namespace, by its number in that of `/proc`.
fn innermost(listed: u32) -> Option<u32> {
    let mut own = None;
    os::for_each_line(os::path_with(TASKS, listed, b"/status", &mut [0; 64]), |line| {
        if let Some(numbers) = line.strip_prefix(b"NSpid:") {
            own =
                numbers.split(|byte| byte.is_ascii_whitespace()).rfind(|digits| !digits.is_empty()).map(os::number_of);
        }
    });
    own
}

/// Whether the threads that are listed have one of this number among them.
fn is_listed(tid: u32) -> bool {
    let mut found = false;
    os::for_each_number(TASKS_FOLDER, |listed| found |= listed == tid);
    found
}

/// Waits until all that were asked are stopped or gone, or no more come.
fn wait(asked: &mut [Asked], patience: u64, end: u64) {
    let mut last = (0, os::clock_ns(libc::CLOCK_MONOTONIC));
    loop {
        let noted = NOTED.load(Ordering::Acquire);
        let now = os::clock_ns(libc::CLOCK_MONOTONIC);
        if noted as usize >= asked.iter().filter(|thread| !thread.gone).count() {
            return;
        }
        if noted != last.0 {
            last = (noted, now);
        }
        if now > end || now - last.1 > patience {
            return;
        }
        os::sleep_on(&NOTED, noted, 5);
        if NOTED.load(Ordering::Acquire) == noted {
            asked.iter_mut().filter(|thread| !thread.gone).for_each(|thread| thread.gone = has_ended(thread.tid));
        }
    }
}

/// Sends the signal, if that can be done by then. False if the thread is gone.
fn send(process: u32, tid: u32, signal: c_int, by: u64) -> bool {
    os::keep_errno(|| {
        loop {
            // SAFETY: a system call on plain numbers.
            if unsafe { system_call!(libc::SYS_tgkill, process, tid, signal) } == 0 {
                return true;
            }
            // The user's queue of signals may be full, for a moment or for good (RLIMIT_SIGPENDING).
            if os::errno() != libc::EAGAIN || os::clock_ns(libc::CLOCK_MONOTONIC) > by {
                return os::errno() != libc::ESRCH;
            }
            os::sleep_us(1000);
        }
    })
}

/// Whether a thread runs no more: it is not listed, or it waits for its process to end (`Z`, `X`).
fn has_ended(tid: u32) -> bool {
    match state(tid) {
        Some((state, _)) => matches!(state, b'Z' | b'X'),
        None => !os::thread_exists(os::process_id(), tid),
    }
}

/// Whether a thread is the C library's own, which starts those that timers ask for (`SIGEV_THREAD`), and waits for the
/// next timer: by `rt_sigtimedwait` for the C library's first signal alone, which takes the signal to stop as well. It
/// has nothing of the program's meanwhile. The next timer has it ask for memory first, and wait for the search.
fn waits_for_timers(tid: u32) -> bool {
    const FIRST: usize = 1 << (*CHOICES.start() - 1);
    let mut text = [0u8; 64];
    // The call's number, and its arguments in hexadecimal digits (proc(5)); `running` where it is in none.
    let len = os::read_file(os::path_with(TASKS, tid, b"/syscall", &mut [0; 64]), &mut text);
    let mut words = text[..len].split(|&byte| byte == b' ');
    let call = words.next().and_then(|word| maps::number(word, 10));
    let set = words.next().and_then(|word| maps::number(word.strip_prefix(b"0x")?, 16));
    let mut waited_for = [0usize];
    call == Some(libc::SYS_rt_sigtimedwait as usize)
        && set.is_some_and(|set| os::read_own_memory(set, &mut waited_for) == 1)
        && waited_for == [FIRST]
}

/// A thread's state as the kernel names it (`R`, `S`, `D` and others), and its ticks on processors.
fn state(tid: u32) -> Option<(u8, u64)> {
    let mut stat = [0u8; 512];
    let len = os::read_file(os::path_with(TASKS, tid, b"/stat", &mut [0; 64]), &mut stat);
    // The name in parentheses may hold anything, also parentheses (proc(5)).
    let stat = &stat[..len.min(stat.len())];
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 2;
    let mut fields = stat.get(after_name..)?.split(|&byte| byte == b' ');
    let state = *fields.next()?.first()?;
    // Of the process's own and of the kernel's functions: the 12th and the 13th number behind the state.
    let number = |digits: &[u8]| digits.iter().fold(0u64, |all, digit| all.wrapping_mul(10) + u64::from(digit & 15));
    let ticks = fields.skip(10).take(2).map(number).sum();
    Some((state, ticks))
}

impl World {
    /// The threads that are stopped.
    pub fn threads(&self) -> &[Stopped] {
        self.notes.as_ref().map_or(&[], |notes| &notes.as_slice()[..self.stopped])
    }

    /// Where its own memory lies, which is no root.
    pub fn own_memory(&self) -> (usize, usize) {
        self.notes.as_ref().map_or((0, 0), Table::addresses)
    }
}

impl Drop for World {
    /// Lets the threads go.
    fn drop(&mut self) {
        TAKEN.store(0, Ordering::Release);
        SESSION.fetch_add(1, Ordering::AcqRel);
        os::wake(&SESSION);
        if self.restores {
            let mut now = NO_ACTION;
            // The program may have installed a handler of its own before its threads were stopped.
            if action(self.signal, None, Some(&mut now))
                && handler::action().is_some_and(|own| own.handler == now.handler)
            {
                action(self.signal, Some(&self.before), None);
            }
        }
        if self.missing > 0 {
            // A handler that comes late finds no session. One that came in this moment still writes its note.
            core::mem::forget(self.notes.take());
        }
    }
}
