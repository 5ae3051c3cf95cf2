//! What grows.

use std::time::Duration;

use poolscope_wire::DeviceCounter;

use crate::build::by_names;
use crate::build::language::Language;
use crate::build::site_name::SiteName;
use crate::findings::devices::sentence_begin;
use crate::findings::{Facts, Finding, Severity, Subject};
use crate::model::growth::{Growth, SHORTEST_NS, Slope};
use crate::model::profile::{Profile, Site};
use crate::model::snapshot::{Amount, ProcessState};
use crate::symbols::function_name::with_place;
use crate::words::figures::{bytes, duration};

/// Nobody needs to know of less, a minute.
const LEAST: f64 = 65_536.0;

/// Sites that are named at most.
const SITES: usize = 3;

/// The standard errors that the largest of `count` slopes must have, so that it is no chance: of many, one is high.
fn errors_needed(count: usize) -> f64 {
    ((2.0 * (count.max(1) as f64).ln()).sqrt() + 1.0).max(3.0)
}

fn a_minute(slope: Slope) -> String {
    format!("{} a minute (±{})", bytes(slope.per_minute()), bytes(slope.error()))
}

/// Twice as much as now within ten minutes is an alarm.
fn severity(slope: Slope, in_use: f64) -> Severity {
    if slope.per_minute() * 10.0 > in_use { Severity::Alarm } else { Severity::Warning }
}

/// What grows, as tables list it: call sites that no name tells apart are one.
struct Row {
    /// The one that grows most.
    site: usize,
    of_site: f64,
    growth: Growth,
    in_use: Amount,
    allocated: Amount,
}

impl Row {
    fn of_all(profile: &Profile, growths: &[Growth]) -> Vec<Row> {
        // To know all names takes a while, and only a language's can be the same.
        let is_meant =
            |(site, growth): (&Site, &Growth)| growth.slope.grows() && Language::of_site(profile, site).is_some();
        let row_of = profile.sites.iter().zip(growths).any(is_meant).then(|| by_names::rows_of(profile));
        let mut rows: Vec<Row> = Vec::new();
        for (at, (site, growth)) in profile.sites.iter().zip(growths).enumerate() {
            let row = row_of.as_ref().map_or(rows.len(), |row_of| row_of[at]);
            let of_site = growth.slope.per_minute();
            let Some(known) = rows.get_mut(row) else {
                let (in_use, allocated) = (site.in_use, site.allocated);
                rows.push(Row { site: at, of_site, growth: *growth, in_use, allocated });
                continue;
            };
            if of_site > known.of_site {
                (known.site, known.of_site) = (at, of_site);
            }
            known.growth.join(growth);
            known.in_use += site.in_use;
            known.allocated += site.allocated;
        }
        rows
    }

    fn for_good(&self) -> f64 {
        self.growth.slope.for_good(&self.in_use, &self.allocated)
    }
}

/// Call sites whose memory grows.
pub(super) fn sites_that_grow(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let Some(profile) = facts.profile else { return };
    let is_gone = facts.snapshot.process.state != ProcessState::Running;
    let mut growing = Row::of_all(profile, facts.growths);
    let tested = growing.iter().filter(|row| row.growth.slope.error() > 0.0).count();
    let needed = errors_needed(tested);
    growing.retain(|row| {
        let Growth { slope, over_ns, .. } = row.growth;
        over_ns >= SHORTEST_NS && slope.grows() && slope.errors() > needed && slope.per_minute() > LEAST
    });
    growing.sort_by(|a, b| b.for_good().total_cmp(&a.for_good()));
    for Row { site, growth: Growth { slope, over_ns, .. }, in_use, allocated, .. } in growing.into_iter().take(SITES) {
        let figures = &profile.sites[site];
        let name = SiteName::of(profile, figures);
        let name = name.map_or_else(|| "[no frames]".to_owned(), |name| with_place(name.function));
        let memory = match figures.memory().describe() {
            of if of.is_empty() => of,
            of => format!(" {of}"),
        };
        let freed = allocated.samples.saturating_sub(in_use.samples);
        let rest = if freed == 0 {
            "nothing of it was ever freed".to_owned()
        } else {
            format!("{} of it are in use", bytes(in_use.bytes))
        };
        let over = duration(Duration::from_nanos(over_ns));
        let (grows, end) = if is_gone { ("grew", " before the end") } else { ("grows", "") };
        findings.push(Finding {
            severity: severity(slope, in_use.bytes),
            rule: "site_grows",
            sentence: format!("{name} {grows} by {}{memory} over the last {over}{end}; {rest}.", a_minute(slope)),
            evidence: vec![
                ("growth_bytes_per_minute", slope.per_minute()),
                ("error_bytes_per_minute", slope.error()),
                ("in_use_bytes", in_use.bytes),
                ("samples", in_use.samples as f64),
            ],
            subject: Subject::Site(site),
        });
    }
}

/// Host memory that grows, where no call site can be blamed.
pub(super) fn memory_that_grows(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    let slope = facts.total;
    if facts.total_ns < SHORTEST_NS {
        return;
    }
    let is_explained = findings.iter().any(|finding| finding.rule == "site_grows");
    if is_explained || !slope.grows() || slope.per_minute() < LEAST {
        return;
    }
    let watched = duration(Duration::from_nanos(facts.total_ns));
    let rate = a_minute(slope);
    let sentence = if facts.snapshot.process.state != ProcessState::Running {
        format!("Memory in use grew by {rate} over the last {watched} before the end.")
    } else if facts.growths.is_empty() {
        format!("Memory in use grows by {rate} over the last {watched}: watch it (`poolscope top`) to see who.")
    } else {
        format!("Memory in use grows by {rate} over the last {watched}: no call site alone stands out yet.")
    };
    let in_use = facts.accounting.in_use as f64;
    findings.push(Finding {
        severity: severity(slope, in_use),
        rule: "memory_grows",
        sentence,
        evidence: vec![
            ("growth_bytes_per_minute", slope.per_minute()),
            ("error_bytes_per_minute", slope.error()),
            ("in_use_bytes", in_use),
        ],
        subject: Subject::Memory,
    });
}

/// Nobody needs to know of less of a device, a minute.
const LEAST_OF_DEVICE: f64 = 1_048_576.0;

/// Device memory that grows by its pool's counter, where no call site of it is blamed already.
pub(super) fn devices_that_grow(facts: &Facts<'_>, findings: &mut Vec<Finding>) {
    for &(place, slope) in facts.devices {
        let Some(pool) = facts.snapshot.devices.iter().find(|pool| pool.place == place) else { continue };
        let is_of_it = |finding: &&Finding| match (finding.rule, finding.subject, facts.profile) {
            ("site_grows", Subject::Site(site), Some(profile)) => {
                profile.sites.get(site).is_some_and(|site| site.place == place)
            }
            _ => false,
        };
        if !slope.grows() || slope.per_minute() < LEAST_OF_DEVICE || findings.iter().any(|found| is_of_it(&found)) {
            continue;
        }
        let in_use = pool.get(DeviceCounter::CurrentUsage) as f64;
        let watched = duration(Duration::from_nanos(facts.watched_ns));
        findings.push(Finding {
            severity: severity(slope, in_use),
            rule: "device_grows",
            sentence: format!(
                "{}: memory in use grows by {}, watched for {watched}; {} are in use, and no call site stands out yet.",
                sentence_begin(pool),
                a_minute(slope),
                bytes(in_use)
            ),
            evidence: vec![
                ("growth_bytes_per_minute", slope.per_minute()),
                ("error_bytes_per_minute", slope.error()),
                ("in_use_bytes", in_use),
            ],
            subject: Subject::Device(place),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::testing::{MIB, calm, of_rule, profile};
    use crate::model::testing;

    fn growth(per_minute: f64, error: f64) -> Growth {
        let slope = Slope::new(per_minute * MIB, error * MIB);
        Growth { slope, over_ns: 30_000_000_000, ..Growth::default() }
    }

    fn two_sites() -> Profile {
        let mut profile = profile(&[("main;app::serve;alloc::vec::push", 4.0 * MIB), ("main;app::parse", 9.0 * MIB)]);
        profile.sites[0].allocated = profile.sites[0].in_use;
        profile
    }

    #[test]
    fn a_site_that_grows_is_named_with_its_figures() {
        let (snapshot, profile) = (calm(), two_sites());
        let growths = [growth(41.0, 3.0), growth(0.5, 1.0)];
        let facts =
            Facts { profile: Some(&profile), growths: &growths, total: growths[0].slope, ..Facts::of(&snapshot, None) };
        let findings = facts.findings();
        let found = of_rule(&findings, "site_grows");
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].sentence,
            "app::serve (app::serve.c:2) grows by 41.0 MiB a minute (±3.00 MiB) over the last 30 s; nothing of it was ever \
             freed."
        );
        assert_eq!((found[0].subject, found[0].severity), (Subject::Site(0), Severity::Alarm));
        assert!(of_rule(&findings, "memory_grows").is_empty(), "it is explained");
    }

    #[test]
    fn a_line_of_python_that_grows_by_several_stacks_is_one() {
        let of_python = [
            ("main;eval;handle (app.py);list_resize", 4.0 * MIB),
            ("main;eval;handle (app.py);dict_new", 2.0 * MIB),
            ("main;eval;other (app.py);dict_new", 1.0 * MIB),
        ];
        let (snapshot, mut profile) = (calm(), profile(&of_python));
        profile.modules[0].path = "/usr/bin/python3.12".to_owned();
        testing::name_python(&mut profile);
        profile.sites.iter_mut().for_each(|site| site.allocated = site.in_use);
        profile.sites[1].allocated.samples += 5;
        let growths = [growth(41.0, 3.0), growth(9.0, 1.0), growth(0.1, 1.0)];
        let facts = Facts { profile: Some(&profile), growths: &growths, ..Facts::of(&snapshot, None) };
        let findings = facts.findings();
        let found = of_rule(&findings, "site_grows");
        let sentences: Vec<&str> = found.iter().map(|finding| finding.sentence.as_str()).collect();
        let sentence =
            "handle (app.py) grows by 50.0 MiB a minute (±3.16 MiB) over the last 30 s; 6.00 MiB of it are in use.";
        assert_eq!(sentences, [sentence]);
        assert_eq!(found[0].subject, Subject::Site(0));
    }

    #[test]
    fn what_is_never_freed_comes_before_what_grows_faster_while_half_of_it_is_freed() {
        let (snapshot, mut profile) = (calm(), two_sites());
        profile.sites[1].allocated = profile.sites[1].in_use;
        profile.sites[1].allocated.bytes *= 2.0;
        profile.sites[1].allocated.samples *= 2;
        let growths = [growth(41.0, 3.0), growth(61.0, 3.0)];
        let facts = Facts { profile: Some(&profile), growths: &growths, ..Facts::of(&snapshot, None) };
        let findings = facts.findings();
        let found: Vec<Subject> = of_rule(&findings, "site_grows").iter().map(|finding| finding.subject).collect();
        assert_eq!(found, [Subject::Site(0), Subject::Site(1)]);
    }

    #[test]
    fn chance_is_no_growth() {
        let (snapshot, profile) = (calm(), two_sites());
        for growths in [[growth(41.0, 20.0), growth(-9.0, 1.0)], [growth(0.01, 0.001), growth(0.0, 0.0)]] {
            let facts = Facts { profile: Some(&profile), growths: &growths, ..Facts::of(&snapshot, None) };
            assert!(of_rule(&facts.findings(), "site_grows").is_empty());
        }
        assert!(errors_needed(2) == 3.0 && errors_needed(20_000) > 5.0);
    }

    #[test]
    fn memory_that_grows_without_a_site_is_said_and_what_is_level_is_not() {
        let snapshot = calm();
        let facts = Facts { total_ns: 30_000_000_000, ..Facts::of(&snapshot, None) };
        let findings = Facts { total: Slope::new(2.0 * MIB, 0.1 * MIB), ..facts }.findings();
        let found = of_rule(&findings, "memory_grows");
        assert!(found[0].sentence.contains("grows by 2.00 MiB a minute"), "{}", found[0].sentence);
        assert!(found[0].sentence.contains("over the last 30 s"), "{}", found[0].sentence);
        for slope in [Slope::default(), Slope::new(2.0 * MIB, MIB), Slope::new(-MIB, 0.1)] {
            let facts = Facts { total: slope, total_ns: 30_000_000_000, ..Facts::of(&snapshot, None) };
            assert!(of_rule(&facts.findings(), "memory_grows").is_empty(), "{slope:?}");
        }
    }

    #[test]
    fn a_device_that_grows_is_said_once_and_one_that_is_level_is_not() {
        use crate::model::memory::Place;
        use crate::model::snapshot::DevicePool;

        let place = Place::Device(1);
        let counters = vec![0; poolscope_wire::DEVICE_COUNTERS.len()];
        let pool = DevicePool { place, counters, ..DevicePool::default() };
        let snapshot = crate::model::snapshot::Snapshot { devices: vec![pool], ..calm() };
        let mut profile = two_sites();
        profile.sites[0].place = place;
        let said = |slope: Slope, growths: &[Growth]| -> Vec<String> {
            let devices = [(place, slope)];
            let facts = Facts {
                profile: Some(&profile),
                devices: &devices,
                growths,
                watched_ns: 60_000_000_000,
                ..Facts::of(&snapshot, None)
            };
            facts
                .findings()
                .into_iter()
                .filter(|found| found.rule.ends_with("_grows"))
                .map(|found| found.sentence)
                .collect()
        };
        let grows = Slope::new(30.0 * MIB, 2.0 * MIB);
        let alone = said(grows, &[]);
        assert_eq!(alone.len(), 1, "{alone:?}");
        assert!(alone[0].starts_with("Device 1: memory in use grows by 30.0 MiB a minute (±2.00 MiB)"), "{alone:?}");
        let named = said(grows, &[growth(29.0, 3.0), growth(0.0, 1.0)]);
        assert!(named.len() == 1 && named[0].starts_with("app::serve"), "{named:?}");
        for level in [Slope::default(), Slope::new(30.0 * MIB, 15.0 * MIB), Slope::new(0.5 * MIB, 0.01 * MIB)] {
            assert!(said(level, &[]).is_empty(), "{level:?}");
        }
    }

    #[test]
    fn nothing_grows_in_a_time_that_is_too_short() {
        let (snapshot, profile) = (calm(), two_sites());
        let growths = [growth(41.0, 3.0), growth(0.5, 1.0)];
        let total = growths[0].slope;
        let rules = |over_ns: u64, growths: &[Growth]| -> Vec<&'static str> {
            let growths: Vec<Growth> = growths.iter().map(|growth| Growth { over_ns, ..*growth }).collect();
            let facts = Facts { total, total_ns: over_ns, growths: &growths, ..Facts::of(&snapshot, Some(&profile)) };
            let grow = |rule: &&'static str| rule.ends_with("_grows");
            facts.findings().iter().map(|finding| finding.rule).filter(grow).collect()
        };
        for short in [0, 40_000_000, SHORTEST_NS - 1] {
            assert_eq!((rules(short, &growths), rules(short, &[])), (vec![], vec![]), "{short} ns");
        }
        assert_eq!((rules(SHORTEST_NS, &growths), rules(SHORTEST_NS, &[])), (vec!["site_grows"], vec!["memory_grows"]));
    }

    #[test]
    fn who_is_gone_is_not_to_be_watched() {
        let (mut snapshot, profile) = (calm(), two_sites());
        snapshot.process.state = ProcessState::Killed;
        let growths = [growth(41.0, 3.0), growth(0.5, 1.0)];
        let facts = Facts { growths: &growths, ..Facts::of(&snapshot, Some(&profile)) };
        let findings = facts.findings();
        let sentence = &of_rule(&findings, "site_grows")[0].sentence;
        assert!(
            sentence.contains("grew by 41.0 MiB a minute (±3.00 MiB) over the last 30 s before the end"),
            "{sentence}"
        );
        let facts =
            Facts { total: Slope::new(2.0 * MIB, 0.1 * MIB), total_ns: 30_000_000_000, ..Facts::of(&snapshot, None) };
        let findings = facts.findings();
        let sentence = &of_rule(&findings, "memory_grows")[0].sentence;
        assert!(sentence.contains("grew by 2.00 MiB a minute") && sentence.ends_with("before the end."), "{sentence}");
    }
}
