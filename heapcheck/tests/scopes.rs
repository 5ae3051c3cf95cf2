//! Behaviour of scopes, on the default, parallel test harness.

use std::hint::black_box;
use std::sync::mpsc;
use std::thread;

use poolscope_heapcheck::scope;

#[global_allocator]
static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;

#[inline(never)]
fn forget_a_vector(bytes: usize) {
    std::mem::forget(black_box(vec![1u8; bytes]));
}

#[test]
fn a_clean_scope_passes() {
    let _scope = scope();
    let text: String = (0..1000).map(|n| n.to_string()).collect();
    black_box(text);
}

#[test]
fn a_leak_fails_the_test_with_its_size_and_stack() {
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
