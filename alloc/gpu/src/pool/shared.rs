//! What the threads of a pool share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};

use poolscope_wire::trace::TRACED;

use super::Pool;
use super::core::{Core, InUse};
use super::crowd::Crowd;
use super::records::Records;
use crate::delays::{Cause, Delays, note};
use crate::device::{Device, Driver, Pinned};
use crate::small::{CLASSES, Pages};
use crate::streams::LaneId;
use crate::watch::Recorder;
use crate::watch::hooks::Watched;
use crate::watch::sampling::Lives;

/// Nanoseconds after which a stream that the program does not name any more is taken for idle, or for gone.
const IDLE_STREAM: u64 = 100_000_000;

/// The bit of a pool's version while there are hooks.
const HOOKED: u64 = 1 << 62;

/// The bit of a pool's version where it is hardened.
pub(super) const HARDENED: u64 = 1 << 61;

/// Free blocks of a class, by lane.
type Global = Mutex<HashMap<LaneId, Vec<u64>>>;

/// What all threads read at each call: on cache lines that nobody writes to otherwise.
#[repr(align(128))]
pub(super) struct ReadByAll {
    pub(super) id: u64,
    pub(super) pages: Arc<Pages>,
    /// Changes with streams, captures and settings, under the core's lock; and has the bit [`TRACED`] while every block
    /// is told, [`HOOKED`] while there are hooks, and [`HARDENED`] for good.
    pub(super) version: AtomicU64,
    /// Bytes of fitted blocks that a thread keeps at most; 0 where medium blocks come from slabs.
    pub(super) most_kept: AtomicU64,
}

impl ReadByAll {
    /// The version without the bits: what a thread learns. As long as one is set, no thread finds the word as it knows
    /// it, and each call takes the slow path.
    pub(super) fn resolved_version(&self) -> u64 {
        self.version.load(Ordering::Relaxed) & !(TRACED | HOOKED | HARDENED)
    }

    /// Whether there are hooks.
    pub(super) fn is_hooked(&self) -> bool {
        self.version.load(Ordering::Relaxed) & HOOKED != 0
    }

    /// Whether every free is looked at.
    pub(super) fn is_hardened(&self) -> bool {
        self.version.load(Ordering::Relaxed) & HARDENED != 0
    }

    /// Whether every block is to be told.
    pub(super) fn is_told(&self) -> bool {
        self.version.load(Ordering::Relaxed) & TRACED != 0
    }
}

/// The pool itself: its handles and its own thread have it together.
pub(super) struct Shared<D: Device> {
    pub(super) read: ReadByAll,
    pub(super) driver: Arc<Driver<D>>,
    pub(super) global_limit: AtomicUsize,
    pub(super) global: [Global; CLASSES],
    pub(super) core: Mutex<Core<D>>,
    pub(super) recorder: Arc<dyn Recorder>,
    /// Taken alone, so that samples of one thread don't keep the others from memory.
    pub(super) records: Mutex<Records>,
    /// Which places' blocks stay.
    pub(super) lives: Lives,
    /// The device's pinned memory, once it was asked for.
    pub(super) pinned: OnceLock<Box<Pool<Pinned>>>,
    /// Held by who makes it.
    pub(super) making_pinned: Mutex<()>,
    /// Whether blocks come from it when there is no other memory.
    pub(super) falls_back: AtomicBool,
    /// Who waits for the lock.
    pub(super) crowd: Arc<Crowd>,
    /// What the program has.
    pub(super) in_use: Arc<InUse>,
    /// What calls were held up by.
    pub(super) delays: Arc<Delays>,
    pub(super) own: Weak<Shared<D>>,
}

/// How often a thread looks whether a lock is free before it sleeps, and how long it rests between two looks: 40 to 120
/// us in all, about what it takes to fall asleep and be woken in a virtual machine. That is at most twice the best that
/// it could do (Karlin et al., "Competitive randomized algorithms for nonuniform problems", 1990).
const LOOKS: usize = 128;
const REST: usize = 16;

/// A panic of another thread leaves nothing half done that the next one would trip over.
#[inline]
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    try_lock(mutex).unwrap_or_else(|| wait_for(mutex))
}

#[inline]
pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cold]
fn wait_for<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for _ in 0..LOOKS {
        (0..REST).for_each(|_| std::hint::spin_loop());
        if let Some(guard) = try_lock(mutex) {
            return guard;
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D: Device> Shared<D> {
    /// What the lock guards, for a call of the program's.
    pub(super) fn core(&self) -> MutexGuard<'_, Core<D>> {
        try_lock(&self.core).unwrap_or_else(|| {
            let now = || self.driver.device().now();
            let began = now();
            let core = self.crowd.wait(|| wait_for(&self.core));
            note(Cause::Lock, now() - began);
            core
        })
    }

    /// A round of background work, with at most so many calls while the lock is held. Returns whether it made as many.
    pub(super) fn maintain(&self, most: u64) -> bool {
        let now = self.driver.device().now();
        let mut core = lock(&self.core);
        self.crowd.set_at_upkeep(true);
        let more = core.maintain(now, most);
        let newly = core.take_newly_lost();
        let undrained = if core.large.lanes.is_any_capturing() {
            Vec::new()
        } else {
            core.large.lanes.close_idle(now, IDLE_STREAM);
            core.large.lanes.undrained()
        };
        let is_due = core.is_upkeep_due(now);
        if is_due {
            self.crowd.next_second();
            self.collect_kept(&mut core);
        }
        if !newly.is_empty() || is_due {
            self.new_version();
        }
        self.crowd.set_at_upkeep(false);
        drop(core);
        newly.into_iter().for_each(|lane| self.hand_over(lane));
        // No lock is held while the host waits for the device.
        if !undrained.is_empty() && self.driver.synchronize_all().is_ok() {
            let mut core = lock(&self.core);
            core.large.lanes.confirm_drained(&undrained);
            // Those of them that are gone are asked by nobody.
            let lanes: Vec<_> = undrained.into_iter().map(|(lane, _)| lane).collect();
            core.large.settle_lanes(&lanes);
        }
        more
    }

    /// Puts what the global caches have of a stream that is gone into the reserve.
    pub(super) fn hand_over(&self, lane: LaneId) {
        let blocks: Vec<_> = self.global.iter().filter_map(|global| lock(global).remove(&lane)).collect();
        lock(&self.core).slabs.put_all(blocks.into_iter().flatten());
    }

    /// Makes all threads look again. The caller holds the core's lock.
    pub(super) fn new_version(&self) {
        self.read.version.fetch_add(1, Ordering::Relaxed);
    }
}

impl<D: Device> Watched for Shared<D> {
    fn set_hooked(&self, hooked: bool) {
        match hooked {
            true => self.read.version.fetch_or(HOOKED, Ordering::Relaxed),
            false => self.read.version.fetch_and(!HOOKED, Ordering::Relaxed),
        };
    }
}

impl<D: Device> Drop for Shared<D> {
    fn drop(&mut self) {
        self.recorder.unwatch(&self.read.version);
        self.recorder.closed();
        let core = self.core.get_mut().unwrap_or_else(PoisonError::into_inner);
        for global in &mut self.global {
            let global = global.get_mut().unwrap_or_else(PoisonError::into_inner);
            core.slabs.put_all(global.drain().flat_map(|(_, blocks)| blocks));
        }
        core.empty_quarantine();
        for thread in self.in_use.take_threads() {
            // SAFETY: a thread in a call has a reference to the pool, and there is none any more.
            core.put_back(unsafe { thread.lists() }.drain());
        }
        // What the program still has keeps its slabs.
        core.return_slabs();
    }
}
