//! The store, as a program has it: one connection to the owner, and the memory that this process has of it.
//!
//! Memory comes slab by slab: the first tensor in a slab imports and maps it, the others cost one question, and the
//! last guard takes the mapping away. An owner that ends and comes back finds out what this process holds when it is
//! asked the next time. Whether this process lives, the kernel says: by a pipe whose writing end nobody else has.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use poolscope_gpu::{GRANULE, Sharing, Stream};
use serde_json::{Map, Value, json};

use super::devices::Devices;
use super::link::Link;
use super::tensor::Tensor;
use super::timeline::Timeline;
use crate::identity::Identity;
use crate::wire::{REQUEST_LIMIT, Transport};
use crate::words::{Code, Refusal};

/// A process with more slabs than this does not list them with each question.
const LISTED: usize = 32;

/// Where the owner is, and how long it may take.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The owner's socket.
    pub socket: PathBuf,
    /// How long an owner that does not answer is waited for.
    pub patience: Duration,
}

/// The socket that `POOLSCOPE_TENSORS` names, or the usual one: `poolscope/tensors.sock` in `XDG_RUNTIME_DIR`, or in a
/// folder of this user's in `/tmp`.
pub fn default_socket() -> PathBuf {
    if let Some(named) = std::env::var_os("POOLSCOPE_TENSORS").filter(|named| !named.is_empty()) {
        return PathBuf::from(named);
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let folder = runtime
        .map(|folder| folder.join("poolscope"))
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/poolscope-{}", rustix::process::geteuid().as_raw())));
    folder.join("tensors.sock")
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions { socket: default_socket(), patience: Duration::from_secs(10) }
    }
}

/// A tensor to be made.
#[derive(Clone, Debug)]
pub struct NewTensor<'a> {
    /// Its name.
    pub name: &'a str,
    /// The type of its elements, as `f32`.
    pub dtype: &'a str,
    /// Elements in each dimension.
    pub shape: &'a [u64],
    /// The device's number among those that the owner serves.
    pub device: u32,
    /// How it comes to other processes.
    pub transport: Transport,
    /// What it is said to be; readers may expect it ([`Store::get_expecting`]).
    pub meta: Map<String, Value>,
}

impl<'a> NewTensor<'a> {
    /// One on the first device.
    pub fn new(name: &'a str, dtype: &'a str, shape: &'a [u64]) -> NewTensor<'a> {
        NewTensor { name, dtype, shape, device: 0, transport: Transport::Posix, meta: Map::new() }
    }
}

/// A tensor that was made, and that nobody else gets before it is finished.
pub struct Created(Tensor);

impl std::ops::Deref for Created {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.0
    }
}

impl Created {
    /// Finishes it: others get it from now on.
    pub fn commit(self) -> Result<Tensor, Refusal> {
        let generation = self.0.generation();
        self.0.store.ask(&json!({"op": "commit", "generations": [generation]}), None)?;
        Ok(self.0)
    }

    /// Finishes it while a stream still writes it: readers, or their streams, wait for the work that it has now.
    pub fn commit_on(self, stream: Stream) -> Result<Tensor, Refusal> {
        self.0.commit_draft_on(stream).map(|()| self.0)
    }

    /// The tensor while it is not finished, for who finishes it by a request.
    pub fn into_draft(self) -> Tensor {
        self.0
    }
}

struct Slab {
    device: Arc<dyn Sharing>,
    address: u64,
    bytes: u64,
    is_legacy: bool,
    /// Guards of tensors in it.
    guards: u64,
}

pub(super) struct State {
    link: Option<Link>,
    client: Option<u64>,
    /// The reading end, which the owner gets, and the writing end.
    life: (OwnedFd, OwnedFd),
    holds: BTreeMap<u64, u64>,
    slabs: HashMap<u64, Slab>,
    /// By the owner's number of the device.
    timelines: HashMap<u32, Timeline>,
}

pub(crate) struct Inner {
    options: StoreOptions,
    /// The process that opened it. A child after a fork has neither the connection nor the memory.
    pid: u32,
    devices: Devices,
    state: Mutex<State>,
}

/// A store of named tensors.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

fn no_owner(socket: &Path, error: &io::Error) -> Refusal {
    let words = format!(
        "no owner answers at {} ({error}): start one by `poolscope tensors serve`, or name its socket",
        socket.display()
    );
    Refusal::new(Code::NoOwner, words)
}

impl State {
    /// Connects, and says who this is and what it holds.
    fn connect(&mut self, options: &StoreOptions) -> Result<(), Refusal> {
        let failed = |error: io::Error| no_owner(&options.socket, &error);
        let mut link = Link::connect(&options.socket, options.patience).map_err(failed)?;
        // An owner that comes back takes what is not held any more for done.
        self.timelines.values().try_for_each(|timeline| timeline.wait(options.patience))?;
        let holds: Vec<(u64, u64)> = self.holds.iter().map(|(generation, count)| (*generation, *count)).collect();
        let hello = json!({"op": "hello", "client": self.client, "holds": holds, "who": Identity::own()});
        let (reply, _) = link.ask(&hello, Some(self.life.0.as_fd())).map_err(failed)?;
        if let Some(refusal) = Refusal::of_reply(&reply) {
            return Err(refusal);
        }
        link.learn(&reply);
        self.client = reply["client"].as_u64();
        self.link = Some(link);
        Ok(())
    }

    /// Gives something back. Nobody waits for it: the next connection says what this process still holds, so that
    /// nothing is lost with this one.
    fn say(&mut self, words: Value) {
        if self.link.as_ref().is_some_and(|link| link.say(words).is_err()) {
            self.link = None;
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the owner. One that went away is waited for; each request may be made twice.
    pub(super) fn ask(
        &self,
        request: &Value,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(Value, Option<OwnedFd>), Refusal> {
        self.ask_with(&mut self.state(), request, descriptor)
    }

    fn ask_with(
        &self,
        state: &mut State,
        request: &Value,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(Value, Option<OwnedFd>), Refusal> {
        if self.pid != std::process::id() {
            let words = "this store was opened before a fork: open another one in the child".to_owned();
            return Err(Refusal::new(Code::Denied, words));
        }
        let until = Instant::now() + self.options.patience;
        loop {
            if state.link.is_none() {
                match state.connect(&self.options) {
                    Ok(()) => {}
                    Err(refusal) if refusal.code == Code::NoOwner && Instant::now() < until => {
                        sleep(Duration::from_millis(10));
                        continue;
                    }
                    Err(refusal) => return Err(refusal),
                }
            }
            let Some(link) = &state.link else { continue };
            match link.ask(request, descriptor) {
                Ok((reply, descriptor)) => {
                    return Refusal::of_reply(&reply).map_or(Ok((reply, descriptor)), Err);
                }
                Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                    let words = format!("the request is too long: at most {REQUEST_LIMIT} bytes are possible");
                    return Err(Refusal::new(Code::TooLong, words));
                }
                Err(error) => {
                    state.link = None;
                    if Instant::now() > until {
                        return Err(no_owner(&self.options.socket, &error));
                    }
                }
            }
        }
    }

    /// A guard of a tensor that the owner has counted for this process.
    fn guard(
        self: &Arc<Inner>,
        state: &mut State,
        entry: Value,
        descriptor: Option<OwnedFd>,
    ) -> Result<Tensor, Refusal> {
        let number = |field: &str| entry[field].as_u64().unwrap_or(0);
        let generation = number("generation");
        *state.holds.entry(generation).or_default() += 1;
        match self.mapped(state, &entry, descriptor) {
            Ok((device, address)) => Ok(Tensor::new(Arc::clone(self), entry, device, address)),
            Err(refusal) => {
                self.forget(state, generation);
                // What failed is said; what can't be given back now comes back with this process.
                let _ = self.ask_with(state, &json!({"op": "release", "generations": [generation]}), None);
                Err(refusal)
            }
        }
    }

    /// Finishes a tensor behind the work that a stream has now.
    pub(super) fn commit_on(&self, generation: u64, device: u32, stream: Stream) -> Result<(), Refusal> {
        let mut state = self.state();
        let ready = self.mark(&mut state, device, &[stream])?;
        let request = json!({"op": "commit", "generations": [generation], "ready": ready});
        self.ask_with(&mut state, &request, None).map(drop)
    }

    /// The words of a device, in this process.
    fn timeline<'a>(&self, state: &'a mut State, device: u32) -> Result<&'a mut Timeline, Refusal> {
        if !state.timelines.contains_key(&device) {
            let (entry, _) = self.ask_with(state, &json!({"op": "words", "device": device}), None)?;
            *state.holds.entry(entry["generation"].as_u64().unwrap_or(0)).or_default() += 1;
            let (of, words) = self.mapped(state, &entry, None)?;
            let word = entry["word"].as_u64().unwrap_or(0);
            state.timelines.insert(device, Timeline::new(of, words, word)?);
        }
        state.timelines.get_mut(&device).ok_or_else(|| Refusal::new(Code::Device, "no words".into()))
    }

    /// Waits, on the host or by a stream, until a tensor's contents are written.
    fn wait_ready(&self, state: &mut State, entry: &Value, stream: Option<Stream>) -> Result<(), Refusal> {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        if entry["ready"].is_null() {
            return Ok(());
        }
        let (word, value) = (number(&entry["ready"]["word"]), number(&entry["ready"]["value"]));
        let timeline = self.timeline(state, number(&entry["device"]) as u32)?;
        match stream {
            Some(stream) => timeline.wait_by(stream, word, value),
            None => timeline.wait_for(word, value, self.options.patience),
        }
    }

    /// Puts a mark behind all work that these streams have now; its value.
    fn mark(&self, state: &mut State, device: u32, streams: &[Stream]) -> Result<u64, Refusal> {
        self.timeline(state, device)?.mark(streams)
    }

    fn forget(&self, state: &mut State, generation: u64) {
        if let Some(count) = state.holds.get_mut(&generation) {
            *count -= 1;
            if *count == 0 {
                state.holds.remove(&generation);
            }
        }
    }

    /// The tensor's device, and where it lies in this process. The slab's descriptor may have come with the entry.
    fn mapped(
        &self,
        state: &mut State,
        entry: &Value,
        descriptor: Option<OwnedFd>,
    ) -> Result<(Arc<dyn Sharing>, u64), Refusal> {
        let number = |field: &str| entry[field].as_u64().unwrap_or(0);
        let (id, offset) = (number("slab"), number("offset"));
        if let Some(slab) = state.slabs.get_mut(&id) {
            slab.guards += 1;
            return Ok((Arc::clone(&slab.device), slab.address + offset));
        }
        let text = |field: &str| entry[field].as_str().unwrap_or_default();
        let device = self.devices.get(text("gpu_uuid"))?;
        let not_shared = |error: String| {
            let words = format!("the memory of {:?} can't be had in this process: {error}", text("name"));
            Refusal::new(Code::NotShared, words)
        };
        let is_legacy = text("transport") == "legacy";
        let (address, bytes) = if is_legacy {
            let handle = BASE64_STANDARD.decode(text("ipc_handle")).unwrap_or_default();
            let handle = <[u8; 64]>::try_from(handle).map_err(|_| not_shared("it has no handle".into()))?;
            let address = device.open_legacy(handle).map_err(|error| not_shared(error.to_string()))?;
            (address, number("slab_bytes"))
        } else {
            let descriptor = match descriptor {
                Some(descriptor) => Some(descriptor),
                None => self.ask_with(state, &json!({"op": "slab", "slab": id}), None)?.1,
            };
            let descriptor = descriptor.ok_or_else(|| not_shared("no descriptor came with the reply".into()))?;
            let bytes = number("slab_bytes");
            let failed = |error: poolscope_gpu::DeviceError| not_shared(error.to_string());
            let slab = device.import_slab(descriptor.as_fd()).map_err(failed)?;
            let address = device.map_slab(slab, bytes).map_err(failed);
            // The mapping keeps the memory.
            device.release_slab(slab).map_err(failed)?;
            (address?, bytes)
        };
        let slab = Slab { device: Arc::clone(&device), address, bytes, is_legacy, guards: 1 };
        state.slabs.insert(id, slab);
        Ok((device, address + offset))
    }

    /// The end of a guard that streams still use: the reference comes back when they are done.
    pub(super) fn give_back_after(&self, (generation, slab): (u64, u64), device: u32, streams: &[Stream]) {
        if self.pid != std::process::id() {
            return;
        }
        let mut state = self.state();
        let marked = self.mark(&mut state, device, streams);
        let is_last = state.slabs.get(&slab).is_some_and(|slab| slab.guards == 1);
        let Ok(value) = marked else {
            // A stream that can't be marked can't be waited for: the memory stays with this process.
            return;
        };
        if is_last {
            // The mapping must outlast the work. One that takes too long keeps it until the process ends.
            let timeline = state.timelines.get(&device);
            if timeline.is_some_and(|timeline| timeline.wait(self.options.patience).is_ok()) {
                drop(state);
                self.give_back(&[(generation, slab)]);
            }
            return;
        }
        if let Some(slab) = state.slabs.get_mut(&slab) {
            slab.guards -= 1;
        }
        self.forget(&mut state, generation);
        let request = json!({"op": "release", "generations": [generation], "device": device, "after": value});
        state.say(request);
    }

    /// A guard's end: the mapping goes with the last one, then the reference.
    pub(super) fn give_back(&self, tensors: &[(u64, u64)]) {
        // After a fork the child's copy means nothing.
        if self.pid != std::process::id() {
            return;
        }
        let mut state = self.state();
        for (generation, id) in tensors {
            self.forget(&mut state, *generation);
            let Some(slab) = state.slabs.get_mut(id) else { continue };
            slab.guards -= 1;
            if slab.guards == 0
                && let Some(slab) = state.slabs.remove(id)
            {
                // A driver that is shutting down has taken it away already.
                let _ = match slab.is_legacy {
                    true => slab.device.close_legacy(slab.address),
                    false => slab.device.unmap_slab(slab.address, slab.bytes),
                };
            }
        }
        let generations: Vec<u64> = tensors.iter().map(|(generation, _)| *generation).collect();
        state.say(json!({"op": "release", "generations": generations}));
    }
}

impl Store {
    /// The store of the usual socket.
    pub fn open_default() -> Result<Store, Refusal> {
        Store::open(StoreOptions::default())
    }

    /// A store; fails if no owner answers for so long as the options say.
    pub fn open(options: StoreOptions) -> Result<Store, Refusal> {
        let life = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let life = life.map_err(|error| Refusal::system("a pipe", error))?;
        let (holds, slabs, timelines) = (BTreeMap::new(), HashMap::new(), HashMap::new());
        let mut state = State { link: None, client: None, life, holds, slabs, timelines };
        let until = Instant::now() + options.patience;
        // One that is just starting, or that follows another one, is as good as there.
        while let Err(refusal) = state.connect(&options) {
            if refusal.code != Code::NoOwner || Instant::now() > until {
                return Err(refusal);
            }
            sleep(Duration::from_millis(10));
        }
        let (pid, devices) = (std::process::id(), Devices::default());
        Ok(Store(Arc::new(Inner { options, pid, devices, state: Mutex::new(state) })))
    }

    /// A tensor by name: the same memory as in every other process.
    pub fn get(&self, name: &str) -> Result<Tensor, Refusal> {
        self.get_expecting(name, &Map::new())
    }

    /// The same, if the tensor is said to be what is expected.
    pub fn get_expecting(&self, name: &str, expect: &Map<String, Value>) -> Result<Tensor, Refusal> {
        self.get_for(name, expect, None)
    }

    /// A tensor whose contents are there for the work that the stream is given from now on. The host does not wait.
    pub fn get_on(&self, name: &str, stream: Stream) -> Result<Tensor, Refusal> {
        self.get_for(name, &Map::new(), Some(stream))
    }

    /// A tensor that is what is expected, for the host (`None`) or for the work of a stream. The host waits for as long
    /// as the store's patience lasts.
    pub fn get_for(&self, name: &str, expect: &Map<String, Value>, stream: Option<Stream>) -> Result<Tensor, Refusal> {
        let mut state = self.0.state();
        let mut request = json!({"op": "get", "name": name});
        if !expect.is_empty() {
            request["expect"] = Value::Object(expect.clone());
        }
        if state.slabs.len() <= LISTED {
            request["mapped"] = state.slabs.keys().copied().collect::<Vec<u64>>().into();
        }
        let (entry, descriptor) = self.0.ask_with(&mut state, &request, None)?;
        let tensor = self.0.guard(&mut state, entry, descriptor)?;
        let waited = self.0.wait_ready(&mut state, tensor.entry(), stream);
        // A guard that goes needs the state.
        drop(state);
        waited.map(|()| tensor)
    }

    /// The store, with a device that the program has opened already, by its identifier (`GPU-...`).
    pub fn with_device(self, gpu_uuid: &str, device: Arc<dyn Sharing>) -> Store {
        self.0.devices.insert(gpu_uuid, device);
        self
    }

    /// All tensors whose names begin so, by one question and one import for each slab.
    pub fn get_many(&self, prefix: &str) -> Result<Vec<Tensor>, Refusal> {
        let mut state = self.0.state();
        let (mut reply, _) = self.0.ask_with(&mut state, &json!({"op": "get_many", "prefix": prefix}), None)?;
        let Value::Array(entries) = reply["tensors"].take() else { return Ok(Vec::new()) };
        let guards: Vec<_> = entries.into_iter().map(|entry| self.0.guard(&mut state, entry, None)).collect();
        let waited = guards.iter().flatten().try_for_each(|it| self.0.wait_ready(&mut state, it.entry(), None));
        // Guards that are dropped for another's failure need the state.
        drop(state);
        waited.and_then(|()| guards.into_iter().collect())
    }

    /// Makes a tensor. Others get it when it is finished ([`Created::commit`]); until then it goes with this process.
    pub fn create(&self, new: &NewTensor<'_>) -> Result<Created, Refusal> {
        let mut state = self.0.state();
        let request = json!({
            "op": "create", "name": new.name, "dtype": new.dtype, "shape": new.shape, "device": new.device,
            "transport": new.transport, "meta": new.meta, "draft": true,
        });
        let (entry, _) = self.0.ask_with(&mut state, &request, None)?;
        self.0.guard(&mut state, entry, None).map(Created)
    }

    /// Finishes several at once.
    pub fn commit_all(&self, created: Vec<Created>) -> Result<Vec<Tensor>, Refusal> {
        let generations: Vec<u64> = created.iter().map(|created| created.generation()).collect();
        self.0.ask(&json!({"op": "commit", "generations": generations}), None)?;
        Ok(created.into_iter().map(|created| created.0).collect())
    }

    /// Names memory of this process that somebody else allocated. Memory of the driver's virtual kind is shared as it
    /// is, and outlives this process, if it was created exportable; plain memory goes with this process.
    pub fn publish(&self, new: &NewTensor<'_>, gpu_uuid: &str, address: u64) -> Result<(), Refusal> {
        let device = self.0.devices.get(gpu_uuid)?;
        let refused = |tried: &str, error: poolscope_gpu::DeviceError| {
            let words = format!("{:?} can't be published: {tried}: {error}", new.name);
            Refusal::new(Code::NotShared, words)
        };
        let (base, bytes) = device.address_range(address).map_err(|error| refused("its address", error))?;
        let mut request = json!({
            "op": "publish", "name": new.name, "dtype": new.dtype, "shape": new.shape, "device": new.device,
            "meta": new.meta, "slab_bytes": bytes, "offset": address - base, "transport": "posix",
        });
        let descriptor = match device.retain_slab(address) {
            Ok(slab) => {
                let exported = device.export_slab(slab);
                device.release_slab(slab).map_err(|error| refused("its memory", error))?;
                let tried = "its memory was not created to be exported, which can't be changed later";
                Some(exported.map_err(|error| refused(tried, error))?)
            }
            // Plain memory: what it lies in has a legacy handle.
            Err(_) => {
                let handle = device.legacy_handle(base).map_err(|error| refused("its memory has no handle", error))?;
                request["transport"] = "legacy".into();
                request["ipc_handle"] = BASE64_STANDARD.encode(handle).into();
                None
            }
        };
        if descriptor.is_some() {
            request["slab_bytes"] = bytes.next_multiple_of(GRANULE).into();
        }
        self.0.ask(&request, descriptor.as_ref().map(AsFd::as_fd)).map(drop)
    }

    /// Takes a tensor's name away. Its memory stays for as long as anybody holds it: who, the reply says.
    pub fn delete(&self, name: &str) -> Result<Value, Refusal> {
        Ok(self.0.ask(&json!({"op": "delete", "name": name, "all": true}), None)?.0)
    }

    /// Any request of the protocol, and its reply.
    pub fn request(&self, request: &Value) -> Result<Value, Refusal> {
        Ok(self.0.ask(request, None)?.0)
    }

    /// Gives several tensors back at once.
    pub fn release(&self, tensors: Vec<Tensor>) {
        // Those that streams use go one by one.
        let plain = tensors.into_iter().filter(|tensor| !tensor.has_streams());
        let held: Vec<(u64, u64)> = plain.map(Tensor::into_held).collect();
        self.0.give_back(&held);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        // Guards keep the store: what is mapped still are the words.
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let words = state.timelines.values().map(Timeline::words);
        let words: Vec<u64> = words.collect();
        for slab in state.slabs.values().filter(|slab| words.contains(&slab.address)) {
            // A driver that is shutting down has taken it away already.
            let _ = slab.device.unmap_slab(slab.address, slab.bytes);
        }
    }
}
