//! A policy tried on a trace: cold, then warm.

use std::sync::Arc;

use crate::playback::{Pass, Playback, ReplayError};
use crate::policies::build;
use crate::trace::Trace;
use poolscope_gpu::{Config, Device, Stream};

/// One pass of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialPass {
    /// What it did.
    pub pass: Pass,
    /// Nanoseconds that went by on the device's own clock: on the simulated one, what the driver's calls cost.
    pub device_time: u64,
}

/// All passes of a policy over a trace. The first one is cold: the policy has no memory then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The policy's name.
    pub policy: &'static str,
    /// At least one.
    pub passes: Vec<TrialPass>,
}

impl Trial {
    /// Runs a trace so many times, at least once, on a policy that begins with no memory.
    /// `None` if there is no such policy.
    pub fn run<D: Device>(
        policy: &str,
        config: &Config,
        device: &Arc<D>,
        streams: Vec<Stream>,
        trace: &Trace,
        passes: usize,
    ) -> Option<Result<Trial, ReplayError>> {
        let begun = device.now();
        let policy = match build(policy, device.clone(), config)? {
            Ok(policy) => policy,
            Err(error) => return Some(Err(ReplayError { line: 0, error })),
        };
        let mut playback = Playback::new(trace, streams);
        let mut trial = Trial { policy: policy.name(), passes: Vec::with_capacity(passes) };
        // What making the policy cost is part of the first pass.
        let mut then = begun;
        for _ in 0..passes.max(1) {
            match policy.pass(&mut playback) {
                Ok(pass) => trial.passes.push(TrialPass { pass, device_time: device.now() - then }),
                Err(error) => return Some(Err(error)),
            }
            then = device.now();
        }
        Some(Ok(trial))
    }

    /// The first pass.
    pub fn cold(&self) -> &TrialPass {
        &self.passes[0]
    }

    /// The passes that count as warm: the second half of those after the first, or the first where it is the only one.
    /// A policy that learns has learnt by then.
    pub fn warm(&self) -> &[TrialPass] {
        &self.passes[self.passes.len() / 2..]
    }

    /// The median of a figure over the warm passes.
    pub fn warm_median(&self, figure: impl Fn(&TrialPass) -> f64) -> f64 {
        let mut figures: Vec<f64> = self.warm().iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        let middle = figures.len() / 2;
        if figures.len() % 2 == 1 { figures[middle] } else { f64::midpoint(figures[middle - 1], figures[middle]) }
    }

    /// Nanoseconds an operation by the device's own clock, over all warm passes together.
    pub fn warm_device_time(&self) -> f64 {
        let operations: u64 = self.warm().iter().map(|it| it.pass.operations).sum();
        self.warm().iter().map(|it| it.device_time).sum::<u64>() as f64 / operations.max(1) as f64
    }

    /// Calls to the driver for a thousand operations, over all warm passes together.
    pub fn warm_calls_per_thousand(&self) -> f64 {
        let sum = |of: fn(&Pass) -> u64| self.warm().iter().map(|it| of(&it.pass)).sum::<u64>() as f64;
        sum(|pass| pass.driver_calls) * 1000.0 / sum(|pass| pass.operations).max(1.0)
    }

    /// The most bytes that were held in any pass.
    pub fn peak_reserved(&self) -> u64 {
        self.passes.iter().map(|it| it.pass.peak_reserved).max().unwrap_or(0)
    }
}
