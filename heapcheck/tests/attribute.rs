//! `#[poolscope_heapcheck::test]`, on the default, parallel test harness.

use std::hint::black_box;

#[global_allocator]
static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;

#[inline(never)]
fn forget_a_vector(bytes: usize) {
    std::mem::forget(black_box(vec![1u8; bytes]));
}

#[poolscope_heapcheck::test]
fn a_clean_test_passes() {
    let text: String = (0..1000).map(|n| n.to_string()).collect();
    assert_eq!(text.len(), 2890);
}

#[poolscope_heapcheck::test]
#[should_panic(expected = "1,234 B in 1 block")]
fn a_test_that_leaks_fails() {
    forget_a_vector(1234);
}

/// Its body is a closure.
#[poolscope_heapcheck::test]
#[should_panic(expected = ".suppress(\"what_a_test_loses_by_itself_is_known_by_its_name\")")]
fn what_a_test_loses_by_itself_is_known_by_its_name() {
    std::mem::forget(black_box(Box::new(7u64)));
}

#[poolscope_heapcheck::test(allow = 50 + 50, max_bytes = 200)]
fn settings_stand_in_brackets() {
    forget_a_vector(100);
}

#[poolscope_heapcheck::test(max_allocations = 2, suppress = "forget_a_vector")]
#[should_panic(expected = "asked for memory 3 times, and may do so 2 times")]
fn a_limit_fails_a_test() {
    (0..3).for_each(forget_a_vector_of);
}

fn forget_a_vector_of(bytes: usize) {
    forget_a_vector(bytes + 1);
}

#[poolscope_heapcheck::test]
#[test]
fn another_attribute_may_make_it_a_test() {
    black_box(vec![1]);
}

#[poolscope_heapcheck::test]
fn a_test_may_give_back_a_result() -> Result<(), std::num::ParseIntError> {
    let number: u64 = "17".parse()?;
    if number != 17 {
        return Ok(());
    }
    Ok(())
}

#[poolscope_heapcheck::test]
#[should_panic(expected = "the real reason")]
fn a_failing_test_keeps_its_own_words() {
    forget_a_vector(10);
    panic!("the real reason");
}

/// An error is in use when the scope ends.
#[poolscope_heapcheck::test]
#[ignore = "it fails: the test below runs its body"]
fn an_error_fails_by_itself() -> Result<(), Box<dyn std::error::Error>> {
    Err("a reason on the heap".to_owned())?
}

#[test]
fn a_test_that_gives_back_an_error_fails_by_that() {
    let error = an_error_fails_by_itself().expect_err("it is one");
    assert_eq!(error.to_string(), "a reason on the heap");
}

#[poolscope_heapcheck::test]
#[tokio::test]
async fn an_async_test_passes() {
    let block = black_box(vec![1u8; 100]);
    tokio::task::yield_now().await;
    let sum = tokio::spawn(async { black_box(vec![1u8; 50]).len() }).await.expect("it ends");
    assert_eq!(sum + block.len(), 150);
}

#[poolscope_heapcheck::test]
#[tokio::test]
#[should_panic(expected = "4,321 B in 1 block")]
async fn an_async_test_that_leaks_fails() {
    tokio::task::yield_now().await;
    forget_a_vector(4321);
}

#[poolscope_heapcheck::test]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_async_test_may_give_back_a_result() -> Result<(), tokio::task::JoinError> {
    let len = tokio::spawn(async { black_box(vec![1u8; 50]).len() }).await?;
    assert_eq!(len, 50);
    Ok(())
}

/// The scope is around the runtime, whose threads are started in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[poolscope_heapcheck::test]
#[should_panic(expected = "777 B in 1 block")]
async fn a_scope_around_the_runtime_sees_its_tasks() {
    tokio::spawn(async {
        tokio::task::yield_now().await;
        forget_a_vector(777);
    })
    .await
    .expect("it ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[poolscope_heapcheck::test]
async fn a_scope_around_the_runtime_passes() {
    let tasks = (0..20).map(|n| tokio::spawn(async move { black_box(vec![n; 100]).len() }));
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.expect("it ends"), 100);
    }
}

#[poolscope_heapcheck::test(max_allocations = 2, max_bytes = 300)]
#[tokio::test]
async fn limits_of_an_async_test_are_those_of_its_own_code() {
    black_box(vec![1u8; 100]);
    std::future::ready(()).await;
    black_box(vec![1u8; 200]);
}

#[poolscope_heapcheck::test(max_bytes = 299, suppress = "nothing")]
#[tokio::test]
#[should_panic(expected = "had 300 B in use at its peak, and may have 299")]
async fn a_limit_fails_an_async_test() {
    let block = black_box(vec![1u8; 100]);
    std::future::ready(()).await;
    drop((block, black_box(vec![1u8; 200])));
}

#[poolscope_heapcheck::test(max_bytes = 1000)]
#[tokio::test]
#[should_panic(expected = "12 B in 1 block")]
async fn a_leak_within_limits_fails_an_async_test() {
    forget_a_vector(12);
}
