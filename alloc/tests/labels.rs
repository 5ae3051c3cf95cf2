//! Labels of a Rust program: of scopes, threads and futures, with limits.

use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use poolscope_alloc::label::{Label, NoSuchLabel, Over, labelled};
use poolscope_alloc::{Configured, config, tag};

#[global_allocator]
static POOL: Configured = Configured(config().period(1));

#[test]
fn a_scope_a_thread_and_a_future_are_under_their_labels() {
    let cache = Label::new("cache");
    let first = {
        let _cache = tag!("cache");
        let first = black_box(vec![1u8; 10_000]);
        // A thread begins under no label.
        std::thread::spawn(|| black_box(vec![1u8; 500_000])).join().expect("ends");
        first
    };
    let _none = black_box(vec![1u8; 700_000]);
    let in_use = cache.in_use();
    // What the thread is made of comes on top.
    assert!((10_000..30_000).contains(&in_use), "{in_use}");
    drop(first);
    assert!(cache.in_use() <= in_use - 10_000);

    let request = Label::new("request");
    let mut polls = 0;
    let future = std::future::poll_fn(|_| {
        polls += 1;
        std::mem::forget(black_box(vec![1u8; 1000]));
        if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
    });
    let mut future = pin!(labelled(request, future));
    let mut context = Context::from_waker(Waker::noop());
    while future.as_mut().poll(&mut context).is_pending() {
        // Between two polls, other work of the thread is under no label.
        std::mem::forget(black_box(vec![1u8; 50_000]));
    }
    assert_eq!(request.in_use(), 3000);
}

#[test]
fn a_name_that_changes_is_another_label_each_time() {
    for tenant in ["tenant 1", "tenant 2", "tenant 2"] {
        let _tenant = tag!(tenant);
        std::mem::forget(black_box(vec![1u8; 20_000]));
    }
    assert_eq!((Label::new("tenant 1").in_use(), Label::new("tenant 2").in_use()), (20_000, 40_000));
}

static SEEN: AtomicU64 = AtomicU64::new(0);

#[test]
fn a_function_is_called_when_a_limit_is_passed_and_may_allocate() {
    let queue = Label::new("queue");
    let limited = queue.limit(
        50_000,
        Over::Call(|name, in_use, limit| {
            let text = format!("{name} {limit}");
            assert_eq!(text, "queue 50000");
            SEEN.fetch_add(in_use, Ordering::Relaxed);
        }),
    );
    assert_eq!(limited, Ok(()));
    let _queue = queue.enter();
    let held: Vec<_> = (0..30).map(|_| black_box(Box::new([1u8; 4000]))).collect();
    assert!((50_001..60_000).contains(&SEEN.load(Ordering::Relaxed)), "{SEEN:?} {}", held.len());
}

/// In a process of its own: the others have labels of theirs.
#[test]
fn a_label_that_there_is_no_room_for_can_have_no_limit() {
    let this = std::env::current_exe().expect("it runs");
    let all = std::process::Command::new(this).args(["--exact", "--ignored", "sixty_five_labels"]).output();
    let all = all.expect("is started");
    assert!(all.status.success(), "{}", String::from_utf8_lossy(&all.stdout));
}

#[test]
#[ignore = "takes all labels of its process"]
fn sixty_five_labels() {
    for number in 0..64 {
        assert_eq!(Label::new(&format!("label {number}")).limit(1 << 30, Over::Warn), Ok(()));
    }
    let refused = Label::new("one more").limit(1 << 30, Over::Warn).expect_err("there is no room").to_string();
    assert!(refused.contains("64 others"), "{refused}");
    assert_eq!(Label::new("label 63").limit(0, Over::Warn), Ok(()));
    assert_eq!(Label::new("").limit(1, Over::Warn), Err(NoSuchLabel));
}
