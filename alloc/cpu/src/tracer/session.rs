//! A recording session: how a recorder's request is seen and answered, and the file that the rings lie in.
//!
//! The request is a word in the segment's header. It is looked at by every allocation of the slow path, by the
//! scavenger, and by recording threads once in a batch. A thread that allocates small blocks comes there with each list
//! that has run out, one that only takes up its own medium blocks with each part of its budget
//! ([`crate::sampling::budget`]): half a mebibyte. The recorder keeps the segment's file locked (`flock`) as long as it
//! lives; its heartbeat in the header only says when it is time to look whether the lock is still held.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use poolscope_wire::VERSION;
use poolscope_wire::trace::{
    KNOWS_SHORT_RINGS, MAX_RINGS, Request, RingHeader, TRACE_MAGIC, TRACE_PAGE, TRACE_SUFFIX, TraceHeader, check_word,
    ring_offset, trace_state,
};

use super::device_pools::DevicePools;
use super::handshake::{Handshake, Recording};
use super::room;
use crate::census;
use crate::kernel::aside::aside;
use crate::kernel::os;
use crate::pages::keeper;
use crate::sampler;
use crate::segment::ownership;
use crate::segment::request::{self, SEEN, is_asked};
use crate::segment::{self, Segment};
use crate::settings;
use crate::sync::reasons::Reason;
use crate::sync::spin_lock::{ForkLock, SlowPath, SpinLock};
use crate::threads::detour;
use crate::tracer::mappings::{self, HEADER, NEW_RING};

/// Without a heartbeat for so long, the lock is looked at.
const PATIENCE_NS: u64 = 1_000_000_000;
/// A thread waits so long for a recorder that lives and takes nothing out.
const WAIT_MAX_NS: u64 = 10_000_000_000;
/// How long a program that was started by a recorder waits for its request.
const START_US: u32 = 5_000_000;
/// How long it sleeps between two looks: a quarter more each time, as hundreds of processes may wait.
const SHORTEST_US: u32 = 100;
const LONGEST_US: u32 = 10_000;

/// The request that is being answered: what the threads' rings belong to. 0 while nothing is recorded.
static CURRENT: AtomicUsize = AtomicUsize::new(0);
/// When the recorder's lock was last looked at, nanoseconds of `CLOCK_MONOTONIC`.
static LOOKED: AtomicU64 = AtomicU64::new(0);
/// This process was forked, and has not asked its recorder yet.
static JOINS: AtomicBool = AtomicBool::new(false);
/// Events of threads that have no ring, in this session.
static WITHOUT_RING: AtomicU64 = AtomicU64::new(0);

struct Session {
    /// The first page of the file, while there is one.
    header: *mut TraceHeader,
    rings: u32,
    /// Bytes of them.
    ring_bytes: u64,
    /// When a ring may be tried again, nanoseconds of `CLOCK_MONOTONIC`.
    try_ns: u64,
    /// The first ring, as long as no thread has it: without room for that, there is no session.
    first: *mut RingHeader,
    request: Option<Request>,
    /// Whose session it is: a forked child must leave it alone.
    pid: u32,
    /// Pools of device memory, which stay from session to session.
    pools: DevicePools,
}

// SAFETY: only reached under the lock below.
unsafe impl Send for Session {}

/// Held while a session begins, ends or gets a ring. Before the sampler's lock.
static SESSION: SpinLock<Session> = SpinLock::new(Session {
    header: core::ptr::null_mut(),
    rings: 0,
    ring_bytes: 0,
    try_ns: 0,
    first: core::ptr::null_mut(),
    request: None,
    pid: 0,
    pools: DevicePools::new(),
});

/// The request that is recorded for now; 0 if none is.
#[inline(always)]
pub fn current() -> u64 {
    CURRENT.load(Ordering::Relaxed) as u64
}

/// Answers a request, if there is a new one.
#[inline(always)]
pub fn poll(slow: SlowPath) {
    if is_asked() {
        answer(slow);
    }
}

#[cold]
#[inline(never)]
fn answer(slow: SlowPath) {
    // The segment of a forked child's parent: its requests are the parent's.
    let Some(segment) = Segment::current().filter(|_| ownership::own_segment()) else {
        return SEEN.store(request::word().load(Ordering::Relaxed), Ordering::Relaxed);
    };
    let Some(mut session) = SESSION.try_lock(slow) else { return };
    let mut open = Open { session: &mut session, segment: &segment, slow, comes_for_file: false };
    // Files have names that a small stack has no room for.
    aside(|| handshake(&segment).answer(&mut open));
    drop(session);
    call_recorder();
    if current() != 0 {
        // A program that allocates no more would not notice the end of its recorder.
        keeper::start(slow);
    }
}

/// Looks after a recording that is on, in the scavenger. Whether there is one.
pub fn look_after(slow: SlowPath) -> bool {
    poll(slow);
    if current() != 0 {
        look(slow, os::clock_ns(libc::CLOCK_MONOTONIC));
    }
    current() != 0
}

/// The words of this process's segment.
fn handshake(segment: &Segment) -> Handshake<'_> {
    let header = segment.raw_header();
    // SAFETY: the header is mapped; words are shared with another process, which is what atomics are for.
    unsafe {
        Handshake {
            request: AtomicUsize::from_ptr((&raw mut (*header).trace_request).cast()),
            check: AtomicUsize::from_ptr((&raw mut (*header).trace_request_check).cast()),
            answer: AtomicUsize::from_ptr((&raw mut (*header).trace_answer).cast()),
            seen: &SEEN,
            current: &CURRENT,
        }
    }
}

/// The session, while it is locked.
struct Open<'a> {
    session: &'a mut Session,
    segment: &'a Segment,
    slow: SlowPath,
    /// The recorder may not have opened the file yet, and comes for it.
    comes_for_file: bool,
}

impl Recording for Open<'_> {
    fn prepare(&mut self, word: usize) -> u32 {
        match Request::from_word(word as u64) {
            None => trace_state::BAD_REQUEST,
            Some(request) => prepare(self.session, word as u64, request),
        }
    }

    fn begin(&mut self) {
        // Traced calls are served from the threads' lists, and count nothing.
        census::watch(self.slow);
        detour::turn_on(self.slow, Reason::Trace);
        self.session.pools.set_traced(true);
    }

    fn end(&mut self, state: u32) {
        if state == trace_state::ABANDONED {
            // Threads that sleep keep their rings, in which nobody looks for anything any more.
            segment::empty_beside(TRACE_SUFFIX);
        }
        end(self.session, self.comes_for_file);
    }

    fn show(&mut self, state: u32) {
        // SAFETY: the header is mapped, and this is this process's word, changed under the session's lock.
        unsafe { (&raw mut (*self.segment.raw_header()).trace_state).write_volatile(state) };
    }
}

/// Makes the trace's file; the state to answer with.
fn prepare(session: &mut Session, word: u64, request: Request) -> u32 {
    let ring_len = TRACE_PAGE + request.ring_bytes as usize;
    let header = segment::create_beside(TRACE_SUFFIX, TRACE_PAGE).map(|page| page.cast::<TraceHeader>());
    let first = header.and_then(|_| segment::map_beside(TRACE_SUFFIX, ring_offset(0, ring_len as u64), ring_len));
    let (Some(header), Some(first)) = (header, first) else {
        segment::remove_beside(TRACE_SUFFIX);
        if let Some(header) = header {
            // SAFETY: the page was just mapped, and nobody else knows it.
            unsafe { os::unmap(header.cast(), TRACE_PAGE) };
        }
        return trace_state::NO_FILE;
    };
    segment::also_watch(mappings::around);
    HEADER.set(header.cast(), TRACE_PAGE);
    let segment::Start { ticks: start_ticks, boot_id } = segment::Start::of_this_process();
    let pid = os::process_id();
    let now = os::clock_ns(libc::CLOCK_MONOTONIC);
    // SAFETY: the page was just made, and nobody reads it before the magic is there.
    unsafe {
        header.write(TraceHeader {
            version: VERSION,
            ring_len: ring_len as u64,
            request: word,
            start_monotonic_ns: now,
            start_ticks,
            boot_id,
            pid,
            ..TraceHeader::ZERO
        });
        core::sync::atomic::fence(Ordering::SeqCst);
        (&raw mut (*header).magic).write_volatile(TRACE_MAGIC);
    }
    (session.header, session.rings, session.first) = (header, 0, first.cast());
    (session.ring_bytes, session.try_ns) = (0, 0);
    WITHOUT_RING.store(0, Ordering::Relaxed);
    (session.request, session.pid) = (Some(request), pid);
    LOOKED.store(now, Ordering::Relaxed);
    trace_state::ON
}

/// Ends the session that is on. Threads that are in the middle of an event write it to a ring that nobody reads. A
/// recorder that comes for the file removes it.
fn end(session: &mut Session, comes_for_file: bool) {
    detour::turn_off(Reason::Trace);
    session.pools.set_traced(false);
    show_without_ring(session);
    if !comes_for_file || opened(session) != 0 {
        segment::remove_beside(TRACE_SUFFIX);
    }
    let header = core::mem::replace(&mut session.header, core::ptr::null_mut());
    let first = core::mem::replace(&mut session.first, core::ptr::null_mut());
    let request = session.request.take();
    session.rings = 0;
    if let Some(request) = request.filter(|_| !first.is_null()) {
        // SAFETY: no thread has the ring.
        unsafe { os::unmap(first.cast(), TRACE_PAGE + request.ring_bytes as usize) };
    }
    if !header.is_null() {
        HEADER.set(core::ptr::null_mut(), 0);
        // SAFETY: the page was mapped by `begin`, and is only used under the lock.
        unsafe { os::unmap(header.cast(), TRACE_PAGE) };
    }
}

/// What the recorder says of itself, which is 0 as long as it has not opened the file. Not 0 if there is none.
fn opened(session: &Session) -> u32 {
    // SAFETY: the page is mapped while the session has it.
    if session.header.is_null() { 1 } else { unsafe { (&raw const (*session.header).opened).read_volatile() } }
}

/// Looks once in a batch: whether the request has changed, and whether the recorder still lives.
pub fn look(slow: SlowPath, now: u64) {
    poll(slow);
    let Some(segment) = Segment::current() else { return };
    let request = CURRENT.load(Ordering::Relaxed);
    if segment::trace_was_lost() {
        return abandon(slow, request);
    }
    let header = segment.raw_header();
    // SAFETY: the header is mapped; any value will do.
    let heartbeat = unsafe { (&raw const (*header).trace_heartbeat_ns).read_volatile() };
    let looked = LOOKED.load(Ordering::Relaxed);
    if now.saturating_sub(heartbeat.min(now)) < PATIENCE_NS || now.saturating_sub(looked) < PATIENCE_NS {
        return;
    }
    if LOOKED.compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() && !segment::is_locked() {
        abandon(slow, request);
    }
}

/// Ends the recording of `request`, whose recorder was found dead, or whose file is gone.
#[cold]
fn abandon(slow: SlowPath, request: usize) {
    let Some(segment) = Segment::current().filter(|_| ownership::own_segment()) else { return };
    let mut session = SESSION.lock(slow);
    let mut open = Open { session: &mut session, segment: &segment, slow, comes_for_file: false };
    handshake(&segment).end(request, &mut open, trace_state::ABANDONED);
    call_recorder();
}

/// The first and the longest time between two looks of a thread that waits for room, in microseconds: at least these,
/// and so much for each ring. All threads may wait at a time, and the recorder needs a processor to make room for them.
const NAP_MIN_US: u32 = 20;
const NAP_MAX_US: u32 = 1000;
const NAP_OF_RING_US: u32 = 20;
static NAP_US: AtomicU32 = AtomicU32::new(NAP_MAX_US);

/// Waits until `has_room`, for as long as the recorder lives, but not forever. Whether there is room.
pub fn wait_for_reader(slow: SlowPath, request: u64, mut has_room: impl FnMut() -> bool) -> bool {
    let begun = os::clock_ns(libc::CLOCK_MONOTONIC);
    let mut tries = 0u32;
    loop {
        if has_room() {
            return true;
        }
        tries += 1;
        if tries < 16 {
            core::hint::spin_loop();
            continue;
        }
        let now = os::clock_ns(libc::CLOCK_MONOTONIC);
        look(slow, now);
        if current() != request || now.saturating_sub(begun) > WAIT_MAX_NS {
            return false;
        }
        // A ring holds what a thread does in milliseconds: who comes late for its room loses nothing.
        let most = NAP_US.load(Ordering::Relaxed);
        let first = NAP_MIN_US.max(most.saturating_sub(NAP_MAX_US) / 16);
        os::sleep_us((first << (tries - 16).min(6)).min(most));
    }
}

/// A ring of the session that is on.
pub struct NewRing {
    /// Its header, which its words follow.
    pub header: *mut RingHeader,
    /// The number of its words.
    pub words: usize,
    /// What the recorder wants.
    pub wanted: Request,
    /// The same, as [`current`] says it.
    pub request: u64,
}

/// A new ring. `None` without room.
pub fn new_ring(slow: SlowPath) -> Option<NewRing> {
    let mut session = SESSION.lock(slow);
    let request = session.request?;
    if session.rings >= MAX_RINGS {
        return None;
    }
    let mut bytes = request.ring_bytes;
    let mut ring = core::mem::replace(&mut session.first, core::ptr::null_mut());
    if ring.is_null() {
        if opened(&session) >= KNOWS_SHORT_RINGS {
            bytes = room::next_ring(bytes, session.ring_bytes, segment::room_beside(TRACE_SUFFIX));
        }
        ring = map_ring(&mut session, request, bytes)?;
    }
    let len = TRACE_PAGE + bytes as usize;
    session.rings += 1;
    session.ring_bytes += bytes;
    NAP_US.store(NAP_MAX_US.max(NAP_OF_RING_US * session.rings), Ordering::Relaxed);
    NEW_RING.set(ring.cast(), len);
    let words = bytes as usize / size_of::<u64>();
    // SAFETY: the ring was just made; files are made of zeroes.
    unsafe {
        (*ring).tail_check = check_word(0);
        (*ring).words = words as u64;
    }
    Some(NewRing { header: ring, words, wanted: request, request: current() })
}

/// The next ring's memory, of so many bytes. `None` without room, or soon after there was none.
fn map_ring(session: &mut Session, request: Request, bytes: u64) -> Option<*mut RingHeader> {
    let now = os::clock_ns(libc::CLOCK_MONOTONIC);
    if now < session.try_ns {
        return None;
    }
    let offset = ring_offset(session.rings, TRACE_PAGE as u64 + request.ring_bytes);
    let ring = segment::map_beside(TRACE_SUFFIX, offset, TRACE_PAGE + bytes as usize);
    if ring.is_none() {
        session.try_ns = now + segment::NO_ROOM_PAUSE_NS;
    }
    ring.map(|ring| ring.cast())
}

/// Tells the recorder of the rings that there are.
pub fn show_ring(slow: SlowPath) {
    NEW_RING.set(core::ptr::null_mut(), 0);
    let session = SESSION.lock(slow);
    if !session.header.is_null() {
        core::sync::atomic::fence(Ordering::Release);
        let (header, rings) = (session.header, session.rings);
        // SAFETY: the page is mapped while the session has it.
        unsafe { (&raw mut (*header).rings).write_volatile(rings) };
    }
    drop(session);
    call_recorder();
}

/// Wakes the recorder, which sleeps on a word of the segment.
#[cold]
#[inline(never)]
pub fn call_recorder() {
    let Some(segment) = Segment::current() else { return };
    // SAFETY: an aligned word of the header, which is mapped; everybody uses it as an atomic.
    let calls = unsafe { AtomicU32::from_ptr(&raw mut (*segment.raw_header()).trace_calls) };
    calls.fetch_add(1, Ordering::Release);
    os::wake_shared(calls);
}

/// Counts an event of a thread that got no ring.
pub fn count_without_ring(slow: SlowPath) {
    WITHOUT_RING.fetch_add(1, Ordering::Relaxed);
    // Who has the lock may show it with the next one. The end of the session does.
    if let Some(session) = SESSION.try_lock(slow) {
        show_without_ring(&session);
    }
}

/// Shows the recorder how many events were lost for lack of a ring.
fn show_without_ring(session: &Session) {
    if !session.header.is_null() {
        // SAFETY: the page is mapped while the session has it.
        unsafe { (&raw mut (*session.header).lost_without_ring).write_volatile(WITHOUT_RING.load(Ordering::Relaxed)) };
    }
}

/// Whether this process is a child, by a raw `clone`, of the one that records; then it does so no more.
pub fn is_forked_child(slow: SlowPath) -> bool {
    let session = SESSION.lock(slow);
    let forked = session.request.is_some() && session.pid != os::process_id() && !ownership::own_segment();
    drop(session);
    if forked {
        forget(slow);
    }
    forked
}

/// In a forked child: the recording is the parent's. It may have one of its own, which begins where it allocates.
pub fn forget(slow: SlowPath) {
    CURRENT.store(0, Ordering::Release);
    HEADER.set(core::ptr::null_mut(), 0);
    NEW_RING.set(core::ptr::null_mut(), 0);
    let settings = settings::current();
    let joins = settings.record_children() && settings.recorder() != 0 && !settings.plain();
    JOINS.store(joins, Ordering::Relaxed);
    if joins {
        detour::turn_on_alone(Reason::Trace);
    } else {
        detour::turn_off(Reason::Trace);
    }
    // The child has one thread, or its others find the session ended as well.
    if let Some(mut session) = SESSION.try_lock(slow) {
        session.request = None;
        session.header = core::ptr::null_mut();
        session.first = core::ptr::null_mut();
        session.pools.set_traced(false);
    }
}

/// Tells a pool of device memory of traces, now and later, by the bit [`TRACED`](poolscope_wire::trace::TRACED) of a
/// word. False if there are too many such pools.
///
/// # Safety
/// The word stays where it is until [`remove_pool`].
pub unsafe fn add_pool(slow: SlowPath, word: *const AtomicU64) -> bool {
    let mut session = SESSION.lock(slow);
    let traced = session.request.is_some();
    // SAFETY: the caller's.
    unsafe { session.pools.add(word, traced) }
}

/// Ends it: the word is not touched after that.
pub fn remove_pool(slow: SlowPath, word: *const AtomicU64) {
    SESSION.lock(slow).pools.remove(word);
}

/// At a normal exit.
pub fn finish(slow: SlowPath) {
    let Some(segment) = Segment::current().filter(|_| ownership::own_segment()) else { return };
    if let Some(mut session) = SESSION.try_lock(slow)
        && session.request.is_some()
        && session.pid == os::process_id()
    {
        let current = CURRENT.load(Ordering::Relaxed);
        let handshake = handshake(&segment);
        // One that has taken its request back has the file, or gave up.
        let comes_for_file = handshake.request.load(Ordering::Relaxed) == current;
        let mut open = Open { session: &mut session, segment: &segment, slow, comes_for_file };
        handshake.end(current, &mut open, trace_state::ENDED);
        call_recorder();
    }
}

/// At the first allocation: waits for the recorder that started this program, if one did, or that records all that
/// its command starts.
pub fn wait_for_recorder(slow: SlowPath) {
    let settings = settings::current();
    let recorder = settings.recorder() as u32;
    if recorder == 0 || settings.plain() || !segment::is_in_a_file() {
        return;
    }
    let is_parent = recorder == os::parent_id();
    if !is_parent && !settings.record_children() {
        return;
    }
    let (mut waited, mut nap) = (0, SHORTEST_US);
    while waited < START_US {
        poll(slow);
        // It must have the file before a program that is soon over removes it.
        if SEEN.load(Ordering::Relaxed) != 0 && opened(&SESSION.lock(slow)) != 0 {
            return;
        }
        // A daemon may be started anew long after.
        if !is_parent && !os::thread_exists(recorder, recorder) {
            return;
        }
        os::sleep_us(nap);
        waited += nap;
        nap = (nap + nap / 4).min(LONGEST_US);
    }
}

/// Whether this process is recorded from now on: one that was forked asks its recorder at its first call.
#[cold]
#[inline(never)]
pub fn join(slow: SlowPath) -> bool {
    if JOINS.swap(false, Ordering::Relaxed) {
        sampler::begin_segment(slow);
        wait_for_recorder(slow);
        if current() == 0 {
            detour::turn_off(Reason::Trace);
        }
    }
    current() != 0
}

/// The lock, for `fork`.
pub fn fork_lock() -> &'static dyn ForkLock {
    &SESSION
}
