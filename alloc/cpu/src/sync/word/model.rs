//! loom's word, and scenarios for it.

use super::Word;
use core::sync::atomic::Ordering;
pub use loom::sync::atomic::AtomicUsize;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::vec;
use std::vec::Vec;

impl Word for AtomicUsize {
    fn load(&self, order: Ordering) -> usize {
        AtomicUsize::load(self, order)
    }

    fn store(&self, value: usize, order: Ordering) {
        AtomicUsize::store(self, value, order);
    }

    fn swap(&self, value: usize, order: Ordering) -> usize {
        AtomicUsize::swap(self, value, order)
    }

    fn compare_exchange(
        &self,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize> {
        AtomicUsize::compare_exchange(self, current, new, success, failure)
    }

    fn compare_exchange_weak(
        &self,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize> {
        AtomicUsize::compare_exchange_weak(self, current, new, success, failure)
    }

    fn fetch_add(&self, value: usize, order: Ordering) -> usize {
        AtomicUsize::fetch_add(self, value, order)
    }

    fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
        AtomicUsize::fetch_sub(self, value, order)
    }

    fn fetch_or(&self, value: usize, order: Ordering) -> usize {
        AtomicUsize::fetch_or(self, value, order)
    }

    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }

    fn wait(_: u32) {
        loom::thread::yield_now();
    }
}

/// A scenario: threads that share a state, each one a function of it.
pub struct Scenario<S: 'static, O> {
    /// Makes the state.
    pub state: fn() -> S,
    /// The threads.
    pub threads: &'static [fn(&S)],
    /// How often a thread is interrupted at most at a place where it could have gone on. What goes wrong at all goes
    /// wrong with two or three; each more multiplies the time.
    pub interruptions: usize,
    /// Looks at the state when all threads have ended, and says what came out.
    pub end: fn(&S) -> O,
}

impl<S: Send + Sync + 'static, O: Ord + Send + 'static> Scenario<S, O> {
    /// Runs it in all orders that loom finds worth a try, and returns everything that came out: a test that says what
    /// that is can't pass because an order was left out. loom does leave some out (of the accesses to a word it
    /// keeps the last one in mind), therefore the threads start in every order here.
    pub fn outcomes(self) -> BTreeSet<O> {
        let outcomes = Arc::new(Mutex::new(BTreeSet::new()));
        for order in orders(self.threads.len()) {
            let (state, threads, end, outcomes) = (self.state, self.threads, self.end, outcomes.clone());
            let mut model = loom::model::Builder::new();
            model.preemption_bound = Some(self.interruptions);
            model.check(move || {
                let state = Arc::new(state());
                let spawn = |&thread: &usize| {
                    let state = state.clone();
                    loom::thread::spawn(move || threads[thread](&state))
                };
                let spawned: Vec<_> = order.iter().map(spawn).collect();
                spawned.into_iter().for_each(|thread| thread.join().unwrap());
                outcomes.lock().unwrap().insert(end(&state));
            });
        }
        Arc::into_inner(outcomes).unwrap().into_inner().unwrap()
    }
}

/// Every order of the first `n` numbers.
fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![vec![]];
    }
    let insert = |order: Vec<usize>| (0..n).map(move |at| [&order[..at], &[n - 1], &order[at..]].concat());
    orders(n - 1).into_iter().flat_map(insert).collect()
}
