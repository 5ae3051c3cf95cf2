//! What the owner knows, without devices and processes: which tensors there are, where they lie, and who holds them.
//!
//! The books change by records only ([`Books::apply`]). Each record goes to the journal, too, so that the next owner
//! has the same books: `tests/journal.rs` compares them under random programs.

mod journal;
mod placement;
mod record;

use std::collections::{BTreeMap, HashMap};

pub use journal::Journal;
pub use placement::Placement;
pub use record::{ClientEntry, HIDDEN, Ready, Record, SlabEntry, Tensor};

/// A slab, and what of it is free.
#[derive(Debug, PartialEq, Eq)]
pub struct SlabBooks {
    /// What it is.
    pub entry: SlabEntry,
    /// Where tensors lie in it.
    pub placement: Placement,
}

/// The books.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Counts the owners of this memory, one after the other.
    pub epoch: u64,
    /// The next number for a tensor, slab or client.
    pub next: u64,
    /// All tensors by their generation, those without a name included.
    pub tensors: BTreeMap<u64, Tensor>,
    /// The generation of each name.
    pub names: BTreeMap<String, u64>,
    /// All slabs by number.
    pub slabs: BTreeMap<u64, SlabBooks>,
    /// All clients by number.
    pub clients: BTreeMap<u64, ClientEntry>,
    /// How often each client holds each tensor: by generation, then client.
    pub holders: HashMap<u64, BTreeMap<u64, u64>>,
}

impl Books {
    /// Makes a change. One that names what is not there changes nothing.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Epoch { epoch, next } => {
                self.epoch = *epoch;
                self.next = self.next.max(*next);
            }
            Record::Slab(entry) => {
                self.count(entry.id);
                let placement = Placement::new(entry.bytes);
                self.slabs.insert(entry.id, SlabBooks { entry: entry.clone(), placement });
            }
            Record::SlabGone { id } => drop(self.slabs.remove(id)),
            Record::Tensor(tensor) => {
                self.count(tensor.generation);
                if let Some(slab) = self.slabs.get_mut(&tensor.slab) {
                    slab.placement.take(tensor.offset, tensor.bytes);
                }
                if tensor.freed_at.is_none() {
                    self.names.insert(tensor.name.clone(), tensor.generation);
                }
                self.tensors.insert(tensor.generation, tensor.clone());
            }
            Record::Count { generation, refcount, mtime } => {
                if let Some(tensor) = self.tensors.get_mut(generation) {
                    (tensor.refcount, tensor.mtime) = (*refcount, *mtime);
                }
            }
            Record::Committed { generation, mtime, ready } => {
                if let Some(tensor) = self.tensors.get_mut(generation) {
                    (tensor.draft_of, tensor.mtime, tensor.ready) = (None, *mtime, *ready);
                }
            }
            Record::Freed { generation, at } => {
                if let Some(tensor) = self.tensors.get_mut(generation) {
                    (tensor.refcount, tensor.freed_at) = (0, Some(*at));
                    if self.names.get(&tensor.name) == Some(generation) {
                        self.names.remove(&tensor.name);
                    }
                }
            }
            Record::Gone { generation } => {
                let Some(tensor) = self.tensors.remove(generation) else { return };
                self.holders.remove(generation);
                if self.names.get(&tensor.name) == Some(generation) {
                    self.names.remove(&tensor.name);
                }
                if let Some(slab) = self.slabs.get_mut(&tensor.slab) {
                    slab.placement.give_back(tensor.offset, tensor.bytes);
                }
            }
            Record::Client(entry) => {
                self.count(entry.id);
                self.clients.insert(entry.id, entry.clone());
            }
            Record::ClientGone { id } => {
                self.clients.remove(id);
                self.holders.retain(|_, holders| {
                    holders.remove(id);
                    !holders.is_empty()
                });
            }
            Record::Held { client, generation, count, refcount } => {
                if let Some(tensor) = self.tensors.get_mut(generation) {
                    tensor.refcount = *refcount;
                }
                let holders = self.holders.entry(*generation).or_default();
                match count {
                    0 => drop(holders.remove(client)),
                    count => drop(holders.insert(*client, *count)),
                }
                if holders.is_empty() {
                    self.holders.remove(generation);
                }
            }
        }
    }

    fn count(&mut self, number: u64) {
        self.next = self.next.max(number + 1);
    }

    /// The tensor that has this name now.
    pub fn named(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(self.names.get(name)?)
    }

    /// The tensors that have names which begin so.
    pub fn named_like<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Tensor> {
        let from = self.names.range::<str, _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded));
        let all = from.take_while(move |(name, _)| name.starts_with(prefix)).filter_map(|(_, it)| self.tensors.get(it));
        all.filter(|tensor| !tensor.is_hidden())
    }

    /// How often each client holds a tensor.
    pub fn holders_of(&self, generation: u64) -> impl Iterator<Item = (&ClientEntry, u64)> {
        let holders = self.holders.get(&generation).into_iter().flatten();
        holders.filter_map(|(client, count)| Some((self.clients.get(client)?, *count)))
    }

    /// How often a client holds a tensor.
    pub fn held(&self, client: u64, generation: u64) -> u64 {
        self.holders.get(&generation).and_then(|holders| holders.get(&client)).copied().unwrap_or(0)
    }

    /// What a client holds.
    pub fn holdings_of(&self, client: u64) -> Vec<(u64, u64)> {
        let held = self.holders.iter().filter_map(|(it, holders)| Some((*it, *holders.get(&client)?)));
        let mut held: Vec<_> = held.collect();
        held.sort_unstable();
        held
    }

    /// The records that make the same books from nothing.
    pub fn records(&self) -> Vec<Record> {
        let mut records = vec![Record::Epoch { epoch: self.epoch, next: self.next }];
        records.extend(self.slabs.values().map(|slab| Record::Slab(slab.entry.clone())));
        records.extend(self.tensors.values().cloned().map(Record::Tensor));
        records.extend(self.clients.values().cloned().map(Record::Client));
        for (generation, holders) in &self.holders {
            let refcount = self.tensors.get(generation).map_or(0, |tensor| tensor.refcount);
            let held = |(client, count): (&u64, &u64)| Record::Held {
                client: *client,
                generation: *generation,
                count: *count,
                refcount,
            };
            records.extend(holders.iter().map(held));
        }
        records
    }
}
