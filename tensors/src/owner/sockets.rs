//! Clients on the socket: a thread each, which waits for the client and for nobody else.

use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::operations::{Answer, Caller};
use super::{Shared, lock};
use crate::wire::{Request, frame};
use crate::words::{Code, Refusal};

/// Bytes of a request at most.
const REQUEST_LIMIT: usize = 1 << 20;
/// How long a client may take to read its answer.
const STALL: Duration = Duration::from_secs(10);
/// A connection's thread needs little.
const STACK: usize = 256 << 10;

fn answer(shared: &Shared, caller: &mut Caller, frame: frame::Frame) -> Answer {
    let (_, request) = Request::parse(&frame.bytes);
    let mut stock = lock(&shared.stock);
    stock.counts.requests += 1;
    let answer = request.and_then(|request| stock.serve(&shared.about, caller, &request, frame.descriptor));
    stock.counts.refused += u64::from(answer.is_err());
    drop(stock);
    shared.replies.wake();
    answer.unwrap_or_else(|refusal| Answer::from(refusal.reply()))
}

fn serve(shared: &Shared, socket: &UnixStream) -> std::io::Result<()> {
    socket.set_write_timeout(Some(STALL))?;
    let credentials = rustix::net::sockopt::socket_peercred(socket)?;
    // A process of another pid namespace may have no number here.
    let pid = u32::try_from(credentials.pid.as_raw_nonzero().get()).unwrap_or(0);
    let mut caller = Caller { client: None, uid: Some(credentials.uid.as_raw()), pid };
    loop {
        let frame = match frame::receive(socket, REQUEST_LIMIT) {
            Ok(Some(frame)) => frame,
            Ok(None) => return Ok(()),
            Err(error) => {
                let refusal = Refusal::new(Code::TooLong, error.to_string());
                return frame::send(socket, refusal.reply().to_string().as_bytes(), None);
            }
        };
        let Answer { reply, descriptor } = answer(shared, &mut caller, frame);
        frame::send(socket, reply.to_string().as_bytes(), descriptor.as_ref().map(AsFd::as_fd))?;
    }
}

/// The thread that lets clients in.
pub fn run(shared: &Arc<Shared>, listener: &UnixListener, most: usize) {
    let count = Arc::new(AtomicUsize::new(0));
    loop {
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
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
        if count.fetch_add(1, Ordering::Relaxed) >= most {
            count.fetch_sub(1, Ordering::Relaxed);
            refuse(Code::Busy, format!("{most} clients are connected: no more are let in"));
            continue;
        }
        let (shared, counted) = (Arc::clone(shared), Arc::clone(&count));
        let Ok(own) = socket.try_clone() else {
            count.fetch_sub(1, Ordering::Relaxed);
            continue;
        };
        let thread = std::thread::Builder::new().name("tensor client".into()).stack_size(STACK);
        let spawned = thread.spawn(move || {
            // A connection that broke is one that ended; the client's pipe says whether the client did.
            let _ = serve(&shared, &own);
            counted.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            count.fetch_sub(1, Ordering::Relaxed);
            refuse(Code::Busy, "the owner has no thread for another client".into());
        }
    }
}
