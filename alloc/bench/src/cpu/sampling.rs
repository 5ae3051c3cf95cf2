//! What sampling costs: the pool with it and without it, in pairs of short runs one right after the other, so that
//! whatever slows the machine slows both. A row's cost is the median of its pairs' ratios.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use poolscope_bench::Result;
use poolscope_bench::progress::progress;
use poolscope_bench::statistics::{Spread, notch};

use crate::catalogue::{Family, How, Row};
use crate::measure::Programs;
use crate::peers::{Allocator, Role};

const PAIRS: usize = 11;
/// Of one run.
const RUN: Duration = Duration::from_millis(40);
/// Of one run of several threads, or of large blocks.
const LONG_RUN: Duration = Duration::from_millis(100);

/// The cost in one row.
#[derive(Serialize)]
pub struct RowCost {
    pub id: String,
    /// Time with sampling as a ratio to time without.
    pub ratio: Spread,
    /// Within this of the median lies the true ratio, nineteen times out of twenty (the notch of a box plot).
    pub uncertainty: f64,
}

impl RowCost {
    /// By how many per cent sampling slows the row.
    pub fn percent(&self) -> f64 {
        (self.ratio.median - 1.0) * 100.0
    }
}

impl fmt::Display for RowCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:+.1}% ± {:.1}", self.id, self.percent(), self.uncertainty * 100.0)
    }
}

/// The cost of one sample, in nanoseconds.
#[derive(Serialize)]
pub struct SampleCost {
    /// Mean bytes between two samples.
    pub period: u64,
    pub nanoseconds: f64,
    /// As in [`RowCost`].
    pub uncertainty: f64,
}

impl fmt::Display for SampleCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SampleCost { period, nanoseconds, uncertainty } = self;
        write!(f, "{nanoseconds:.0} ± {uncertainty:.0} ns with a period of {} KiB", period >> 10)
    }
}

/// What this part of the run found.
#[derive(Serialize)]
pub struct Sampling {
    pub rows: Vec<RowCost>,
    pub samples: Vec<SampleCost>,
}

/// `None` if the pool does not take part in both forms.
pub fn measure(rows: &[Row], allocators: &[Allocator], programs: &Programs) -> Option<Result<Sampling>> {
    let find = |role| allocators.iter().find(|allocator| allocator.role == role);
    let (on, off) = (find(Role::Ours)?, find(Role::SamplingOff)?);
    let result = costs(rows, on, off, programs).and_then(|rows| {
        Ok(Sampling { rows, samples: vec![sample(512, on, off, programs)?, sample(16, on, off, programs)?] })
    });
    progress("");
    Some(result)
}

fn costs(rows: &[Row], on: &Allocator, off: &Allocator, programs: &Programs) -> Result<Vec<RowCost>> {
    let mut costs = Vec::new();
    for row in rows {
        let How::Workload { args, .. } = &row.how else { continue };
        let single = matches!(row.family(), Family::Lifo | Family::Batch | Family::Random);
        let aligned = matches!(row.family(), Family::AlignedLifo | Family::AlignedBatch);
        // One alignment of each size will do.
        if aligned && args[1] != args[2] {
            continue;
        }
        progress(&format!("sampling on and off, {}", row.id));
        let duration = if single || aligned { RUN } else { LONG_RUN };
        let ratios = pairs(|| {
            let [on, off] = [on, off].map(|allocator| nanoseconds(programs, args, duration, allocator));
            Ok(on? / off?)
        })?;
        let ratio = Spread::of(&ratios).ok_or("no pairs")?;
        costs.push(RowCost { id: row.id.clone(), ratio, uncertainty: notch(&ratios) });
    }
    Ok(costs)
}

/// From blocks of 1 KiB, with `kibibytes` between two samples, and as many samples as that makes.
fn sample(kibibytes: u32, on: &Allocator, off: &Allocator, programs: &Programs) -> Result<SampleCost> {
    progress(&format!("the cost of a sample, one in {kibibytes} KiB"));
    let mut on = on.clone();
    on.environment.push(("POOLSCOPE_PERIOD".to_owned(), format!("{kibibytes}K")));
    on.environment.push(("POOLSCOPE_SAMPLE_RATE".to_owned(), "0".to_owned()));
    let args = ["lifo", "1024"].map(str::to_owned);
    let costs = pairs(|| {
        let [on, off] = [&on, off].map(|allocator| nanoseconds(programs, &args, RUN, allocator));
        // So many blocks of 1 KiB lie between two samples.
        Ok((on? - off?) * f64::from(kibibytes))
    })?;
    let cost = Spread::of(&costs).ok_or("no pairs")?;
    Ok(SampleCost { period: u64::from(kibibytes) << 10, nanoseconds: cost.median, uncertainty: notch(&costs) })
}

fn pairs(one: impl FnMut() -> Result<f64>) -> Result<Vec<f64>> {
    std::iter::repeat_with(one).take(PAIRS).collect()
}

fn nanoseconds(programs: &Programs, args: &[String], duration: Duration, allocator: &Allocator) -> Result<f64> {
    programs.workload(args, duration, allocator)?.remove("ns").ok_or("no time was printed".to_owned())
}
