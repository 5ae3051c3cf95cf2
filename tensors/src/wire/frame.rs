//! Frames on a stream socket: 4 bytes of length, so many bytes, and at most one descriptor with them (unix(7),
//! SCM_RIGHTS).

use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// A frame as it came.
pub struct Frame {
    /// What it says.
    pub bytes: Vec<u8>,
    /// What came with it.
    pub descriptor: Option<OwnedFd>,
}

/// Sends one.
pub fn send(mut socket: &UnixStream, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut whole = Vec::with_capacity(bytes.len() + 4);
    whole.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    whole.extend_from_slice(bytes);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = descriptor.as_slice();
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let sent = loop {
        match sendmsg(socket, &[IoSlice::new(&whole)], &mut control, SendFlags::NOSIGNAL) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    // The rest goes without: `write` of a socket raises no signal in a Rust program, and in others it may.
    let mut rest = &whole[sent..];
    while !rest.is_empty() {
        match rustix::net::send(socket, rest, SendFlags::NOSIGNAL) {
            Ok(sent) => rest = &rest[sent..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    socket.flush()
}

/// Receives so many bytes. `None` at the end of the stream, before the first one. Who sends a part has until a moment to
/// send the rest.
fn fill(
    socket: &UnixStream,
    into: &mut [u8],
    descriptor: &mut Option<OwnedFd>,
    until: Option<Instant>,
) -> io::Result<Option<()>> {
    let mut at = 0;
    while at < into.len() {
        if at > 0 && until.is_some_and(|until| Instant::now() > until) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut into[at..])];
        let received = match recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received.bytes,
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) if at > 0 => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                // Of several the last one stays; the others are closed.
                descriptors.for_each(|received| *descriptor = Some(received));
            }
        }
        match received {
            0 if at == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            received => at += received,
        }
    }
    Ok(Some(()))
}

/// Receives one of at most so many bytes; `None` at the end of the stream.
pub fn receive(socket: &UnixStream, limit: usize) -> io::Result<Option<Frame>> {
    receive_admitted(socket, limit, None, |_| Ok(()))
}

/// The same from somebody who is not trusted: the whole frame has to come within a time from its first bytes on, and
/// its length is to be admitted before memory is taken for it. `WouldBlock` says that nothing came within the socket's
/// own limit.
pub fn receive_admitted<T>(
    socket: &UnixStream,
    limit: usize,
    patience: Option<Duration>,
    admit: impl FnOnce(usize) -> io::Result<T>,
) -> io::Result<Option<Frame>> {
    let (mut head, mut descriptor) = ([0; 4], None);
    if fill(socket, &mut head, &mut descriptor, None)?.is_none() {
        return Ok(None);
    }
    let until = patience.map(|patience| Instant::now() + patience);
    let length = u32::from_le_bytes(head) as usize;
    if length > limit {
        let words = format!("a frame of {length} bytes: at most {limit} are possible");
        return Err(io::Error::new(io::ErrorKind::InvalidData, words));
    }
    let _admitted = admit(length)?;
    // Memory comes as the bytes do: who announces much and sends nothing costs little.
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let (from, part) = (bytes.len(), (length - bytes.len()).min(64 << 10));
        bytes.resize(from + part, 0);
        let filled = fill(socket, &mut bytes[from..], &mut descriptor, until);
        // Nothing at all is too little, too, once there is a beginning.
        let filled = filled.map_err(|error| match (error.kind(), until) {
            (io::ErrorKind::WouldBlock, Some(_)) => io::ErrorKind::TimedOut.into(),
            _ => error,
        });
        filled?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if until.is_some_and(|until| Instant::now() > until) {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(Some(Frame { bytes, descriptor }))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn frames_arrive_whole_with_their_descriptor() {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let long = vec![7; 300_000];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                send(&one, b"first", Some(reader.as_fd())).unwrap();
                send(&one, &long, None).unwrap();
            });
            let first = receive(&other, 1000).unwrap().unwrap();
            assert_eq!(first.bytes, b"first");
            writer.write_all(b"x").unwrap();
            let mut byte = [0];
            std::fs::File::from(first.descriptor.unwrap()).read_exact(&mut byte).unwrap();
            assert_eq!(byte, *b"x");
            let second = receive(&other, 1 << 20).unwrap().unwrap();
            assert!(second.bytes == long && second.descriptor.is_none());
        });
        drop(one);
        assert!(receive(&other, 1000).unwrap().is_none());
        let _ = reader.read(&mut []);
    }

    #[test]
    fn a_frame_that_is_too_long_or_cut_off_is_an_error() {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(&u32::MAX.to_le_bytes()).unwrap();
        assert!(receive(&other, 1000).is_err());
        let (mut one, other) = UnixStream::pair().unwrap();
        one.write_all(&[9, 0, 0, 0, 1]).unwrap();
        drop(one);
        assert!(receive(&other, 1000).is_err());
    }
}
