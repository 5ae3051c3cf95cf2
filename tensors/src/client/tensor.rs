//! A guard: a tensor that this process may use for as long as it has the guard.

use std::sync::Arc;

use poolscope_gpu::{Sharing, Stream};
use serde_json::Value;

use super::store::Inner;
use crate::owner::SIMULATED;
use crate::words::{Code, Refusal};

/// A tensor. Dropped, it gives its reference back.
pub struct Tensor {
    pub(super) store: Arc<Inner>,
    entry: Value,
    shape: Vec<u64>,
    strides: Vec<u64>,
    device: Arc<dyn Sharing>,
    address: u64,
    /// Streams whose work uses it.
    streams: Vec<Stream>,
    is_given_back: bool,
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

impl Tensor {
    pub(super) fn new(store: Arc<Inner>, entry: Value, device: Arc<dyn Sharing>, address: u64) -> Tensor {
        let (shape, strides) = (numbers(&entry["shape"]), numbers(&entry["strides"]));
        Tensor { store, entry, shape, strides, device, address, streams: Vec::new(), is_given_back: false }
    }

    fn number(&self, field: &str) -> u64 {
        self.entry[field].as_u64().unwrap_or(0)
    }

    fn text(&self, field: &str) -> &str {
        self.entry[field].as_str().unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.text("name")
    }

    /// The type of its elements, as `f32`.
    pub fn dtype(&self) -> &str {
        self.text("dtype")
    }

    /// Elements in each dimension.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Elements from one to the next of each dimension.
    pub fn strides(&self) -> &[u64] {
        &self.strides
    }

    /// Its bytes.
    pub fn bytes(&self) -> u64 {
        self.number("bytes")
    }

    /// Tells it from other tensors that have or had the name.
    pub fn generation(&self) -> u64 {
        self.number("generation")
    }

    /// Its device, as the owner numbers it.
    pub fn device(&self) -> u32 {
        self.number("device") as u32
    }

    /// Its device, everywhere.
    pub fn gpu_uuid(&self) -> &str {
        self.text("gpu_uuid")
    }

    /// What it is said to be.
    pub fn meta(&self) -> &Value {
        &self.entry["meta"]
    }

    /// All that the owner says of it.
    pub fn entry(&self) -> &Value {
        &self.entry
    }

    /// Where it lies in this process's addresses of the device. For a simulated device these are the host's.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Whether its addresses are the host's.
    pub fn is_on_host(&self) -> bool {
        self.gpu_uuid().starts_with(SIMULATED)
    }

    /// Says that work of a stream uses it: its memory is not used again before that is done, guard or not.
    pub fn record_stream(&mut self, stream: Stream) {
        if !self.streams.contains(&stream) {
            self.streams.push(stream);
        }
    }

    /// Finishes a tensor that was created, while a stream still writes it: readers, or their streams, wait for the work
    /// that it has now.
    pub fn commit_draft_on(&self, stream: Stream) -> Result<(), Refusal> {
        self.store.commit_on(self.generation(), self.device(), stream)
    }

    fn check(&self, offset: u64, bytes: usize) -> Result<(), Refusal> {
        if offset.checked_add(bytes as u64).is_some_and(|end| end <= self.bytes()) {
            return Ok(());
        }
        let words = format!("{bytes} bytes from {offset} do not lie in the {} of {:?}", self.bytes(), self.name());
        Err(Refusal::new(Code::BadField, words))
    }

    /// Writes bytes of the host into it, from an offset on.
    pub fn write(&self, offset: u64, from: &[u8]) -> Result<(), Refusal> {
        self.check(offset, from.len())?;
        let copied = if from.is_empty() { Ok(()) } else { self.device.copy_in(self.address + offset, from) };
        copied.map_err(|error| Refusal::new(Code::Device, error.to_string()))
    }

    /// Reads bytes of it, from an offset on.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), Refusal> {
        self.check(offset, to.len())?;
        let copied = if to.is_empty() { Ok(()) } else { self.device.copy_out(self.address + offset, to) };
        copied.map_err(|error| Refusal::new(Code::Device, error.to_string()))
    }

    /// All of its bytes.
    pub fn to_vec(&self) -> Result<Vec<u8>, Refusal> {
        let mut bytes = vec![0; self.bytes() as usize];
        self.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Whether work of streams uses it.
    pub(super) fn has_streams(&self) -> bool {
        !self.streams.is_empty()
    }

    /// What the guard stands for: tensor and slab. The caller gives it back.
    pub(super) fn into_held(mut self) -> (u64, u64) {
        self.is_given_back = true;
        (self.generation(), self.number("slab"))
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        let held = (self.generation(), self.number("slab"));
        match &self.streams[..] {
            _ if self.is_given_back => {}
            [] => self.store.give_back(&[held]),
            streams => self.store.give_back_after(held, self.device(), streams),
        }
    }
}
