//! Scopes: a stretch of a program's run in which every allocation is recorded with its stack, on one thread or on
//! several.

use std::marker::PhantomData;

use poolscope_cpu::scope;

pub use poolscope_capture::ModuleInfo;
pub use poolscope_cpu::scope::{Counts, LiveBlock};

/// While it lives, every allocation of the threads that are in it is recorded; nothing else gets slower. Scopes nest:
/// the innermost one records, and those around it count.
#[derive(Debug)]
pub struct Scope {
    id: u32,
    /// What this thread was in before; `None` if it did not enter.
    outer: Option<u32>,
    dropped_before: u64,
    /// A scope is the thread's that began it.
    not_send: PhantomData<*const ()>,
}

/// A scope's name, for other threads that enter it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(u32);

/// This thread is in a scope while it lives.
#[derive(Debug)]
#[must_use = "the thread leaves the scope when this is dropped"]
pub struct Entered {
    outer: u32,
    not_send: PhantomData<*const ()>,
}

impl Scope {
    /// Begins a scope, with this thread in it. `None` if the pool is not this program's allocator (no allocation would
    /// be seen) or there is no memory for a heap.
    pub fn begin() -> Option<Scope> {
        let (id, outer) = scope::begin()?;
        Some(Scope { id, outer: Some(outer), dropped_before: scope::dropped(), not_send: PhantomData })
    }

    /// The same without a thread in it: [`Handle::enter`] is for those.
    pub fn open() -> Option<Scope> {
        let id = scope::open()?;
        Some(Scope { id, outer: None, dropped_before: scope::dropped(), not_send: PhantomData })
    }

    /// For other threads that enter it.
    pub fn handle(&self) -> Handle {
        Handle(self.id)
    }

    /// What was counted in it, and in scopes in it. `None` of one of more than 255 that are open.
    pub fn counts(&self) -> Option<Counts> {
        scope::counts(self.id)
    }

    /// Gives the blocks that are in use to the scope around this one: they are its from now on.
    pub fn hand_over(&self) {
        scope::hand_over(self.id);
    }

    /// Calls `f` with each block that was allocated in this scope and is not freed (by whichever thread), and with
    /// the return addresses of its stack, innermost first. `f` runs under a lock of the pool: it must not allocate
    /// or free.
    pub fn visit_live(&self, f: impl FnMut(LiveBlock, &[u64])) {
        scope::visit_live(self.id, f);
    }

    /// Stops recording on this thread, so that what a report needs is not part of it. The blocks recorded so far stay
    /// the scope's.
    pub fn pause(&self) {
        scope::set(0);
    }

    /// Records again after [`Scope::pause`].
    pub fn resume(&self) {
        if self.outer.is_some() {
            scope::set(self.id);
        }
    }

    /// Blocks that could not be recorded since the scope began, because the table was full.
    pub fn dropped(&self) -> u64 {
        scope::dropped() - self.dropped_before
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if let Some(outer) = self.outer {
            scope::set(outer);
        }
        scope::close(self.id);
    }
}

impl Handle {
    /// The scope that this thread is in.
    pub fn current() -> Option<Handle> {
        match scope::current() {
            0 => None,
            id => Some(Handle(id)),
        }
    }

    /// Whether its scope has not ended.
    pub fn is_open(self) -> bool {
        scope::is_open(self.0)
    }

    /// Puts this thread into the scope, until what this returns is dropped. Into none if the scope has ended.
    pub fn enter(self) -> Entered {
        let outer = scope::current();
        scope::set(if self.is_open() { self.0 } else { 0 });
        Entered { outer, not_send: PhantomData }
    }
}

/// Takes this thread out of every scope, until what this returns is dropped.
pub fn leave() -> Entered {
    let outer = scope::current();
    scope::set(0);
    Entered { outer, not_send: PhantomData }
}

impl Drop for Entered {
    fn drop(&mut self) {
        scope::set(self.outer);
    }
}

/// Whether an address is one of the pool's memory.
pub fn is_of_pool(address: usize) -> bool {
    scope::is_of_pool(address)
}

/// The executables and libraries that frames of recorded stacks lie in.
pub fn modules() -> impl Iterator<Item = ModuleInfo> {
    (0..poolscope_capture::module_count()).filter_map(poolscope_capture::module)
}
