//! Behaviour of scopes, on the default, parallel test harness.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Mutex, Once, OnceLock};
use std::task::{Context, Poll, Waker};
use std::thread;

use poolscope_heapcheck::{assert_allocations, assert_max_bytes, assert_no_leaks, scope};

#[global_allocator]
static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;

#[inline(never)]
fn forget_a_vector(bytes: usize) {
    std::mem::forget(black_box(vec![1u8; bytes]));
}

/// The first backtrace that is printed fills a static of the standard library's, of which some bytes are what was on the
/// stack: the address of a forgotten block among them would count as what keeps it.
fn print_a_backtrace_first() {
    static PRINTED: Once = Once::new();
    PRINTED.call_once(|| drop(black_box(Backtrace::force_capture().to_string())));
}

#[test]
fn a_clean_scope_passes() {
    let _scope = scope();
    let text: String = (0..1000).map(|n| n.to_string()).collect();
    black_box(text);
}

#[test]
fn a_leak_fails_the_test_with_its_size_and_stack() {
    print_a_backtrace_first();
    let failure = thread::spawn(|| {
        let _scope = scope();
        forget_a_vector(12_345);
    })
    .join()
    .expect_err("the leak was not noticed");
    let message = failure.downcast_ref::<String>().expect("a message");
    assert!(message.contains("12,345 B in 1 block"), "{message}");
    assert!(message.contains("forget_a_vector"), "{message}");
    assert!(message.contains("scopes.rs"), "{message}");
    let line = line!() - 9;
    assert!(message.contains(&format!("The scope began at heapcheck/tests/scopes.rs:{line}:")), "{message}");
    assert!(message.contains(r#".suppress("forget_a_vector")"#) && message.contains(".allow(12345)"), "{message}");
}

#[test]
fn every_size_is_seen_and_counted() {
    let sizes = [0, 1, 16, 1000, 1024, 1025, 5000, 70_000, 262_144, 262_145, 3_000_000];
    let scope = scope();
    for size in sizes {
        // A vector of no bytes allocates nothing.
        forget_a_vector(size);
    }
    let report = scope.finish();
    assert_eq!(report.objects(), sizes.len() as u64 - 1, "{}", report.to_text());
    assert_eq!(report.bytes(), sizes.iter().sum::<usize>() as u64);
}

#[test]
fn what_was_allocated_before_or_after_is_not_blamed() {
    forget_a_vector(1111);
    {
        let _scope = scope();
        black_box(vec![0u8; 500]);
    }
    forget_a_vector(2222);
}

#[test]
fn what_another_thread_allocates_is_not_blamed() {
    let (ask, asked) = mpsc::channel::<()>();
    let (done, answer) = mpsc::channel::<()>();
    let other = thread::spawn(move || {
        for () in asked {
            forget_a_vector(777);
            done.send(()).unwrap();
        }
    });
    // The channels' own blocks are made now.
    ask.send(()).unwrap();
    answer.recv().unwrap();
    let scope = scope();
    ask.send(()).unwrap();
    answer.recv().unwrap();
    let report = scope.finish();
    assert!(report.leaks.iter().all(|leak| leak.sizes.iter().all(|&(size, _)| size != 777)), "{}", report.to_text());
    drop(ask);
    other.join().unwrap();
}

#[test]
fn a_block_that_another_thread_frees_is_no_leak() {
    let scope = scope();
    let block = vec![1u8; 4321];
    let joined = {
        let handle = thread::spawn(move || drop(block));
        handle.join()
    };
    joined.unwrap();
    let report = scope.finish();
    assert!(report.leaks.iter().all(|leak| leak.sizes.iter().all(|&(size, _)| size != 4321)), "{}", report.to_text());
}

#[test]
fn an_inner_scope_takes_its_leaks_from_the_outer_one() {
    let outer = scope();
    forget_a_vector(100);
    let inner = scope();
    forget_a_vector(200);
    assert_eq!(inner.finish().bytes(), 200);
    forget_a_vector(300);
    assert_eq!(outer.finish().bytes(), 400);
}

#[test]
fn a_vector_that_grew_is_reported_at_its_last_size() {
    let scope = scope();
    let mut bytes = vec![0u8; 10];
    bytes.reserve_exact(1990);
    assert_eq!(bytes.capacity(), 2000);
    bytes.shrink_to(1990);
    std::mem::forget(black_box(bytes));
    let report = scope.finish();
    assert_eq!((report.bytes(), report.objects()), (1990, 1), "{}", report.to_text());
}

#[test]
fn printing_is_no_leak() {
    let _scope = scope();
    for line in 0..100 {
        println!("a line that the harness captures: {line}");
    }
}

#[test]
fn a_suppressed_function_is_accepted() {
    let _scope = scope().suppress("forget_a_vector");
    forget_a_vector(50);
}

#[test]
fn a_failing_test_keeps_its_own_message() {
    let failure = thread::spawn(|| {
        let _scope = scope();
        forget_a_vector(10);
        panic!("the real reason");
    })
    .join()
    .expect_err("it panicked");
    assert_eq!(failure.downcast_ref::<&str>(), Some(&"the real reason"));
}

/// Many scopes at the same time, each in its own thread and with a leak of its own size: every one sees its own alone.
#[test]
fn parallel_scopes_see_their_own_leaks_only() {
    let threads: Vec<_> = (0..16)
        .map(|n| {
            thread::spawn(move || {
                for round in 0..50 {
                    let size = 1000 + n * 50 + round;
                    let scope = poolscope_alloc::scope::Scope::begin().unwrap();
                    let garbage: Vec<Vec<u8>> = (0..100).map(|i| vec![0; i * 7]).collect();
                    forget_a_vector(size);
                    drop(black_box(garbage));
                    let mut seen = [0; 4];
                    let mut blocks = 0;
                    scope.visit_live(|block, frames| {
                        assert!(!frames.is_empty());
                        seen[blocks % 4] = block.size;
                        blocks += 1;
                    });
                    assert_eq!((blocks, seen[0]), (1, size as u64));
                }
                let scope = scope();
                forget_a_vector(77 + n);
                assert_eq!(scope.finish().bytes(), 77 + n as u64);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// What a check that fails says.
fn failure(body: impl FnOnce()) -> String {
    print_a_backtrace_first();
    let panicked = catch_unwind(AssertUnwindSafe(body)).expect_err("nothing was noticed");
    *panicked.downcast::<String>().expect("a message")
}

#[test]
fn a_thread_that_is_started_in_a_scope_is_in_it() {
    let message = failure(|| {
        let _scope = scope();
        let deep = thread::spawn(|| thread::spawn(|| forget_a_vector(4001)).join().unwrap());
        deep.join().unwrap();
    });
    assert!(message.contains("4,001 B in 1 block") && message.contains("forget_a_vector"), "{message}");
    assert!(!message.contains("still ran"), "{message}");
}

#[test]
fn threads_that_free_what_they_take_leave_nothing_behind() {
    for _ in 0..50 {
        let _scope = scope();
        thread::scope(|threads| {
            for n in 0..4 {
                threads.spawn(move || black_box(vec![n; 100]));
            }
        });
        let named = thread::Builder::new().name("a name".into()).spawn(|| println!("{}", vec![1; 10].len()));
        named.unwrap().join().unwrap();
    }
}

#[test]
fn a_thread_that_still_runs_is_told_of() {
    let (stop, stopped) = mpsc::channel::<()>();
    let message = failure(|| {
        let _scope = scope();
        thread::spawn(move || {
            let block = vec![1u8; 5003];
            stopped.recv().unwrap_err();
            drop(block);
        });
        thread::sleep(std::time::Duration::from_millis(50));
    });
    drop(stop);
    assert!(message.contains("1 thread that it started still ran at its end: join them"), "{message}");
    assert!(message.contains("5,003 B in 1 block"), "{message}");
}

/// Gives way once.
async fn give_way() {
    let mut gave = false;
    std::future::poll_fn(|_| if std::mem::replace(&mut gave, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

#[test]
fn a_future_is_in_the_scope_whenever_it_is_polled_and_nothing_beside_it_is() {
    let message = failure(|| {
        let scope = poolscope_heapcheck::Scope::open();
        let watched = scope.watch(async {
            forget_a_vector(601);
            give_way().await;
            forget_a_vector(602);
        });
        // Polled by two threads in turn.
        let mut watched = Box::pin(watched);
        assert!(watched.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        forget_a_vector(999);
        thread::spawn(move || {
            assert!(watched.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
            forget_a_vector(998);
        })
        .join()
        .unwrap();
        scope.check();
    });
    assert!(message.contains("1,203 B in 2 blocks leaked"), "{message}");
}

#[test]
fn a_clean_future_passes() {
    let scope = poolscope_heapcheck::Scope::open();
    let mut watched = pin!(scope.watch(async {
        let block = vec![1; 100];
        give_way().await;
        drop(block);
    }));
    while watched.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
    scope.check();
}

#[test]
fn what_a_static_or_a_thread_local_is_first_filled_with_is_no_leak() {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    thread_local! {
        static CACHE: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) };
    }
    let scope = scope();
    NAMES.get_or_init(|| (0..5).map(|n| format!("a longer name of number {n}")).collect());
    CACHE.with_borrow_mut(|cache| cache.extend((0..9).map(|n| vec![n])));
    let kept = thread::spawn(|| {
        CACHE.with_borrow_mut(|cache| cache.push(vec![1]));
    });
    kept.join().unwrap();
    forget_a_vector(55);
    let report = scope.finish();
    assert_eq!((report.bytes(), report.objects()), (55, 1), "{}", report.to_text());
    let kept =
        report.suppressed.iter().find(|kept| kept.reason.contains("held nothing before")).expect("they are told of");
    assert!(kept.objects >= 6 + 10, "{}", report.to_text());
}

/// What a structure does with the places of it that are not in use: their old bytes move along with the others.
#[test]
fn an_old_address_that_moves_within_a_static_keeps_nothing() {
    static PLACES: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
    const BYTES: usize = 7_777;
    let block = || vec![1u8; BYTES];
    {
        let _scope = scope();
        PLACES[0].store(black_box(block()).as_ptr() as usize, Ordering::Relaxed);
    }
    let message = failure(|| {
        let _scope = scope();
        let old = PLACES[0].swap(0, Ordering::Relaxed);
        PLACES[9].store(old, Ordering::Relaxed);
        let blocks: Vec<_> = (0..1000).map(|_| block()).collect();
        let again = blocks.into_iter().find(|block| block.as_ptr() as usize == old);
        std::mem::forget(again.expect("an address that is free is used again"));
    });
    assert!(message.contains("7,777 B in 1 block"), "{message}");
}

#[test]
fn what_a_static_that_held_something_before_has_grown_by_is_a_leak() {
    static LOG: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());
    LOG.lock().unwrap().push(vec![0; 100].into());
    let scope = scope();
    (0..20).for_each(|_| LOG.lock().unwrap().push(vec![0; 77].into()));
    let report = scope.finish();
    // With its own table.
    assert_eq!(report.objects(), 21, "{}", report.to_text());
}

#[test]
fn some_bytes_of_leaks_can_be_allowed() {
    {
        let _scope = scope().allow(100);
        forget_a_vector(100);
    }
    let message = failure(|| {
        let _scope = scope().allow(100);
        forget_a_vector(101);
    });
    assert!(message.contains("leaked more than the 100 B that it may") && message.contains("101 B"), "{message}");
}

#[test]
fn limits_are_of_the_peak_and_of_calls_with_those_of_inner_scopes() {
    {
        let _scope = scope().max_bytes(2000).max_allocations(3);
        drop(black_box(vec![0u8; 1500]));
        drop(black_box(vec![0u8; 1500]));
        let inner = scope();
        drop(black_box(vec![0u8; 1500]));
        let counts = inner.counts().expect("few scopes are open");
        assert_eq!((counts.allocations, counts.peak), (1, 1500));
    }
    let message = failure(|| {
        let _scope = scope().max_bytes(2000).max_allocations(3);
        let held = black_box(vec![0u8; 1500]);
        assert_no_leaks!(black_box(vec![0u8; 1500]));
        drop(held);
        (0..2).for_each(|_| drop(black_box(vec![0u8; 10])));
    });
    assert!(message.contains("had 3,000 B in use at its peak, and may have 2,000"), "{message}");
    assert!(message.contains("asked for memory 4 times, and may do so 3 times"), "{message}");
}

#[test]
fn expressions_are_checked_by_macros() {
    assert_no_leaks!(vec![1; 100]);
    assert!(failure(|| assert_no_leaks!(forget_a_vector(31))).contains("31 B in 1 block"));
    assert_eq!(assert_max_bytes!(100, black_box(vec![1u8; 100])).len(), 100);
    assert!(failure(|| drop(assert_max_bytes!(99, black_box(vec![1u8; 100])))).contains("may have 99"));
    assert_eq!(assert_allocations!(1, black_box(vec![1u8; 100])).len(), 100);
    assert_allocations!(<= 2, black_box(vec![1u8; 100]));
    assert!(failure(|| drop(assert_allocations!(0, black_box(vec![1u8; 100])))).contains("should do so 0 times"));
    assert!(failure(|| drop(assert_allocations!(<= 0, black_box(vec![1u8; 100])))).contains("may do so 0 times"));
    // A block that grows was asked for again.
    let mut grows = Vec::<u8>::new();
    assert_allocations!(2, {
        grows.reserve_exact(1000);
        grows.reserve_exact(1010);
    });
}
