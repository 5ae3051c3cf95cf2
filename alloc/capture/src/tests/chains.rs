//! Known chains of calls, on every kind of stack.
use super::*;
use std::cell::RefCell;
use std::thread;

#[inline(never)]
fn recurse(depth: usize, end: &mut dyn FnMut()) -> usize {
    if depth == 0 {
        end();
        return 0;
    }
    let below = recurse(depth - 1, end);
    black_box(below) + 1
}

fn count(names: &[String], part: &str) -> usize {
    names.iter().filter(|name| name.contains(part)).count()
}

fn assert_ends_like_backtrace(frames: &[u64]) {
    let mut expected = Vec::new();
    backtrace::trace(|frame| {
        expected.push(frame.ip() as u64);
        true
    });
    if expected.last() == Some(&0) {
        expected.pop();
    }
    // The innermost frames belong to the two captures; the outermost ones are the same calls.
    let common = frames.iter().rev().zip(expected.iter().rev()).take_while(|(a, b)| a == b).count();
    assert!(common + 3 >= frames.len(), "{:#?}\n{:#?}", names(frames), names(&expected));
}

#[test]
fn every_call_of_a_recursion_is_there() {
    recurse(20, &mut || {
        let (captured, frames) = here();
        assert!(!captured.truncated && !captured.incomplete, "{captured:?} {:#?}", names(&frames));
        assert_eq!(count(&names(&frames), "recurse"), 21);
        assert_ends_like_backtrace(&frames);
    });
}

#[test]
fn a_deep_recursion_is_cut() {
    recurse(500, &mut || {
        let (captured, frames) = here();
        let expected = Captured { depth: MAX_DEPTH, truncated: true, incomplete: false };
        assert_eq!(captured, expected, "{:#?}", names(&frames));
        assert!(frames.iter().all(|frame| *frame != 0));
    });
}

#[test]
fn a_stack_that_grew_is_read_again() {
    let mut state = ThreadState::new();
    here_with(&mut state);
    recurse(100, &mut || {
        let (captured, _) = here_with(&mut state);
        assert!(captured.depth > 100 && !captured.incomplete);
    });
    let (captured, _) = here_with(&mut state);
    assert!(captured.depth < 100 && !captured.incomplete);
}

#[test]
fn a_thread_ends_at_its_start() {
    thread::spawn(|| {
        let (captured, frames) = here();
        assert!(!captured.incomplete, "{:#?}", names(&frames));
        assert_ends_like_backtrace(&frames);
    })
    .join()
    .unwrap();
}

thread_local!(static SEEN: RefCell<Option<(Captured, Vec<u64>)>> = const { RefCell::new(None) });

fn note() {
    let seen = here();
    SEEN.with(|slot| *slot.borrow_mut() = Some(seen));
}

fn noted() -> (Captured, Vec<u64>) {
    SEEN.with(|slot| slot.borrow_mut().take()).expect("a capture")
}

extern "C" fn compare(a: *const libc::c_void, b: *const libc::c_void) -> i32 {
    note();
    a.cmp(&b) as i32
}

#[test]
fn frames_beyond_a_function_of_libc_are_there() {
    let mut numbers = [3u64, 1, 2];
    recurse(5, &mut || {
        // SAFETY: three elements of eight bytes.
        unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 3, 8, Some(compare)) };
        let (captured, frames) = noted();
        let names = names(&frames);
        assert!(!captured.incomplete, "{names:#?}");
        assert_eq!(count(&names, "recurse"), 6, "{names:#?}");
    });
}

extern "C" fn on_signal(_: i32) {
    note();
}

/// Handles `SIGUSR1` or `SIGUSR2` on a stack of its own, or on the thread's.
fn raise(signal: i32, own_stack: bool) -> (Captured, Vec<u64>) {
    let mut stack = vec![0u8; 256 << 10];
    // SAFETY: the alternative stack outlives its use, and is turned off again.
    unsafe {
        let on = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
        let off = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        let mut before = off;
        if own_stack {
            assert_eq!(libc::sigaltstack(&on, &mut before), 0);
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = if own_stack { libc::SA_ONSTACK } else { 0 };
        assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
        assert_eq!(libc::raise(signal), 0);
        if own_stack {
            assert_eq!(libc::sigaltstack(&before, std::ptr::null_mut()), 0);
        }
    }
    noted()
}

#[test]
fn a_signal_handler_shows_what_it_interrupted() {
    recurse(5, &mut || {
        let (captured, frames) = raise(libc::SIGUSR1, false);
        let names = names(&frames);
        assert!(!captured.incomplete, "{names:#?}");
        assert_eq!(count(&names, "recurse"), 6, "{names:#?}");
    });
}

#[test]
fn a_handler_on_its_own_stack_shows_what_it_interrupted() {
    if has_no_vdso() {
        return;
    }
    recurse(5, &mut || {
        let (captured, frames) = raise(libc::SIGUSR2, true);
        let names = names(&frames);
        assert!(!captured.incomplete, "{names:#?}");
        assert_eq!(count(&names, "recurse"), 6, "{names:#?}");
    });
}

/// musl has no contexts.
#[cfg(target_env = "gnu")]
extern "C" fn coroutine() {
    recurse(7, &mut note);
}

#[test]
#[cfg(target_env = "gnu")]
fn a_coroutine_ends_at_its_guard() {
    const SIZE: usize = 256 << 10;
    // A module is listed when the table's lock is free, which another test may hold for as long as a fork takes.
    while here().0.incomplete {}
    // SAFETY: the contexts live until the last switch, and the stack is unmapped after it.
    unsafe {
        let map = libc::mmap(
            std::ptr::null_mut(),
            SIZE + 4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(map, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(map.byte_add(SIZE), 4096, libc::PROT_NONE), 0);
        let mut caller: libc::ucontext_t = std::mem::zeroed();
        let mut callee: libc::ucontext_t = std::mem::zeroed();
        assert_eq!(libc::getcontext(&mut callee), 0);
        callee.uc_stack = libc::stack_t { ss_sp: map, ss_flags: 0, ss_size: SIZE };
        callee.uc_link = &mut caller;
        libc::makecontext(&mut callee, coroutine, 0);
        assert_eq!(libc::swapcontext(&mut caller, &callee), 0);
        libc::munmap(map, SIZE + 4096);
    }
    let (_, frames) = noted();
    let names = names(&frames);
    assert_eq!(count(&names, "recurse"), 8, "{names:#?}");
    // The thread's own stack is read as before.
    assert!(!here().0.incomplete);
}

#[test]
fn errno_is_left_alone() {
    // SAFETY: the calling thread's own word.
    unsafe { *libc::__errno_location() = 77 };
    let _ = black_box(here());
    // SAFETY: as above.
    assert_eq!(unsafe { *libc::__errno_location() }, 77);
}

#[test]
fn nothing_of_the_stack_is_believed_where_the_frame_pointer_is_wild() {
    // SAFETY: the state is all zeros, which is valid.
    let mut state: ThreadState = unsafe { std::mem::zeroed() };
    let mut frames = [0; MAX_DEPTH];
    for fp in [0, 1, 8, usize::MAX, usize::MAX - 7, 0x8000_0000_0000_0000] {
        for sp in [0, 8, usize::MAX, usize::MAX - 7, &raw const state as usize] {
            let captured = capture(&mut state, &Caller { pc: 0x1000, sp, fp }, &mut frames);
            assert_eq!((captured.depth, captured.incomplete), (1, true));
        }
    }
}
