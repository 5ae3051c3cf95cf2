//! What of a reading is looked at, in every view alike: which moment, compared with which, what was allocated in which
//! time, and by which filter. A lens makes a model of a model; views draw the one that they get.

pub(crate) mod kept;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use poolscope_profiler::Memory;
use poolscope_profiler::build::language;
use poolscope_profiler::model::difference::Difference;
use poolscope_profiler::model::holders::Held;
use poolscope_profiler::model::memory::Place;
use poolscope_profiler::model::profile::Profile;
use poolscope_profiler::model::snapshot::{Amount, LiveBlock};
use poolscope_wire::DeviceCounter;

use crate::dashboard::input::filter::{Figures, Filter};
use crate::dashboard::model::site::{SiteRow, SiteRows};
use crate::dashboard::model::{Model, listed};
use crate::words::numbers;
use kept::{Kept, seconds};

/// What the present is compared with.
#[derive(Clone, Debug, Default)]
pub(crate) enum Base {
    /// Nothing.
    #[default]
    None,
    /// The moment that was marked.
    Mark,
    /// So many seconds ago.
    Ago(u32),
    /// The first reading.
    First,
    /// The peak.
    Peak,
    /// A profile in a file, by its name.
    File(String, Arc<Profile>),
}

/// What is looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lens {
    /// The moment when most was in use, not now.
    pub(crate) at_peak: bool,
    /// What it is compared with.
    pub(crate) base: Base,
    /// Only what was allocated between these, in seconds of `CLOCK_MONOTONIC`.
    pub(crate) range: Option<(f64, f64)>,
    /// Only what this is about.
    pub(crate) filter: Arc<Filter>,
}

/// Why something can't be shown, for the user.
pub(crate) type Why = String;

impl Lens {
    /// Nothing is left out or compared.
    pub(crate) fn is_clear(&self) -> bool {
        !self.at_peak && matches!(self.base, Base::None) && self.range.is_none() && self.filter.is_empty()
    }

    /// The base in words, and how bytes in use have changed since; none without a base.
    pub(crate) fn compared(&self, model: &Model, kept: &Kept) -> Option<(String, Option<f64>)> {
        let now = seconds(model);
        let age = |at: f64| numbers::duration(Duration::from_secs_f64((now - at).max(0.0)));
        let since = |what: &str, moment: Option<&Arc<kept::Moment>>| match moment {
            Some(moment) => {
                let changed = model.live_bytes() - moment.live_bytes;
                (format!("{what}{} ago", age(moment.at_s)), Some(changed))
            }
            None => (format!("{what}: nothing is known of it"), None),
        };
        Some(match &self.base {
            Base::None => return None,
            Base::Mark => since("the mark, ", kept.mark.as_ref()),
            Base::First => since("the first reading, ", kept.first.as_ref()),
            Base::Ago(wanted) => since("", kept.ago(now, f64::from(*wanted))),
            Base::Peak => {
                let most = model.snapshot.most();
                ("the peak".to_owned(), most.map(|most| model.live_bytes() - most.bytes as f64))
            }
            Base::File(name, profile) => {
                let then = profile.totals_of(model.whole.usual_memory()).in_use.bytes;
                // What its samples say of both: the pool's counter has what it rounds up to, too.
                (name.clone(), Some(model.live.bytes - then))
            }
        })
    }

    /// Whether more was in use once than is now, and the segment has who had it.
    pub(crate) fn has_past_peak(model: &Model) -> bool {
        let peak = model.whole.peak_of(model.whole.usual_memory());
        peak.is_some_and(|peak| peak.after_ns.is_some())
    }

    /// When the peak was, in words; why it is not known.
    pub(crate) fn peak_of(model: &Model) -> Result<String, Why> {
        let memory = model.whole.usual_memory();
        let peak = model.whole.peak_of(memory).or_else(|| {
            let of_device = model.whole.device_peaks.iter().find(|(_, peak)| peak.after_ns.is_some());
            of_device.map(|&(_, peak)| peak)
        });
        let peak = peak.ok_or("the segment has no peak with its call sites")?;
        Ok(match peak.after_ns {
            None => "which is now: more was never in use".to_owned(),
            Some(after) => format!("{} after the start", numbers::duration(Duration::from_nanos(after))),
        })
    }

    /// The model of what is looked at.
    pub(crate) fn through(&self, model: &Model, kept: &Kept) -> Model {
        let mut out = Model { flame: None, listed: None, filter: Arc::clone(&self.filter), ..model.clone() };
        if self.at_peak {
            at_peak(&mut out);
        }
        if self.range.is_some() || self.filter.names_threads() || self.filter.names_classes() {
            self.only_blocks(&mut out);
        }
        self.compare(&mut out, kept);
        if !self.filter.is_empty() {
            let moment = out.snapshot.moment_ns();
            let sites = self.filter.of(&out.profile);
            let figures = |row: &SiteRow| Figures {
                size: row.in_use.bytes,
                growth: row.clear_slope(),
                age: moment.filter(|_| row.oldest_ns > 0).map(|now| now.saturating_sub(row.oldest_ns) as f64 / 1e9),
            };
            out.sites.retain(|row| sites.has(row.index, &figures(row)));
        }
        out.listed = listed::of(&out.sites);
        out.live = sum(&out.sites);
        out.live_variance = out.sites.iter().map(|row| row.in_use_variance).sum();
        out
    }

    /// Leaves the blocks in use that were allocated in the range, by the threads and of the classes that are meant.
    fn only_blocks(&self, out: &mut Model) {
        let tids: Option<HashSet<u32>> = self.filter.names_threads().then(|| {
            let named =
                out.threads.iter().filter(|thread| self.filter.has_thread(thread.name.as_deref(), thread.stats.tid));
            named.map(|thread| thread.stats.tid).collect()
        });
        let class_of = |size: u64| {
            let classes = out.snapshot.classes.iter().map(|class| class.block_bytes);
            classes.filter(|&bytes| bytes >= size).min().unwrap_or(0)
        };
        let is_meant = |block: &LiveBlock| {
            let at = block.time_ns as f64 / 1e9;
            self.range.is_none_or(|(from, to)| (from..=to).contains(&at))
                && tids.as_ref().is_none_or(|tids| tids.contains(&block.tid))
                && (!self.filter.names_classes() || self.filter.has_class(class_of(block.size)))
        };
        let mut in_use = vec![(Amount::default(), 0.0); out.whole.sites.len()];
        let meant: Arc<[bool]> = out.snapshot.live.iter().map(is_meant).collect();
        for (block, _) in out.snapshot.live.iter().zip(meant.iter()).filter(|(_, is_meant)| **is_meant) {
            if let Some(&Some(site)) = out.site_of_stacks.get(block.stack as usize) {
                in_use[site].0 += block.amount();
                in_use[site].1 += block.variance();
            }
        }
        out.blocks = Some(meant);
        let memory = out.whole.usual_memory();
        let is_all = out.profile.sites.len() == out.whole.sites.len();
        let shown: Vec<(Amount, f64)> = out
            .whole
            .sites
            .iter()
            .zip(in_use)
            .filter(|(site, _)| is_all || memory.has(site.place))
            .map(|(_, amount)| amount)
            .collect();
        for row in &mut out.sites {
            (row.in_use, row.in_use_variance) = shown.get(row.index).copied().unwrap_or_default();
        }
        out.sites.retain(|row| row.in_use.bytes > 0.0);
    }

    fn compare(&self, out: &mut Model, kept: &Kept) {
        let now = seconds(out);
        let moment = match &self.base {
            Base::None => return,
            Base::Mark => kept.mark.as_ref(),
            Base::First => kept.first.as_ref(),
            Base::Ago(wanted) => kept.ago(now, f64::from(*wanted)),
            Base::Peak => {
                for row in &mut out.sites {
                    let peak = out.profile.sites.get(row.index).map(|site| site.peak).unwrap_or_default();
                    let objects = row.in_use.objects - peak.objects;
                    row.change = Some(Box::new([row.in_use.bytes - peak.bytes, objects, 0.0, 0.0]));
                }
                return;
            }
            Base::File(_, base) => return compare_with_file(out, base),
        };
        for row in &mut out.sites {
            let then = moment.map(|moment| moment.figures(row.key));
            let figures = row.figures();
            let change = std::array::from_fn(|at| {
                // As it was kept: what is the same has not changed by what was rounded.
                then.map_or(0.0, |then| f64::from(figures[at] as f32 - then[at]))
            });
            row.change = Some(Box::new(change));
        }
    }
}

/// Matched by the names of functions: the file may be of another process, or of another build.
fn compare_with_file(out: &mut Model, base: &Profile) {
    let memory = out.whole.usual_memory();
    let (mut before, mut after) = (base.only(memory), Profile::clone(&out.profile));
    for profile in [&mut before, &mut after] {
        language::hide_interpreter(profile);
    }
    let difference = Difference::new(&before, &after);
    let mut merged = difference.to_profile();
    let mut changes = Vec::with_capacity(merged.sites.len());
    let mut now = std::collections::HashMap::new();
    for path in &difference.paths {
        let site = path.after.first().or(path.before.first());
        let place = site.map_or(Place::Host, |site| site.place);
        let mut amounts = (Amount::default(), Amount::default());
        path.after.iter().for_each(|site| {
            amounts.0 += site.in_use;
            amounts.1 += site.allocated;
        });
        now.insert((path.path.clone(), place), amounts);
    }
    for at in 0..merged.sites.len() {
        let site = &merged.sites[at];
        changes.push([site.in_use.bytes, site.in_use.objects, site.allocated.bytes, site.allocated.objects]);
        let amounts = now.get(&(merged.path(site), site.place)).copied().unwrap_or_default();
        (merged.sites[at].in_use, merged.sites[at].allocated) = amounts;
    }
    out.sites = SiteRows::default().next(&merged, None);
    out.sites.iter_mut().zip(changes).for_each(|(row, change)| row.change = Some(Box::new(change)));
    out.runtime = Arc::new(crate::dashboard::model::runtime::Runtime::of(&merged));
    out.profile = Arc::new(merged);
}

fn sum(sites: &[SiteRow]) -> Amount {
    let mut sum = Amount::default();
    sites.iter().for_each(|row| sum += row.in_use);
    sum
}

/// As it was when most was in use: of each memory at the peak of its own.
fn at_peak(out: &mut Model) {
    out.at_peak = true;
    for row in &mut out.sites {
        row.in_use = out.profile.sites.get(row.index).map(|site| site.peak).unwrap_or_default();
        (row.growth, row.rate, row.oldest_ns) = (None, None, 0);
    }
    out.sites.retain(|row| row.in_use.bytes > 0.0);
    if let Some(most) = out.snapshot.most() {
        out.in_use = out.in_use.map(|_| most.bytes);
    }
    (out.memory, out.rates, out.trend) = (None, None, None);
    for device in &mut out.devices {
        let counter = DeviceCounter::CurrentUsage as usize;
        let peak = device.pool.get(DeviceCounter::PeakUsage);
        if let Some(in_use) = device.pool.counters.get_mut(counter) {
            *in_use = peak;
        }
        let memory: Memory = device.pool.place.memory();
        let Some(profile) = out.whole.only(memory).at_peak() else { continue };
        // Which blocks there were is not kept, only what each call site had, by the samples: no more than was counted.
        let sampled = profile.totals_of(memory).in_use.bytes;
        let share = if sampled > peak as f64 { peak as f64 / sampled } else { 1.0 };
        let held = |row: &SiteRow| Held { bytes: row.in_use.bytes * share, error: 0.0 };
        let mut rows: Vec<(Held, SiteRow)> =
            SiteRows::default().next(&profile, None).into_iter().map(|row| (held(&row), row)).collect();
        rows.retain(|(held, _)| held.bytes > 0.0);
        rows.sort_by(|(a, _), (b, _)| b.bytes.total_cmp(&a.bytes));
        (device.held, device.sites) = rows.into_iter().unzip();
        device.unattributed = (peak as f64 - sampled * share).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::model::fixture;
    use poolscope_profiler::Metric;

    fn lens(filter: &str) -> Lens {
        Lens { filter: Arc::new(Filter::parse(filter).expect("is a filter")), ..Lens::default() }
    }

    fn kept(text: &str) -> Vec<String> {
        let model = fixture::model();
        let filter = Filter::parse(text).expect("is a filter");
        let sites = filter.of(&model.profile);
        let figures = |row: &SiteRow| Figures { size: row.in_use.bytes, growth: row.clear_slope(), age: None };
        let rows = model.sites.iter().take(7).filter(|row| sites.has(row.index, &figures(row)));
        rows.map(|row| row.text.function.to_string()).collect()
    }

    #[test]
    fn each_term_looks_at_its_own() {
        assert_eq!(kept("fn:remember"), ["kv::session::Session::remember"]);
        assert_eq!(kept("file:session.rs"), ["kv::session::Session::remember"]);
        assert!(kept("fn:session.rs").is_empty());
        assert_eq!(kept("module:libssl"), ["[libssl.so.3+0x1240]"]);
        assert_eq!(kept("size>30M size<50M"), ["kv::session::Session::remember"]);
        assert_eq!(kept("grow>1M"), ["kv::session::Session::remember"]);
        assert_eq!(kept("fn:kv -fn:store -file:log -wire"), ["kv::session::Session::remember"]);
        assert_eq!(kept("\"char const\"").len(), 1);
        assert_eq!(kept("").len(), 7);
        assert!(kept("RawVec").contains(&"kv::store::Store::put".to_owned()), "plumbing can be looked for, too");
    }

    #[test]
    fn a_filter_leaves_what_it_is_about_in_every_figure() {
        let model = fixture::model();
        let seen = lens("fn:remember").through(&model, &Kept::default());
        assert!(seen.sites.len() < model.sites.len());
        let bytes: f64 = seen.sites.iter().map(|row| row.in_use.bytes).sum();
        assert!(seen.live.bytes == bytes && bytes > 41.0 * 1048576.0 && bytes < 43.0 * 1048576.0, "{bytes}");
        assert!(seen.flame.is_none(), "the tree is another");
        assert_eq!(seen.live_bytes(), model.live_bytes(), "the counter counts everything");
    }

    #[test]
    fn a_change_is_what_is_now_less_what_was() {
        let mut model = fixture::model();
        // Of the others some have the same stack.
        model.sites.truncate(7);
        let mut kept = Kept::default();
        kept.take(&model);
        kept.mark(&model);
        let mark = Lens { base: Base::Mark, ..Lens::default() };
        assert!(mark.through(&model, &kept).sites.iter().all(|row| row.change == Some(Box::new([0.0; 4]))));
        model.sites[1].in_use.bytes += 1e6;
        let seen = mark.through(&model, &kept);
        assert!((seen.sites[1].changed().expect("compared") - 1e6).abs() < 8.0);
        let (words, _) = mark.compared(&model, &kept).expect("a base");
        assert!(words.starts_with("the mark, "), "{words}");
    }

    #[test]
    fn a_file_is_matched_by_names_and_what_is_gone_is_negative() {
        let model = fixture::model();
        let mut base = fixture::profile();
        base.sites.remove(1);
        let mut changed = model.clone();
        let removed = changed.sites.remove(0);
        let mut profile = Profile::clone(&changed.profile);
        profile.sites.remove(removed.index);
        changed.profile = Arc::new(profile);
        let lens = Lens { base: Base::File("yesterday".into(), Arc::new(base)), ..Lens::default() };
        let seen = lens.through(&changed, &Kept::default());
        let of = |name: &str| {
            let row = seen.sites.iter().find(|row| row.text.function.contains(name)).expect("is there");
            row.change.as_ref().expect("compared")[Metric::InUseBytes as usize]
        };
        assert!(of("remember") > 40e6, "it is new");
        assert!(of("Store::put") < -96e6, "it is gone");
    }

    /// The pool's counter has what blocks are rounded up to; the file has what the program asked for.
    #[test]
    fn nothing_has_changed_since_a_file_of_the_same_moment() {
        let model = fixture::model();
        assert!((model.live_bytes() - model.live.bytes).abs() > 1e5, "counted and sampled differ");
        let base = Base::File("now".into(), Arc::clone(&model.whole));
        let (name, changed) = Lens { base, ..Lens::default() }.compared(&model, &Kept::default()).expect("compared");
        assert_eq!((name.as_str(), changed.map(f64::abs).map(|change| change < 1.0)), ("now", Some(true)));
    }

    #[test]
    fn at_the_peak_each_site_has_what_it_had_then() {
        let mut model = fixture::model();
        let mut profile = Profile::clone(&model.profile);
        for (at, site) in profile.sites.iter_mut().enumerate() {
            site.peak = Amount { bytes: at as f64 * 1000.0, objects: at as f64, samples: 1 };
        }
        model.profile = Arc::new(profile);
        let seen = Lens { at_peak: true, ..Lens::default() }.through(&model, &Kept::default());
        assert_eq!(seen.sites.len(), model.sites.len() - 1, "the first had nothing");
        assert!(seen.sites.iter().all(|row| row.in_use.bytes == row.index as f64 * 1000.0));
        assert_eq!(seen.live_bytes(), model.snapshot.most().expect("a peak").bytes as f64);
        assert!(Lens::peak_of(&model).is_err(), "the fixture has none with call sites");
    }

    #[test]
    fn a_range_has_what_was_allocated_in_it_and_is_alive() {
        let mut model = fixture::model();
        let snapshot = Arc::make_mut(&mut model.snapshot);
        let block = |second: u64, tid| LiveBlock {
            time_ns: second * 1_000_000_000,
            size: 200,
            weight: 10.0,
            tid,
            stack: tid,
            ..LiveBlock::default()
        };
        snapshot.live = vec![block(10, 0), block(20, 1), block(30, 1), block(40, 0)];
        model.site_of_stacks = vec![Some(0), Some(1)].into();
        let range = Lens { range: Some((15.0, 35.0)), ..Lens::default() };
        let seen = range.through(&model, &Kept::default());
        assert_eq!(seen.sites.len(), 1);
        assert_eq!((seen.sites[0].index, seen.sites[0].in_use.bytes), (1, 4000.0));
        let class = lens("class:208").through(&model, &Kept::default());
        assert_eq!(class.live.bytes, 8000.0);
    }
}
