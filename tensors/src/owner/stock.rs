//! What an owner has: the books, their journal, the memory, and the pipes that end with clients. Every change goes
//! through [`Stock::record`]: into the journal first, then into the books.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::devices::{Held, Served, Slabs};
use super::left::Remembered;
use super::words::Words;
use crate::books::{Books, ClientEntry, Journal, Record, SlabEntry};
use crate::identity::{Identity, Life};
use crate::keeper::{Keeper, Kept};
use crate::wire::Transport;
use crate::words::{Code, Refusal};

/// Milliseconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// A new slab has at least so many bytes, and one for larger tensors as many as they need.
const SLAB_LEAST: u64 = 64 << 20;
/// Slabs grow with what is held, up to this.
const SLAB_MOST: u64 = 1 << 30;

/// Counts of what happened, for those who watch.
#[derive(Debug, Default, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Requests, refused ones included.
    pub requests: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Slabs that were made.
    pub slabs_made: u64,
    /// Clients that ended, however.
    pub clients_ended: u64,
    /// References that ended clients left.
    pub references_returned: u64,
    /// Tensors that were found again after an owner's end.
    pub adopted: u64,
    /// Tensors that ended with their owner or publisher.
    pub lost: u64,
}

/// What an owner has.
pub struct Stock {
    pub books: Books,
    pub devices: Vec<Served>,
    pub counts: Counts,
    /// Names whose entry in Redis is not what the books say.
    pub dirty: BTreeSet<String>,
    journal: Journal,
    slabs: Slabs,
    /// Slabs with nothing in them, since when.
    empty: HashMap<u64, Instant>,
    lives: BTreeMap<u64, Arc<OwnedFd>>,
    pub words: Words,
    /// What ended clients had not given back.
    pub left: Remembered,
    keeper: Option<Keeper>,
    keeper_command: Vec<OsString>,
    folder: PathBuf,
    pub identity: Identity,
}

impl Stock {
    /// Takes over what the last owner of the folder left with its keeper, or begins anew.
    pub fn take_over(folder: &Path, keeper_command: Vec<OsString>, devices: Vec<Served>) -> Result<Stock, Refusal> {
        let failed = |error: std::io::Error| Refusal::system("the keeper can't be had", error);
        let (keeper, mut kept) = match keeper_command.is_empty() {
            true => (None, BTreeMap::new()),
            false => {
                let (keeper, kept) = Keeper::find(folder, &keeper_command).map_err(failed)?;
                (Some(keeper), kept)
            }
        };
        let journal = |error: std::io::Error| Refusal::system("the journal", error);
        let (old, mut books) = match kept.remove(&Kept::Journal) {
            Some(descriptor) => {
                let (old, books) = Journal::open(descriptor).map_err(journal)?;
                (Some(old), books)
            }
            None => (None, Books::default()),
        };
        drop(old);
        let epoch = (books.epoch + 1).max(now());
        // What is made again after everything was lost has a number of its own, too.
        let next = books.next.max(epoch << 10);
        books.apply(&Record::Epoch { epoch, next });
        let mut stock = Stock {
            journal: Journal::of(&books).map_err(journal)?,
            books,
            devices,
            counts: Counts::default(),
            dirty: BTreeSet::new(),
            slabs: Slabs::new(),
            empty: HashMap::new(),
            lives: BTreeMap::new(),
            words: Words::default(),
            left: Remembered::default(),
            keeper,
            keeper_command,
            folder: folder.to_owned(),
            identity: Identity::own(),
        };
        stock.tell_keeper(|keeper, stock| keeper.keep(Kept::Journal, stock.journal.as_fd()));
        stock.adopt(kept)?;
        Ok(stock)
    }

    /// Brings together what the journal says and what descriptors there are.
    fn adopt(&mut self, kept: BTreeMap<Kept, OwnedFd>) -> Result<(), Refusal> {
        for (what, descriptor) in kept {
            let is_known = match what {
                Kept::Slab(id) => match self.books.slabs.get(&id) {
                    Some(_) => self.slabs.insert(id, Held::Posix { descriptor, slab: None }).is_none(),
                    None => false,
                },
                Kept::Life(id) if self.books.clients.contains_key(&id) => {
                    self.lives.insert(id, Arc::new(descriptor));
                    true
                }
                Kept::Life(_) | Kept::Journal => false,
            };
            // The last owner was killed between the keeper and the journal.
            if !is_known && what != Kept::Journal {
                self.tell_keeper(|keeper, _| keeper.drop(what));
            }
        }
        // Slabs move to the device with their GPU's number, whatever number that had; plain memory ended with its
        // process.
        let slabs: Vec<SlabEntry> = self.books.slabs.values().map(|slab| slab.entry.clone()).collect();
        for entry in slabs {
            let is_served = self.devices.iter().any(|served| served.uuid == entry.gpu_uuid);
            let publisher = entry.publisher.filter(|_| entry.transport == Transport::Legacy);
            let is_published = publisher.is_some_and(|client| self.lives.contains_key(&client));
            if is_published {
                self.slabs.insert(entry.id, Held::Foreign);
            } else if !is_served || !self.slabs.contains_key(&entry.id) {
                self.lose_slab(entry.id)?;
            }
        }
        // A client whose pipe nobody kept can't be seen to end, unless it is known by its process.
        let clients: Vec<ClientEntry> = self.books.clients.values().cloned().collect();
        for client in clients {
            let is_watched = self.lives.contains_key(&client.id) || client.is_remote;
            if !is_watched || client.is_remote && client.who.life() == Life::Dead {
                self.end_client(client.id)?;
            }
        }
        let tensors = self.books.tensors.values();
        let orphans = tensors.filter(|it| it.draft_of.is_some_and(|of| !self.books.clients.contains_key(&of)));
        let orphans: Vec<u64> = orphans.map(|it| it.generation).collect();
        orphans.into_iter().try_for_each(|generation| self.count(generation, |_| 0))?;
        self.counts.adopted = self.books.named_like("").count() as u64;
        self.dirty.extend(self.books.names.keys().cloned());
        let unsettled: Vec<u64> = self.books.tensors.keys().copied().collect();
        unsettled.into_iter().try_for_each(|generation| self.settle(generation))?;
        let empty = self.books.slabs.iter().filter(|(_, slab)| slab.placement.is_empty()).map(|(id, _)| *id);
        self.empty.extend(empty.map(|id| (id, Instant::now())));
        Ok(())
    }

    /// Writes a change down, and makes it.
    pub fn record(&mut self, record: &Record) -> Result<(), Refusal> {
        self.journal.append(record).map_err(|error| Refusal::system("the journal", error))?;
        self.books.apply(record);
        if self.journal.is_long() {
            self.journal = Journal::of(&self.books).map_err(|error| Refusal::system("the journal", error))?;
            self.tell_keeper(|keeper, stock| keeper.keep(Kept::Journal, stock.journal.as_fd()));
        }
        Ok(())
    }

    /// Tells the keeper something; one that does not listen is replaced by [`Stock::mend_keeper`].
    fn tell_keeper(&mut self, tell: impl FnOnce(&Keeper, &Stock) -> std::io::Result<()>) {
        let Some(keeper) = self.keeper.take() else { return };
        if tell(&keeper, self).is_ok() {
            self.keeper = Some(keeper);
        }
    }

    /// Starts another keeper if the one that there was has ended, and gives it everything.
    pub fn mend_keeper(&mut self) -> Result<(), Refusal> {
        if self.keeper_command.is_empty() || self.keeper.as_ref().is_some_and(|keeper| !keeper.is_gone()) {
            return Ok(());
        }
        let failed = |error: std::io::Error| Refusal::system("the keeper can't be started again", error);
        let (keeper, _) = Keeper::find(&self.folder, &self.keeper_command).map_err(failed)?;
        for (id, held) in &self.slabs {
            if let Held::Posix { descriptor, .. } = held {
                keeper.keep(Kept::Slab(*id), descriptor.as_fd()).map_err(failed)?;
            }
        }
        for (id, life) in &self.lives {
            keeper.keep(Kept::Life(*id), life.as_fd()).map_err(failed)?;
        }
        // Last: who has the books has all that they speak of.
        keeper.keep(Kept::Journal, self.journal.as_fd()).map_err(failed)?;
        self.keeper = Some(keeper);
        Ok(())
    }

    /// A place for so many bytes: the slab, and where in it.
    pub fn place(&mut self, device: u32, bytes: u64, transport: Transport) -> Result<(u64, u64), Refusal> {
        let served = self.devices.get(device as usize).ok_or_else(|| {
            let words =
                format!("there is no device {device}: this owner serves {}, counted from 0", self.devices.len());
            Refusal::new(Code::NoDevice, words)
        })?;
        let fits = self.books.slabs.values().filter(|slab| {
            let entry = &slab.entry;
            entry.gpu_uuid == served.uuid && entry.transport == transport && entry.publisher.is_none()
        });
        let best = fits.filter_map(|slab| slab.placement.find(bytes).map(|(left, at)| (left, slab.entry.id, at))).min();
        if let Some((_, slab, offset)) = best {
            self.empty.remove(&slab);
            return Ok((slab, offset));
        }
        let held: u64 = self.books.slabs.values().map(|slab| slab.entry.bytes).sum();
        let wanted = (held / 2).next_power_of_two().clamp(SLAB_LEAST, SLAB_MOST).max(bytes);
        if bytes > served.memory {
            let words = format!("{bytes} bytes: device {device} has {}", served.memory);
            return Err(Refusal::new(Code::NoMemory, words));
        }
        let made = match served.make(wanted, transport) {
            Err(refusal) if refusal.code == Code::NoMemory => {
                self.give_back_empty(Instant::now())?;
                self.devices[device as usize].make(bytes, transport)?
            }
            other => other?,
        };
        Ok((self.add_slab(device, made, transport, None)?, 0))
    }

    /// Enters a slab. The keeper has it before the journal does.
    pub fn add_slab(
        &mut self,
        device: u32,
        (bytes, held, ipc_handle): (u64, Held, String),
        transport: Transport,
        publisher: Option<u64>,
    ) -> Result<u64, Refusal> {
        let id = self.books.next;
        let gpu_uuid = self.devices[device as usize].uuid.clone();
        if let Held::Posix { descriptor, .. } = &held {
            self.tell_keeper(|keeper, _| keeper.keep(Kept::Slab(id), descriptor.as_fd()));
        }
        self.slabs.insert(id, held);
        self.counts.slabs_made += 1;
        self.record(&Record::Slab(SlabEntry { id, device, gpu_uuid, bytes, transport, ipc_handle, publisher }))?;
        Ok(id)
    }

    /// The descriptor of a slab, to be sent.
    pub fn descriptor(&self, slab: u64) -> Option<&OwnedFd> {
        match self.slabs.get(&slab)? {
            Held::Posix { descriptor, .. } => Some(descriptor),
            _ => None,
        }
    }

    fn drop_slab(&mut self, id: u64) -> Result<(), Refusal> {
        let Some(slab) = self.books.slabs.get(&id) else { return Ok(()) };
        let served = self.devices.iter().position(|served| served.uuid == slab.entry.gpu_uuid);
        self.record(&Record::SlabGone { id })?;
        self.empty.remove(&id);
        self.tell_keeper(|keeper, _| keeper.drop(Kept::Slab(id)));
        match (self.slabs.remove(&id), served) {
            (Some(held), Some(served)) => self.devices[served].give_up(held),
            _ => Ok(()),
        }
    }

    /// A slab's memory is gone: so are its tensors.
    fn lose_slab(&mut self, id: u64) -> Result<(), Refusal> {
        let lost: Vec<u64> = self.books.tensors.values().filter(|it| it.slab == id).map(|it| it.generation).collect();
        for generation in lost {
            self.counts.lost += 1;
            self.dirty.insert(self.books.tensors[&generation].name.clone());
            self.record(&Record::Gone { generation })?;
        }
        self.drop_slab(id)
    }

    /// Gives back slabs that have been empty since before a time.
    pub fn give_back_empty(&mut self, before: Instant) -> Result<(), Refusal> {
        let old: Vec<u64> = self.empty.iter().filter(|(_, since)| **since <= before).map(|(id, _)| *id).collect();
        old.into_iter().try_for_each(|id| self.drop_slab(id))
    }

    /// What follows from a tensor's counts: without references the name goes, without holders the memory.
    pub fn settle(&mut self, generation: u64) -> Result<(), Refusal> {
        let Some(tensor) = self.books.tensors.get(&generation) else { return Ok(()) };
        self.dirty.insert(tensor.name.clone());
        if tensor.freed_at.is_none() && tensor.refcount == 0 {
            self.record(&Record::Freed { generation, at: now() })?;
        }
        let Some(tensor) = self.books.tensors.get(&generation).filter(|tensor| tensor.freed_at.is_some()) else {
            return Ok(());
        };
        if self.books.holders.contains_key(&generation) {
            return Ok(());
        }
        let slab = tensor.slab;
        self.record(&Record::Gone { generation })?;
        match self.books.slabs.get(&slab) {
            Some(it) if it.placement.is_empty() && it.entry.publisher.is_some() => self.drop_slab(slab),
            Some(it) if it.placement.is_empty() => {
                self.empty.insert(slab, Instant::now());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Changes how many references a tensor has.
    pub fn count(&mut self, generation: u64, change: impl FnOnce(u64) -> u64) -> Result<(), Refusal> {
        let Some(tensor) = self.books.tensors.get(&generation).filter(|it| it.freed_at.is_none()) else {
            return Ok(());
        };
        let record = Record::Count { generation, refcount: change(tensor.refcount), mtime: now() };
        self.dirty.insert(tensor.name.clone());
        self.record(&record)
    }

    /// Gives a client a reference more.
    pub fn hold(&mut self, client: u64, generation: u64) -> Result<(), Refusal> {
        let Some(tensor) = self.books.tensors.get(&generation) else { return Ok(()) };
        let (count, refcount) = (self.books.held(client, generation) + 1, tensor.refcount + 1);
        self.dirty.insert(tensor.name.clone());
        self.record(&Record::Held { client, generation, count, refcount })
    }

    /// Takes references from a client: as many as it has at most.
    pub fn let_go(&mut self, client: u64, generation: u64, count: u64) -> Result<(), Refusal> {
        let held = self.books.held(client, generation);
        let count = count.min(held);
        if count > 0 {
            let refcount = self.books.tensors.get(&generation).map_or(0, |it| it.refcount.saturating_sub(count));
            self.record(&Record::Held { client, generation, count: held - count, refcount })?;
            let draft_of = self.books.tensors.get(&generation).and_then(|tensor| tensor.draft_of);
            if held == count && draft_of == Some(client) {
                // Nobody can finish it any more.
                self.count(generation, |_| 0)?;
            }
        }
        self.settle(generation)
    }

    /// Enters a client, with the pipe that ends with it.
    pub fn add_client(&mut self, entry: ClientEntry, life: Option<OwnedFd>) -> Result<(), Refusal> {
        let id = entry.id;
        if let Some(life) = life {
            let life = Arc::new(life);
            self.tell_keeper(|keeper, _| keeper.keep(Kept::Life(id), life.as_fd()));
            self.lives.insert(id, life);
        }
        self.record(&Record::Client(entry))
    }

    /// A client has ended: its references come back, and what it had not finished goes.
    pub fn end_client(&mut self, client: u64) -> Result<(), Refusal> {
        self.remember(client);
        for (generation, count) in self.books.holdings_of(client) {
            self.counts.references_returned += count;
            self.let_go(client, generation, count)?;
        }
        self.end_words_of(client)?;
        let drafts = self.books.tensors.values().filter(|tensor| tensor.draft_of == Some(client));
        let drafts: Vec<u64> = drafts.map(|tensor| tensor.generation).collect();
        for generation in drafts {
            self.count(generation, |_| 0)?;
            self.settle(generation)?;
        }
        let published = self.books.slabs.values().filter(|slab| slab.entry.publisher == Some(client));
        let lost = published.filter(|slab| slab.entry.transport == Transport::Legacy).map(|slab| slab.entry.id);
        let lost: Vec<u64> = lost.collect();
        lost.into_iter().try_for_each(|id| self.lose_slab(id))?;
        self.counts.clients_ended += 1;
        self.lives.remove(&client);
        self.tell_keeper(|keeper, _| keeper.drop(Kept::Life(client)));
        self.record(&Record::ClientGone { id: client })
    }

    /// The pipes that end with clients.
    pub fn lives(&self) -> Vec<(u64, Arc<OwnedFd>)> {
        self.lives.iter().map(|(id, life)| (*id, Arc::clone(life))).collect()
    }

    /// Clients of Redis alone whose process has ended.
    pub fn sweep(&mut self) -> Result<u64, Refusal> {
        let remote = self.books.clients.values().filter(|client| client.is_remote);
        let dead: Vec<u64> = remote.filter(|it| it.who.life() == Life::Dead).map(|it| it.id).collect();
        dead.iter().try_for_each(|id| self.end_client(*id))?;
        Ok(dead.len() as u64)
    }

    /// Frees everything, and ends the keeper.
    pub fn give_up_all(&mut self) -> Result<(), Refusal> {
        self.unmap_words();
        let all: Vec<u64> = self.books.slabs.keys().copied().collect();
        all.into_iter().try_for_each(|id| self.lose_slab(id))?;
        self.tell_keeper(|keeper, _| keeper.end());
        Ok(())
    }

    /// Bytes of slabs, and of them those in tensors, those without a name included.
    pub fn bytes(&self) -> (u64, u64) {
        let own = self.books.slabs.values();
        let held = own.clone().map(|slab| slab.entry.bytes).sum();
        (held, own.map(|slab| slab.entry.bytes - slab.placement.free()).sum())
    }

    /// The journal's length.
    pub fn journal_bytes(&self) -> u64 {
        self.journal.bytes()
    }
}
