//! Threads that are in scopes: a thread that is started in a scope is in it for its whole life.
//!
//! Nothing tells a thread who started it. So a test's program has a `pthread_create` of its own, as programs under the
//! sanitizers do: started in no scope, a thread goes on to the C library's at once.

use std::cell::Cell;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use poolscope_alloc::scope::{self, Entered, Handle};

/// So long the end of a scope waits for threads that are about to end.
const PATIENCE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(1);

struct Thread {
    number: u64,
    /// The scope that it was started in.
    born_in: Option<Handle>,
    /// Where its control block lies; 0 before it runs.
    control: usize,
    /// Its kernel id, once its thread-locals are gone: the runtime's last words on it may be still to come.
    ending: Option<libc::pid_t>,
}

struct Threads {
    last: u64,
    live: Vec<Thread>,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads { last: 0, live: Vec::new() });

fn threads() -> MutexGuard<'static, Threads> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Threads {
    fn add(&mut self, born_in: Option<Handle>, control: usize) -> u64 {
        self.last += 1;
        self.live.push(Thread { number: self.last, born_in, control, ending: None });
        self.last
    }
}

/// The calling thread's place in the list; 0 if it has none.
struct Place(Cell<u64>);

impl Drop for Place {
    fn drop(&mut self) {
        let _out = scope::leave();
        let mut threads = threads();
        threads.live.retain(|thread| thread.number != self.0.get() || thread.born_in.is_some());
        if let Some(thread) = threads.live.iter_mut().find(|thread| thread.number == self.0.get()) {
            thread.control = 0;
            // SAFETY: it only says which thread this is.
            thread.ending = Some(unsafe { libc::gettid() });
        }
    }
}

thread_local! {
    static PLACE: Place = const { Place(Cell::new(0)) };
}

/// Where the C library keeps what it knows of the calling thread. Static thread-local storage lies at the same distance
/// from it in every thread.
pub(crate) fn control_block() -> usize {
    // SAFETY: it only says which thread this is.
    unsafe { libc::pthread_self() as usize }
}

/// Lists the calling thread, so that its thread-locals are known. The caller is in no scope.
pub(crate) fn note_this_one() {
    // A thread that ends has no thread-locals to look at any more.
    let _ = PLACE.try_with(|place| {
        if place.0.get() == 0 {
            place.0.set(threads().add(None, control_block()));
        }
    });
}

/// Puts the calling thread into a scope, until what this returns is dropped.
pub(crate) fn enter(handle: Handle) -> Entered {
    {
        let _out = scope::leave();
        note_this_one();
    }
    handle.enter()
}

/// Calls `f` with the control blocks of all listed threads. None of them ends meanwhile.
pub(crate) fn while_none_ends<T>(f: impl FnOnce(&mut dyn Iterator<Item = usize>) -> T) -> T {
    let threads = threads();
    f(&mut threads.live.iter().map(|thread| thread.control).filter(|&control| control != 0))
}

impl Thread {
    fn has_ended(&self) -> bool {
        self.ending.is_some_and(|tid| !Path::new(&format!("/proc/self/task/{tid}")).exists())
    }
}

/// Threads that were started in a scope and still run, after those that are ending have had the time for it.
pub(crate) fn running(born_in: Handle) -> usize {
    let started = Instant::now();
    loop {
        let is_running = |thread: &&Thread| thread.born_in == Some(born_in) && !thread.has_ended();
        let running = threads().live.iter().filter(is_running).count();
        if running == 0 || started.elapsed() > PATIENCE {
            return running;
        }
        std::thread::sleep(STEP);
    }
}

/// Forgets threads that were started in a scope, and have ended.
pub(crate) fn forget(born_in: Handle) {
    threads().live.retain(|thread| thread.born_in != Some(born_in) || thread.ending.is_none());
}

#[cfg(all(target_env = "gnu", not(target_feature = "crt-static")))]
mod start {
    use std::ffi::{c_int, c_void};
    use std::sync::OnceLock;

    use super::{Handle, PLACE, control_block, scope, threads};

    type Start = extern "C-unwind" fn(*mut c_void) -> *mut c_void;
    type Create = unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;

    /// What a thread that is started in a scope begins with.
    struct Born {
        start: Start,
        argument: *mut c_void,
        scope: Handle,
        number: u64,
    }

    /// The C library's function.
    fn original() -> Option<Create> {
        static ORIGINAL: OnceLock<usize> = OnceLock::new();
        // SAFETY: the name ends with a null byte.
        let found =
            *ORIGINAL.get_or_init(|| unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) } as usize);
        // SAFETY: the C library's function of this name has this type.
        (found != 0).then(|| unsafe { std::mem::transmute::<usize, Create>(found) })
    }

    /// # Safety
    /// As for POSIX's `pthread_create`.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn pthread_create(
        thread: *mut libc::pthread_t,
        attributes: *const libc::pthread_attr_t,
        start: Start,
        argument: *mut c_void,
    ) -> c_int {
        let Some(create) = original() else { return libc::EAGAIN };
        let Some(scope) = Handle::current() else {
            // SAFETY: the caller's promise.
            return unsafe { create(thread, attributes, start, argument) };
        };
        let out = scope::leave();
        let number = threads().add(Some(scope), 0);
        let born = Box::into_raw(Box::new(Born { start, argument, scope, number }));
        drop(out);
        // SAFETY: the caller's promise; `begin` takes the box.
        let error = unsafe { create(thread, attributes, begin, born.cast()) };
        if error != 0 {
            let _out = scope::leave();
            // SAFETY: no thread has begun with it.
            drop(unsafe { Box::from_raw(born) });
            threads().live.retain(|thread| thread.number != number);
        }
        error
    }

    extern "C-unwind" fn begin(born: *mut c_void) -> *mut c_void {
        // SAFETY: `pthread_create` made it for this thread alone.
        let Born { start, argument, scope, number } = *unsafe { Box::from_raw(born.cast::<Born>()) };
        // A new thread's thread-locals are there.
        PLACE.with(|place| place.0.set(number));
        if let Some(thread) = threads().live.iter_mut().find(|thread| thread.number == number) {
            thread.control = control_block();
        }
        // For the thread's whole life: what its thread-locals do at its end is the scope's, too.
        std::mem::forget(scope.enter());
        start(argument)
    }

    /// Something that the program needs of this file, so that the linker takes it before the C library's.
    pub(crate) fn is_linked() -> bool {
        std::hint::black_box(pthread_create as *const () as usize) != 0
    }
}

#[cfg(not(all(target_env = "gnu", not(target_feature = "crt-static"))))]
mod start {
    pub(crate) fn is_linked() -> bool {
        false
    }
}

/// Whether threads that a scope starts are in it.
pub(crate) fn are_followed() -> bool {
    start::is_linked()
}
