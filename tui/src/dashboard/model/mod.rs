//! What the dashboard shows: one reading of a segment with rates, history and call sites. `--json` prints the same.

mod by_place;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod flame_path;
pub(crate) mod flame_tree;
pub(crate) mod history;
pub(crate) mod listed;
pub(crate) mod runtime;
pub(crate) mod site;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use poolscope_profiler::Memory;
use poolscope_profiler::findings::{Facts, Finding};
use poolscope_profiler::model::accounting::Accounting;
use poolscope_profiler::model::growth::{Growth, Slope, USUAL_WINDOW_NS};
use poolscope_profiler::model::history::Most;
use poolscope_profiler::model::holders::{Held, Holders};
use poolscope_profiler::model::memory::Place;
use poolscope_profiler::model::profile::Profile;
use poolscope_profiler::model::snapshot::{
    Amount, ClassStats, DevicePool, ProcessMemory, ProcessState, Snapshot, ThreadStats,
};
use poolscope_profiler::process::ending::Ending;
use poolscope_profiler::process::family::Child;
use poolscope_wire::{ClassCounter, CounterInfo, DeviceCounter, TIER_COUNTERS, TierCounter};

use crate::dashboard::input::filter::{Figures, Filter};
use crate::words::{called, file_name, printable};
use flame_path::USUAL;
use flame_tree::{FlameTree, Grower};
use history::{History, Point, Split};
use runtime::Runtime;
use site::{SiteRow, SiteRows, Trend};

/// One reading, ready to be drawn.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// What the segment said.
    pub(crate) snapshot: Arc<Snapshot>,
    /// Its call sites with symbols, of the memory that all views but that of devices show: the host's, unless the
    /// process has only other memory on the pool.
    pub(crate) profile: Arc<Profile>,
    /// The call sites of all memory.
    pub(crate) whole: Arc<Profile>,
    /// The call tree, as it is drawn at first; none where nobody looks at it, nor of sites that were chosen or compared
    /// since.
    pub(crate) flame: Option<Arc<FlameTree>>,
    /// Which functions are a language's runtime.
    pub(crate) runtime: Arc<Runtime>,
    /// The call site of each stack, as a place in the profile of all memory.
    pub(crate) site_of_stacks: Arc<[Option<usize>]>,
    /// Between the start of the segment and this reading; none of a process that was dead when it was first read.
    pub(crate) uptime: Option<Duration>,
    /// Held now, over all sites: an estimate from the samples.
    pub(crate) live: Amount,
    /// The variance of its bytes, bytes squared.
    pub(crate) live_variance: f64,
    /// Bytes in use by the pool's own counters, of the memory that the profile is of; none if nobody counts them.
    pub(crate) in_use: Option<u64>,
    /// Where the memory of the process is.
    pub(crate) accounting: Accounting,
    /// The most that was in use, and when; none if nobody counts.
    pub(crate) most: Option<Most>,
    /// How the bytes in use have developed in the last minutes; none if that was too short to say.
    pub(crate) trend: Option<Slope>,
    /// What a person should know, the most important first.
    pub(crate) findings: Vec<Finding>,
    /// The processes that it started and that run, the largest first.
    pub(crate) family: Vec<Kin>,
    /// Changes since the reading before; none in the first.
    pub(crate) rates: Option<Rates>,
    /// The kernel's view, the last one that was had.
    pub(crate) memory: Option<ProcessMemory>,
    /// Counters of the tiers.
    pub(crate) tiers: Vec<TierRow>,
    /// Size classes that were ever used.
    pub(crate) classes: Vec<ClassRow>,
    /// Thread heaps.
    pub(crate) threads: Vec<ThreadRow>,
    /// Call sites.
    pub(crate) sites: Vec<SiteRow>,
    /// The same as tables list them; none if that is one by one.
    pub(crate) listed: Option<Arc<[SiteRow]>>,
    /// Pools of device memory.
    pub(crate) devices: Vec<DeviceRow>,
    /// Totals over time.
    pub(crate) history: History,
    /// By what the sites were chosen; empty if they are all there.
    pub(crate) filter: Arc<Filter>,
    /// Which of the snapshot's live blocks are meant; none if all are.
    pub(crate) blocks: Option<Arc<[bool]>>,
    /// It is as it was when most was in use.
    pub(crate) at_peak: bool,
    /// How the process ended, as far as anybody says.
    pub(crate) ending: Option<Ending>,
    /// The executable that has its number now, if another one has.
    pub(crate) successor: Option<String>,
}

/// Changes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    /// Bytes allocated: see [`allocated_per_second`].
    pub(crate) alloc_bytes: f64,
    /// Blocks allocated, from the counters of the classes.
    pub(crate) allocs: f64,
    /// Samples taken.
    pub(crate) samples: f64,
}

/// A counter of a tier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TierRow {
    /// Which.
    pub(crate) info: &'static CounterInfo,
    /// Its value.
    pub(crate) value: u64,
    /// Change per second; none in the first reading.
    pub(crate) rate: Option<f64>,
}

/// A size class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassRow {
    /// Its counters.
    pub(crate) stats: ClassStats,
    /// Allocations per second.
    pub(crate) rate: Option<f64>,
}

/// A thread heap.
#[derive(Clone, Debug)]
pub(crate) struct ThreadRow {
    /// Its counters.
    pub(crate) stats: ThreadStats,
    /// The thread's name, as the kernel knows it.
    pub(crate) name: Option<String>,
    /// Allocations per second.
    pub(crate) rate: Option<f64>,
    /// Bytes of the host's that it allocated and that are in use, by the samples; whoever has them now.
    pub(crate) in_use: f64,
}

/// A pool of device memory.
#[derive(Clone, Debug)]
pub(crate) struct DeviceRow {
    /// What it published last.
    pub(crate) pool: DevicePool,
    /// Calls to the driver per second; none in the first reading.
    pub(crate) calls_per_s: Option<f64>,
    /// In use and held over time.
    pub(crate) history: History,
    /// Its call sites, the largest first.
    pub(crate) sites: Vec<SiteRow>,
    /// What each of them holds, in line with the pool's counter.
    pub(crate) held: Vec<Held>,
    /// Bytes in use that no call site accounts for.
    pub(crate) unattributed: f64,
}

impl ThreadRow {
    /// Allocations that the thread cache was asked for.
    pub(crate) fn asked(&self) -> u64 {
        self.stats.allocs.saturating_sub(self.stats.uncached_allocs)
    }

    /// Share of these that it served; none where nobody counted refills.
    pub(crate) fn hit_rate(&self) -> Option<f64> {
        let (asked, refills) = (self.asked(), self.stats.refills);
        (asked > 0 && refills > 0).then(|| 1.0 - refills.min(asked) as f64 / asked as f64)
    }
}

impl Model {
    /// Bytes in use: by the counters, or else by the samples.
    pub(crate) fn live_bytes(&self) -> f64 {
        self.in_use.map_or(self.live.bytes, |bytes| bytes as f64)
    }

    /// Whether the bytes in use are an estimate.
    pub(crate) fn live_is_estimate(&self) -> bool {
        self.in_use.is_none() && !self.snapshot.exact
    }

    /// Standard error of what the call sites that are shown hold together, as a share of it; none when exact, or if
    /// nobody knows, as of the peak.
    pub(crate) fn live_error(&self) -> Option<f64> {
        (!self.snapshot.exact && self.live.samples > 0).then(|| self.live_variance.sqrt() / self.live.bytes)
    }

    /// Call sites as tables list them.
    pub(crate) fn listed(&self) -> &[SiteRow] {
        self.listed.as_deref().unwrap_or(&self.sites)
    }

    /// The call sites of all memory that are shown, with the figures that they are shown with. Of devices, those that
    /// the filter is about.
    pub(crate) fn shown(&self) -> Profile {
        let rows: HashMap<u64, &SiteRow> = self.sites.iter().map(|row| (row.key, row)).collect();
        let memory = self.whole.usual_memory();
        let by_name = self.filter.of(&self.whole);
        let mut shown = Profile::clone(&self.whole);
        let mut at = 0;
        shown.sites.retain_mut(|site| {
            at += 1;
            if !memory.has(site.place) {
                return by_name.has(at - 1, &Figures { size: site.in_use.bytes, ..Figures::default() });
            }
            let row = rows.get(&site::key_of(&self.whole, site));
            row.is_some_and(|row| {
                site.in_use = row.in_use;
                true
            })
        });
        shown
    }

    /// It is of a recording or of a profile in a file: there is no segment, and nobody counted what the pool kept.
    pub(crate) fn is_recorded(&self) -> bool {
        self.snapshot.segment_bytes == 0
    }

    /// The program runs no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.snapshot.process.state != ProcessState::Running
    }

    /// It is of a profile in a file: of no process, and of no time.
    pub(crate) fn is_of_a_file(&self) -> bool {
        self.is_recorded() && self.snapshot.process.pid == 0
    }

    /// How long ago something was allocated, in nanoseconds; none if that is not known. Of a process that is gone
    /// nothing gets older.
    pub(crate) fn age_ns(&self, allocated_ns: u64) -> Option<u64> {
        let moment = self.snapshot.moment_ns().filter(|_| allocated_ns != 0)?;
        Some(moment.saturating_sub(allocated_ns))
    }

    /// A counter of the tiers.
    pub(crate) fn tier(&self, counter: TierCounter) -> u64 {
        self.snapshot.tiers.get(counter)
    }

    /// The program's name: the file name of its first argument, as it was called, or of its executable. (Several
    /// programs are links to one file: redis-server is redis-check-rdb on Debian.)
    pub(crate) fn program(&self) -> String {
        let process = &self.snapshot.process;
        let path = process.args.first().filter(|called| !called.is_empty()).unwrap_or(&process.exe);
        printable(file_name(path))
    }

    /// The command line: the program's name and its arguments.
    pub(crate) fn command(&self) -> String {
        let program = self.program();
        let arguments = self.snapshot.process.args.iter().skip(1).map(String::as_str);
        called([program.as_str()].into_iter().chain(arguments))
    }
}

/// Turns readings into models and keeps what the next one needs.
#[derive(Debug, Default)]
pub(crate) struct Modeller {
    rows: SiteRows,
    history: History,
    devices: Devices,
    before: Option<Before>,
    memory: Option<ProcessMemory>,
    runtime: Arc<Runtime>,
    tree: Grower,
    /// Somebody looks at the call tree.
    pub(crate) with_tree: bool,
}

#[derive(Debug)]
struct Before {
    snapshot: Arc<Snapshot>,
    allocated: f64,
    accounting: Accounting,
    rates: Option<Rates>,
    uptime: Option<Duration>,
}

/// A process that the watched one started, or one of those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kin {
    /// What the kernel says of it.
    pub(crate) child: Child,
    /// It runs on the pool: it can be watched.
    pub(crate) on_pool: bool,
}

/// What only one who watches for some time knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed<'a> {
    /// How each of the profile's call sites develops, in their order.
    pub(crate) growths: &'a [Growth],
    /// How the memory of devices develops.
    pub(crate) devices: &'a [(Place, Slope)],
    /// For how long that was watched.
    pub(crate) watched_ns: u64,
    /// The processes that this one started.
    pub(crate) children: &'a [Child],
    /// Those of them that are worth a line, the largest first.
    pub(crate) family: &'a [Kin],
    /// The call site of each stack.
    pub(crate) site_of_stacks: &'a [Option<usize>],
    /// How it ended, as far as anybody says.
    pub(crate) ending: Option<Ending>,
    /// The executable that has its number now, if another one has.
    pub(crate) successor: Option<String>,
}

/// Names of threads, by their kernel id.
pub(crate) type ThreadNames = std::collections::HashMap<u32, String>;

impl Modeller {
    /// The next model.
    pub(crate) fn next(
        &mut self,
        snapshot: Snapshot,
        profile: Profile,
        watched: &Observed<'_>,
        names: &ThreadNames,
    ) -> Model {
        let snapshot = Arc::new(snapshot);
        // Another image of the process, or the same: only the same one's counters can be compared.
        let same = |b: &&Before| b.snapshot.process.start_monotonic_ns == snapshot.process.start_monotonic_ns;
        let before = self.before.as_ref().filter(same);
        let seconds = before
            .map(|b| snapshot.taken_ns.saturating_sub(b.snapshot.taken_ns) as f64 / 1e9)
            .filter(|&seconds| seconds > 0.01);
        // The counters may be older than the reading, and the same as at the one before.
        let counted_seconds = before
            .map(|b| snapshot.counted_ns().saturating_sub(b.snapshot.counted_ns()) as f64 / 1e9)
            .filter(|&seconds| seconds > 0.01);
        let whole = Arc::new(profile);
        let profile = if snapshot.devices.is_empty() && !whole.has(Memory::Device(None)) {
            Arc::clone(&whole)
        } else {
            Arc::new(whole.only(whole.usual_memory()))
        };
        let in_use = snapshot.in_use(whole.usual_memory());
        let memory = whole.usual_memory();
        let is_all = Arc::ptr_eq(&profile, &whole);
        let mut sites = self.rows.next(&profile, seconds);
        let shown = whole.sites.iter().zip(watched.growths).filter(|(site, _)| is_all || memory.has(site.place));
        sites.iter_mut().zip(shown).for_each(|(row, (_, growth))| row.growth = Some(Trend::of(growth)));
        // The kernel is not asked at each reading where the memory is.
        let is_asked = snapshot.residence.is_some() || snapshot.process.state != ProcessState::Running;
        let known = before.map(|before| before.accounting).filter(|known| !is_asked && known.memory.is_some());
        let accounting = known.unwrap_or_else(|| Accounting::of(&snapshot));
        let moment = snapshot.moment_ns().unwrap_or(snapshot.taken_ns);
        let total = snapshot.history.trend(USUAL_WINDOW_NS, moment);
        let total_ns = snapshot.history.trend_ns(USUAL_WINDOW_NS, moment);
        let findings = Facts {
            snapshot: &snapshot,
            accounting,
            profile: Some(&whole),
            growths: watched.growths,
            total,
            total_ns,
            watched_ns: watched.watched_ns,
            devices: watched.devices,
            children: watched.children,
        }
        .findings();
        let sum = |of: fn(&SiteRow) -> Amount| {
            sites.iter().map(of).fold(Amount::default(), |mut a, b| {
                a += b;
                a
            })
        };
        let (live, allocated) = (sum(|s| s.in_use), sum(|s| s.allocated));
        let old = before.map(|b| &*b.snapshot);
        let rates = match (before, seconds.zip(counted_seconds)) {
            (Some(b), Some((seconds, counted_seconds))) => {
                let sampled = (allocated.bytes - b.allocated) / seconds;
                Some(Rates {
                    alloc_bytes: allocated_per_second(&snapshot, &b.snapshot, sampled, counted_seconds),
                    allocs: blocks(&snapshot).saturating_sub(blocks(&b.snapshot)) as f64 / counted_seconds,
                    samples: grown(&snapshot, &b.snapshot, TierCounter::Samples) / counted_seconds,
                })
            }
            (Some(b), None) => b.rates,
            _ => None,
        };
        self.memory = snapshot.memory.or(self.memory);
        let running = snapshot.process.state == ProcessState::Running;
        if before.is_none() {
            // What was before anybody looked, the process kept itself.
            snapshot.history.totals.iter().for_each(|total| self.history.push(Point::from(total)));
        }
        if running || self.history.points().is_empty() {
            self.history.push(Point {
                at_s: snapshot.taken_ns as f64 / 1e9,
                live_bytes: in_use.map_or(live.bytes, |bytes| bytes as f64),
                rss_bytes: snapshot.memory.map(|m| m.rss as f64),
                alloc_bytes_per_s: rates.map(|r| r.alloc_bytes),
                split: (!snapshot.classes.is_empty()).then(|| Split::of(&accounting)),
            });
        }
        let uptime = if running {
            let nanos = snapshot.taken_ns.saturating_sub(snapshot.process.start_monotonic_ns);
            Some(Duration::from_nanos(nanos))
        } else {
            before.and_then(|b| b.uptime)
        };
        let others = before.is_none() || self.rows.renamed;
        if others || self.runtime.len() != profile.locations.len() {
            let mut runtime = if others { Runtime::default() } else { Runtime::clone(&self.runtime) };
            runtime.extend(&profile);
            self.runtime = Arc::new(runtime);
        }
        let model = Model {
            uptime,
            live,
            live_variance: sites.iter().map(|row| row.in_use_variance).sum(),
            in_use,
            most: snapshot.most(),
            trend: (total_ns > 0).then_some(total),
            findings,
            accounting,
            family: watched.family.to_vec(),
            rates,
            memory: self.memory,
            tiers: tier_rows(&snapshot, old, counted_seconds),
            flame: self.with_tree.then(|| Arc::new(self.tree.grow(&profile, &sites, &self.runtime, USUAL))),
            runtime: Arc::clone(&self.runtime),
            site_of_stacks: watched.site_of_stacks.into(),
            classes: class_rows(&snapshot, old, counted_seconds),
            threads: thread_rows(&snapshot, old, counted_seconds, names),
            listed: listed::of(&sites),
            sites,
            devices: device_rows(&mut self.devices, &snapshot, &whole, old, seconds),
            history: self.history.clone(),
            filter: Arc::default(),
            blocks: None,
            at_peak: false,
            ending: watched.ending.clone(),
            successor: watched.successor.clone(),
            profile,
            whole,
            snapshot: Arc::clone(&snapshot),
        };
        self.before = Some(Before { snapshot, allocated: allocated.bytes, accounting, rates, uptime });
        model
    }
}

/// What is kept of devices from reading to reading, by memory.
type Devices = HashMap<Place, (SiteRows, History)>;

fn device_rows(
    known: &mut Devices,
    now: &Snapshot,
    whole: &Profile,
    before: Option<&Snapshot>,
    seconds: Option<f64>,
) -> Vec<DeviceRow> {
    let row = |pool: &DevicePool| {
        let key = pool.place;
        let (rows, history) = known.entry(key).or_default();
        let in_use = pool.get(DeviceCounter::CurrentUsage) as f64;
        history.push(Point {
            at_s: now.taken_ns as f64 / 1e9,
            live_bytes: in_use,
            rss_bytes: Some(pool.get(DeviceCounter::Held) as f64),
            alloc_bytes_per_s: None,
            split: None,
        });
        let profile = whole.only(pool.place.memory());
        let holders = Holders::of(&profile, pool);
        let held = |site: SiteRow| (holders.held(&profile.sites[site.index]), site);
        let mut sites: Vec<(Held, SiteRow)> = rows.next(&profile, seconds).into_iter().map(held).collect();
        sites.retain(|(held, _)| held.bytes > 0.0);
        sites.sort_by(|(a, _), (b, _)| b.bytes.total_cmp(&a.bytes));
        let (held, sites) = sites.into_iter().unzip();
        let old = before.and_then(|b| b.devices.iter().find(|old| old.place == key));
        let calls = |pool: &DevicePool| pool.get(DeviceCounter::DriverCalls);
        DeviceRow {
            calls_per_s: rate(calls(pool), old.map(calls), seconds).map(|rate| rate.max(0.0)),
            history: history.clone(),
            sites,
            held,
            unattributed: holders.unattributed(),
            pool: pool.clone(),
        }
    };
    now.devices.iter().map(row).collect()
}

/// Bytes of the blocks that were allocated in a second between two readings, of which the samples say so many. The
/// counters were these seconds apart.
///
/// A program that allocates slowly has a sample in many seconds: by samples it allocates nothing, and then half a
/// megabyte at once. Older pools don't count how long large blocks were, and of these most are sampled. Where every block
/// is recorded, the records say what was asked for.
fn allocated_per_second(now: &Snapshot, before: &Snapshot, sampled: f64, seconds: f64) -> f64 {
    if now.exact {
        return sampled.max(0.0);
    }
    let of_classes = |snapshot: &Snapshot, blocks: fn(&ClassStats) -> u64| {
        let bytes = |class: &ClassStats| blocks(class).saturating_mul(class.block_bytes);
        snapshot.classes.iter().map(bytes).sum::<u64>()
    };
    // What threads got past their caches are large blocks and samples, and these are in the classes.
    let of_large = |snapshot: &Snapshot| {
        let uncached: u64 = snapshot.threads.iter().map(|thread| thread.uncached_bytes).sum();
        uncached.saturating_sub(of_classes(snapshot, |class| class.shared(ClassCounter::SampledAllocs)))
    };
    let bytes = |snapshot: &Snapshot| of_classes(snapshot, ClassStats::allocs).saturating_add(of_large(snapshot));
    let counted = bytes(now).saturating_sub(bytes(before)) as f64 / seconds;
    let are_counted = grown(now, before, TierCounter::LargeAllocs) == 0.0 || of_large(now) > of_large(before);
    let is_all = !now.classes.is_empty() && are_counted;
    if is_all { counted } else { sampled.max(counted) }
}

/// Blocks ever made ready, and large blocks.
fn blocks(snapshot: &Snapshot) -> u64 {
    snapshot
        .classes
        .iter()
        .map(|c| c.allocs())
        .sum::<u64>()
        .saturating_add(snapshot.tiers.get(TierCounter::LargeAllocs))
}

fn grown(now: &Snapshot, before: &Snapshot, counter: TierCounter) -> f64 {
    now.tiers.get(counter).saturating_sub(before.tiers.get(counter)) as f64
}

fn rate(now: u64, before: Option<u64>, seconds: Option<f64>) -> Option<f64> {
    Some((now as f64 - before? as f64) / seconds?)
}

fn tier_rows(now: &Snapshot, before: Option<&Snapshot>, seconds: Option<f64>) -> Vec<TierRow> {
    TierCounter::ALL
        .iter()
        .zip(TIER_COUNTERS)
        .map(|(&counter, info)| {
            let value = now.tiers.get(counter);
            TierRow { info, value, rate: rate(value, before.map(|b| b.tiers.get(counter)), seconds) }
        })
        .collect()
}

fn class_rows(now: &Snapshot, before: Option<&Snapshot>, seconds: Option<f64>) -> Vec<ClassRow> {
    let old = |i: usize| before.and_then(|b| b.classes.get(i)).map(|c| c.allocs());
    now.classes
        .iter()
        .enumerate()
        .filter(|(_, c)| c.allocs() > 0)
        .map(|(i, &stats)| ClassRow { stats, rate: rate(stats.allocs(), old(i), seconds) })
        .collect()
}

fn thread_rows(now: &Snapshot, before: Option<&Snapshot>, seconds: Option<f64>, names: &ThreadNames) -> Vec<ThreadRow> {
    let old = |i: usize| before.and_then(|b| b.threads.get(i)).map(|t| t.allocs);
    let mut held: Vec<(u32, f64)> = now.threads.iter().map(|thread| (thread.tid, 0.0)).collect();
    held.sort_unstable_by_key(|(tid, _)| *tid);
    held.dedup_by_key(|(tid, _)| *tid);
    let mut at = 0;
    for block in now.live.iter().filter(|block| block.place == Place::Host) {
        // Most blocks are of the thread that the one before is of.
        if held.get(at).is_none_or(|(tid, _)| *tid != block.tid) {
            at = held.partition_point(|(tid, _)| *tid < block.tid);
        }
        if let Some((_, bytes)) = held.get_mut(at).filter(|(tid, _)| *tid == block.tid) {
            *bytes += block.weight * block.size as f64;
        }
    }
    let in_use = |tid: u32| held.binary_search_by_key(&tid, |(tid, _)| *tid).map_or(0.0, |at| held[at].1);
    now.threads
        .iter()
        .enumerate()
        .map(|(i, &stats)| ThreadRow {
            stats,
            name: if stats.live { names.get(&stats.tid).cloned() } else { None },
            rate: rate(stats.allocs, old(i), seconds),
            in_use: in_use(stats.tid),
        })
        .collect()
}
