//! How far the streams of clients are: a word of 8 bytes for each client, in memory of the device that all share.
//!
//! A client's stream writes a greater number into its word behind its work (cuStreamWriteValue64). So a reader's stream
//! waits for the writer's (cuStreamWaitValue64), and a reference comes back when the work that uses it is done. Nobody
//! waits for a process that has ended: the driver ends its work with it, and the owner writes the word in its place.

use std::collections::HashMap;
use std::os::fd::AsFd;

use poolscope_gpu::GRANULE;

use super::devices::refusal;
use super::stock::{Stock, now};
use crate::books::{HIDDEN, Record, Tensor};
use crate::wire::Transport;
use crate::words::{Code, Refusal};

const WORDS: u64 = GRANULE / 8;

/// A client's word.
pub fn word_of(client: u64) -> u64 {
    client % WORDS
}

/// A reference that comes back when a word has a value.
struct Pending {
    client: u64,
    generation: u64,
    device: u32,
    value: u64,
}

/// The words of the devices, as this process has them.
#[derive(Default)]
pub struct Words {
    /// Addresses by device.
    mapped: HashMap<u32, u64>,
    pending: Vec<Pending>,
}

impl Stock {
    /// The tensor that the words of a device are, made when it is first asked for.
    pub fn words_on(&mut self, device: u32) -> Result<u64, Refusal> {
        let served = self.devices.get(device as usize);
        let served = served.ok_or_else(|| Refusal::new(Code::NoDevice, format!("there is no device {device}")))?;
        let name = format!("{HIDDEN}words/{}", served.uuid);
        let generation = match self.books.named(&name) {
            Some(words) => words.generation,
            None => {
                let made = served.make(GRANULE, Transport::Posix)?;
                let slab = self.add_slab(device, made, Transport::Posix, None)?;
                let generation = self.books.next;
                self.record(&Record::Tensor(Tensor {
                    generation,
                    name,
                    dtype: "u64".into(),
                    shape: vec![WORDS],
                    strides: vec![1],
                    bytes: GRANULE,
                    slab,
                    offset: 0,
                    refcount: 1,
                    meta: serde_json::Map::new(),
                    uid: 0,
                    ctime: now(),
                    mtime: now(),
                    draft_of: None,
                    ready: None,
                    freed_at: None,
                }))?;
                let address = self.map_words(device, slab)?;
                let zeros = vec![0; GRANULE as usize];
                let zeroed = self.devices[device as usize].device.copy_in(address, &zeros);
                zeroed.map_err(|error| refusal(error, "the words"))?;
                generation
            }
        };
        let slab = self.books.tensors[&generation].slab;
        self.map_words(device, slab)?;
        Ok(generation)
    }

    fn map_words(&mut self, device: u32, slab: u64) -> Result<u64, Refusal> {
        if let Some(address) = self.words.mapped.get(&device) {
            return Ok(*address);
        }
        let gone = || Refusal::new(Code::Device, "the words have no memory".into());
        let descriptor = self.descriptor(slab).ok_or_else(gone)?;
        let of = &self.devices[device as usize].device;
        let failed = |error| refusal(error, "the words");
        let imported = of.import_slab(descriptor.as_fd()).map_err(failed)?;
        let mapped = of.map_slab(imported, GRANULE).map_err(failed);
        of.release_slab(imported).map_err(failed)?;
        let address = mapped?;
        self.words.mapped.insert(device, address);
        Ok(address)
    }

    /// What a client's word has.
    fn word(&self, device: u32, client: u64) -> Option<u64> {
        let address = self.words.mapped.get(&device)?;
        let mut bytes = [0; 8];
        let read = self.devices[device as usize].device.copy_out(address + 8 * word_of(client), &mut bytes);
        read.ok().map(|()| u64::from_le_bytes(bytes))
    }

    /// Takes a reference back once the client's word has a value.
    pub fn let_go_after(&mut self, client: u64, generation: u64, device: u32, value: u64) {
        self.words.pending.push(Pending { client, generation, device, value });
    }

    /// Takes those references back whose streams are done.
    pub fn look_at_words(&mut self) -> Result<(), Refusal> {
        let mut done = Vec::new();
        for pending in std::mem::take(&mut self.words.pending) {
            match self.word(pending.device, pending.client) {
                Some(value) if value < pending.value => self.words.pending.push(pending),
                _ => done.push(pending),
            }
        }
        done.into_iter().try_for_each(|it| self.let_go(it.client, it.generation, 1))
    }

    /// A client has ended, and its work with it: what it had not written to its end goes, and nobody waits for it.
    pub fn end_words_of(&mut self, client: u64) -> Result<(), Refusal> {
        self.words.pending.retain(|pending| pending.client != client);
        let waited = self.books.tensors.values().filter_map(|tensor| {
            let ready = tensor.ready.filter(|ready| ready.client == client)?;
            let device = self.books.slabs.get(&tensor.slab)?.entry.device;
            Some((tensor.generation, device, ready.value))
        });
        let waited: Vec<(u64, u32, u64)> = waited.collect();
        for (generation, device, value) in waited {
            self.words_on(device)?;
            if self.word(device, client).is_some_and(|word| word >= value) {
                continue;
            }
            let address = self.words.mapped[&device] + 8 * word_of(client);
            let written = self.devices[device as usize].device.copy_in(address, &value.to_le_bytes());
            written.map_err(|error| refusal(error, "the words"))?;
            self.counts.lost += 1;
            self.count(generation, |_| 0)?;
            self.settle(generation)?;
        }
        Ok(())
    }

    /// At an orderly end.
    pub fn unmap_words(&mut self) {
        for (device, address) in std::mem::take(&mut self.words.mapped) {
            // The process ends; the kernel would do the same.
            let _ = self.devices[device as usize].device.unmap_slab(address, GRANULE);
        }
    }
}
