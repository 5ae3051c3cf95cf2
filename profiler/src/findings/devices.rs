//! Memory of devices that is held and cannot be had.

use poolscope_wire::{DeviceCounter, cell};

use crate::findings::{Facts, Finding, Severity, Subject};
use crate::model::snapshot::DevicePool;
use crate::words::figures::{bytes, count};

/// Nobody needs to know of less.
const LEAST: u64 = 16 << 20;

/// The memory of a pool, as a sentence begins with it.
pub(super) fn sentence_begin(pool: &DevicePool) -> String {
    let memory = pool.place.memory().describe();
    let memory = memory.strip_prefix("of ").unwrap_or(&memory);
    let mut letters = memory.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Requests for which there was no memory.
pub(super) fn requests_refused(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    for pool in facts.snapshot.devices.iter().filter(|pool| pool.get(DeviceCounter::LadderRefused) > 0) {
        let refused = pool.get(DeviceCounter::LadderRefused);
        let (in_use, free) = (pool.get(DeviceCounter::CurrentUsage), pool.get(DeviceCounter::Free));
        findings.push(Finding {
            severity: Severity::Alarm,
            rule: "device_refused",
            sentence: format!(
                "{}: {} found no memory; {} are in use now, {} free, the largest free piece has {}.",
                sentence_begin(pool),
                count(refused, "request"),
                bytes(in_use as f64),
                bytes(free as f64),
                bytes(pool.get(DeviceCounter::LargestHole) as f64)
            ),
            evidence: vec![
                ("refused", refused as f64),
                ("in_use_bytes", in_use as f64),
                ("free_bytes", free as f64),
                ("largest_free_bytes", pool.get(DeviceCounter::LargestHole) as f64),
            ],
            subject: Subject::Device(pool.place),
        });
    }
}

/// Free memory in pieces that are too small for what was asked for.
pub(super) fn free_in_pieces(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    for pool in &facts.snapshot.devices {
        let (wasted, held) = (pool.get(DeviceCounter::FragmentationBytes), pool.get(DeviceCounter::Held));
        if wasted < LEAST || wasted < held / 10 {
            continue;
        }
        let largest = pool.get(DeviceCounter::LargestHole);
        findings.push(Finding {
            severity: Severity::Warning,
            rule: "device_fragmented",
            sentence: format!(
                "{}: {} of the free memory cannot serve the largest recent request, for the largest free piece has {}; \
                 POOLSCOPE_GPU_DEFRAG_THRESHOLD says when it is put together.",
                sentence_begin(pool),
                bytes(wasted as f64),
                bytes(largest as f64)
            ),
            evidence: vec![
                ("fragmented_bytes", wasted as f64),
                ("largest_free_bytes", largest as f64),
                ("held_bytes", held as f64),
            ],
            subject: Subject::Device(pool.place),
        });
    }
}

/// Freed memory that waits for work on its stream.
pub(super) fn pending(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    for pool in &facts.snapshot.devices {
        let cells = pool.cells.iter().filter(|&&what| what == cell::PENDING).count() as u64;
        let (waits, held) = (cells.saturating_mul(pool.cell_bytes), pool.get(DeviceCounter::Held));
        if waits < LEAST || waits < held / 10 {
            continue;
        }
        findings.push(Finding {
            severity: Severity::Note,
            rule: "device_pending",
            sentence: format!(
                "{}: about {} were freed and wait for the work of a stream that used them; they can be had once it is \
                 done, or on that stream at once.",
                sentence_begin(pool),
                bytes(waits as f64)
            ),
            evidence: vec![("pending_bytes", waits as f64), ("held_bytes", held as f64)],
            subject: Subject::Device(pool.place),
        });
    }
}

#[cfg(test)]
mod tests {
    use poolscope_wire::DEVICE_COUNTERS;

    use super::*;
    use crate::findings::testing::{calm, of_rule};
    use crate::model::memory::Place;
    use crate::model::snapshot::Snapshot;

    const MIB: u64 = 1 << 20;

    fn device(counters: &[(DeviceCounter, u64)], pending: usize) -> Snapshot {
        let mut pool = DevicePool {
            place: Place::Device(1),
            counters: vec![0; DEVICE_COUNTERS.len()],
            cells: [vec![cell::PENDING; pending], vec![cell::LARGE; 100 - pending]].concat(),
            cell_bytes: 2 * MIB,
            ..DevicePool::default()
        };
        pool.counters[DeviceCounter::Held as usize] = 200 * MIB;
        counters.iter().for_each(|&(counter, value)| pool.counters[counter as usize] = value);
        Snapshot { devices: vec![pool], ..calm() }
    }

    fn sentence(snapshot: &Snapshot, rule: &str) -> Option<String> {
        of_rule(&Facts::of(snapshot, None).findings(), rule).first().map(|finding| finding.sentence.clone())
    }

    #[test]
    fn a_healthy_device_is_no_matter() {
        let snapshot = device(&[(DeviceCounter::FragmentationBytes, MIB), (DeviceCounter::Free, 50 * MIB)], 3);
        assert!(Facts::of(&snapshot, None).findings().is_empty());
    }

    #[test]
    fn refused_requests_are_said() {
        let counters = [(DeviceCounter::LadderRefused, 2), (DeviceCounter::LargestHole, 22 * MIB)];
        let said = sentence(&device(&counters, 0), "device_refused").expect("is said");
        assert!(said.starts_with("Device 1: 2 requests found no memory"), "{said}");
        assert!(said.ends_with("the largest free piece has 22.0 MiB."), "{said}");
    }

    #[test]
    fn free_memory_in_pieces_is_said() {
        let counters = [(DeviceCounter::FragmentationBytes, 80 * MIB), (DeviceCounter::LargestHole, 6 * MIB)];
        let said = sentence(&device(&counters, 0), "device_fragmented").expect("is said");
        assert!(said.starts_with("Device 1: 80.0 MiB of the free memory"), "{said}");
    }

    #[test]
    fn memory_that_waits_for_a_stream_is_said() {
        let said = sentence(&device(&[], 30), "device_pending").expect("is said");
        assert!(said.starts_with("Device 1: about 60.0 MiB were freed and wait"), "{said}");
        assert_eq!(sentence(&device(&[], 9), "device_pending").map(|_| ()), None);
    }
}
