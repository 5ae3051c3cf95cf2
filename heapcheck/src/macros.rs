//! Checks of one expression.

/// Fails if an expression leaks. What it gives is dropped before the check.
///
/// ```
/// # #[global_allocator]
/// # static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;
/// poolscope_heapcheck::assert_no_leaks!(vec![1, 2, 3].len());
/// ```
#[macro_export]
macro_rules! assert_no_leaks {
    ($body:expr $(,)?) => {{
        let scope = $crate::Scope::begin();
        drop($body);
        scope.check();
    }};
}

/// Fails if an expression has more bytes in use at a time than this. Gives what the expression gives.
///
/// ```
/// # #[global_allocator]
/// # static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;
/// let squares: Vec<u64> = poolscope_heapcheck::assert_max_bytes!(800, (0..100).map(|n| n * n).collect());
/// assert_eq!(squares.len(), 100);
/// ```
#[macro_export]
macro_rules! assert_max_bytes {
    ($bytes:expr, $body:expr $(,)?) => {{
        let limit = $bytes;
        let scope = $crate::Scope::counting().max_bytes(limit);
        let value = $body;
        scope.check();
        value
    }};
}

/// Fails if an expression does not ask for memory just so often, or with `<=` if it does so more often. Gives what the
/// expression gives.
///
/// ```
/// # #[global_allocator]
/// # static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;
/// let text = poolscope_heapcheck::assert_allocations!(1, String::from("one block"));
/// poolscope_heapcheck::assert_allocations!(0, text.trim().len());
/// poolscope_heapcheck::assert_allocations!(<= 5, (0..100).collect::<Vec<u8>>());
/// ```
#[macro_export]
macro_rules! assert_allocations {
    (<= $calls:expr, $body:expr $(,)?) => {{
        let limit = $calls;
        let scope = $crate::Scope::counting().max_allocations(limit);
        let value = $body;
        scope.check();
        value
    }};
    ($calls:expr, $body:expr $(,)?) => {{
        let limit = $calls;
        let scope = $crate::Scope::counting().exact_allocations(limit);
        let value = $body;
        scope.check();
        value
    }};
}
