//! Scopes: a stretch of one thread's run in which every allocation is recorded with its stack.

use std::marker::PhantomData;

pub use poolscope_capture::ModuleInfo;
pub use poolscope_cpu::scope::LiveBlock;

/// While it lives, every allocation of this thread is recorded; nothing else gets slower. Scopes nest: the innermost
/// one records.
#[derive(Debug)]
pub struct Scope {
    id: u32,
    outer: u32,
    dropped_before: u64,
    /// A scope is the thread's that began it.
    not_send: PhantomData<*const ()>,
}

impl Scope {
    /// Begins a scope. `None` if the pool is not this program's allocator (no allocation would be seen) or there is
    /// no memory for a heap.
    pub fn begin() -> Option<Scope> {
        let (id, outer) = poolscope_cpu::scope::begin()?;
        let dropped_before = poolscope_cpu::scope::dropped();
        Some(Scope { id, outer, dropped_before, not_send: PhantomData })
    }

    /// Calls `f` with each block that was allocated in this scope and is not freed (by whichever thread), and with
    /// the return addresses of its stack, innermost first. `f` runs under a lock of the pool: it must not allocate
    /// or free.
    pub fn visit_live(&self, f: impl FnMut(LiveBlock, &[u64])) {
        poolscope_cpu::scope::visit_live(self.id, f);
    }

    /// Stops recording, so that what a report needs is not part of it. The blocks recorded so far stay the scope's.
    pub fn pause(&self) {
        poolscope_cpu::scope::set(0);
    }

    /// Records again after [`Scope::pause`].
    pub fn resume(&self) {
        poolscope_cpu::scope::set(self.id);
    }

    /// Blocks that could not be recorded since the scope began, because the table was full.
    pub fn dropped(&self) -> u64 {
        poolscope_cpu::scope::dropped() - self.dropped_before
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        poolscope_cpu::scope::set(self.outer);
    }
}

/// The executables and libraries that frames of recorded stacks lie in.
pub fn modules() -> impl Iterator<Item = ModuleInfo> {
    (0..poolscope_capture::module_count()).filter_map(poolscope_capture::module)
}
