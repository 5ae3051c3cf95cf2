//! The full trace: every allocation and free of a process, on its way to one recorder.
//!
//! A recorder asks for it in the segment's header ([`Header::trace_request`](crate::Header::trace_request)); the
//! program answers there, and makes a second file beside the segment, `PID.GENERATION.trace`, with a ring of words for
//! each thread that allocates. The program only ever writes to a ring,
//! the recorder takes words out and says how far it is.
//!
//! ```text
//! TraceHeader (4096 bytes) | RingHeader (4096 bytes), words | RingHeader, words | ...
//! ```
//!
//! # The words of a ring
//!
//! Events are one or more words of 64 bits, of which the lowest three say what it is ([`tag`]):
//!
//! | event | words | what |
//! |---|---|---|
//! | [`tag::ALLOC`] | 2 | address / 16 in bits 3 to 46, the stack's slot in bits 47 to 60; then the bytes asked for |
//! | [`tag::FREE`] | 1 | address / 16 in bits 3 to 46, the slot of the free's own stack, if asked for, in bits 47 to 60 |
//! | [`tag::STACK`] | 1 + depth | the slot in bits 3 to 16, the depth in 17 to 24, flags in 25 to 32; then addresses |
//! | [`tag::TIME`] | 1 | `CLOCK_MONOTONIC` in nanoseconds from bit 3 on, for the events that follow |
//! | [`tag::THREAD`] | 1 | kernel id of the thread that the events that follow are of, from bit 3 on |
//! | [`tag::LOST`] | 1 | events that found no room here, from bit 3 on |
//! | [`tag::DEVICE`] | 3 or 4 | the kind in bits 4 to 7, the device in 8 to 39, the stack's slot in 47 to 60; then more |
//!
//! A free without a stack of its own has 0 for the slot. A stack's flags are [`crate::stack_flags`], and its addresses
//! are return addresses, innermost first. [`tag::DEVICE`] is a block of a device's memory: bit 3 is set for a free, the
//! kind is a [`crate::kind`], and the address and the stream follow, and of an allocation the bytes asked for.
//!
//! A slot is a place in the thread's own small table of stacks: an event means what the latest [`tag::STACK`] of this
//! ring said of the slot. So threads share nothing, and no table can fill. Slot 0 is a stack that is not known.
//!
//! # Who may write what
//!
//! The recorder writes the request and its heartbeat in the segment's header, that it has opened the trace in the
//! trace's, and each ring's `tail`, as two words of which the second is made of the first ([`check_word`]): a copy that
//! was caught halfway is told by it. The program believes nothing else:
//! a tail outside of what it has written is ignored.

use crate::kind;
use crate::record::record;

/// The first eight bytes of a trace file.
pub const TRACE_MAGIC: [u8; 8] = *b"POOLTRAC";

/// Bytes of the header of the file, and of each ring's.
pub const TRACE_PAGE: usize = 4096;

/// What the name of the file has after that of the segment.
pub const TRACE_SUFFIX: &str = ".trace";

/// Most rings of a trace: threads that come then are not recorded, and counted.
pub const MAX_RINGS: u32 = 8192;

/// Slots of a thread's table of stacks, slot 0 included.
pub const STACK_SLOTS: usize = 1 << 14;

/// Events after which a thread notes the time.
pub const BATCH: u32 = 64;

/// Set in the version word of each pool of device memory while its blocks are traced: threads that know the version
/// without it take the slow path then.
pub const TRACED: u64 = 1 << 63;

/// Least and most bytes of a ring, as powers of two.
pub const RING_BYTES_LOG2: core::ops::RangeInclusive<u32> = 16..=28;

/// Bits of a request below the recorder's own number.
pub mod request {
    /// Record.
    pub const ON: u64 = 1;
    /// The program waits for room instead of losing events.
    pub const LOSSLESS: u64 = 2;
    /// Frees have stacks, too.
    pub const FREE_STACKS: u64 = 4;
    /// Where the ring's bytes lie, as a power of two.
    pub const RING_SHIFT: u32 = 8;
}

/// Values of [`Header::trace_state`](crate::Header::trace_state).
pub mod trace_state {
    /// Nothing is recorded, nothing was asked for.
    pub const OFF: u32 = 0;
    /// Recording.
    pub const ON: u32 = 1;
    /// The request was not understood.
    pub const BAD_REQUEST: u32 = 2;
    /// The trace's file could not be made: no folder, no room, no memory.
    pub const NO_FILE: u32 = 3;
    /// The recorder took the request back.
    pub const ENDED: u32 = 4;
    /// The recorder is gone.
    pub const ABANDONED: u32 = 5;
}

/// The lowest three bits of an event.
pub mod tag {
    /// A block was allocated.
    pub const ALLOC: u64 = 1;
    /// A block is freed.
    pub const FREE: u64 = 2;
    /// What a slot of the thread's table means from here on.
    pub const STACK: u64 = 3;
    /// The time.
    pub const TIME: u64 = 4;
    /// The thread.
    pub const THREAD: u64 = 5;
    /// Events were lost here.
    pub const LOST: u64 = 6;
    /// A block of a device's memory is allocated or freed.
    pub const DEVICE: u64 = 7;
    /// The bits.
    pub const MASK: u64 = 7;
}

const ADDRESS_BITS: u32 = 44;
const SLOT_SHIFT: u32 = 3 + ADDRESS_BITS;
const SLOT_MASK: u64 = STACK_SLOTS as u64 - 1;

/// In the first word of an event of [`tag::DEVICE`]: the block is freed.
const DEVICE_FREE: u64 = 1 << 3;
const DEVICE_KIND_SHIFT: u32 = 4;
const DEVICE_NUMBER_SHIFT: u32 = 8;

/// A value of [`TraceHeader::opened`].
pub const KNOWS_SHORT_RINGS: u32 = 2;

record! {
    /// The first page of a trace file.
    pub struct TraceHeader: 128 {
        /// [`TRACE_MAGIC`], written last.
        0 magic: [u8; 8],
        /// [`VERSION`](crate::VERSION).
        8 version: u32,
        /// Rings that are there; raised with release after the ring is complete, and never falls.
        12 rings: u32,
        /// Bytes from one ring to the next, and of the longest with its header.
        16 ring_len: u64,
        /// The request that this file answers.
        24 request: u64,
        /// `CLOCK_MONOTONIC` in nanoseconds when recording began.
        32 start_monotonic_ns: u64,
        /// As in the segment's header.
        40 start_ticks: u64,
        /// As in the segment's header.
        48 boot_id: [u8; 16],
        /// Process id, as the program itself sees it.
        64 pid: u32,
        /// 1 once the recorder has opened the file, [`KNOWS_SHORT_RINGS`] if it is one that looks how long each ring
        /// is. The recorder's.
        68 opened: u32,
        /// Events of threads that have no ring, because there is no room for one.
        72 lost_without_ring: u64,
        /// Zero.
        80 reserved1: [u64; 6],
    }
}

record! {
    /// The first page of a ring.
    pub struct RingHeader: 256 {
        /// Words ever written: the words below it are complete. Program.
        0 head: u64,
        /// Kernel id of the thread that has the ring, or had it last. Program.
        8 tid: u32,
        /// Threads that have had it. Program.
        12 uses: u32,
        /// Allocations that found no room. Program.
        16 lost_allocs: u64,
        /// Frees that found no room. Program.
        24 lost_frees: u64,
        /// Times that the thread waited for room. Program.
        32 waits: u64,
        /// Words that it has, a power of two; 0 in one that has as many as there is room for until the next.
        40 words: u64,
        /// Zero.
        48 reserved0: [u64; 10],
        /// Words ever taken out. Recorder.
        128 tail: u64,
        /// [`check_word`] of `tail`. Recorder.
        136 tail_check: u64,
        /// Zero.
        144 reserved1: [u64; 14],
    }
}

/// Where a ring lies in the file.
pub fn ring_offset(index: u32, ring_len: u64) -> u64 {
    TRACE_PAGE as u64 + u64::from(index) * ring_len
}

/// The word that goes with another one, so that a copy of the two that was caught halfway does not pass for one.
#[inline]
pub const fn check_word(word: u64) -> u64 {
    (word ^ 0x5bd1_e995_7f4a_7c15).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

/// A request, in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Tells recordings of one process apart; not zero.
    pub number: u32,
    /// Bytes of each ring's words.
    pub ring_bytes: u64,
    /// [`request::LOSSLESS`].
    pub lossless: bool,
    /// [`request::FREE_STACKS`].
    pub free_stacks: bool,
}

impl Request {
    /// As it stands in the header.
    pub fn to_word(self) -> u64 {
        let flag = |on: bool, bit: u64| if on { bit } else { 0 };
        u64::from(self.number) << 32
            | u64::from(self.ring_bytes.max(1).ilog2()) << request::RING_SHIFT
            | request::ON
            | flag(self.lossless, request::LOSSLESS)
            | flag(self.free_stacks, request::FREE_STACKS)
    }

    /// What a word asks for; `None` if it is none, or makes no sense.
    pub fn from_word(word: u64) -> Option<Request> {
        let log2 = (word >> request::RING_SHIFT) as u32 & 0xff;
        let known = request::ON | request::LOSSLESS | request::FREE_STACKS | 0xff << request::RING_SHIFT;
        let number = (word >> 32) as u32;
        let makes_sense = word & request::ON != 0
            && word & 0xffff_ffff & !known == 0
            && number != 0
            && RING_BYTES_LOG2.contains(&log2);
        makes_sense.then(|| Request {
            number,
            ring_bytes: 1 << log2,
            lossless: word & request::LOSSLESS != 0,
            free_stacks: word & request::FREE_STACKS != 0,
        })
    }
}

/// An allocation: its first word; the second is the bytes asked for.
#[inline]
pub const fn alloc_word(address: u64, slot: u32) -> u64 {
    tag::ALLOC | (address >> 4 & ((1 << ADDRESS_BITS) - 1)) << 3 | (slot as u64 & SLOT_MASK) << SLOT_SHIFT
}

/// A free.
#[inline]
pub const fn free_word(address: u64, slot: u32) -> u64 {
    tag::FREE | (address >> 4 & ((1 << ADDRESS_BITS) - 1)) << 3 | (slot as u64 & SLOT_MASK) << SLOT_SHIFT
}

/// The first word of a stack of `depth` return addresses, which follow.
#[inline]
pub const fn stack_word(slot: u32, depth: usize, flags: u16) -> u64 {
    tag::STACK | (slot as u64 & SLOT_MASK) << 3 | (depth as u64 & 0xff) << 17 | (flags as u64 & 0xff) << 25
}

/// Words of the longest event of a device's memory.
pub const DEVICE_WORDS: usize = 4;

/// What happens to a block of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceEvent {
    /// [`kind::DEVICE`] or [`kind::PINNED`].
    pub kind: u16,
    /// Number of the device.
    pub device: u32,
    /// Where the block lies, as the device knows it.
    pub address: u64,
    /// Handle of the stream that it is allocated or freed on.
    pub stream: u64,
    /// Bytes asked for; `None`: it is freed.
    pub size: Option<u64>,
    /// The stack's slot; of a free 0, if that was not asked for.
    pub slot: u32,
}

impl DeviceEvent {
    /// The words, of which the number says how many there are.
    pub fn to_words(self) -> ([u64; DEVICE_WORDS], usize) {
        let head = tag::DEVICE
            | if self.size.is_none() { DEVICE_FREE } else { 0 }
            | u64::from(self.kind & 0xf) << DEVICE_KIND_SHIFT
            | u64::from(self.device) << DEVICE_NUMBER_SHIFT
            | (u64::from(self.slot) & SLOT_MASK) << SLOT_SHIFT;
        let len = DEVICE_WORDS - usize::from(self.size.is_none());
        ([head, self.address, self.stream, self.size.unwrap_or(0)], len)
    }

    fn read(words: &[u64]) -> Result<(DeviceEvent, usize), NoEvent> {
        let [head, ref rest @ ..] = *words else { return Err(NoEvent::Cut) };
        let kind = (head >> DEVICE_KIND_SHIFT) as u16 & 0xf;
        if kind != kind::DEVICE && kind != kind::PINNED {
            return Err(NoEvent::Unknown(head));
        }
        let (size, len) = match rest.get(2) {
            _ if head & DEVICE_FREE != 0 => (None, 3),
            Some(&size) => (Some(size), 4),
            None => return Err(NoEvent::Cut),
        };
        let [address, stream, ..] = *rest else { return Err(NoEvent::Cut) };
        let device = (head >> DEVICE_NUMBER_SHIFT) as u32;
        let slot = (head >> SLOT_SHIFT & SLOT_MASK) as u32;
        Ok((DeviceEvent { kind, device, address, stream, size, slot }, len))
    }
}

/// A time, a thread or a number of lost events.
#[inline]
pub const fn value_word(tag: u64, value: u64) -> u64 {
    tag | value << 3
}

/// The address of the block that a word is about, if it is the first one of an allocation or a free; any other one if
/// not.
#[inline]
pub const fn block_of(word: u64) -> u64 {
    (word >> 3 & ((1 << ADDRESS_BITS) - 1)) << 4
}

/// The slot of the stack of the event that begins with this word, if it is one of a block.
#[inline]
pub const fn slot_of(word: u64) -> u32 {
    (word >> SLOT_SHIFT & SLOT_MASK) as u32
}

/// An event of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A block of `size` bytes at `address`.
    Alloc {
        /// Where it lies.
        address: u64,
        /// Bytes asked for.
        size: u64,
        /// The stack's slot.
        slot: u32,
    },
    /// The block at `address` goes.
    Free {
        /// Where it lies.
        address: u64,
        /// The slot of the stack that frees it, 0 if that was not asked for.
        slot: u32,
    },
    /// What a slot means from here on.
    Stack {
        /// The slot.
        slot: u32,
        /// Return addresses, innermost first.
        frames: &'a [u64],
        /// Bits of [`stack_flags`](crate::stack_flags).
        flags: u16,
    },
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    Time(u64),
    /// Kernel id of the thread.
    Thread(u32),
    /// Events were lost here.
    Lost(u64),
    /// A block of a device's memory.
    Device(DeviceEvent),
}

/// Why words are no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoEvent {
    /// The event goes on behind the last word.
    Cut,
    /// The word is none that a program writes.
    Unknown(u64),
}

impl<'a> Event<'a> {
    /// The first event of `words`, and the number of words that it takes.
    #[inline]
    pub fn read(words: &'a [u64]) -> Result<(Event<'a>, usize), NoEvent> {
        let Some(&word) = words.first() else { return Err(NoEvent::Cut) };
        let address = block_of(word);
        let slot = slot_of(word);
        match word & tag::MASK {
            tag::ALLOC => match words.get(1) {
                Some(&size) => Ok((Event::Alloc { address, size, slot }, 2)),
                None => Err(NoEvent::Cut),
            },
            tag::FREE => Ok((Event::Free { address, slot }, 1)),
            tag::STACK => {
                let depth = (word >> 17 & 0xff) as usize;
                let frames = words.get(1..1 + depth).ok_or(NoEvent::Cut)?;
                let (slot, flags) = ((word >> 3 & SLOT_MASK) as u32, (word >> 25 & 0xff) as u16);
                Ok((Event::Stack { slot, frames, flags }, 1 + depth))
            }
            tag::TIME => Ok((Event::Time(word >> 3), 1)),
            tag::THREAD => Ok((Event::Thread((word >> 3) as u32), 1)),
            tag::LOST => Ok((Event::Lost(word >> 3), 1)),
            tag::DEVICE => DeviceEvent::read(words).map(|(event, len)| (Event::Device(event), len)),
            _ => Err(NoEvent::Unknown(word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_were_written() {
        let address = 0x7fff_ffff_fff0;
        let words = [alloc_word(address, 16_383), 1 << 47];
        assert_eq!(Event::read(&words), Ok((Event::Alloc { address, size: 1 << 47, slot: 16_383 }, 2)));
        assert_eq!(Event::read(&words[..1]), Err(NoEvent::Cut));
        assert_eq!(block_of(words[0]), address);
        let word = [free_word(0x10, 7)];
        assert_eq!(Event::read(&word), Ok((Event::Free { address: 0x10, slot: 7 }, 1)));
        let stack = [stack_word(9, 2, 3), 11, 12, 13];
        assert_eq!(Event::read(&stack), Ok((Event::Stack { slot: 9, frames: &[11, 12], flags: 3 }, 3)));
        assert_eq!(Event::read(&stack[..2]), Err(NoEvent::Cut));
        for (tag, event) in
            [(tag::TIME, Event::Time(1 << 60)), (tag::THREAD, Event::Thread(77)), (tag::LOST, Event::Lost(5))]
        {
            let value = match event {
                Event::Time(value) | Event::Lost(value) => value,
                _ => 77,
            };
            assert_eq!(Event::read(&[value_word(tag, value)]), Ok((event, 1)));
        }
        for size in [Some(u64::MAX), None] {
            let (kind, device, address, stream) = (kind::PINNED, 1 << 31, 0xffff_8000_0000_0001, u64::MAX);
            let event = DeviceEvent { kind, device, address, stream, size, slot: 16_383 };
            let (words, len) = event.to_words();
            assert_eq!(Event::read(&words[..len]), Ok((Event::Device(event), len)));
            assert_eq!(Event::read(&words[..len - 1]), Err(NoEvent::Cut));
            assert_eq!(Event::read(&[tag::DEVICE, 1, 2, 3]), Err(NoEvent::Unknown(tag::DEVICE)));
        }
        assert_eq!(Event::read(&[0]), Err(NoEvent::Unknown(0)));
        assert_eq!(Event::read(&[]), Err(NoEvent::Cut));
    }

    #[test]
    fn requests_are_read_as_they_were_written_and_nonsense_is_refused() {
        let request = Request { number: 5, ring_bytes: 1 << 20, lossless: true, free_stacks: false };
        assert_eq!(Request::from_word(request.to_word()), Some(request));
        for word in [0, u64::MAX, 1, 5 << 32, 5 << 32 | 40 << request::RING_SHIFT | 1] {
            assert_eq!(Request::from_word(word), None, "{word:x}");
        }
    }

    #[test]
    fn a_word_and_the_check_of_another_do_not_pass() {
        for word in [0u64, 1, 0xff, 0x100, 0xffff_ffff, 0x1_0000_0000] {
            assert_ne!(check_word(word), check_word(word + 1));
            assert_ne!(check_word(word) & 0xffff_ffff, check_word(word + 1) & 0xffff_ffff);
        }
    }
}
