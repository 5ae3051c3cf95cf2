//! The heap as it was when the process had most memory in use, of the host or of a device.
//!
//! A process writes its peak down when its memory begins to fall (`poolscope_cpu`'s sampler); while it grows, its peak
//! is now. Which blocks there were is not kept, only how much each stack had.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::memory::{Memory, Place};
use crate::model::profile::{Peak, Profile, Site};
use crate::model::snapshot::{PeakMoment, Snapshot};

impl Peak {
    /// Finds the peaks of a snapshot, in which `sites` have what the process wrote down: that of host memory, and those
    /// of devices' memories. Where more is in use now, the peak is now, and the sites get that.
    pub(crate) fn find(snapshot: &Snapshot, sites: &mut [Site]) -> (Peak, Vec<(Memory, Peak)>) {
        let host = Peak::of(snapshot, sites, Memory::Host, snapshot.peak);
        let of_device = sites.iter().filter_map(|site| Some((site.place.device()?, site.place)));
        let places: BTreeSet<(u32, Place)> = of_device.collect();
        let devices = places.into_iter().map(|(_, place)| {
            let known = snapshot.device_peaks.iter().find(|peak| peak.place == place);
            let memory = place.memory();
            (memory, Peak::of(snapshot, sites, memory, known.map(|peak| peak.moment)))
        });
        let devices = devices.collect();
        (host, devices)
    }

    fn of(snapshot: &Snapshot, sites: &mut [Site], memory: Memory, moment: Option<PeakMoment>) -> Peak {
        let of = |sites: &[Site], figure: fn(&Site) -> f64| -> f64 {
            sites.iter().filter(|site| memory.has(site.place)).map(figure).sum()
        };
        let now = of(sites, |site| site.in_use.bytes);
        if let Some(peak) = moment.filter(|peak| peak.bytes as f64 > now) {
            let after_ns = peak.time_ns.saturating_sub(snapshot.process.start_monotonic_ns);
            return Peak { bytes: of(sites, |site| site.peak.bytes), after_ns: Some(after_ns) };
        }
        let of_memory = sites.iter_mut().filter(|site| memory.has(site.place));
        of_memory.for_each(|site| site.peak = site.in_use);
        Peak { bytes: now, after_ns: None }
    }
}

impl Profile {
    /// The peak of a memory: of the host, or of one device. `None` if it is not known.
    pub fn peak_of(&self, memory: Memory) -> Option<Peak> {
        let host = self.peak?;
        match memory {
            Memory::Host | Memory::All => Some(host),
            memory => self.device_peaks.iter().find(|(of, _)| *of == memory).map(|&(_, peak)| peak),
        }
    }

    /// When the peak of some memory was, for titles: `at its peak, 12.5 s after the start`. `None` if it is not known.
    pub fn when_at_peak(&self, memory: Memory) -> Option<String> {
        match (self.peak_of(memory), self.peak) {
            (Some(peak), _) => Some(format!("at its peak, {}", peak.when())),
            // Several devices, or one that nothing is known of.
            (None, Some(_)) => Some("each device at its own peak".to_owned()),
            (None, None) => None,
        }
    }

    /// The profile as it was at the peak: what is in use is what was in use then, of each memory at the peak of its
    /// own. `None` if that is not known.
    pub fn at_peak(&self) -> Option<Profile> {
        let peak = self.peak?;
        let mut then = self.clone();
        then.comments.push(format!("in use is what was in use at the peak, {}", peak.when()));
        for (memory, peak) in &self.device_peaks {
            then.comments.push(format!("memory {} is at its own peak, {}", memory.describe(), peak.when()));
        }
        for site in &mut then.sites {
            site.in_use = site.peak;
            // Their sizes and threads are those of now.
            if self.peak_of(site.memory()).is_some_and(|peak| peak.after_ns.is_some()) {
                site.held = Arc::default();
            }
        }
        then.sites.sort_by(|a, b| b.in_use.bytes.total_cmp(&a.in_use.bytes));
        Some(then)
    }
}
