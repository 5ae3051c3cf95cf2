//! One search: stops the threads, marks, and writes what was found to the records.
//!
//! With [`option::SNAPSHOT`], a copy of the process marks in its copy of the memory (`fork`), and the threads wait for
//! the copy only. What the copy finds it writes to memory that both share. A record that was made since is left alone.

use core::sync::atomic::{AtomicU64, Ordering};

use poolscope_wire::ReachRecord;
use poolscope_wire::reach::{holder, option, outcome, verdict};

use super::events::{self, Kept};
use super::frame;
use super::heap::Heap;
use super::maps::{self, Mapping};
use super::mark::{Mark, NO_LEADER, Verdicts};
use super::regions;
use super::roots::{self, Range, Roots, Thread};
use super::stop::{Stopped, Stops, World};
use super::table::Table;
use crate::census;
use crate::hardened;
use crate::kernel::os::{self, Copy};
use crate::kernel::raw_thread;
use crate::layout::arena;
use crate::pages::page_heap;
use crate::sampler::search::{Records, records, try_records};
use crate::segment::bell::Asked;
use crate::sync::spin_lock::SlowPath;
use crate::threads::{heaps, thread_pointer};

/// More ranges than the pool has of its own beside arenas and heaps.
const MAX_OWN: usize = 1024;
/// Registers that a function keeps for its caller.
const SAVED_REGISTERS: usize = 6;
/// Time that a copy of the process has.
const COPY_LIMIT_NS: u64 = 30_000_000_000;

/// Who searches.
#[derive(Clone, Copy)]
pub enum Searcher {
    /// A thread of the program's, whose registers lie at `frame`, and its live stack behind them.
    OfTheProgram {
        /// The address.
        frame: usize,
    },
    /// The pool's thread, of which nothing is a root.
    Pool,
}

fn now() -> u64 {
    os::clock_ns(libc::CLOCK_MONOTONIC)
}

/// Looks, and writes the verdicts. Or says why it could not: one of [`outcome`].
pub fn look(slow: SlowPath, searcher: Searcher, asked: Asked) -> Result<ReachRecord, u32> {
    if hardened::is_on() {
        return Err(outcome::HARDENED);
    }
    if !frame::IS_KNOWN || matches!(searcher, Searcher::OfTheProgram { frame: 0 }) || os::is_emulated() {
        return Err(outcome::NO_REGISTERS);
    }
    // No handler of the program's runs here meanwhile, but for faults.
    let faults = [libc::SIGBUS, libc::SIGSEGV].into_iter().fold(0, |set, signal| set | 1u64 << (signal - 1));
    let mask = os::block_signals(!faults);
    let result = stop_and_look(slow, searcher, asked);
    os::set_blocked_signals(mask);
    result
}

/// What is found out about the blocks, in memory that a copy of the process may share.
struct Found {
    verdicts: Verdicts,
    summary: Table<Summary>,
}

/// What a mark looked at.
#[derive(Clone, Copy)]
struct Summary {
    /// One of [`outcome`]; [`outcome::NONE`] before the end.
    state: u32,
    root_bytes: u64,
    scan_ns: u64,
}

impl Found {
    /// Room for `len` records.
    fn new(len: u32, is_shared: bool) -> Option<Self> {
        let verdicts = Verdicts::new(len, is_shared)?;
        // SAFETY: zeroes are numbers.
        let summary = unsafe { if is_shared { Table::shared(1) } else { Table::zeroed(1) } }?;
        Some(Found { verdicts, summary })
    }

    fn fill(&mut self, records: &Records, world: &World, timers: &Table<Kept>, searcher: Searcher, tag_bits: usize) {
        let begun = now();
        let summary = self.summary.addresses();
        let marked = mark(&mut self.verdicts, summary, records, world, timers, searcher, tag_bits);
        let (state, root_bytes) = marked.map_or_else(|state| (state, 0), |bytes| (outcome::DONE, bytes as u64));
        self.summary.as_mut_slice()[0] = Summary { state, root_bytes, scan_ns: now() - begun };
    }
}

/// Stops the other threads, and takes the records: when that began, the threads, the records.
///
/// Threads come first. One that ends blocks all signals and frees what the C library keeps for it: with the records
/// held it would wait for them, and could not be stopped. One that was stopped with the records is let go again.
fn stop_threads(slow: SlowPath) -> Result<(u64, World, Records), u32> {
    let mut stops = Stops::new().ok_or(outcome::NO_SIGNAL)?;
    while !stops.is_last() {
        let begun = now();
        let world = stops.stop().ok_or(outcome::NO_SIGNAL)?;
        if world.missing == 0
            && let Some(records) = try_records(slow)
        {
            return Ok((begun, stops.accept(world), records.unwrap_or(Err(outcome::NO_COPY))?));
        }
    }
    let records = records(slow).unwrap_or(Err(outcome::NO_COPY))?;
    let begun = now();
    let world = stops.stop().ok_or(outcome::NO_SIGNAL)?;
    Ok((begun, stops.accept(world), records))
}

fn stop_and_look(slow: SlowPath, searcher: Searcher, asked: Asked) -> Result<ReachRecord, u32> {
    let in_copy = asked.options & option::SNAPSHOT != 0;
    let (begun, world, records) = stop_threads(slow)?;
    let mut found = Found::new(records.len(), in_copy).ok_or(outcome::NO_MEMORY)?;
    let (seen, missing, unstopped) = (world.threads().len(), world.missing, world.unstopped);
    let own = u32::from(matches!(searcher, Searcher::OfTheProgram { .. }));
    let timers = events::of_timers().ok_or(outcome::NO_MEMORY)?;
    let stopped_at = now();
    let (mut records, resumed) = if in_copy {
        // SAFETY: the threads are stopped, the pool's records are not being changed, and nothing else of the program's
        // state is used in the copy.
        let Some(copy) = (unsafe { Copy::make() }) else {
            found.fill(&records, &world, &timers, searcher, asked.tag_mask as usize);
            os::end_copy()
        };
        drop(world);
        let resumed = now();
        drop(records);
        if !copy.wait(COPY_LIMIT_NS) {
            return Err(outcome::NO_COPY);
        }
        match self::records(slow) {
            Some(Ok(records)) => (records, resumed),
            Some(Err(state)) => return Err(state),
            None => return Err(outcome::NO_COPY),
        }
    } else {
        found.fill(&records, &world, &timers, searcher, asked.tag_mask as usize);
        drop(world);
        (records, now())
    };
    let summary = found.summary.as_slice()[0];
    match summary.state {
        outcome::DONE => {}
        outcome::NONE => return Err(outcome::NO_COPY),
        state => return Err(state),
    }
    let (blocks, bytes) = judge(&mut records, &found.verdicts, stopped_at);
    Ok(ReachRecord {
        state: outcome::DONE,
        threads: (seen + missing) as u32 + own,
        stopped: seen as u32 + own,
        unstopped,
        blocks,
        bytes,
        root_bytes: summary.root_bytes,
        pause_ns: resumed - begun,
        scan_ns: summary.scan_ns,
        ..ReachRecord::ZERO
    })
}

/// The blocks that the last search has found to be leaked, and their bytes.
static LEAKED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The blocks that the last search has found to be leaked, and their bytes.
pub fn leaked() -> (u64, u64) {
    (LEAKED[0].load(Ordering::Relaxed), LEAKED[1].load(Ordering::Relaxed))
}

/// Writes to each record what was found of its block. Returns the blocks and their bytes.
fn judge(records: &mut Records, verdicts: &Verdicts, stopped_at: u64) -> (u64, u64) {
    let (mut blocks, mut bytes) = (0, 0);
    let mut leaked = (0, 0);
    for number in 0..records.len() {
        let block = records.get(number);
        // Where blocks of devices are not looked for, nothing is found of them.
        let is_known = block.is_some() || verdicts.verdict_if_any(number) != verdict::NONE;
        if !is_known {
            continue;
        }
        if number >= verdicts.len() || records.time_ns(number).is_none_or(|time| time > stopped_at) {
            records.judge(number, verdict::NONE, 0);
            continue;
        }
        if let Some(block) = block {
            blocks += 1;
            bytes += block.size as u64;
        }
        let leader = match verdicts.leader(number) {
            NO_LEADER => verdicts.holder(number),
            leader => records.address(leader) as u64,
        };
        let verdict = match verdicts.verdict(number) {
            // Of a block that nothing was found out about, nothing is said.
            verdict::NONE => verdict::REACHABLE,
            verdict => verdict,
        };
        if [verdict::DIRECT, verdict::INDIRECT].contains(&verdict) {
            leaked = (leaked.0 + 1, leaked.1 + records.bytes(number));
        }
        records.judge(number, verdict, leader);
    }
    LEAKED[0].store(leaked.0, Ordering::Relaxed);
    LEAKED[1].store(leaked.1, Ordering::Relaxed);
    (blocks, bytes)
}

/// Marks, and returns the bytes of roots. Or says why it could not.
fn mark(
    verdicts: &mut Verdicts,
    summary: Range,
    records: &Records,
    world: &World,
    timers: &Table<Kept>,
    searcher: Searcher,
    tag_bits: usize,
) -> Result<usize, u32> {
    let mappings = maps::read().ok_or(outcome::NO_MAPS)?;
    let heap = Heap::new(records, mappings.as_slice()).ok_or(outcome::NO_MEMORY)?;
    let mut threads = Table::<Thread>::new(world.threads().len() + 1).ok_or(outcome::NO_MEMORY)?;
    let mut excluded = Table::<Range>::new(MAX_OWN + arenas() + of_heaps()).ok_or(outcome::NO_MEMORY)?;
    let mut mark = Mark::new(&heap, verdicts, tag_bits).ok_or(outcome::NO_MEMORY)?;

    if let Searcher::OfTheProgram { frame } = searcher {
        let control = frame::thread_pointer();
        let signal_stack = os::signal_stack();
        threads.push(Thread { tid: os::thread_id(), sp: frame + roots::RED_ZONE, control, signal_stack });
    }
    for thread in world.threads() {
        let Stopped { tid, sp, thread_pointer: control, signal_stack, .. } = *thread;
        threads.push(Thread { tid, sp, control, signal_stack });
    }
    arena::for_each(|from, to| _ = excluded.push((from, to)));
    heaps::own_memory(|from, to| _ = excluded.push((from, to)));
    let own = [
        mappings.addresses(),
        threads.addresses(),
        excluded.addresses(),
        world.own_memory(),
        summary,
        timers.addresses(),
    ];
    let tiers = [page_heap::own_memory(), census::own_memory(), raw_thread::own_memory()];
    let own =
        own.into_iter().chain(tiers).chain(records.own_memory()).chain(heap.own_memory()).chain(mark.own_memory());
    own.for_each(|range| _ = excluded.push(range));
    poolscope_capture::own_memory(|from, to| {
        if !threads.as_slice().iter().any(|thread| (from..to).contains(&thread.sp)) {
            excluded.push((from, to));
        }
    });
    excluded.as_mut_slice().sort_unstable();

    heap.ignored(|number| mark.ignore(number));
    let roots = Roots {
        mappings: mappings.as_slice(),
        threads: threads.as_slice(),
        all_known: world.missing == 0,
        static_storage: static_storage(),
        excluded: excluded.as_slice(),
    };
    let mut root_bytes = roots.read(|word, held_by| mark.root(word, held_by)).ok_or(outcome::NO_MAPS)?;
    root_bytes += named_regions(mappings.as_slice(), &mut mark);
    root_bytes += stacks_in_blocks(&heap, &mut mark, threads.as_slice());
    for thread in world.threads() {
        let held_by = holder::of_thread(holder::REGISTER, thread.tid);
        for (from, to) in thread.registers {
            root_bytes += to - from;
            roots::words(from, to, &mut |_, word| mark.root(word, held_by));
        }
    }
    if let Searcher::OfTheProgram { frame } = searcher {
        let held_by = holder::of_thread(holder::REGISTER, os::thread_id());
        let registers = (frame, frame + SAVED_REGISTERS * size_of::<usize>());
        roots::words(registers.0, registers.1, &mut |_, word| mark.root(word, held_by));
    }
    timers.as_slice().iter().for_each(|&(word, held_by)| mark.root(word, held_by));
    if !events::of_epoll(|word, held_by| mark.root(word, held_by)) {
        return Err(outcome::NO_EVENTS);
    }
    heap.unrecorded_words(|_, word| mark.root(word, holder::IN_USE));
    heap.in_flight(|number| mark.hold(number));
    mark.follow();
    Ok(root_bytes)
}

/// Regions that the program has named as roots, as far as they can be read. Returns the bytes.
fn named_regions(mappings: &[Mapping], mark: &mut Mark<'_, Heap<'_>>) -> usize {
    let mut bytes = 0;
    regions::for_each(|(from, to)| {
        for mapping in mappings.iter().filter(|mapping| mapping.readable && mapping.start < to && from < mapping.end) {
            let (from, to) = (from.max(mapping.start), to.min(mapping.end));
            bytes += to - from;
            // What a file or another process has cut off is not there.
            roots::careful_words(from, to, &mut |place, word| mark.root(word, place as u64 | holder::REGION));
        }
    });
    bytes
}

/// Bytes of static thread-local storage below a thread's control block, as far as the C library's errno and the pool's
/// own words show.
pub(super) fn static_storage() -> usize {
    let here = frame::thread_pointer();
    // SAFETY: errno is this thread's.
    let errno = unsafe { libc::__errno_location() } as usize;
    let distance = here.saturating_sub(errno.min(thread_pointer::address().addr()));
    if distance > 1 << 20 { 0 } else { distance }
}

/// Stacks that lie in blocks, of coroutines for example: what is above the stack pointer counts, and the block is in
/// use. So is one for signals, whose address nobody but the kernel may have: with no signal in hand, nothing in it
/// counts. Returns the bytes.
fn stacks_in_blocks(heap: &Heap<'_>, mark: &mut Mark<'_, Heap<'_>>, threads: &[Thread]) -> usize {
    let mut bytes = 0;
    for thread in threads {
        if let Some((number, _)) = heap.around(thread.signal_stack) {
            mark.hold(number);
        }
        if let Some((number, end)) = heap.around(thread.sp) {
            let from = thread.sp.saturating_sub(roots::RED_ZONE);
            let held_by = holder::of_thread(holder::STACK, thread.tid);
            mark.hold(number);
            heap.words_between(from, end, &mut |_, word| mark.root(word, held_by));
            bytes += end - from;
        }
    }
    bytes
}

fn arenas() -> usize {
    let mut arenas = 0;
    arena::for_each(|_, _| arenas += 1);
    arenas
}

fn of_heaps() -> usize {
    let mut ranges = 0;
    heaps::own_memory(|_, _| ranges += 1);
    ranges
}
