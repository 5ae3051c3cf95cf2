//! Clients on the socket: a thread each, which waits for the client and for nobody else.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::operations::{Answer, Caller};
use super::{Shared, lock};
use crate::wire::{REQUEST_LIMIT, Request, frame};
use crate::words::{Code, Refusal};

/// A longer request is one of a few that are received at the same time: so much memory a thousand clients can take.
const SMALL: usize = 64 << 10;
/// How many of those.
const LARGE_AT_ONCE: usize = 32;
/// A connection's thread needs little.
const STACK: usize = 256 << 10;

/// Does what is asked for; `None` where no answer is wanted.
fn answer(shared: &Shared, caller: &mut Caller, frame: frame::Frame) -> Option<Answer> {
    let (_, request) = Request::parse(&frame.bytes);
    let is_quiet = request.as_ref().is_ok_and(|request| request.flag("quiet") == Ok(true));
    let mut stock = lock(&shared.stock);
    stock.counts.requests += 1;
    let answer = request.and_then(|request| stock.serve(&shared.about, caller, &request, frame.descriptor));
    stock.counts.refused += u64::from(answer.is_err());
    drop(stock);
    (!is_quiet).then(|| answer.unwrap_or_else(|refusal| Answer::from(refusal.reply())))
}

/// One of a few: counted for as long as it is there.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn one(of: &Arc<AtomicUsize>, most: usize) -> Option<Counted> {
        let counted = Counted(Arc::clone(of));
        (of.fetch_add(1, Ordering::Relaxed) < most).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a client's request can't be had.
fn trouble(error: &io::Error, stall: Duration) -> Refusal {
    let seconds = stall.as_secs_f64();
    match error.kind() {
        ErrorKind::TimedOut => {
            Refusal::new(Code::Timeout, format!("a request was begun, and did not come whole within {seconds} s"))
        }
        ErrorKind::WouldBlock => Refusal::new(Code::Timeout, format!("nothing was said within {seconds} s")),
        ErrorKind::ResourceBusy => {
            Refusal::new(Code::Busy, format!("{LARGE_AT_ONCE} requests of more than {SMALL} bytes are on their way"))
        }
        _ => Refusal::new(Code::TooLong, error.to_string()),
    }
}

fn serve(shared: &Shared, socket: &UnixStream, large: &Arc<AtomicUsize>) -> io::Result<()> {
    let stall = shared.stall;
    socket.set_write_timeout(Some(stall))?;
    socket.set_read_timeout(Some(stall))?;
    let admit = |length: usize| match length {
        ..=SMALL => Ok(None),
        _ => Counted::one(large, LARGE_AT_ONCE).map(Some).ok_or_else(|| ErrorKind::ResourceBusy.into()),
    };
    let credentials = rustix::net::sockopt::socket_peercred(socket)?;
    // A process of another pid namespace may have no number here.
    let pid = u32::try_from(credentials.pid.as_raw_nonzero().get()).unwrap_or(0);
    let mut caller = Caller { client: None, uid: Some(credentials.uid.as_raw()), pid };
    loop {
        let frame = match frame::receive_admitted(socket, REQUEST_LIMIT, Some(stall), admit) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            // One that has said who it is may be silent for as long as it likes.
            Err(error) if error.kind() == ErrorKind::WouldBlock && caller.client.is_some() => continue,
            Err(error) => {
                let refusal = trouble(&error, stall);
                return frame::send(socket, refusal.reply().to_string().as_bytes(), None);
            }
        };
        let sent = answer(shared, &mut caller, frame).map_or(Ok(()), |Answer { reply, descriptor }| {
            frame::send(socket, reply.to_string().as_bytes(), descriptor.as_ref().map(AsFd::as_fd))
        });
        // The client has its answer before what it changed is written to Redis.
        shared.replies.wake();
        sent?;
    }
}

/// The thread that lets clients in.
pub fn run(shared: &Arc<Shared>, listener: &UnixListener, most: usize) {
    let (count, large) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    loop {
        let socket = match listener.accept() {
            Ok((socket, _)) => Arc::new(socket),
            Err(_) if shared.is_stopping() => return,
            Err(_) => {
                // Descriptors are used up, say: some will be free again.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        if shared.is_stopping() {
            return;
        }
        let refuse = |code, words: String| {
            // Who does not read is not waited for.
            let _ = socket.set_write_timeout(Some(Duration::from_millis(100)));
            let _ = frame::send(&socket, Refusal::new(code, words).reply().to_string().as_bytes(), None);
        };
        let Some(counted) = Counted::one(&count, most) else {
            refuse(Code::Busy, format!("{most} clients are connected: no more are let in"));
            continue;
        };
        let (shared, own, large) = (Arc::clone(shared), Arc::clone(&socket), Arc::clone(&large));
        let thread = std::thread::Builder::new().name("tensor client".into()).stack_size(STACK);
        let spawned = thread.spawn(move || {
            // A connection that broke is one that ended; the client's pipe says whether the client did.
            let _ = serve(&shared, &own, &large);
            drop(counted);
        });
        if spawned.is_err() {
            refuse(Code::Busy, "the owner has no thread for another client".into());
        }
    }
}
