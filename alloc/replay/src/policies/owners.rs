//! Whose order free memory is in.
//!
//! A free block belongs to the stream that it was freed on, which may have it again at once. Another stream gets it
//! only after an event that is recorded then, behind all that the old owner has to do. What it has taken over is in its
//! own order from then on: its own events come after the wait, so that a third stream waits for the first one, too.

use std::collections::HashMap;

use poolscope_gpu::{Device, Driver, Event, Result, Stream};

/// A stream, as policies number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(u32);

impl Owner {
    /// Memory that no work uses.
    pub const NOBODY: Owner = Owner(u32::MAX);

    /// Its place among the owners; nobody has none.
    pub fn at(self) -> usize {
        self.0 as usize
    }
}

struct Known {
    stream: Stream,
    event: Option<Event>,
}

/// The streams that a policy has met.
#[derive(Default)]
pub struct Owners {
    last: Option<(Stream, Owner)>,
    handles: HashMap<Stream, Owner>,
    ids: HashMap<u64, Owner>,
    known: Vec<Known>,
}

impl Owners {
    /// The number of a stream, the same for all its handles.
    pub fn of<D: Device>(&mut self, stream: Stream, driver: &Driver<D>) -> Result<Owner> {
        if let Some((last, owner)) = self.last
            && last == stream
        {
            return Ok(owner);
        }
        // One handle, and another stream in every thread.
        let of_thread = stream == Stream::PER_THREAD;
        if !of_thread && let Some(owner) = self.handles.get(&stream) {
            self.last = Some((stream, *owner));
            return Ok(*owner);
        }
        let id = driver.stream_id(stream)?;
        let next = Owner(self.known.len() as u32);
        let owner = *self.ids.entry(id).or_insert(next);
        if owner == next {
            self.known.push(Known { stream, event: None });
        }
        if !of_thread {
            self.handles.insert(stream, owner);
            self.last = Some((stream, owner));
        }
        Ok(owner)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = Owner> + use<> {
        (0..self.known.len() as u32).map(Owner)
    }

    /// Puts the owner's event behind all that it has to do now. `None` for a default stream of a thread:
    /// only that thread could.
    fn record<D: Device>(&mut self, owner: Owner, driver: &Driver<D>) -> Result<Option<Event>> {
        let known = &mut self.known[owner.at()];
        if known.stream == Stream::PER_THREAD {
            return Ok(None);
        }
        let event = match known.event {
            Some(event) => event,
            None => driver.create_event()?,
        };
        known.event = Some(event);
        driver.record(event, known.stream)?;
        Ok(Some(event))
    }

    /// Lets one's later work, on this stream, wait for what the other has to do now. Says whether it does.
    pub fn hand_over<D: Device>(&mut self, from: Owner, to: Stream, driver: &Driver<D>) -> Result<bool> {
        if from == Owner::NOBODY {
            return Ok(true);
        }
        match self.record(from, driver)? {
            Some(event) => driver.wait(to, event).map(|()| true),
            None => Ok(false),
        }
    }

    /// Lets an owner's later work wait for what this stream, the caller's, has to do now; or the host, where only
    /// another thread could name the owner's stream.
    pub fn put_behind<D: Device>(&mut self, owner: Owner, stream: Stream, driver: &Driver<D>) -> Result<()> {
        let known = self.known[owner.at()].stream;
        let event = driver.create_event()?;
        let behind = driver.record(event, stream).and_then(|()| match known {
            Stream::PER_THREAD => driver.synchronize(event),
            known => driver.wait(known, event),
        });
        behind.and(driver.destroy_event(event))
    }

    /// Waits on the host for what an owner has to do now. Says whether it did.
    pub fn finish<D: Device>(&mut self, owner: Owner, driver: &Driver<D>) -> Result<bool> {
        if owner == Owner::NOBODY {
            return Ok(true);
        }
        match self.record(owner, driver)? {
            Some(event) => driver.synchronize(event).map(|()| true),
            None => Ok(false),
        }
    }

    /// Gives the events back. Nothing more is asked of the driver where that fails.
    pub fn end<D: Device>(&mut self, driver: &Driver<D>) {
        for known in &mut self.known {
            if let Some(event) = known.event.take() {
                let _ = driver.destroy_event(event);
            }
        }
    }
}
