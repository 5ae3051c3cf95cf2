//! The hardened mode (`POOLSCOPE_HARDENED=1`): every block is checked, and the first fault that is found ends the
//! process with a message, before it becomes something else.
//!
//! - Blocks are known by a table of [`records`]: what is not in it can't be freed, and what was freed is known.
//! - Around each block lie [`zones`] that nobody may write to; they are looked at when it is freed or resized.
//! - A freed block is filled and waits in the [`quarantine`]; when it leaves that, its filling must be as it was.
//! - Sampled blocks, and large ones, are [`guarded`]: an access beyond them or after their end is a fault of the
//!   processor, which [`fault`] explains.
//! - A [`mod@report`] shows the stacks that allocated and freed ([`stacks`]).
//!
//! While the mode is on, every thread's fast path is closed ([`crate::threads::detour`]). The blocks' memory comes from
//! the same tiers as ever; only larger, for the zones.
//!
//! A signal handler that interrupts the pool gets blocks that are not checked; what it frees waits in [`later`].

mod fault;
mod guarded;
mod later;
mod quarantine;
mod records;
mod report;
mod stacks;
mod zones;

use core::sync::atomic::{AtomicBool, Ordering};

use poolscope_capture::Caller;

use crate::entry::{self, Entry};
use crate::kernel::aside::aside;
use crate::kernel::os;
use crate::layout::block::BlockPtr;
use crate::layout::slab::NO_SLOT;
use crate::pages::keeper;
use crate::sampler;
use crate::segment::counters::{self, TierCounter};
use crate::serve;
use crate::serve::reentrant;
use crate::sync::reasons::{self, Reason};
use crate::sync::spin_lock::{ForkLock, SlowPath, SpinLock};
use crate::threads::detour;
use crate::tiers::thread_cache::Heap;

use quarantine::{Quarantine, Waiting};
use records::{Call, Record, Records, State};
use report::{Action, Finding, Report};
use stacks::{Stack, Stacks};

pub use later::free_later;
pub use records::Origin;

/// Blocks of so many bytes are guarded even if they are not sampled: their quarantine then costs no memory.
const GUARD_MIN: usize = 1 << 20;

struct Hardened {
    records: Records,
    stacks: Stacks,
    quarantine: Quarantine,
}

// SAFETY: only reached under the lock below.
unsafe impl Send for Hardened {}

static HARDENED: SpinLock<Hardened> =
    SpinLock::new(Hardened { records: Records::new(), stacks: Stacks::new(), quarantine: Quarantine::new() });

/// Whether the mode is on.
#[inline]
pub fn is_on() -> bool {
    reasons::is_on_for(Reason::Hardened)
}

/// Turns the mode on if the settings say so: before the first block is allocated.
pub fn start(slow: SlowPath) {
    let settings = crate::settings::current();
    if settings.hardened() && !settings.plain() {
        HARDENED.lock(slow).records.start();
        guarded::start();
        detour::turn_on(slow, Reason::Hardened);
        fault::install();
    }
}

/// Allocates a checked block for the program's call at `caller`, which reads as zero, as the second value says. `None`
/// without memory.
pub fn allocate(
    heap: &'static Heap,
    slow: SlowPath,
    size: usize,
    align: usize,
    caller: &Caller,
) -> Option<(*mut u8, bool)> {
    free_waiting(slow, heap);
    // What left the quarantine by another thread: here, refills are rare.
    heap.drain(slow);
    let stack = stacks::of_caller(heap, caller);
    loop {
        if let Some(got) = try_allocate(slow, heap, size, align, &stack, caller) {
            return Some(got);
        }
        make_room(slow, heap)?;
    }
}

/// Lets one block out of the quarantine: it may be what is missing. `None` if there is none. A function of its own, as
/// [`note`] is: what it has on the stack is not under the tiers'.
#[inline(never)]
fn make_room(slow: SlowPath, heap: &'static Heap) -> Option<()> {
    let waiting = { HARDENED.lock(slow).leave_quarantine(Quarantine::pop) }?;
    release(slow, Some(heap), &waiting);
    Some(())
}

/// Notes a new block and where it was allocated. False without memory for that.
#[inline(never)]
fn note(slow: SlowPath, record: &mut Record, stack: &Stack) -> bool {
    let mut hardened = HARDENED.lock(slow);
    record.allocated.stack = hardened.stacks.intern(stack);
    hardened.records.insert(*record)
}

fn try_allocate(
    slow: SlowPath,
    heap: &'static Heap,
    size: usize,
    align: usize,
    stack: &Stack,
    caller: &Caller,
) -> Option<(*mut u8, bool)> {
    let budget = heap.large_budget(size, (caller.pc, caller.sp));
    let due = heap.large_is_due(budget, size.max(16));
    let allocated = Call { stack: 0, thread: heap.registration.thread_id.get() };
    let mut record = Record::live(core::ptr::null_mut(), size, align, allocated);
    // A block of no bytes can't be touched at all.
    let guard = due || size >= GUARD_MIN || size == 0 || guarded::is_first();
    let zero = (guard && guarded::map(&mut record)) || map_plain(slow, heap, &mut record, caller)?;
    if !zero {
        zones::clear(&record);
    }
    zones::mark(&record);
    let p = record.address as *mut u8;
    if due {
        let exposure = budget.exposure(size.max(16));
        record.slot = sampler::sample_large(slow, heap, p, size, (budget, exposure), caller);
    }
    if !note(slow, &mut record, stack) {
        forget_sample(slow, &record);
        give_back(slow, Some(heap), &record);
        return None;
    }
    Some((p, true))
}

/// A block of the tiers with room for the canaries; whether it reads as zero.
fn map_plain(slow: SlowPath, heap: &'static Heap, record: &mut Record, caller: &Caller) -> Option<bool> {
    let front = record.align().max(zones::MARGIN);
    let bytes = record.size.checked_add(front + zones::MARGIN)?;
    let units = u32::try_from(front / 16).ok()?;
    // The tiers are not to sample what is sampled here.
    let nested = heap.sampling.in_sampler.replace(true);
    let got = serve::allocate::allocate(slow, heap, bytes, record.align(), caller);
    heap.sampling.in_sampler.set(nested);
    let (base, zero) = got?;
    record.address = base as usize + front;
    record.front = units;
    record.len = serve::allocate::block_bytes(base)?;
    Some(zero)
}

/// Frees a block, after it was found to be one.
pub fn free(slow: SlowPath, heap: Option<&'static Heap>, p: *mut u8) {
    let stack = heap.map_or(Stack::NONE, stacks::here);
    let mut hardened = HARDENED.lock(slow);
    let number = hardened.stacks.intern(&stack);
    let record = match hardened.look(p, Action::Free) {
        Ok(record) => record,
        Err(finding) => {
            // A mapping that a signal handler got has no record.
            if finding == Finding::Unknown && reentrant::free_mapping(p) {
                return;
            }
            drop(hardened);
            report_from(slow, p, Action::Free, finding, &stack)
        }
    };
    record.state = State::Freed;
    record.freed = Call { stack: number, thread: os::thread_id() };
    let record = *record;
    hardened.records.end(&record);
    drop(hardened);
    forget_sample(slow, &record);
    if record.guarded {
        guarded::close(&record);
    } else {
        zones::poison(&record);
    }
    let (kept, idle) = {
        let mut hardened = HARDENED.lock(slow);
        let kept = hardened.quarantine.push(&record);
        (kept, if is_spread(&hardened) { usize::MAX } else { hardened.records.empty_bytes() })
    };
    keeper::notice(slow, idle);
    if !kept {
        let removed = HARDENED.lock(slow).records.remove(record.address);
        if let Some(record) = removed {
            release(slow, heap, &record);
        }
    }
    loop {
        let leaving = HARDENED.lock(slow).leave_quarantine(Quarantine::pop_over);
        let Some(record) = leaving else { return };
        release(slow, heap, &record);
    }
}

/// Bytes that were asked for with the block at `p`: beyond them, nothing is the program's. 0 if a signal handler that
/// interrupted the pool can't be told.
pub fn usable_size(p: *mut u8) -> usize {
    size_for(p, Action::UsableSize).unwrap_or(0)
}

/// Looks at a block that is about to be resized. False if a signal handler that interrupted the pool can't be told its
/// size.
pub fn may_resize(p: *mut u8) -> bool {
    size_for(p, Action::Realloc).is_some()
}

fn size_for(p: *mut u8, action: Action) -> Option<usize> {
    let entry = entry::enter();
    if let Entry::Heap(entered) = &entry {
        entered.heap.unvisit();
    }
    match entry {
        Entry::Heap(entered) => Some(size_checked(entered.slow, Some(entered.heap), p, action)),
        Entry::NoMemory(homeless) => Some(size_checked(homeless.slow, None, p, action)),
        Entry::Reentrant => reentrant::usable_size(p).or_else(|| {
            // SAFETY: that is what the entry says.
            let slow = unsafe { SlowPath::in_handler() };
            HARDENED.try_lock(slow)?.records.find(p).map(|record| record.size)
        }),
    }
}

fn size_checked(slow: SlowPath, heap: Option<&'static Heap>, p: *mut u8, action: Action) -> usize {
    let mut hardened = HARDENED.lock(slow);
    let finding = match hardened.look(p, action) {
        Ok(record) => return record.size,
        Err(finding) => finding,
    };
    drop(hardened);
    if finding == Finding::Unknown
        && let Some(bytes) = reentrant::usable_size(p)
    {
        return bytes;
    }
    report(slow, heap, p, action, finding)
}

/// Whether blocks are to be freed by what goes with their origin.
static ORIGINS: AtomicBool = AtomicBool::new(false);

/// Says whether all of C++'s operators are the pool's: only then is it known what allocated a block.
pub fn trust_origins(trust: bool) {
    ORIGINS.store(trust, Ordering::Relaxed);
}

/// Notes that `origin` allocated a block, which nobody but the caller has.
pub fn note_origin(p: *mut u8, origin: Origin) {
    if !is_on() {
        return;
    }
    let Entry::Heap(entered) = entry::enter() else { return };
    entered.heap.unvisit();
    if let Some(record) = HARDENED.lock(entered.slow).records.find(p) {
        record.origin = origin;
    }
}

/// Compares what the program says about a block that it is about to free with what it asked for.
#[inline(always)]
pub fn check_claim(p: *mut u8, size: Option<usize>, align: Option<usize>, origin: Option<Origin>) {
    if is_on() {
        compare_claim(p, size, align, origin);
    }
}

#[cold]
#[inline(never)]
fn compare_claim(p: *mut u8, size: Option<usize>, align: Option<usize>, origin: Option<Origin>) {
    let Entry::Heap(entered) = entry::enter() else { return };
    entered.heap.unvisit();
    let (slow, heap) = (entered.slow, Some(entered.heap));
    let mut hardened = HARDENED.lock(slow);
    // What is no live block is for `free` to report.
    let Some(record) = hardened.records.find(p).filter(|record| record.state == State::Live) else { return };
    let trusted = origin.filter(|_| ORIGINS.load(Ordering::Relaxed));
    let finding = match (size, align.map(|align| align.max(16))) {
        _ if trusted.is_some_and(|origin| origin != record.origin) => Finding::Origin(trusted.unwrap_or(record.origin)),
        (Some(size), _) if size != record.size => Finding::Size(size),
        (_, Some(align)) if align != record.align() => Finding::Align(align),
        _ => return,
    };
    drop(hardened);
    report(slow, heap, p, Action::Free, finding)
}

#[cold]
#[inline(never)]
fn report(slow: SlowPath, heap: Option<&'static Heap>, p: *mut u8, action: Action, finding: Finding) -> ! {
    let stack = heap.map_or(Stack::NONE, stacks::here);
    report_from(slow, p, action, finding, &stack)
}

/// Not on the program's stack, which may be small.
#[cold]
#[inline(never)]
fn report_from(slow: SlowPath, p: *mut u8, action: Action, finding: Finding, stack: &Stack) -> ! {
    aside(|| {
        let report = { HARDENED.lock(slow).report(p, action, finding, *stack) };
        report.abort()
    })
}

/// Gives a block that left the quarantine back to where its memory came from, if nobody wrote to it.
fn release(slow: SlowPath, heap: Option<&'static Heap>, record: &Record) {
    if !record.guarded
        && let Some(damage) = zones::check_freed(record)
    {
        end_with(slow, record, damage);
    }
    give_back(slow, heap, record);
}

/// Ends the process for damage that nobody's call has to do with.
#[cold]
fn end_with(slow: SlowPath, record: &Record, damage: zones::Damage) -> ! {
    aside(|| {
        let report = { HARDENED.lock(slow).report_on(record, Finding::Damage(damage)) };
        report.abort()
    })
}

fn give_back(slow: SlowPath, heap: Option<&'static Heap>, record: &Record) {
    if record.guarded {
        guarded::unmap(record);
    } else {
        serve::free::free(slow, heap, BlockPtr::new(record.base()));
    }
}

fn forget_sample(slow: SlowPath, record: &Record) {
    if record.slot != NO_SLOT {
        sampler::free_large(slow, record.slot);
    }
}

/// Blocks that leave the quarantine in one go of the scavenger's.
const LEAVE_MAX: usize = 4096;

/// Whether slabs hold more that is not in use than the quarantine is to have: then its blocks, a few in each of many
/// slabs, may be why.
fn is_spread(hardened: &Hardened) -> bool {
    let slabs = counters::get(TierCounter::SlabBytes) as usize;
    !hardened.quarantine.is_empty() && slabs.saturating_sub(hardened.records.in_slabs()) > quarantine::BYTES
}

/// Gives memory back that is not needed any more, the scavenger's part: old blocks leave the quarantine where slabs
/// hold more than it is to have, and records of blocks that are gone go.
/// Returns the bytes that stay and are still to go, about.
pub fn look_after(slow: SlowPath, now_ms: u64, age_ms: Option<u64>, delay_ms: Option<u64>) -> usize {
    if !is_on() {
        return 0;
    }
    let mut spread = 0;
    if let Some(age) = age_ms {
        HARDENED.lock(slow).quarantine.age(now_ms, age);
        for _ in 0..LEAVE_MAX {
            let leaving = {
                let mut hardened = HARDENED.lock(slow);
                if is_spread(&hardened) { hardened.leave_quarantine(Quarantine::pop_old) } else { None }
            };
            let Some(record) = leaving else { break };
            release(slow, None, &record);
        }
        spread = if is_spread(&HARDENED.lock(slow)) { quarantine::BYTES } else { 0 };
    }
    let Some(delay) = delay_ms else { return spread };
    let allowed = HARDENED.lock(slow).records.allowed(now_ms, delay);
    while HARDENED.lock(slow).records.release(allowed) {}
    spread + allowed
}

/// Gives addresses back that are reserved for records, before the address space is limited to `limit` bytes.
pub fn fit(slow: SlowPath, limit: usize) {
    if is_on() {
        guarded::narrow();
        HARDENED.lock(slow).records.fit(limit);
    }
}

/// How often the lock is tried for when the process ends.
const SWEEP_TRIES: u32 = 256;

/// Looks at what is left when the process ends: the surroundings of blocks in use, and freed blocks that wait.
pub fn sweep(slow: SlowPath) {
    // In a child of the bare `clone` nobody may ever let the lock go.
    let Some(hardened) = (0..SWEEP_TRIES).find_map(|tries| {
        let hardened = HARDENED.try_lock(slow);
        if hardened.is_none() {
            os::give_way(tries);
        }
        hardened
    }) else {
        return;
    };
    let live = hardened.records.live().find_map(|record| Some((record, zones::check_canaries(&record)?)));
    let found = live.or_else(|| hardened.freed_and_written());
    drop(hardened);
    if let Some((record, damage)) = found {
        end_with(slow, &record, damage);
    }
}

/// Frees what signal handlers left.
fn free_waiting(slow: SlowPath, heap: &'static Heap) {
    for p in later::take() {
        free(slow, Some(heap), p);
    }
}

impl Hardened {
    /// The live block at `p`, unless there is none, or its surroundings were written to.
    fn look(&mut self, p: *mut u8, action: Action) -> Result<&mut Record, Finding> {
        let Some(record) = self.records.find(p) else { return Err(Finding::Unknown) };
        if record.state != State::Live {
            return Err(Finding::Freed);
        }
        // Reading a size is no reason to look at the whole surroundings.
        if action != Action::UsableSize
            && let Some(damage) = zones::check_canaries(record)
        {
            return Err(Finding::Damage(damage));
        }
        Ok(record)
    }

    /// A block in the quarantine that was written to. All that wait there are filled.
    fn freed_and_written(&self) -> Option<(Record, zones::Damage)> {
        self.quarantine.waiting().find_map(|waiting| {
            let record = self.records.get(waiting.address)?;
            Some((record, zones::check_freed(&record)?))
        })
    }

    /// Takes a block out of the quarantine and out of the records.
    fn leave_quarantine(&mut self, next: impl Fn(&mut Quarantine) -> Option<Waiting>) -> Option<Record> {
        let waiting = next(&mut self.quarantine)?;
        let record = self.records.remove(waiting.address)?;
        debug_assert_eq!(record.sequence, waiting.sequence);
        Some(record)
    }

    fn report(&mut self, p: *mut u8, action: Action, finding: Finding, now: Stack) -> Report {
        let found = self.records.find(p).map(|record| *record);
        let record = found.or_else(|| self.records.around(p));
        Report::new(p as usize, action, finding, record, now, &self.stacks)
    }

    /// Of a block that has no record any more.
    fn report_on(&self, record: &Record, finding: Finding) -> Report {
        Report::new(record.address, Action::Leave, finding, Some(*record), Stack::NONE, &self.stacks)
    }
}

/// The lock, for `fork`.
pub fn fork_lock() -> &'static dyn ForkLock {
    &HARDENED
}
