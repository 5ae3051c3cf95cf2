//! The keeper: a process that has what the owner has, so that it outlives the owner: descriptors of slabs, the pipes
//! that end with clients, and the journal. It has no device, makes no decision, and never reads what it keeps.
//!
//! It listens on a socket beside the owner's. An owner that connects gets everything that is kept, and says from then
//! on what to keep. When the owner is gone, the keeper waits for the next one as long as it was told, and then ends.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::wire::frame;

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// The journal.
    Journal,
    /// The descriptor of a slab.
    Slab(u64),
    /// The reading end of a pipe whose other end only a client has.
    Life(u64),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// From the keeper at first, and from the owner then. The descriptor comes with it.
    Keep(Kept),
    /// From the owner.
    Drop(Kept),
    /// From the keeper: that was all.
    All,
    /// From the owner: nothing is to be kept.
    End,
}

const LIMIT: usize = 1 << 16;
/// How long a keeper may take to start.
const START: Duration = Duration::from_secs(10);
/// How long an owner waits for its end.
const END: Duration = Duration::from_secs(2);

fn path(folder: &Path) -> PathBuf {
    folder.join("keeper.sock")
}

fn say(socket: &UnixStream, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    frame::send(socket, &serde_json::to_vec(message)?, descriptor)
}

fn hear(socket: &UnixStream) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
    let Some(frame) = frame::receive(socket, LIMIT)? else { return Ok(None) };
    Ok(Some((serde_json::from_slice(&frame.bytes)?, frame.descriptor)))
}

/// Keeps what owners in this folder tell it to, until none has come for so long. Ends when nothing is to be kept.
pub fn keep(folder: &Path, linger: Duration) -> io::Result<()> {
    let path = path(folder);
    // Nobody listens there: the owner that starts a keeper has the folder's lock, and has tried to connect.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    let inode = std::fs::metadata(&path)?.ino();
    // Another keeper may have come since, after an owner that was killed while it started this one.
    let leave = || match std::fs::metadata(&path) {
        Ok(metadata) if metadata.ino() == inode => std::fs::remove_file(&path),
        _ => Ok(()),
    };
    let mut kept: BTreeMap<Kept, OwnedFd> = BTreeMap::new();
    loop {
        let limit = Timespec { tv_sec: linger.as_secs() as i64, tv_nsec: i64::from(linger.subsec_nanos()) };
        let came = match poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&limit)) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        if came == 0 {
            return leave();
        }
        let (owner, _) = listener.accept()?;
        // An owner that ends in the middle of a message is one that ended.
        if let Ok(true) = serve(&owner, &mut kept) {
            return leave();
        }
    }
}

/// Serves one owner; whether it said that nothing is to be kept.
fn serve(owner: &UnixStream, kept: &mut BTreeMap<Kept, OwnedFd>) -> io::Result<bool> {
    for (what, descriptor) in kept.iter() {
        say(owner, &Message::Keep(*what), Some(descriptor.as_fd()))?;
    }
    say(owner, &Message::All, None)?;
    while let Some((message, descriptor)) = hear(owner)? {
        match (message, descriptor) {
            (Message::Keep(what), Some(descriptor)) => drop(kept.insert(what, descriptor)),
            (Message::Drop(what), _) => drop(kept.remove(&what)),
            (Message::End, _) => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}

/// An owner's connection to its keeper.
pub struct Keeper {
    socket: UnixStream,
}

impl Keeper {
    /// Finds the keeper of a folder, or starts one by a command; and what it has kept.
    pub fn find(folder: &Path, command: &[OsString]) -> io::Result<(Keeper, BTreeMap<Kept, OwnedFd>)> {
        let path = path(folder);
        if let Ok(socket) = UnixStream::connect(&path) {
            return Keeper::take_over(socket);
        }
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: setsid is safe between fork and exec, and touches no memory. Signals for the owner's terminal and
        // process group must not reach the keeper.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                Ok(())
            })
        };
        let mut child = command.spawn()?;
        let until = Instant::now() + START;
        loop {
            if let Ok(socket) = UnixStream::connect(&path) {
                // Somebody has to wait for it; else its entry would stay.
                std::thread::spawn(move || child.wait());
                return Keeper::take_over(socket);
            }
            if let Some(status) = child.try_wait()? {
                return Err(io::Error::other(format!("the keeper ended at its start: {status}")));
            }
            if Instant::now() > until {
                // It may be stuck for good.
                let _ = child.kill();
                let _ = child.wait();
                return Err(io::ErrorKind::TimedOut.into());
            }
            sleep(Duration::from_millis(2));
        }
    }

    fn take_over(socket: UnixStream) -> io::Result<(Keeper, BTreeMap<Kept, OwnedFd>)> {
        socket.set_read_timeout(Some(START))?;
        socket.set_write_timeout(Some(START))?;
        let mut kept = BTreeMap::new();
        loop {
            match hear(&socket)? {
                Some((Message::Keep(what), Some(descriptor))) => drop(kept.insert(what, descriptor)),
                Some((Message::All, _)) => return Ok((Keeper { socket }, kept)),
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Gives it something to keep.
    pub fn keep(&self, what: Kept, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        say(&self.socket, &Message::Keep(what), Some(descriptor))
    }

    /// Has it let go of something.
    pub fn drop(&self, what: Kept) -> io::Result<()> {
        say(&self.socket, &Message::Drop(what), None)
    }

    /// Ends it, with all that it has.
    pub fn end(&self) -> io::Result<()> {
        say(&self.socket, &Message::End, None)?;
        // It takes its socket's name away before it goes.
        let mut waiting = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let _ = poll(&mut waiting, Some(&Timespec { tv_sec: END.as_secs() as i64, tv_nsec: 0 }));
        Ok(())
    }

    /// Whether it has ended.
    pub fn is_gone(&self) -> bool {
        let mut waiting = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        matches!(poll(&mut waiting, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1))
    }
}
