//! The search for unreachable blocks: which of the recorded ones nothing in the process points to any more.
//!
//! A search has four steps, each with a file of its own:
//!
//! 1. The other threads are stopped ([`stop`]). From here on nothing allocates, locks or asks for names.
//! 2. The roots are read ([`roots`], [`maps`]): registers, live stacks, and what else of the process's memory was
//!    written and is not the pool's.
//! 3. The mark follows what they point to ([`mark`]), over the pool's own page descriptors ([`heap`]).
//! 4. The threads go on, and each block's verdict is written to its record.
//!
//! The search needs a record of every block, and refuses without. It is conservative: a word that happens to look like
//! a pointer hides a leak, and nothing that is reachable through a pointer is called leaked, unless the program keeps
//! that pointer where no search looks: in another process, in a file, or in an encoded form.

mod frame;
mod heap;
mod maps;
mod mark;
mod roots;
mod stop;
mod table;

use core::sync::atomic::{AtomicU32, Ordering};

use poolscope_wire::ReachRecord;
use poolscope_wire::reach::{outcome, verdict};

use crate::census;
use crate::entry::{self, Entry};
use crate::hardened;
use crate::kernel::os;
use crate::layout::arena;
use crate::pages::page_heap;
use crate::sampler::search::{Records, records};
use crate::settings;
use crate::sync::spin_lock::SlowPath;

use heap::Heap;
use mark::{Blocks, Mark, NO_LEADER};
use roots::{Range, Roots, Thread};
use table::Table;

/// More ranges than the pool has of its own beside arenas.
const MAX_OWN: usize = 1024;
/// Registers that a function keeps for its caller.
const SAVED_REGISTERS: usize = 6;

/// Whether the process is to search when it ends.
pub fn is_asked_for() -> bool {
    let settings = settings::current();
    settings.leak_check() && !settings.plain()
}

/// Looks for unreachable blocks. The pool's own thread does not run, and the caller holds nothing of the pool's.
pub fn search() {
    // SAFETY: the function returns.
    unsafe { frame::with_callers(search_from) };
}

/// Kernel id of the thread that searches, of which there is one at a time; 0 if none does.
static SEARCHER: AtomicU32 = AtomicU32::new(0);
/// Microseconds between two looks whether another thread still searches.
const WAIT_US: u32 = 500;

/// Searches with what lies from `frame` on as the calling thread's live stack.
extern "sysv64" fn search_from(frame: *const usize) {
    let own = os::thread_id();
    // The process must not end while another thread searches. A handler that interrupted the search can't wait for it.
    while let Err(searcher) = SEARCHER.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) {
        if searcher == own {
            return;
        }
        os::sleep_us(WAIT_US);
    }
    if let Entry::Heap(entered) = entry::enter() {
        look_and_report(entered.slow, frame as usize);
    }
    SEARCHER.store(0, Ordering::Release);
}

fn look_and_report(slow: SlowPath, frame: usize) {
    let Some(Ok(mut records)) = records(slow) else { return };
    let report = match look(&mut records, frame) {
        Ok(report) => report,
        Err(state) => ReachRecord { state, ..ReachRecord::ZERO },
    };
    records.report(ReachRecord { time_ns: now(), ..report });
}

fn now() -> u64 {
    os::clock_ns(libc::CLOCK_MONOTONIC)
}

/// Looks, and writes the verdicts. Or says why it could not: one of [`outcome`].
fn look(records: &mut Records, frame: usize) -> Result<ReachRecord, u32> {
    if hardened::is_on() {
        return Err(outcome::HARDENED);
    }
    if frame == 0 || os::is_emulated() {
        return Err(outcome::NO_REGISTERS);
    }
    // No handler of the program's runs here meanwhile, but for faults.
    let faults = [libc::SIGBUS, libc::SIGSEGV].into_iter().fold(0, |set, signal| set | 1u64 << (signal - 1));
    let mask = os::block_signals(!faults);
    let result = look_with_others_stopped(records, frame);
    os::set_blocked_signals(mask);
    result
}

fn look_with_others_stopped(records: &mut Records, frame: usize) -> Result<ReachRecord, u32> {
    let begun = now();
    let world = stop::stop().ok_or(outcome::NO_SIGNAL)?;
    let stopped = now();
    let mappings = maps::read().ok_or(outcome::NO_MAPS)?;
    let heap = Heap::new(records, mappings.as_slice()).ok_or(outcome::NO_MEMORY)?;
    let mut mark = Mark::new(&heap).ok_or(outcome::NO_MEMORY)?;
    let mut threads = Table::<Thread>::new(world.threads().len() + 1).ok_or(outcome::NO_MEMORY)?;
    let mut excluded = Table::<Range>::new(MAX_OWN + arenas()).ok_or(outcome::NO_MEMORY)?;

    threads.push(Thread { sp: frame + roots::RED_ZONE, control: frame::thread_pointer() });
    for thread in world.threads() {
        threads.push(Thread { sp: thread.sp, control: thread.thread_pointer });
    }
    arena::for_each(|from, to| _ = excluded.push((from, to)));
    let own = [mappings.addresses(), threads.addresses(), excluded.addresses(), world.own_memory()];
    let tiers = [page_heap::own_memory(), census::own_memory()];
    let own =
        own.into_iter().chain(tiers).chain(records.own_memory()).chain(heap.own_memory()).chain(mark.own_memory());
    own.for_each(|range| _ = excluded.push(range));
    poolscope_capture::own_memory(|from, to| {
        if !threads.as_slice().iter().any(|thread| (from..to).contains(&thread.sp)) {
            excluded.push((from, to));
        }
    });
    excluded.as_mut_slice().sort_unstable();

    let mut root_bytes = stacks_in_blocks(&heap, &mut mark, threads.as_slice());
    for (from, to) in world.threads().iter().flat_map(|thread| thread.registers) {
        root_bytes += to - from;
        roots::words(from, to, &mut |word| mark.root(word));
    }
    roots::words(frame, frame + SAVED_REGISTERS * size_of::<usize>(), &mut |word| mark.root(word));
    heap.unrecorded_words(|word| mark.root(word));
    let roots = Roots {
        mappings: mappings.as_slice(),
        threads: threads.as_slice(),
        all_known: world.missing == 0,
        excluded: excluded.as_slice(),
    };
    root_bytes += roots.read(|word| mark.root(word)).ok_or(outcome::NO_MAPS)?;
    for number in 0..heap.len() {
        if heap.is_in_flight(number) {
            mark.hold(number);
        }
    }
    mark.sort_leaks();
    let scanned = now();
    let (seen, missing, unstopped) = (world.threads().len(), world.missing, world.unstopped);
    drop(world);
    let resumed = now();

    let (mut blocks, mut bytes) = (0, 0);
    let verdicts = mark.into_verdicts();
    drop(heap);
    for number in 0..records.len() {
        let Some(block) = records.get(number) else { continue };
        blocks += 1;
        bytes += block.size as u64;
        let leader = match verdicts.leader(number) {
            NO_LEADER => 0,
            leader => records.get(leader).map_or(0, |leader| leader.address as u64),
        };
        let verdict = match verdicts.verdict(number) {
            // Of a block that nothing was found out about, nothing is said.
            verdict::NONE => verdict::REACHABLE,
            verdict => verdict,
        };
        records.judge(number, verdict, leader);
    }
    Ok(ReachRecord {
        state: outcome::DONE,
        threads: (seen + missing + 1) as u32,
        stopped: (seen + 1) as u32,
        unstopped,
        blocks,
        bytes,
        root_bytes: root_bytes as u64,
        pause_ns: resumed - begun,
        scan_ns: scanned - stopped,
        ..ReachRecord::ZERO
    })
}

/// Stacks that lie in blocks, of coroutines for example: what is above the stack pointer counts, and the block is in
/// use. Returns the bytes.
fn stacks_in_blocks(heap: &Heap<'_>, mark: &mut Mark<'_, Heap<'_>>, threads: &[Thread]) -> usize {
    let mut bytes = 0;
    for thread in threads {
        if let Some((number, end)) = heap.around(thread.sp) {
            let from = thread.sp.saturating_sub(roots::RED_ZONE);
            mark.hold(number);
            heap.words_between(from, end, &mut |word| mark.root(word));
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
