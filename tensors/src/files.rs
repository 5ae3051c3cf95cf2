//! Tensors from files of safetensors, and to them.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype as FileDtype, TensorView, serialize_to_file};
use serde_json::{Map, Value, json};

use crate::client::{NewTensor, Store, Tensor};
use crate::words::{Code, DTYPES, Dtype, Refusal};

/// Bytes that are copied at once.
const PART: usize = 64 << 20;
/// Under this key each tensor of a file has the file's own notes.
const NOTES: &str = "safetensors";
const NOTES_LIMIT: usize = 2048;

fn of_file(dtype: FileDtype) -> Result<&'static Dtype, Refusal> {
    let name = serde_json::to_value(dtype).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
    let known = DTYPES.iter().find(|dtype| dtype.safetensors == name);
    known
        .ok_or_else(|| Refusal::new(Code::BadDtype, format!("the file has elements of type {name}: no such are known")))
}

/// Makes a tensor for each one of a file, under `prefix/`; all become visible at once. Gives their names, and whether
/// the file's own notes were kept.
pub fn put_file(store: &Store, path: &Path, prefix: &str, device: u32) -> Result<(Vec<String>, bool), Refusal> {
    let shown = path.display();
    let bytes = map(path).map_err(|error| Refusal::system(&format!("{shown}"), error))?;
    let wrong = |error| Refusal::new(Code::BadField, format!("{shown} is no file of safetensors: {error}"));
    let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(wrong)?;
    let notes: Map<String, Value> =
        metadata.metadata().iter().flatten().map(|(key, value)| (key.clone(), json!(value))).collect();
    let are_kept = json!(notes).to_string().len() <= NOTES_LIMIT;
    let mut meta = Map::new();
    if !notes.is_empty() && are_kept {
        meta.insert(NOTES.into(), Value::Object(notes));
    }
    let file = SafeTensors::deserialize(&bytes).map_err(wrong)?;
    let mut created = Vec::new();
    for (name, view) in file.iter() {
        let name = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
        let shape: Vec<u64> = view.shape().iter().map(|n| *n as u64).collect();
        let dtype = of_file(view.dtype())?.name;
        let new = NewTensor { device, meta: meta.clone(), ..NewTensor::new(&name, dtype, &shape) };
        let tensor = store.create(&new)?;
        for (at, part) in view.data().chunks(PART).enumerate() {
            tensor.write((at * PART) as u64, part)?;
        }
        created.push(tensor);
    }
    let tensors = store.commit_all(created)?;
    let names = tensors.iter().map(|tensor| tensor.name().to_owned()).collect();
    store.release(tensors);
    Ok((names, are_kept))
}

/// The file's bytes, read as they are needed.
fn map(path: &Path) -> std::io::Result<Mapped> {
    use std::os::fd::AsRawFd;
    let file = File::open(path)?;
    let length = file.metadata()?.len() as usize;
    if length == 0 {
        return Ok(Mapped { address: std::ptr::null_mut(), length });
    }
    let (anywhere, fd) = (std::ptr::null_mut(), file.as_raw_fd());
    // SAFETY: a new mapping, read only. A file that is cut off while it is read ends this process, as with any reader
    // of a mapped file.
    let address = unsafe { libc::mmap(anywhere, length, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0) };
    if address == libc::MAP_FAILED { Err(std::io::Error::last_os_error()) } else { Ok(Mapped { address, length }) }
}

struct Mapped {
    address: *mut libc::c_void,
    length: usize,
}

impl std::ops::Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: the mapping is this long, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.address.cast(), self.length) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: the mapping is ours, and its slices are borrowed from `self`.
            unsafe { libc::munmap(self.address, self.length) };
        }
    }
}

/// Writes the tensors whose names begin with `prefix/`, or the one of this very name, into a file. Gives how many.
pub fn get_file(store: &Store, prefix: &str, path: &Path) -> Result<usize, Refusal> {
    let under = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    let mut tensors = store.get_many(&under)?;
    if tensors.is_empty() {
        tensors.push(store.get(prefix)?);
    }
    let name = |tensor: &Tensor| tensor.name().strip_prefix(&under).unwrap_or(tensor.name()).to_owned();
    let contents = tensors.iter().map(Tensor::to_vec).collect::<Result<Vec<_>, _>>()?;
    let mut views = Vec::new();
    for (tensor, bytes) in tensors.iter().zip(&contents) {
        let dtype = Dtype::named(tensor.dtype())?;
        let dtype: FileDtype = serde_json::from_value(json!(dtype.safetensors))
            .map_err(|_| Refusal::new(Code::BadDtype, format!("files have no elements of type {}", dtype.name)))?;
        let shape = tensor.shape().iter().map(|n| *n as usize).collect();
        let view = TensorView::new(dtype, shape, bytes);
        let view = view.map_err(|error| Refusal::system(tensor.name(), error))?;
        views.push((name(tensor), view));
    }
    let notes = tensors.iter().find_map(|tensor| tensor.meta()[NOTES].as_object());
    let notes: Option<HashMap<String, String>> = notes
        .map(|notes| notes.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect());
    serialize_to_file(views, notes, path).map_err(|error| Refusal::system(&path.display().to_string(), error))?;
    let count = tensors.len();
    drop(contents);
    store.release(tensors);
    Ok(count)
}
