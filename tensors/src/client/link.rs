//! One connection to the owner: a question at a time, each with its answer, and words that want none.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::yield_now;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

use crate::wire::{REQUEST_LIMIT, frame};

/// Bytes of a reply at most.
const REPLY_LIMIT: usize = 256 << 20;
/// An answer is awaited awake for so long, since most come sooner. A thread that sleeps for it comes back tens of
/// microseconds later, on a processor that has slept, too.
const AWAKE: Duration = Duration::from_micros(50);

/// A connection.
pub(super) struct Link {
    socket: UnixStream,
    /// The owner knows words that want no answer.
    takes_words: bool,
}

impl Link {
    /// Connects. An owner that does not answer is waited for so long.
    pub(super) fn connect(socket: &Path, patience: Duration) -> io::Result<Link> {
        let socket = UnixStream::connect(socket)?;
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(patience))?;
        Ok(Link { socket, takes_words: false })
    }

    /// Learns from the answer to `hello` what the owner knows.
    pub(super) fn learn(&mut self, hello: &Value) {
        self.takes_words = hello["quiet"] == true;
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask(
        &self,
        request: &Value,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> io::Result<(Value, Option<OwnedFd>)> {
        let request = request.to_string();
        if request.len() > REQUEST_LIMIT {
            // The owner would close the connection in the middle of it.
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        frame::send(&self.socket, request.as_bytes(), descriptor)?;
        self.wait_awake();
        let frame = frame::receive(&self.socket, REPLY_LIMIT)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((serde_json::from_slice(&frame.bytes)?, frame.descriptor))
    }

    /// Says something whose answer nobody needs. It is done before what is asked next on this connection.
    pub(super) fn say(&self, mut words: Value) -> io::Result<()> {
        if !self.takes_words {
            return self.ask(&words, None).map(drop);
        }
        words["quiet"] = true.into();
        frame::send(&self.socket, words.to_string().as_bytes(), None)
    }

    fn wait_awake(&self) {
        let until = Instant::now() + AWAKE;
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        // What else there is to learn of the socket, receiving will tell.
        while poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&at_once)) == Ok(0) && Instant::now() < until {
            // On a single processor the owner has to run.
            yield_now();
        }
    }
}
