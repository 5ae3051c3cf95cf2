//! Asks a running process for a search for unreachable blocks, by words of its segment ([`ReachRequest`]).
//!
//! The words are written by `pwrite`, as a recorder's are. The program sleeps on one of them ([`Bell`]).

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use poolscope_wire::reach::option;
use poolscope_wire::{Header, ReachRequest, flags};

use crate::model::snapshot::ProcessState;
use crate::process::{self, ProcStat};
use crate::segment::bell::Bell;
use crate::segment::read_error::ReadError;
use crate::segment::reader::SegmentReader;

/// Time between two looks for an answer, at first and at most.
const LOOK_MIN: Duration = Duration::from_micros(200);
const LOOK_MAX: Duration = Duration::from_millis(20);
/// Time after which the bell is rung again.
const RING_AGAIN: Duration = Duration::from_millis(500);
/// Time after which somebody else's request that is not answered is taken for one that nobody waits for any more. Who
/// does asks again.
const GIVEN_UP: Duration = Duration::from_secs(1);

/// What a search is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// A copy of the process searches, so that its threads wait for the copy only.
    pub snapshot: bool,
    /// Bits of a word that are no part of an address.
    pub tag_mask: u64,
    /// How long to wait for the answer.
    pub limit: Duration,
}

impl Default for Wish {
    fn default() -> Self {
        Self { snapshot: false, tag_mask: 0, limit: Duration::from_secs(30) }
    }
}

/// Why a process has not searched.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The segment can't be read.
    #[error(transparent)]
    Segment(#[from] ReadError),
    /// The segment can't be written to.
    #[error("cannot write the request to {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It could not, or it is better not asked.
    #[error("process {pid} could not look for unreachable blocks: {why}")]
    Refused {
        /// The process.
        pid: u32,
        /// Why.
        why: String,
    },
}

/// Has the process of a segment search, and waits for the end of that. What it found is in its segment then.
pub fn search(path: &Path, wish: Wish) -> Result<(), AskError> {
    let mut segment = SegmentReader::open(path)?;
    let process = segment.process();
    let refused = |why: String| AskError::Refused { pid: process.pid, why };
    if process.state != ProcessState::Running {
        return Err(refused("it has ended".into()));
    }
    let header = *segment.header();
    if header.flags & flags::EXACT == 0 {
        return Err(refused("not every allocation is recorded (POOLSCOPE_PERIOD=1 at its start records them)".into()));
    }
    let failed = |source| AskError::File { path: path.to_owned(), source };
    let nofollow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new().read(true).write(true).custom_flags(nofollow).open(path).map_err(failed)?;
    let filters = number(&file, place(offset_of!(ReachRequest, filters))).map_err(failed)?;
    if let Some(tid) = confined_thread(process.pid, filters) {
        return Err(refused(format!(
            "thread {tid} has a filter of system calls (seccomp) that the program began without, and a signal to it might \
             end the program"
        )));
    }
    let begun = Instant::now();
    let (mut pause, mut rung) = (LOOK_MIN, None::<Instant>);
    let (mut own, mut others) = (None, (0, begun));
    loop {
        let asked = word(&file, place(offset_of!(ReachRequest, request))).map_err(failed)?;
        let answered = word(&file, place(offset_of!(ReachRequest, answer))).map_err(failed)?;
        if own == Some(answered) {
            return Ok(());
        }
        // Several may ask at a time, and the words hold one request.
        if own != Some(asked) {
            if others.0 != asked {
                others = (asked, Instant::now());
            }
            if [0, answered].contains(&asked) || others.1.elapsed() > GIVEN_UP {
                own = Some(make_request(&file, wish, [asked, answered]).map_err(failed)?);
                (pause, rung) = (LOOK_MIN, None);
            }
        }
        if own.is_some() && rung.is_none_or(|rung| rung.elapsed() > RING_AGAIN) {
            ring(&file).map_err(failed)?;
            rung = Some(Instant::now());
        }
        if segment.process().state != ProcessState::Running {
            return Err(refused("it ended before it answered".into()));
        }
        if begun.elapsed() > wish.limit {
            // What comes late is not taken for the answer to a later request.
            return Err(refused(silence(process.pid, wish.limit, &file)));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LOOK_MAX);
    }
}

/// Where a field of the request lies in the file.
fn place(field: usize) -> u64 {
    (offset_of!(Header, reach_request) + field) as u64
}

fn word(file: &File, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at)?;
    Ok(u64::from_le_bytes(bytes))
}

fn number(file: &File, at: u64) -> io::Result<u32> {
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, at)?;
    Ok(u32::from_le_bytes(bytes))
}

fn write(file: &File, field: usize, value: u64) -> io::Result<()> {
    file.write_all_at(&value.to_le_bytes(), place(field))
}

/// Writes a request under a new number: neither 0 nor one of those that were made and answered last.
fn make_request(file: &File, wish: Wish, known: [u64; 2]) -> io::Result<u64> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut request = (now.as_nanos() as u64) << 8 | u64::from(std::process::id() & 0xff);
    while request == 0 || known.contains(&request) {
        request = request.wrapping_add(1);
    }
    write(file, offset_of!(ReachRequest, options), if wish.snapshot { option::SNAPSHOT } else { 0 })?;
    write(file, offset_of!(ReachRequest, tag_mask), wish.tag_mask)?;
    write(file, offset_of!(ReachRequest, request), request)?;
    Ok(request)
}

/// A thread that has more filters of system calls than its process began with. `filters` is one more than these, or 0
/// if that is not known.
fn confined_thread(pid: u32, filters: u32) -> Option<u32> {
    let began_with = filters.checked_sub(1)?;
    process::threads(pid).into_iter().find(|&tid| process::filters(pid, tid).is_some_and(|now| now > began_with))
}

/// Why there is no answer, as far as that can be seen from here.
fn silence(pid: u32, limit: Duration, file: &File) -> String {
    let waited = format!("it has not answered for {} s", limit.as_secs_f64());
    match ProcStat::of(pid).map(|stat| stat.state) {
        Some('T') => format!("{waited}: it is stopped (kill -CONT {pid} has it go on)"),
        Some('t') => format!("{waited}: a debugger has stopped it"),
        _ if number(file, place(offset_of!(ReachRequest, listener))).is_ok_and(|tid| tid == 0) => {
            format!("{waited}: it has no thread that listens (it may not have allocated yet, or may start none)")
        }
        _ => waited,
    }
}

/// Wakes who listens.
fn ring(file: &File) -> io::Result<()> {
    Bell::of(file, offset_of!(Header, reach_request) + offset_of!(ReachRequest, bell))?.ring()
}
