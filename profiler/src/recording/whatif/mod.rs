//! What other ways to place blocks of the host's memory would hold of a recorded program.
//!
//! Blocks are placed as each policy would place them, event by event; nothing is touched. A page counts as held from
//! the first block that lies in it until the policy gives it back. What a pool needs for itself is left out.

mod best_fit;
mod slabs;

use crate::model::memory::Place;
use crate::recording::file::reader::{RecordingError, RecordingReader};
use crate::recording::replay::{Happening, Replay};

use best_fit::BestFit;
use slabs::{Order, Rules, Slabs};

/// Bytes of the kernel's page.
const PAGE: usize = 4096;

/// A way to place blocks.
trait Policy {
    /// Places a block with a number that no block in use has.
    fn allocate(&mut self, number: u32, size: usize, thread: u32);
    /// Takes a block away.
    fn free(&mut self, number: u32);
    /// Bytes that it holds now.
    fn held(&self) -> usize;
}

/// What a policy would hold, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The policy, in words.
    pub label: String,
    /// At most.
    pub peak: u64,
    /// On average, for each byte that was in use.
    pub mean: f64,
    /// At the recording's end.
    pub end: u64,
}

/// What policies would hold of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIf {
    /// Allocations and frees.
    pub operations: u64,
    /// Bytes asked for, at most.
    pub peak_live: u64,
    /// The same at the recording's end.
    pub end_live: u64,
    /// Each policy, that of the pool first.
    pub policies: Vec<Outcome>,
}

/// A policy that is tried, with what it held so far.
struct Trial {
    label: String,
    policy: Box<dyn Policy>,
    peak: usize,
    sum: f64,
}

fn candidates() -> Vec<Trial> {
    let pool = Rules::POOL;
    let fullest = |slab, least| Rules { slab, least, ..Rules::FULLEST };
    let slabs = |label: &str, rules: Rules| (label.to_owned(), Box::new(Slabs::new(rules)) as Box<dyn Policy>);
    let all = [
        slabs("the pool, as it comes", pool),
        slabs(
            "POOLSCOPE_GOAL=memory",
            Rules { idle_part: Some(128), thin_part: Some(64), cache_part: 128, small_cache: 0, ..pool },
        ),
        slabs("POOLSCOPE_GOAL=speed", Rules { idle_part: None, thin_part: None, cache_part: 4, ..pool }),
        slabs("the pool, pages between blocks stay", Rules { thin_part: None, ..pool }),
        slabs("the pool, 4 blocks a slab of long ones, too", Rules { few_long: false, ..pool }),
        slabs("the pool, 32 blocks a slab", Rules { least: 32, few_long: false, ..pool }),
        slabs("the pool, the fullest slab first", Rules { order: Order::Fullest, ..pool }),
        slabs("fullest first, slabs of 64 KiB, 4 blocks", fullest(64 << 10, 4)),
        slabs("fullest first, slabs of 16 KiB, 4 blocks", fullest(16 << 10, 4)),
        slabs("fullest first, slabs of 4 KiB, 4 blocks", fullest(4 << 10, 4)),
        slabs("pages without a block go back at once", Rules { thin_part: Some(usize::MAX), ..fullest(64 << 10, 4) }),
        ("best fit, as in the C library".to_owned(), Box::new(BestFit::default()) as Box<dyn Policy>),
    ];
    all.into_iter().map(|(label, policy)| Trial { label, policy, peak: 0, sum: 0.0 }).collect()
}

/// Places the host's blocks of a recording as each policy would. What a part of it has in use at its end is freed
/// there.
pub fn run(reader: &mut RecordingReader) -> Result<WhatIf, RecordingError> {
    let mut trials = candidates();
    let (mut operations, mut live, mut peak_live, mut sum_live) = (0u64, 0u64, 0u64, 0.0);
    // Bytes by number; `None` of one that is not in use.
    let mut sizes: Vec<Option<u64>> = Vec::new();
    let mut part = 0;
    Replay::run(reader, u64::MAX, |state, happening| {
        if state.part != part {
            part = state.part;
            for number in (0..sizes.len() as u32).filter(|number| sizes[*number as usize].is_some()) {
                trials.iter_mut().for_each(|trial| trial.policy.free(number));
            }
            sizes.clear();
            live = 0;
        }
        if state.memories[state.memory].0 != Place::Host {
            return true;
        }
        let Some(number) = state.number else { return true };
        let at = number as usize;
        match happening {
            Happening::Alloc(block) => {
                sizes.resize(sizes.len().max(at + 1), None);
                if sizes[at].replace(block.size).is_some() {
                    return true;
                }
                live += block.size;
                trials.iter_mut().for_each(|it| it.policy.allocate(number, block.size as usize, block.thread));
            }
            Happening::Free(..) | Happening::FreeLost(..) => {
                let Some(size) = sizes.get_mut(at).and_then(Option::take) else { return true };
                live -= size;
                trials.iter_mut().for_each(|it| it.policy.free(number));
            }
            Happening::Unfollowed(_) | Happening::FreeUnknown(_) => return true,
        }
        operations += 1;
        peak_live = peak_live.max(live);
        sum_live += live as f64;
        for trial in &mut trials {
            let held = trial.policy.held();
            trial.peak = trial.peak.max(held);
            trial.sum += held as f64;
        }
        true
    })?;
    let outcome = |trial: Trial| Outcome {
        label: trial.label,
        peak: trial.peak as u64,
        mean: if sum_live > 0.0 { trial.sum / sum_live } else { 0.0 },
        end: trial.policy.held() as u64,
    };
    Ok(WhatIf { operations, peak_live, end_live: live, policies: trials.into_iter().map(outcome).collect() })
}
