//! The recorder's end of a program's rings.
//!
//! All that is ever written to the program's files is three words of the segment's header and the tails of the rings,
//! by `pwrite`; everything else is read by `pread`, as a segment is, and checked. One word of the header is slept on,
//! by which the program calls ([`Bell`]). The segment's file is locked (`flock`) as long as this lives: that keeps a
//! second recorder out, and tells the program that there is one.

pub(crate) mod rings;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use poolscope_wire::Header;
use poolscope_wire::trace::{
    KNOWS_SHORT_RINGS, MAX_RINGS, Request, RingHeader, TRACE_MAGIC, TRACE_PAGE, TRACE_SUFFIX, TraceHeader, check_word,
    ring_offset, trace_state,
};
use rustix::fs::{FlockOperation, flock};

use crate::model::snapshot::ProcessState;
use crate::process::clock::monotonic_ns;
use crate::process::effective_uid;
use crate::segment::bell::Bell;
use crate::segment::reader::{ReadError, SegmentReader};

/// Attempts to get the lock, which the program itself may hold for a moment.
const LOCK_TRIES: u32 = 20;
/// Bytes that are copied at once: they are in the processor's nearest caches when they are looked at.
const COPIED: u64 = 32 << 10;
/// Copies of a word that must be the same.
const TORN_RETRIES: u32 = 100;

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The segment can't be read.
    #[error(transparent)]
    Segment(#[from] ReadError),
    /// The segment can't be written to, or the trace can't be read.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another recorder is at work.
    #[error("process {pid} is being recorded already: stop the other `poolscope record` first")]
    Busy {
        /// The program.
        pid: u32,
    },
    /// The program could not do it.
    #[error("process {pid} cannot be recorded: {why}")]
    Refused {
        /// The program.
        pid: u32,
        /// Why.
        why: &'static str,
    },
    /// The file of rings is none.
    #[error("{} is no trace of this program: {why}", path.display())]
    NoTrace {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// How the program answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Not yet: it has not allocated since.
    NotYet,
    /// It records.
    On,
    /// It has stopped.
    Ended,
    /// It has stopped, because it took this recorder for dead.
    Abandoned,
}

/// A program that is asked for its events.
#[derive(Debug)]
pub struct Tap {
    file: File,
    path: PathBuf,
    /// Reads the rest of the segment.
    pub segment: SegmentReader,
    pid: u32,
    word: u64,
    trace: Option<Trace>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Trace {
    file: File,
    path: PathBuf,
    ring_len: u64,
    start_monotonic_ns: u64,
}

impl Trace {
    /// Words of a ring that says it has so many. Of one that says what can't be, and in an earlier library's trace, as
    /// many as there is room for.
    fn ring_words(&self, said: u64) -> u64 {
        let most = (self.ring_len - TRACE_PAGE as u64) / 8;
        if said.is_power_of_two() && said <= most { said } else { most }
    }
}

/// What a ring says of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct RingState {
    /// Words ever written.
    pub head: u64,
    /// Kernel id of the thread that has it.
    pub tid: u32,
    /// Allocations that found no room.
    pub lost_allocs: u64,
    /// Frees that found no room.
    pub lost_frees: u64,
    /// Times that the thread waited.
    pub waits: u64,
    /// Words that it has.
    pub words: u64,
}

impl Tap {
    /// Asks the program of a segment for its events.
    pub fn attach(path: &Path, request: Request) -> Result<Self, TapError> {
        let mut segment = SegmentReader::open(path)?;
        let pid = segment.process().pid;
        let failed = |what, source| TapError::File { what, path: path.to_owned(), source };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(path)
            .map_err(|e| failed("write the request to", e))?;
        let mut tries = 0;
        while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            tries += 1;
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(failed("lock", error.into()));
            }
            if tries > LOCK_TRIES {
                return Err(TapError::Busy { pid });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let tap =
            Self { file, path: path.to_owned(), segment, pid, word: request.to_word(), trace: None, bytes: Vec::new() };
        tap.write_request(tap.word).map_err(|e| failed("write the request to", e))?;
        Ok(tap)
    }

    /// The program.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The segment's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn write_request(&self, word: u64) -> io::Result<()> {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        bytes[8..16].copy_from_slice(&check_word(word).to_le_bytes());
        bytes[16..].copy_from_slice(&monotonic_ns().to_le_bytes());
        self.file.write_all_at(&bytes, core::mem::offset_of!(Header, trace_request) as u64)
    }

    /// What the program calls by; `None` where it can't be heard.
    pub fn bell(&self) -> Option<Bell> {
        Bell::of(&self.file, core::mem::offset_of!(Header, trace_calls)).ok()
    }

    /// Says that this recorder is at work.
    pub fn beat(&self) -> io::Result<()> {
        self.file.write_all_at(&monotonic_ns().to_le_bytes(), core::mem::offset_of!(Header, trace_heartbeat_ns) as u64)
    }

    /// Takes the request back.
    pub fn stop(&self) -> io::Result<()> {
        self.write_request(0)
    }

    fn words<const N: usize>(file: &File, offset: u64) -> io::Result<[u64; N]> {
        let mut bytes = [[0; 8]; N];
        file.read_exact_at(bytes.as_flattened_mut(), offset)?;
        Ok(bytes.map(u64::from_le_bytes))
    }

    /// What the program answers now.
    pub fn answer(&self) -> Result<Answer, TapError> {
        let failed = |source| TapError::File { what: "read", path: self.path.clone(), source };
        // The program writes the state first: looked at last, it is the answer's or a later one.
        let [answer] = Self::words(&self.file, core::mem::offset_of!(Header, trace_answer) as u64).map_err(failed)?;
        let [state] = Self::words(&self.file, core::mem::offset_of!(Header, trace_state) as u64).map_err(failed)?;
        let refused = |why| Err(TapError::Refused { pid: self.pid, why });
        if answer != self.word {
            // It may have answered that the request is gone.
            let over = self.trace.is_some() && answer == 0;
            return Ok(if over { Answer::Ended } else { Answer::NotYet });
        }
        match state as u32 {
            trace_state::ON => Ok(Answer::On),
            trace_state::ENDED => Ok(Answer::Ended),
            trace_state::ABANDONED => Ok(Answer::Abandoned),
            trace_state::NO_FILE if self.has_become_another_user() => refused(
                "it has become another user since it started, who may make no file beside its segment: start it with \
                 `poolscope record -- COMMAND`",
            ),
            trace_state::NO_FILE => refused(
                "it could not make the file for its events beside its segment; is there room in /dev/shm? A smaller \
                 --ring needs less",
            ),
            trace_state::BAD_REQUEST => {
                refused("it did not understand the request; is it on another version of the pool?")
            }
            _ => Ok(Answer::NotYet),
        }
    }

    /// Whether the process is not the user any more that has made its segment.
    fn has_become_another_user(&self) -> bool {
        let owner = self.file.metadata().map(|about| about.uid()).ok();
        let user = effective_uid(self.pid);
        owner.is_some_and(|owner| user.is_some_and(|user| user != owner))
    }

    /// Opens the file of rings, once the program has answered that it records.
    pub fn open(&mut self) -> Result<(), TapError> {
        let path = self.trace_path();
        let failed = |what, source| TapError::File { what, path: path.clone(), source };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(&path)
            .map_err(|e| failed("open", e))?;
        let mut bytes = [0; TraceHeader::LEN];
        file.read_exact_at(&mut bytes, 0).map_err(|e| failed("read", e))?;
        let refuse = |why| Err(TapError::NoTrace { path: path.clone(), why });
        let Some(header) = TraceHeader::from_bytes(&bytes).filter(|header| header.magic == TRACE_MAGIC) else {
            return refuse("its first bytes are others");
        };
        if !(poolscope_wire::OLDEST_VERSION..=poolscope_wire::VERSION).contains(&header.version) {
            return refuse("it is of another version");
        }
        let expected = Request::from_word(self.word).map_or(0, |request| request.ring_bytes + TRACE_PAGE as u64);
        if header.request != self.word || header.ring_len != expected {
            return refuse("it answers another request");
        }
        let opened = core::mem::offset_of!(TraceHeader, opened) as u64;
        file.write_all_at(&KNOWS_SHORT_RINGS.to_le_bytes(), opened).map_err(|e| failed("write to", e))?;
        self.trace =
            Some(Trace { file, path, ring_len: header.ring_len, start_monotonic_ns: header.start_monotonic_ns });
        Ok(())
    }

    /// Nanoseconds of `CLOCK_MONOTONIC` when recording began.
    pub fn start_ns(&self) -> Option<u64> {
        self.trace.as_ref().map(|trace| trace.start_monotonic_ns)
    }

    fn trace(&self) -> Result<&Trace, TapError> {
        self.trace.as_ref().ok_or_else(|| TapError::NoTrace { path: self.path.clone(), why: "it is not open" })
    }

    /// Rings that there are, and events of threads that got none.
    pub fn rings(&self) -> Result<(u32, u64), TapError> {
        let trace = self.trace()?;
        let failed = |source| TapError::File { what: "read", path: trace.path.clone(), source };
        let [word] = Self::words(&trace.file, 8).map_err(failed)?;
        let [lost] =
            Self::words(&trace.file, core::mem::offset_of!(TraceHeader, lost_without_ring) as u64).map_err(failed)?;
        Ok((((word >> 32) as u32).min(MAX_RINGS), lost))
    }

    /// What a ring says of itself. `None` while its head does not stand still long enough to be copied.
    pub fn ring(&self, index: u32) -> Result<Option<RingState>, TapError> {
        let trace = self.trace()?;
        let failed = |source| TapError::File { what: "read", path: trace.path.clone(), source };
        let offset = ring_offset(index, trace.ring_len);
        for _ in 0..TORN_RETRIES {
            // A copy may catch a word halfway. The head only rises: what was seen twice was there.
            let [head, thread, lost_allocs, lost_frees, waits, words] =
                Self::words(&trace.file, offset).map_err(failed)?;
            let [again] = Self::words(&trace.file, offset).map_err(failed)?;
            let words = trace.ring_words(words);
            if again >= head && again - head <= words {
                return Ok(Some(RingState { head, tid: thread as u32, lost_allocs, lost_frees, waits, words }));
            }
        }
        Ok(None)
    }

    /// Copies the words `from..to` of a ring of `ring_words` words. Those that were overwritten meanwhile are not told from others: a program
    /// does not overwrite what was not taken out.
    pub fn copy(
        &mut self,
        index: u32,
        ring_words: u64,
        from: u64,
        to: u64,
        words: &mut Vec<u64>,
    ) -> Result<(), TapError> {
        let mut bytes = std::mem::take(&mut self.bytes);
        let trace = self.trace()?;
        let failed = |source| TapError::File { what: "read", path: trace.path.clone(), source };
        let data = ring_offset(index, trace.ring_len) + TRACE_PAGE as u64;
        let mut at = from;
        while at < to {
            let place = at % ring_words;
            let len = (to - at).min(ring_words - place).min(COPIED / 8);
            if bytes.len() < len as usize * 8 {
                bytes.resize(len as usize * 8, 0);
            }
            let part = &mut bytes[..len as usize * 8];
            trace.file.read_exact_at(part, data + place * 8).map_err(failed)?;
            words.extend(part.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
            at += len;
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Says that everything below `tail` was taken out of a ring.
    pub fn take_out(&self, index: u32, tail: u64) -> Result<(), TapError> {
        let trace = self.trace()?;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&tail.to_le_bytes());
        bytes[8..].copy_from_slice(&check_word(tail).to_le_bytes());
        let offset = ring_offset(index, trace.ring_len) + core::mem::offset_of!(RingHeader, tail) as u64;
        let failed = |source| TapError::File { what: "write to", path: trace.path.clone(), source };
        trace.file.write_all_at(&bytes, offset).map_err(failed)
    }

    /// The file of rings, which the program makes.
    pub fn trace_path(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(TRACE_SUFFIX);
        PathBuf::from(path)
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // The program would find out by itself, a second later.
        let _ = self.stop();
        // One that is gone can't remove what it has made, read or not.
        if self.segment.process().state != ProcessState::Running {
            let _ = std::fs::remove_file(self.trace_path());
        }
    }
}
