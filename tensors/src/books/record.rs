//! What is written down: entries, and how they change.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::identity::Identity;
use crate::wire::Transport;

/// A piece of physical memory that tensors lie in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlabEntry {
    /// Its number.
    pub id: u64,
    /// The device's number among those that the owner serves.
    pub device: u32,
    /// The device, everywhere.
    pub gpu_uuid: String,
    /// Its length.
    pub bytes: u64,
    /// How readers come to it.
    pub transport: Transport,
    /// The legacy handle, as base64.
    pub ipc_handle: String,
    /// The client that allocated it, if the owner did not.
    pub publisher: Option<u64>,
}

/// A tensor: one generation of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensor {
    /// Tells it from all others that have or had the name.
    pub generation: u64,
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: String,
    /// Elements in each dimension.
    pub shape: Vec<u64>,
    /// Elements from one to the next of each dimension.
    pub strides: Vec<u64>,
    /// Bytes in all.
    pub bytes: u64,
    /// The slab that it lies in.
    pub slab: u64,
    /// Where in it, in bytes.
    pub offset: u64,
    /// One for the name, and one for each reference. The name goes with the last.
    pub refcount: u64,
    /// What it is said to be.
    pub meta: Map<String, Value>,
    /// The user who created it.
    pub uid: u32,
    /// When it was created, in milliseconds since 1970.
    pub ctime: u64,
    /// When its entry last changed.
    pub mtime: u64,
    /// The client that is still writing it.
    pub draft_of: Option<u64>,
    /// The word that says when its contents are written, if a stream still writes them.
    pub ready: Option<Ready>,
    /// When it lost its name. Its memory stays for as long as anybody holds it.
    pub freed_at: Option<u64>,
}

/// A word in shared device memory, and the value from which on something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The word's number among those of the device.
    pub word: u64,
    /// What it has at least when it is done.
    pub value: u64,
    /// The client whose stream writes it.
    pub client: u64,
}

/// A process that holds references.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientEntry {
    /// Its number.
    pub id: u64,
    /// The process.
    pub who: Identity,
    /// Its user.
    pub uid: u32,
    /// Its program.
    pub program: String,
    /// Whether it came over Redis and has no pipe that ends with it.
    pub is_remote: bool,
    /// When it came, in milliseconds since 1970.
    pub since: u64,
}

impl Tensor {
    /// Whether it is the owner's own, which nobody gets by name.
    pub fn is_hidden(&self) -> bool {
        self.name.starts_with(HIDDEN)
    }
}

/// What names begin with that are the owner's own: no request may name such.
pub const HIDDEN: char = '\u{1}';

/// A change of the books.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// An owner began.
    Epoch {
        /// Its number.
        epoch: u64,
        /// The next number for what is made.
        next: u64,
    },
    /// A slab was made.
    Slab(SlabEntry),
    /// A slab was given up.
    SlabGone {
        /// Which.
        id: u64,
    },
    /// A tensor was made.
    Tensor(Tensor),
    /// References came or went.
    Count {
        /// Of which tensor.
        generation: u64,
        /// How many there are.
        refcount: u64,
        /// When.
        mtime: u64,
    },
    /// A draft was finished.
    Committed {
        /// Which.
        generation: u64,
        /// When.
        mtime: u64,
        /// What its readers' streams have to wait for.
        ready: Option<Ready>,
    },
    /// A tensor lost its name.
    Freed {
        /// Which.
        generation: u64,
        /// When.
        at: u64,
    },
    /// Nobody holds a tensor any more.
    Gone {
        /// Which.
        generation: u64,
    },
    /// A client came.
    Client(ClientEntry),
    /// A client ended.
    ClientGone {
        /// Which.
        id: u64,
    },
    /// How often a client holds a tensor. One record with the count of references: an owner that is killed leaves both
    /// or neither.
    Held {
        /// Which client.
        client: u64,
        /// Which tensor.
        generation: u64,
        /// How often.
        count: u64,
        /// How many references the tensor has in all then.
        refcount: u64,
    },
}
