//! What is done on a stack of its own.
use super::*;
use crate::{aside, system};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

fn here_is() -> usize {
    let local = 0u8;
    black_box(&raw const local) as usize
}

/// Held by who may have all benches, and by who needs some.
static BENCHES: Mutex<()> = Mutex::new(());

#[test]
fn it_leaves_the_thread_s_stack_alone_and_comes_back() {
    let _benches = BENCHES.lock();
    let outer = here_is();
    let (inner, nested) = aside(|| (here_is(), aside(here_is)));
    // Stacks of 64 KiB may lie side by side, and each be used to another depth.
    const APART: usize = 32 << 10;
    assert!(outer.abs_diff(inner) > APART && inner.abs_diff(nested) > APART, "{outer:x} {inner:x} {nested:x}");
    assert!(here_is().abs_diff(outer) < 4096);
}

#[test]
fn as_many_threads_as_like_do_it_at_once() {
    let _benches = BENCHES.lock();
    thread::scope(|scope| {
        for number in 0..100 {
            scope.spawn(move || {
                for _ in 0..50 {
                    let room = aside(|| {
                        let mut room = [number; 1000];
                        thread::yield_now();
                        black_box(&mut room).iter().sum::<u64>()
                    });
                    assert_eq!(room, 1000 * number);
                }
            });
        }
    });
}

static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal(_: i32) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn signals_wait_until_the_thread_is_back_on_its_own() {
    let _benches = BENCHES.lock();
    // SAFETY: a handler of a signal that no other test uses.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGURG, &action, std::ptr::null_mut()), 0);
    }
    // SAFETY: to the calling thread.
    let raise = || (unsafe { libc::raise(libc::SIGURG) }, HANDLED.load(Ordering::SeqCst));
    assert_eq!(aside(raise), (0, 0));
    assert_eq!(HANDLED.load(Ordering::SeqCst), 1);
    // What was held back before stays held back.
    let before = system::hold_signals().expect("the kernel holds signals back");
    assert_eq!(aside(raise), (0, 1));
    assert_eq!(HANDLED.load(Ordering::SeqCst), 1);
    system::set_held_signals(before);
    assert_eq!(HANDLED.load(Ordering::SeqCst), 2);
}
