//! Futures in scopes.

use std::pin::Pin;
use std::task::{Context, Poll};

use poolscope_alloc::scope::{self, Handle};

use crate::threads;

/// A future that is in a scope whenever it is polled, on whichever thread.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled"]
pub struct Watched<F> {
    future: Pin<Box<F>>,
    scope: Handle,
}

impl<F: Future> Watched<F> {
    pub(crate) fn new(future: F, scope: Handle) -> Self {
        let _out = scope::leave();
        Watched { future: Box::pin(future), scope }
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _in = threads::enter(self.scope);
        self.future.as_mut().poll(context)
    }
}
