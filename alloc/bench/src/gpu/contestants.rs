//! Who takes part, and where.

use poolscope_replay::policies;

/// The device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The simulated one.
    Simulated,
    /// A CUDA device, by its number.
    Cuda(u32),
}

impl Place {
    /// As it is written on the command line.
    pub fn argument(self) -> String {
        match self {
            Place::Simulated => "sim".to_owned(),
            Place::Cuda(ordinal) => ordinal.to_string(),
        }
    }
}

pub fn parse_place(text: &str) -> Result<Place, String> {
    match text {
        "sim" => Ok(Place::Simulated),
        number => {
            number.parse().map(Place::Cuda).map_err(|_| "write sim, or the number of a device, from 0".to_owned())
        }
    }
}

/// The memory of the simulated device, in bytes: an H200's.
pub const SIMULATED_MEMORY: u64 = 140 << 30;

/// How a contestant is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The pool, on a card, its blocks sampled into this process's segment.
    Pool,
    /// The same without a recorder.
    Unrecorded,
    /// A placement policy, on the simulated device.
    Policy,
    /// The pool by `poolscope_gpu.h`, as programs in C use it.
    Plugin,
    /// The driver's `cuMemAlloc`.
    Malloc,
    /// The driver's `cuMemAllocAsync`.
    MallocAsync,
    /// A library with the functions of `peers/peer.h`.
    Library(&'static str),
    /// CuPy's pool, whose blocks are objects of Python: it has no other interface.
    Cupy,
}

/// One allocator.
#[derive(Clone, Copy, Debug)]
pub struct Contestant {
    pub name: &'static str,
    pub kind: Kind,
    pub what: &'static str,
    /// Set in its process.
    pub environment: &'static [(&'static str, &'static str)],
}

/// The pool's name on a card.
pub const OURS: &str = "poolscope";
/// The pool's name among the policies.
pub const OUR_POLICY: &str = "tiered";

/// All of them, the pool first.
pub fn all(place: Place) -> Vec<Contestant> {
    let contestant = |name, kind, what| Contestant { name, kind, what, environment: &[] };
    if place == Place::Simulated {
        let policy = |name| contestant(name, Kind::Policy, policies::describe(name).unwrap_or_default());
        return policies::NAMES.into_iter().map(policy).collect();
    }
    let (torch, rmm) = (Kind::Library("libtorch_peer.so"), Kind::Library("librmm_peer.so"));
    // The variable's old and new name.
    const EXPANDABLE: &[(&str, &str)] =
        &[("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"), ("PYTORCH_ALLOC_CONF", "expandable_segments:True")];
    vec![
        contestant(OURS, Kind::Pool, "the pool as it comes, linked; blocks are sampled into the segment"),
        contestant("unrecorded", Kind::Unrecorded, "the same without a recorder"),
        contestant("poolscope-c", Kind::Plugin, "the same as the first by libpoolscope_gpu.so"),
        contestant("cudaMalloc", Kind::Malloc, "cuMemAlloc and cuMemFree"),
        contestant("cudaMallocAsync", Kind::MallocAsync, "the driver's default pool, told to keep what it has"),
        contestant("torch", torch, "PyTorch's caching allocator"),
        Contestant {
            environment: EXPANDABLE,
            ..contestant("torch-expandable", torch, "the same with expandable_segments")
        },
        contestant("rmm-pool", rmm, "RMM's pool on cudaMalloc, 2 MiB at first"),
        contestant("rmm-arena", rmm, "RMM's arena of 32 GiB"),
        contestant("rmm-binning", rmm, "RMM's bins of 256 KiB to 4 MiB, on its pool"),
        contestant("rmm-async", rmm, "cudaMallocAsync as RMM uses it"),
        contestant("cupy", Kind::Cupy, "CuPy's MemoryPool, called from Python: it has no other interface"),
    ]
}
