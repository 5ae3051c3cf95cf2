//! What others learn of a pool: counters, pictures, samples and calls. This folder knows no tier; the tiers tell it.

pub mod hooks;
mod map;
mod recorder;
pub mod sampling;
mod stats;

pub use map::{Cells, Map, Piece, cell_bytes};
pub use recorder::{NoRecorder, Picture, Recorder, Sample, Token};
pub use stats::Stats;
