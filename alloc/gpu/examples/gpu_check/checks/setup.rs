//! What every check begins with.

use poolscope_gpu::{Config, Cuda, Pool};

use crate::gpu::{Gpu, Result};

pub struct Settings {
    pub ordinal: u32,
    /// How long the threads run.
    pub seconds: u64,
}

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

pub fn pool(gpu: &Gpu, config: Config) -> Result<Pool<Cuda>> {
    Ok(Pool::new(gpu.cuda.clone(), config)?)
}

pub fn ensure(condition: bool, what: impl Into<String>) -> Result<()> {
    if condition { Ok(()) } else { Err(what.into().into()) }
}
