//! The heap as it was when the process had most host memory in use.
//!
//! A process writes its peak down when its memory begins to fall (`poolscope_cpu`'s sampler); while it grows, its peak is
//! now. Which blocks there were is not kept, only how much each stack had.

use crate::profile::{Profile, Site};
use crate::snapshot::{HOST, Snapshot};

/// When a process had most host memory in use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peak {
    /// Bytes in use, estimated from samples unless the profile is exact. The true peak is higher by a 32nd at most, beside
    /// the error of the samples.
    pub bytes: f64,
    /// Nanoseconds after the start of the process's segment; `None` if it is now.
    pub after_ns: Option<u64>,
}

impl Peak {
    /// Finds the peak of a snapshot, in which `sites` have what the process wrote down. If more is in use now, the peak
    /// is now, and the sites get that.
    pub(crate) fn find(snapshot: &Snapshot, sites: &mut [Site]) -> Peak {
        let host = |sites: &[Site], of: fn(&Site) -> f64| -> f64 {
            sites.iter().filter(|site| site.kind == HOST).map(of).sum()
        };
        let now = host(sites, |site| site.in_use.bytes);
        if let Some(peak) = snapshot.peak
            && peak.bytes as f64 > now
        {
            let after_ns = peak.time_ns.saturating_sub(snapshot.process.start_monotonic_ns);
            return Peak { bytes: host(sites, |site| site.peak.bytes), after_ns: Some(after_ns) };
        }
        sites.iter_mut().for_each(|site| site.peak = site.in_use);
        Peak { bytes: now, after_ns: None }
    }

    /// `12.5 s after the start`, or `now`.
    pub fn when(&self) -> String {
        match self.after_ns {
            Some(ns) => format!("{:.1} s after the start", ns as f64 / 1e9),
            None => "now".to_owned(),
        }
    }
}

impl Profile {
    /// The profile as it was at the peak: what is in use is what was in use then. `None` if that is not known.
    pub fn at_peak(&self) -> Option<Profile> {
        let peak = self.peak?;
        let mut then = self.clone();
        then.comments.push(format!("in use is what was in use at the peak, {}", peak.when()));
        for site in &mut then.sites {
            site.in_use = site.peak;
            // Their sizes and threads are those of now.
            if peak.after_ns.is_some() {
                site.held.clear();
            }
        }
        then.sites.sort_by(|a, b| b.in_use.bytes.total_cmp(&a.in_use.bytes));
        Some(then)
    }
}
