//! The call sites of a profile as text.

use std::fmt::Write as _;
use std::time::Duration;

use crate::build::by_names;
use crate::build::site_name::site_text;
use crate::findings::Facts;
use crate::model::growth::{Growth, SHORTEST_NS};
use crate::model::memory::Memory;
use crate::model::profile::{Frame, Metric, Profile, Site};
use crate::model::snapshot::Amount;
use crate::words::figures;

/// The call sites of a process: whose they are, then for each of its memories who has most in use,
/// and who allocated most.
pub fn sites_text(profile: &Profile, rows: usize) -> String {
    let mut text: String = profile.comments.iter().map(|comment| format!("{comment}\n")).collect();
    let mut memories: Vec<Memory> = profile.sites.iter().map(Site::memory).collect();
    memories.sort_by_key(|memory| memory.describe());
    memories.dedup();
    if memories.is_empty() {
        memories.push(Memory::Host);
    }
    for memory in memories {
        let part = by_names::merged(profile.only(memory));
        let totals = part.totals();
        let of = memory.describe();
        // Pinned memory is described as memory already.
        let of = match of.strip_prefix("of memory") {
            Some(rest) => rest.to_owned(),
            None if of.is_empty() => of,
            None => format!(" {of}"),
        };
        let amount = |amount: Amount| {
            let objects = figures::count(figures::whole(amount.objects), "object");
            format!("{} in {objects}", figures::bytes(amount.bytes))
        };
        let _ = writeln!(text, "\nMemory{of} in use: {}", amount(totals.in_use));
        text += &top_text(&part, Metric::InUseBytes, rows);
        let _ = writeln!(text, "\nMemory{of} allocated since the start: {}", amount(totals.allocated));
        text += &top_text(&part, Metric::AllocatedBytes, rows);
    }
    text
}

/// The call sites of a process that was watched: those whose memory grows or shrinks by more than two standard errors,
/// the fastest first.
pub fn growth_text(facts: &Facts<'_>, profile: &Profile, rows: usize) -> String {
    let watched = figures::duration(Duration::from_nanos(facts.watched_ns));
    let mut sites = by_names::with_growths(profile, facts.growths);
    sites.retain(|(_, growth)| growth.slope.is_clear());
    sites.sort_by(|(_, a), (_, b)| b.slope.per_minute().total_cmp(&a.slope.per_minute()));
    let longest = facts.growths.iter().map(|growth| growth.over_ns).max().unwrap_or(0);
    let before = match longest > facts.watched_ns {
        true => format!("; of what frees little, over the last {}", figures::duration(Duration::from_nanos(longest))),
        false => String::new(),
    };
    let mut text = format!("\nGrowth, watched for {watched}{before}\n");
    if sites.is_empty() {
        text += match facts.watched_ns < SHORTEST_NS {
            true => "That is too short to say what grows.\n",
            false => "No call site grows or shrinks by more than may be chance.\n",
        };
        return text;
    }
    let _ =
        writeln!(text, "{:>12} {:>10} {:>10} {:>8}        site, bytes a minute", "a minute", "±", "in use", "oldest");
    for (site, Growth { slope, .. }) in sites.iter().take(rows) {
        let moment = facts.snapshot.moment_ns().filter(|_| site.oldest_ns > 0);
        let age = moment.map_or_else(String::new, |moment| {
            figures::duration(Duration::from_nanos(moment.saturating_sub(site.oldest_ns)))
        });
        let sign = if slope.per_minute() > 0.0 { "+" } else { "" };
        let _ = writeln!(
            text,
            "{:>12} {:>10} {:>10} {age:>8} {:<6} {}",
            format!("{sign}{}", figures::bytes(slope.per_minute())),
            figures::bytes(slope.error()),
            figures::bytes(site.in_use.bytes),
            if slope.grows() { "grows" } else { "" },
            site_text(profile, site, CALLERS),
        );
    }
    if sites.len() > rows {
        let _ = writeln!(text, "and {}", figures::count((sites.len() - rows) as u64, "other site"));
    }
    text
}

/// Callers that name a site, beside the function itself.
const CALLERS: usize = 3;

/// A table of the `rows` largest call sites.
fn top_text(profile: &Profile, metric: Metric, rows: usize) -> String {
    let mut sites: Vec<&Site> = profile.sites.iter().filter(|site| metric.of(site) > 0.0).collect();
    sites.sort_by(|a, b| metric.of(b).total_cmp(&metric.of(a)));
    let total: f64 = sites.iter().map(|site| metric.of(site)).sum();
    let mut text = String::new();
    if sites.is_empty() {
        let _ = writeln!(text, "No {}.", metric.describe());
        return text;
    }
    let _ = writeln!(
        text,
        "{:>10} {:>12} {:>10} {:>12} {:>6}  site, by {}",
        "in use",
        "objects",
        "allocated",
        "objects",
        "share",
        metric.describe()
    );
    for site in sites.iter().take(rows) {
        let _ = writeln!(
            text,
            "{:>10} {:>12} {:>10} {:>12} {:>5.1}%  {}",
            figures::bytes(site.in_use.bytes),
            figures::grouped(figures::whole(site.in_use.objects)),
            figures::bytes(site.allocated.bytes),
            figures::grouped(figures::whole(site.allocated.objects)),
            100.0 * metric.of(site) / total,
            site_text(profile, site, CALLERS),
        );
    }
    if sites.len() > rows {
        let rest: f64 = sites[rows..].iter().map(|site| metric.of(site)).sum();
        let _ = writeln!(
            text,
            "and {} with {:.1}%",
            figures::count((sites.len() - rows) as u64, "other site"),
            100.0 * rest / total
        );
    }
    text
}

/// `name  file:line`.
pub(crate) fn frame_text(frame: &Frame) -> String {
    match frame.source() {
        Some(source) => format!("{}  {source}", frame.name),
        None => frame.name.clone(),
    }
}
