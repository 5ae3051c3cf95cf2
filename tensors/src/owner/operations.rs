//! What each request does. The same for requests over Redis and over the socket; who asks makes the difference.

use std::os::fd::OwnedFd;

use serde_json::{Map, Value, json};

use super::devices::Held;
use super::stock::{Stock, now};
use super::words::word_of;
use crate::books::{ClientEntry, Ready, Record, Tensor};
use crate::identity::{Identity, Life};
use crate::wire::{Op, Request, Transport};
use crate::words::{Code, Layout, Refusal};

/// Who asks.
#[derive(Debug)]
pub struct Caller {
    /// A connection's number, once it has said who it is.
    pub client: Option<u64>,
    /// Its user; `None` over Redis, which does not say.
    pub uid: Option<u32>,
    /// Its process, as the kernel says.
    pub pid: u32,
}

/// What is answered, and a descriptor with it.
pub struct Answer {
    pub reply: Value,
    pub descriptor: Option<OwnedFd>,
}

impl From<Value> for Answer {
    fn from(reply: Value) -> Answer {
        Answer { reply, descriptor: None }
    }
}

/// What an owner says about itself in each entry.
#[derive(Clone, Debug)]
pub struct About {
    pub socket: String,
    /// What a request over Redis must have to delete, if anything.
    pub token: Option<String>,
}

fn no_name(name: &str) -> Refusal {
    Refusal::new(Code::NoName, format!("there is no tensor {name:?}"))
}

impl Stock {
    /// Does what is asked for.
    pub fn serve(
        &mut self,
        about: &About,
        caller: &mut Caller,
        request: &Request,
        descriptor: Option<OwnedFd>,
    ) -> Result<Answer, Refusal> {
        match request.op {
            Op::Hello => self.hello(caller, request, descriptor),
            Op::Create => self.create(about, caller, request).map(Answer::from),
            Op::Publish => self.publish(about, caller, request, descriptor).map(Answer::from),
            Op::Get => {
                let mapped = request.mapped()?.filter(|_| caller.uid.is_some());
                let reply = self.get(about, caller, request)?;
                // Who has not mapped the slab needs its descriptor, and would ask for it next.
                let slab = reply["slab"].as_u64().unwrap_or(0);
                let descriptor = self.descriptor(slab).filter(|_| mapped.is_some_and(|mapped| !mapped.contains(&slab)));
                let descriptor = descriptor.and_then(|descriptor| descriptor.try_clone().ok());
                Ok(Answer { reply, descriptor })
            }
            Op::GetMany => self.get_many(about, caller, request).map(Answer::from),
            Op::Delete => self.delete(about, caller, request).map(Answer::from),
            Op::Release => self.release(caller, request).map(Answer::from),
            Op::Commit => self.commit(caller, request).map(Answer::from),
            Op::Words => self.words_for(about, caller, request).map(Answer::from),
            Op::Slab => self.slab(caller, request),
            Op::List => self.list(about, request).map(Answer::from),
            Op::Show => self.show(about, request).map(Answer::from),
            Op::Stats => Ok(Answer::from(self.stats())),
            Op::Gc => {
                let ended = self.sweep()?;
                self.give_back_empty(std::time::Instant::now())?;
                Ok(Answer::from(json!({"ok": true, "clients_ended": ended, "quarantine": self.quarantine(about, "")})))
            }
            Op::Left => Ok(Answer::from(self.left(request.needed("pid")?))),
        }
    }

    /// A client's number. Over Redis one that says who it is has one, too.
    fn client(&mut self, caller: &Caller, request: &Request) -> Result<Option<u64>, Refusal> {
        if caller.uid.is_some() {
            return match caller.client {
                Some(client) if self.books.clients.contains_key(&client) => Ok(Some(client)),
                // It had asked before it ended, and the end was noticed first.
                Some(_) => Err(Refusal::new(Code::Denied, "the client has ended".into())),
                None => Err(Refusal::new(Code::Denied, "the connection has not said hello".into())),
            };
        }
        let Some(who) = request.who()? else { return Ok(None) };
        if let Some(known) = self.books.clients.values().find(|client| client.is_remote && client.who == who) {
            return Ok(Some(known.id));
        }
        if who.life() == Life::Dead {
            let words = format!("who: there is no process {} with this start in this boot", who.pid);
            return Err(Refusal::new(Code::BadField, words));
        }
        let id = self.books.next;
        let entry = ClientEntry { id, who, uid: 0, program: String::new(), is_remote: true, since: now() };
        self.add_client(entry, None)?;
        Ok(Some(id))
    }

    fn hello(&mut self, caller: &mut Caller, request: &Request, life: Option<OwnedFd>) -> Result<Answer, Refusal> {
        let uid = caller.uid.ok_or_else(|| Refusal::new(Code::BadOp, "hello is for the socket".into()))?;
        if caller.client.is_some() {
            return Err(Refusal::new(Code::BadOp, "the connection has said hello".into()));
        }
        // A process that can't be seen from here says itself who it is.
        let who = match caller.pid {
            0 => request.who()?.unwrap_or_default(),
            pid => Identity::of(pid),
        };
        let known = request
            .number("client")?
            .filter(|id| self.books.clients.get(id).is_some_and(|client| client.uid == uid && client.who == who));
        let id = match known {
            Some(id) => {
                // What it says that it holds counts: the last owner may have died before it could answer.
                let mut says = request.holds()?;
                for (generation, held) in self.books.holdings_of(id) {
                    let says = says.remove(&generation).unwrap_or(0);
                    if says < held {
                        self.let_go(id, generation, held - says)?;
                    }
                }
                id
            }
            None => {
                let life = life
                    .ok_or_else(|| Refusal::new(Code::BadField, "hello comes with the reading end of a pipe".into()))?;
                let id = self.books.next;
                let program = std::fs::read_to_string(format!("/proc/{}/comm", caller.pid)).unwrap_or_default();
                let program = program.trim().to_owned();
                let entry = ClientEntry { id, who, uid, program, is_remote: false, since: now() };
                self.add_client(entry, Some(life))?;
                id
            }
        };
        caller.client = Some(id);
        let held: Vec<u64> = self.books.holdings_of(id).into_iter().map(|(generation, _)| generation).collect();
        let devices: Vec<Value> =
            self.devices.iter().map(|it| json!({"gpu_uuid": it.uuid, "memory": it.memory})).collect();
        let owner = &self.identity;
        Ok(json!({"ok": true, "client": id, "epoch": self.books.epoch, "holds": held, "devices": devices,
            "owner_pid": owner.pid, "quiet": true})
        .into())
    }

    fn create(&mut self, about: &About, caller: &Caller, request: &Request) -> Result<Value, Refusal> {
        let (name, layout) = (request.name()?.to_owned(), request.layout()?);
        let (device, meta) = (request.device()?, request.meta("meta")?);
        // Who comes over Redis may have nothing but the legacy handle.
        let default = if caller.uid.is_some() { Transport::Posix } else { Transport::Legacy };
        let transport = request.transport()?.unwrap_or(default);
        let is_draft = request.flag("draft")?;
        let client = self.client(caller, request)?.filter(|_| caller.uid.is_some());
        // The last owner may have died before it could answer.
        let own_draft = self.books.named(&name).filter(|it| client.is_some() && it.draft_of == client);
        if let Some(generation) = own_draft.map(|tensor| tensor.generation) {
            self.count(generation, |_| 0)?;
            self.settle(generation)?;
        }
        self.refuse_if_there(&name)?;
        let (slab, offset) = self.place(device, layout.bytes, transport)?;
        let draft_of = client.filter(|_| is_draft);
        let tensor = Tensor { draft_of, ..self.new_tensor(name, layout, (slab, offset), meta, caller) };
        self.enter(about, client, tensor)
    }

    fn refuse_if_there(&self, name: &str) -> Result<(), Refusal> {
        let Some(there) = self.books.named(name) else { return Ok(()) };
        let words = format!(
            "there is a tensor {name:?} already (generation {}, {} {:?}): delete it, or take another name",
            there.generation, there.dtype, there.shape
        );
        Err(Refusal::new(Code::Exists, words))
    }

    /// A tensor that is new at its place, with one user.
    fn new_tensor(
        &self,
        name: String,
        layout: Layout,
        (slab, offset): (u64, u64),
        meta: Map<String, Value>,
        caller: &Caller,
    ) -> Tensor {
        Tensor {
            generation: self.books.next,
            name,
            dtype: layout.dtype.name.to_owned(),
            strides: layout.strides(),
            bytes: layout.bytes,
            shape: layout.shape,
            slab,
            offset,
            refcount: 1,
            meta,
            uid: caller.uid.unwrap_or(0),
            ctime: now(),
            mtime: now(),
            draft_of: None,
            ready: None,
            freed_at: None,
        }
    }

    fn enter(&mut self, about: &About, client: Option<u64>, tensor: Tensor) -> Result<Value, Refusal> {
        self.record(&Record::Tensor(tensor.clone()))?;
        self.dirty.insert(tensor.name.clone());
        if let Some(client) = client {
            self.hold(client, tensor.generation)?;
        }
        Ok(self.entry(about, &self.books.tensors[&tensor.generation]))
    }

    /// A tensor in memory that a client allocated.
    fn publish(
        &mut self,
        about: &About,
        caller: &Caller,
        request: &Request,
        descriptor: Option<OwnedFd>,
    ) -> Result<Value, Refusal> {
        let (name, layout) = (request.name()?.to_owned(), request.layout()?);
        let (device, meta) = (request.device()?, request.meta("meta")?);
        let client = self.client(caller, request)?.filter(|_| caller.uid.is_some());
        let client = client.ok_or_else(|| Refusal::new(Code::BadOp, "publish is for the socket".into()))?;
        let (bytes, offset) = (request.needed("slab_bytes")?, request.needed("offset")?);
        if offset.checked_add(layout.bytes).is_none_or(|end| end > bytes) {
            let words = format!("offset: {} bytes from {offset} do not lie in {bytes}", layout.bytes);
            return Err(Refusal::new(Code::BadField, words));
        }
        if device as usize >= self.devices.len() {
            return Err(Refusal::new(Code::NoDevice, format!("there is no device {device}")));
        }
        self.refuse_if_there(&name)?;
        let slab = match (request.transport()?.unwrap_or_default(), descriptor) {
            (Transport::Posix, Some(descriptor)) => {
                let held = Held::Posix { descriptor, slab: None };
                self.add_slab(device, (bytes, held, String::new()), Transport::Posix, Some(client))?
            }
            (Transport::Posix, None) => {
                return Err(Refusal::new(Code::BadField, "publish comes with the descriptor of the memory".into()));
            }
            (Transport::Legacy, _) => {
                let handle = request.ipc_handle()?;
                self.add_slab(device, (bytes, Held::Foreign, handle), Transport::Legacy, Some(client))?
            }
        };
        let tensor = self.new_tensor(name, layout, (slab, offset), meta, caller);
        self.enter(about, None, tensor)
    }

    /// The tensor of a name, if it is what the caller expects.
    fn find(&self, caller: &Caller, request: &Request, name: &str) -> Result<Tensor, Refusal> {
        let tensor = self.books.named(name).ok_or_else(|| no_name(name))?;
        if tensor.draft_of.is_some_and(|client| caller.client != Some(client)) {
            let words = format!("{name:?} is still being written");
            return Err(Refusal::new(Code::Unfinished, words));
        }
        for (key, expected) in request.meta("expect")? {
            let is = tensor.meta.get(&key);
            if is != Some(&expected) {
                let is = is.map_or("nothing".to_owned(), Value::to_string);
                let words = format!("the meta of {name:?} has {key} = {is}, and {expected} was expected");
                return Err(Refusal::new(Code::Mismatch, words));
            }
        }
        Ok(tensor.clone())
    }

    fn get(&mut self, about: &About, caller: &Caller, request: &Request) -> Result<Value, Refusal> {
        let tensor = self.find(caller, request, request.name()?)?;
        match self.client(caller, request)? {
            Some(client) => self.hold(client, tensor.generation)?,
            // Who does not say who it is gives its reference back by deleting.
            None => self.count(tensor.generation, |refcount| refcount + 1)?,
        }
        Ok(self.entry(about, &self.books.tensors[&tensor.generation]))
    }

    fn get_many(&mut self, about: &About, caller: &Caller, request: &Request) -> Result<Value, Refusal> {
        let prefix = request.prefix()?;
        let Some(client) = self.client(caller, request)? else {
            return Err(Refusal::new(Code::BadField, "who: get_many over Redis needs it".into()));
        };
        let names: Vec<String> = self.books.named_like(prefix).map(|tensor| tensor.name.clone()).collect();
        let found = names.iter().map(|name| self.find(caller, request, name)).collect::<Result<Vec<_>, _>>()?;
        found.iter().try_for_each(|tensor| self.hold(client, tensor.generation))?;
        let tensors = found.iter().map(|tensor| self.entry(about, &self.books.tensors[&tensor.generation]));
        Ok(json!({"ok": true, "tensors": tensors.collect::<Vec<_>>()}))
    }

    fn may_delete(&self, about: &About, caller: &Caller, request: &Request, tensor: &Tensor) -> Result<(), Refusal> {
        let own = rustix::process::geteuid().as_raw();
        let words = match (caller.uid, &about.token) {
            (Some(uid), _) if uid == 0 || uid == own || uid == tensor.uid => return Ok(()),
            (Some(uid), _) => {
                format!("user {uid} may not delete {:?}: user {} created it", tensor.name, tensor.uid)
            }
            (None, None) => return Ok(()),
            (None, Some(token)) if request.token()? == Some(token) => return Ok(()),
            (None, Some(_)) => "token: it is missing or wrong, and this owner wants one to delete".to_owned(),
        };
        Err(Refusal::new(Code::Denied, words))
    }

    fn delete(&mut self, about: &About, caller: &Caller, request: &Request) -> Result<Value, Refusal> {
        let name = request.name()?;
        let tensor = self.books.named(name).ok_or_else(|| no_name(name))?.clone();
        let generation = tensor.generation;
        if request.number("generation")?.is_some_and(|expected| expected != generation) {
            let words = format!("{name:?} is generation {generation} now");
            return Err(Refusal::new(Code::Mismatch, words));
        }
        self.may_delete(about, caller, request, &tensor)?;
        if request.flag("all")? {
            self.count(generation, |_| 0)?;
        } else {
            let remote = self.client(caller, request)?.filter(|_| caller.uid.is_none());
            match remote.filter(|client| self.books.held(*client, generation) > 0) {
                Some(client) => self.let_go(client, generation, 1)?,
                None => self.count(generation, |refcount| refcount.saturating_sub(1))?,
            }
        }
        self.settle(generation)?;
        let left = self.books.tensors.get(&generation);
        let refcount = left.map_or(0, |tensor| tensor.refcount);
        let holders: Vec<Value> = self.holders(generation);
        Ok(json!({"ok": true, "name": name, "generation": generation, "refcount": refcount, "held_by": holders}))
    }

    fn release(&mut self, caller: &Caller, request: &Request) -> Result<Value, Refusal> {
        let Some(client) = self.client(caller, request)? else {
            return Err(Refusal::new(Code::BadField, "who: release over Redis needs it".into()));
        };
        let after = request.number("after")?;
        let device = request.device()?;
        for generation in request.generations()? {
            match after {
                // The reference stays until the client's streams are done.
                Some(value) => self.let_go_after(client, generation, device, value),
                None => self.let_go(client, generation, 1)?,
            }
        }
        self.look_at_words()?;
        Ok(json!({"ok": true}))
    }

    fn commit(&mut self, caller: &Caller, request: &Request) -> Result<Value, Refusal> {
        let generations = request.generations()?;
        let is_own = |it: &&u64| {
            let tensor = self.books.tensors.get(*it).filter(|tensor| tensor.freed_at.is_none());
            // One that is finished already was committed before an answer got lost.
            let held = caller.client.is_some_and(|client| self.books.held(client, **it) > 0);
            tensor.is_some_and(|tensor| held && tensor.draft_of.is_none_or(|client| caller.client == Some(client)))
        };
        if let Some(other) = generations.iter().find(|it| !is_own(it)) {
            return Err(Refusal::new(Code::Denied, format!("generation {other} is no draft of this client")));
        }
        let ready = request.number("ready")?.zip(caller.client);
        let ready = ready.map(|(value, client)| Ready { word: word_of(client), value, client });
        for generation in generations {
            self.record(&Record::Committed { generation, mtime: now(), ready })?;
            self.dirty.insert(self.books.tensors[&generation].name.clone());
        }
        Ok(json!({"ok": true}))
    }

    /// The memory of the words, and which one is the caller's.
    fn words_for(&mut self, about: &About, caller: &Caller, request: &Request) -> Result<Value, Refusal> {
        let client = self.client(caller, request)?.filter(|_| caller.uid.is_some());
        let client = client.ok_or_else(|| Refusal::new(Code::BadOp, "words is for the socket".into()))?;
        let generation = self.words_on(request.device()?)?;
        self.hold(client, generation)?;
        let mut reply = self.entry(about, &self.books.tensors[&generation]);
        reply["word"] = word_of(client).into();
        Ok(reply)
    }

    /// The descriptor of a slab, for those who hold something in it.
    fn slab(&mut self, caller: &Caller, request: &Request) -> Result<Answer, Refusal> {
        let id = request.needed("slab")?;
        let client = self.client(caller, request)?;
        let is_held = client.is_some_and(|client| {
            let tensors = self.books.tensors.values().filter(|tensor| tensor.slab == id);
            tensors.into_iter().any(|tensor| self.books.held(client, tensor.generation) > 0)
        });
        let descriptor = self.descriptor(id).filter(|_| is_held && caller.uid.is_some());
        let descriptor = descriptor.ok_or_else(|| {
            Refusal::new(Code::Denied, format!("slab {id} has no descriptor, or this client holds nothing in it"))
        })?;
        let descriptor = descriptor.try_clone().map_err(|error| Refusal::system("a descriptor", error))?;
        let bytes = self.books.slabs[&id].entry.bytes;
        Ok(Answer { reply: json!({"ok": true, "slab": id, "slab_bytes": bytes}), descriptor: Some(descriptor) })
    }

    fn holders(&self, generation: u64) -> Vec<Value> {
        let holder = |(client, count): (&ClientEntry, u64)| {
            json!({"pid": client.who.pid, "start": client.who.start, "pid_ns": client.who.pid_ns,
                "program": client.program, "uid": client.uid, "references": count, "since": client.since})
        };
        self.books.holders_of(generation).map(holder).collect()
    }

    /// All that is said of a tensor, in replies as in hashes.
    pub fn entry(&self, about: &About, tensor: &Tensor) -> Value {
        let slab = self.books.slabs.get(&tensor.slab).map(|slab| &slab.entry);
        let owner = &self.identity;
        json!({
            "ok": true,
            "name": tensor.name,
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "strides": tensor.strides,
            "device": slab.map_or(0, |slab| slab.device),
            "gpu_uuid": slab.map_or("", |slab| &slab.gpu_uuid),
            "bytes": tensor.bytes,
            "transport": slab.map(|slab| slab.transport),
            "ipc_handle": slab.map_or("", |slab| &slab.ipc_handle),
            "slab": tensor.slab,
            "slab_bytes": slab.map_or(0, |slab| slab.bytes),
            "offset": tensor.offset,
            "refcount": tensor.refcount,
            "generation": tensor.generation,
            "meta": tensor.meta,
            "owner_pid": owner.pid,
            "owner_start": owner.start,
            "boot_id": owner.boot_id,
            "pid_ns": owner.pid_ns,
            "socket": about.socket,
            "epoch": self.books.epoch,
            "ctime": tensor.ctime,
            "mtime": tensor.mtime,
            "draft": tensor.draft_of.is_some(),
            "ready": tensor.ready,
        })
    }

    fn shown(&self, about: &About, tensor: &Tensor) -> Value {
        let mut shown = self.entry(about, tensor);
        shown["held_by"] = self.holders(tensor.generation).into();
        if let Some(at) = tensor.freed_at {
            shown["freed_at"] = at.into();
        }
        shown
    }

    fn list(&self, about: &About, request: &Request) -> Result<Value, Refusal> {
        let prefix = request.prefix()?;
        let named: Vec<Value> = self.books.named_like(prefix).map(|tensor| self.shown(about, tensor)).collect();
        Ok(json!({"ok": true, "tensors": named, "quarantine": self.quarantine(about, prefix)}))
    }

    /// What has no name any more, and is held.
    fn quarantine(&self, about: &About, prefix: &str) -> Vec<Value> {
        let freed = self.books.tensors.values().filter(|it| it.freed_at.is_some() && it.name.starts_with(prefix));
        freed.map(|tensor| self.shown(about, tensor)).collect()
    }

    fn show(&self, about: &About, request: &Request) -> Result<Value, Refusal> {
        let name = request.name()?;
        let tensor = self.books.named(name).ok_or_else(|| no_name(name))?;
        Ok(self.shown(about, tensor))
    }

    /// What the owner has, and what happened.
    pub fn stats(&self) -> Value {
        let (held, in_use) = self.bytes();
        let quarantined = self.books.tensors.values().filter(|tensor| tensor.freed_at.is_some());
        let references: u64 = self.books.holders.values().flat_map(|holders| holders.values()).sum();
        json!({
            "ok": true,
            "epoch": self.books.epoch,
            "owner_pid": self.identity.pid,
            "names": self.books.named_like("").count(),
            "slabs": self.books.slabs.len(),
            "held_bytes": held,
            "in_use_bytes": in_use,
            "quarantined": quarantined.clone().count(),
            "quarantined_bytes": quarantined.map(|tensor| tensor.bytes).sum::<u64>(),
            "clients": self.books.clients.len(),
            "references": references,
            "journal_bytes": self.journal_bytes(),
            "counts": self.counts,
        })
    }
}
