//! Who holds a device's memory, in line with what its pool has counted (`poolscope_wire::holders`).

use poolscope_wire::DeviceCounter;
use poolscope_wire::holders::{Sampled, Settlement};

use crate::model::profile::{Profile, Site};
use crate::model::snapshot::DevicePool;

/// What a call site holds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    /// Bytes, as the pool counts blocks.
    pub bytes: f64,
    /// Their standard error; 0 where every block is recorded.
    pub error: f64,
}

/// How the samples of one pool of device memory are brought into line with its counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Holders {
    /// Bytes that the pool has given out.
    pub in_use: u64,
    /// What the samples say of all call sites.
    pub sampled: Sampled,
    settlement: Settlement,
}

impl Holders {
    /// For a pool, and the profile of its process.
    pub fn of(profile: &Profile, pool: &DevicePool) -> Holders {
        let mut all = Sampled::NONE;
        let is_here = |site: &&Site| site.place == pool.place;
        profile.sites.iter().filter(is_here).for_each(|site| all.join(&sampled(site)));
        let in_use = pool.get(DeviceCounter::CurrentUsage);
        Holders { in_use, sampled: all, settlement: Settlement::new(&all, in_use) }
    }

    /// What a call site holds.
    pub fn held(&self, site: &Site) -> Held {
        let sampled = sampled(site);
        Held { bytes: self.settlement.bytes(&sampled), error: sampled.error() }
    }

    /// Bytes that are in use and that no call site accounts for.
    pub fn unattributed(&self) -> f64 {
        self.settlement.unattributed
    }
}

/// What the samples say of a call site.
fn sampled(site: &Site) -> Sampled {
    let mut sampled = Sampled::NONE;
    for held in site.held.iter().filter(|held| held.amount.samples > 0) {
        let blocks = held.amount.samples as f64;
        sampled.add(held.size, blocks, held.amount.objects / blocks);
    }
    sampled
}

#[cfg(test)]
mod tests {
    use poolscope_wire::DEVICE_COUNTERS;

    use super::*;
    use crate::model::memory::Place;
    use crate::model::profile::Held as HeldBlocks;
    use crate::model::snapshot::Amount;

    fn site(size: u64, samples: u64, weight: f64) -> Site {
        let objects = samples as f64 * weight;
        let amount = Amount { objects, bytes: objects * size as f64, samples };
        let held = vec![HeldBlocks { size, tid: 1, amount }];
        Site { place: Place::Device(1), in_use: amount, held: held.into(), ..Site::default() }
    }

    #[test]
    fn call_sites_come_to_what_the_pool_has_given_out() {
        let (exact, rough, other) = (site(3 << 20, 4, 1.0), site(4096, 16, 1000.0), site(1 << 30, 1, 1.0));
        let other = Site { place: Place::Device(0), ..other };
        let profile = Profile { sites: vec![exact.clone(), rough.clone(), other], ..Profile::default() };
        let mut counters = vec![0; DEVICE_COUNTERS.len()];
        for in_use in [40u64 << 20, 70 << 20, 200 << 20] {
            counters[DeviceCounter::CurrentUsage as usize] = in_use;
            let pool = DevicePool { place: Place::Device(1), counters: counters.clone(), ..DevicePool::default() };
            let holders = Holders::of(&profile, &pool);
            let (first, second) = (holders.held(&exact), holders.held(&rough));
            assert_eq!(first, Held { bytes: f64::from(12 << 20), error: 0.0 });
            assert!((first.bytes + second.bytes + holders.unattributed() - in_use as f64).abs() < 1.0, "{holders:?}");
            assert!(second.error > 0.15 * second.bytes && (holders.unattributed() > 0.0) == (in_use == 200 << 20));
        }
    }
}
