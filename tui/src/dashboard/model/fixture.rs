//! A made-up key-value server for the tests of views: the same at any time, on any machine.

use std::sync::Arc;

use poolscope_profiler::model::accounting::{Accounting, Part};
use poolscope_profiler::model::growth::{Growth, SERIES, Slope};
use poolscope_profiler::model::history::History;
use poolscope_profiler::model::memory::Place;
use poolscope_profiler::model::profile::{Frame, Held, Location, Profile, Site};
use poolscope_profiler::model::reach::{Search, Verdict};
use poolscope_profiler::model::snapshot::{
    Amount, ClassStats, DevicePool, LiveBlock, Module, ProcessInfo, ProcessMemory, ProcessState, Residence, Snapshot,
    ThreadStats, Tiers,
};
use poolscope_wire::{ClassCounter, ClassCounters, DEVICE_COUNTERS, DeviceCounter, Total, cell, place};

use super::{Model, Modeller, Observed, ThreadNames};

const MIB: f64 = 1024.0 * 1024.0;

fn frame(name: &str, file: Option<(&str, u32)>, inlined: bool) -> Frame {
    Frame { name: name.into(), file: file.map(|f| f.0.into()), line: file.map(|f| f.1), inlined, ..Frame::default() }
}

/// Locations: `(module, frames innermost first)`.
fn locations() -> Vec<Location> {
    let std = Some(("/rustc/alloc/src/raw_vec.rs", 671));
    let rows: Vec<(Option<usize>, Vec<Frame>)> = vec![
        (Some(1), vec![frame("__libc_start_call_main", None, false)]),
        (Some(0), vec![frame("main", Some(("/src/kv/src/main.rs", 31)), false)]),
        (Some(0), vec![frame("kv::server::worker", Some(("/src/kv/src/server.rs", 142)), false)]),
        (Some(0), vec![frame("kv::server::handle", Some(("/src/kv/src/server.rs", 201)), false)]),
        (
            Some(0),
            vec![
                frame("alloc::raw_vec::RawVecInner<A>::with_capacity_in", std, true),
                frame("alloc::vec::Vec<T>::with_capacity", Some(("/rustc/alloc/src/vec/mod.rs", 520)), true),
                frame("kv::store::Store::put", Some(("/src/kv/src/store.rs", 87)), false),
            ],
        ),
        (
            Some(0),
            vec![
                frame("hashbrown::raw::RawTable<T,A>::reserve_rehash", Some(("/deps/hashbrown/src/raw.rs", 940)), true),
                frame("kv::store::Index::insert", Some(("/src/kv/src/store.rs", 133)), false),
            ],
        ),
        (Some(0), vec![frame("kv::session::Session::remember", Some(("/src/kv/src/session.rs", 58)), false)]),
        (Some(0), vec![frame("kv::wire::read_frame", Some(("/src/kv/src/wire.rs", 44)), false)]),
        (Some(2), vec![frame("SSL_CTX_new", None, false)]),
        (Some(2), Vec::new()),
        (Some(1), vec![frame("start_thread", None, false)]),
        (
            Some(0),
            vec![frame("kv::log::Logger::line(char const*, unsigned long)", Some(("/src/kv/src/log.cc", 19)), false)],
        ),
        (None, Vec::new()),
    ];
    rows.into_iter()
        .enumerate()
        .map(|(i, (module, frames))| {
            let address = 0x5555_0000_1000 + 0x40 * i as u64;
            let module_of = module.map(|m| modules().swap_remove(m));
            let frames =
                if frames.is_empty() { vec![Location::placeholder(module_of.as_ref(), address)] } else { frames };
            Location { address, module, frames }
        })
        .collect()
}

/// The server as Python would run it: `server::handle` is a function of Python's, what is around it the interpreter's.
pub(crate) fn profile_of_python() -> Profile {
    let mut profile = profile();
    profile.modules[0].path = "/usr/bin/python3.13".into();
    let location = &mut Arc::make_mut(&mut profile.locations)[3];
    let name = "handle (server.py)".into();
    location.module = None;
    location.frames = vec![Frame { name, file: Some("/srv/server.py".into()), ..Frame::default() }];
    profile
}

fn modules() -> Vec<Module> {
    ["/src/kv/target/release/kvserver", "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libssl.so.3"]
        .into_iter()
        .enumerate()
        .map(|(i, path)| Module {
            start: 0x5555_0000_0000 + ((i as u64) << 32),
            end: 0x5555_0100_0000 + ((i as u64) << 32),
            load_bias: 0x5555_0000_0000,
            build_id: vec![i as u8; 20],
            file: 0,
            path: path.into(),
            stacks: 0..u32::MAX,
        })
        .collect()
}

/// Of as many samples as [`amount`] has of so many bytes.
fn variance(bytes: f64) -> f64 {
    bytes * 512.0 * 1024.0
}

fn amount(bytes: f64, each: f64) -> Amount {
    Amount { objects: bytes / each, bytes, samples: (bytes / (512.0 * 1024.0)).ceil() as u64 }
}

/// Its profile `t` of 1: what grows with time has got that far.
pub(crate) fn profile_at(t: f64) -> Profile {
    let worker = [3, 2, 10];
    let under = |inner: &[usize], outer: &[usize]| [inner, outer].concat();
    let rows: Vec<(Vec<usize>, f64, f64, f64)> = vec![
        (under(&[4], &worker), 96.0, 2900.0 * t, 1024.0),
        (under(&[6], &worker), 41.0 * t, 41.0 * t, 208.0),
        (under(&[5], &worker), 24.0, 48.0, 49_152.0),
        (under(&[7], &worker), 3.5, 8800.0 * t, 65_536.0),
        (under(&[9, 8], &[1, 0]), 2.25, 2.25, 4096.0),
        (under(&[11], &worker), 0.5, 120.0 * t, 96.0),
        (under(&[12], &[]), 0.75, 1.5, 32.0),
    ];
    let mut sites: Vec<Site> = rows
        .into_iter()
        .map(|(locations, in_use, allocated, each)| Site {
            incomplete: locations == [12],
            locations: locations.into(),
            allocated: amount(allocated * MIB, each),
            in_use: amount(in_use * MIB, each),
            in_use_variance: variance(in_use * MIB),
            oldest_ns: 20_000_000_000,
            held: vec![Held { size: each as u64, tid: 100, amount: amount(in_use * MIB, each) }].into(),
            ..Site::default()
        })
        .collect();
    for i in 0..30u32 {
        let bytes = (0.4 - f64::from(i) * 0.012) * MIB;
        // No two have the same stack.
        let outer: &[usize] = if i < 22 { &[1, 0] } else { &[2, 1, 0] };
        let callers = under(&[(i as usize) % 11], outer);
        sites.push(Site {
            locations: under(&[if i % 2 == 0 { 8 } else { 7 }, 11], &callers).into(),
            allocated: amount(bytes * 3.0, 48.0),
            in_use: amount(bytes, 48.0),
            in_use_variance: variance(bytes),
            ..Site::default()
        });
    }
    Profile {
        period_bytes: 512 * 1024,
        exact: false,
        time_realtime_ns: 1_790_000_000_000_000_000,
        modules: modules(),
        locations: Arc::new(locations()),
        sites,
        ..Profile::default()
    }
}

/// Its profile at the end.
pub(crate) fn profile() -> Profile {
    profile_at(1.0)
}

/// A reading, with what the process kept of the time before it.
fn snapshot_at(second: u64) -> Snapshot {
    static TOTALS: std::sync::OnceLock<Vec<Total>> = std::sync::OnceLock::new();
    let totals = TOTALS.get_or_init(|| {
        let of = |second| {
            let snapshot = moment(second);
            let accounting = Accounting::of(&snapshot);
            // What grows wobbles by a little.
            let in_use = accounting.in_use + (second % 7) * 65_536;
            Total {
                time_ns: snapshot.taken_ns,
                in_use,
                most: in_use,
                most_ns: snapshot.taken_ns,
                untouched: accounting.untouched,
                caches: accounting.caches(),
                free: accounting.get(Part::Free),
                metadata: accounting.get(Part::Metadata),
            }
        };
        let mut totals: Vec<Total> = (1..=180).map(of).collect();
        // Once there was more.
        totals[100].most += 30 << 20;
        totals
    });
    let now = moment(second);
    let history = History::new(1_000_000_000, totals[..second as usize].iter().copied(), now.taken_ns);
    Snapshot { history, ..now }
}

/// How each of its call sites develops: one grows.
fn growths(profile: &Profile) -> Vec<Growth> {
    let of = |(at, site): (usize, &Site)| {
        let part = |point: usize| (site.in_use.bytes * point as f64 / (SERIES - 1) as f64) as f32;
        let (slope, series) = match at {
            1 => (Slope::new(13.7 * MIB, 1.5 * MIB), std::array::from_fn(part)),
            _ => (Slope::new(0.1 * MIB, MIB), [site.in_use.bytes as f32; SERIES]),
        };
        Growth { slope, series, over_ns: 180_000_000_000 }
    };
    profile.sites.iter().enumerate().map(of).collect()
}

fn observed(growths: &[Growth]) -> Observed<'_> {
    Observed { growths, watched_ns: 180_000_000_000, ..Observed::default() }
}

fn moment(second: u64) -> Snapshot {
    let t = second as f64 / 180.0;
    let scaled = |at_end: u64| (at_end as f64 * t) as u64;
    // What is in use at the end, but for one class, has been since the start.
    let classes = [
        (16, 9_800_000, 9_790_000),
        (48, 4_100_000, 4_060_000),
        (96, 1_310_000, 1_304_000),
        (208, 214_000, 8_000),
        (512, 90_000, 89_000),
        (1024, 2_970_000, 2_871_696),
        (4096, 61_000, 60_424),
        (49_152, 1024, 512),
        (65_536, 140_800, 140_744),
        (262_144, 12, 4),
    ];
    let classes: Vec<ClassStats> = classes
        .into_iter()
        .enumerate()
        .map(|(i, (block_bytes, allocs, frees))| {
            let in_use = if block_bytes == 208 { scaled(allocs - frees) } else { allocs - frees };
            let frees = scaled(frees);
            let allocs = in_use + frees;
            let slab_bytes = if block_bytes < 512 { 65_536 } else { 1 << 20 };
            let slab_blocks = slab_bytes / block_bytes;
            let refills = allocs / (400 >> i).max(2) as u64;
            let mut class = ClassStats {
                block_bytes,
                slab_bytes,
                slab_blocks,
                threads: ClassCounters { allocs, frees, refills, ..ClassCounters::ZERO },
                ..ClassStats::EMPTY
            };
            class.shared[ClassCounter::SlabsTaken as usize] = (allocs - frees).div_ceil(slab_blocks);
            class
        })
        .collect();
    let mib = |v: u64| v << 20;
    let slabs: u64 = classes.iter().map(ClassStats::slabs).sum();
    let slab_bytes: u64 = classes.iter().map(|class| class.slabs() * class.slab_bytes).sum();
    let (large_bytes, large, free_bytes) = (mib(10), 4, mib(22));
    let tiers = vec![
        256 << 30,
        slab_bytes + large_bytes + free_bytes,
        mib(8),
        4120,
        free_bytes,
        slabs + large + scaled(19_700),
        scaled(19_700),
        large_bytes,
        large,
        large + scaled(60),
        scaled(60),
        slab_bytes,
        scaled(8123),
        scaled(611),
        37,
        scaled(90_211),
        scaled(5_900_422),
        mib(3),
        scaled(24_017),
        6,
        9,
        mib(1),
    ];
    let threads = (0..7u32)
        .map(|i| ThreadStats {
            tid: 4242 + i,
            live: i != 5,
            allocs: scaled(18_700_000 >> i),
            frees: scaled(18_600_000 >> i),
            alloc_bytes: scaled((11_900 << 20) >> i),
            refills: scaled((18_700_000 >> i) / (90 + u64::from(i) * 37)),
            samples: scaled(24_017 >> (i + 1)),
            // The samples, and the large blocks.
            uncached_allocs: scaled((24_017 >> (i + 1)) + (30 >> i)),
            uncached_bytes: scaled((75 << 20) >> i),
            remote_frees: scaled(if i == 0 { 12 } else { 902_117 >> i }),
        })
        .collect();
    let rss = ((206.0 + 41.0 * t + 9.0 * (f64::from(second as u32) / 11.0).sin()) * MIB) as u64;
    Snapshot {
        serves_malloc: true,
        process: ProcessInfo {
            pid: 4242,
            state: ProcessState::Running,
            exe: "/src/kv/target/release/kvserver".into(),
            args: ["kvserver", "--port", "7000", "--threads", "6"].map(String::from).to_vec(),
            start_realtime_ns: 1_790_000_000_000_000_000,
            start_monotonic_ns: 1_000_000_000,
            forked: false,
        },
        taken_ns: (1 + second) * 1_000_000_000,
        taken_realtime_ns: 1_790_000_000_000_000_000 + second * 1_000_000_000,
        period_bytes: 512 * 1024,
        page_bytes: 65_536,
        tiers: Tiers::new(tiers),
        classes,
        threads,
        modules: modules(),
        memory: Some(ProcessMemory { rss, peak_rss: (229.0 * MIB) as u64 }),
        residence: Some(Residence { rss, segment: 1 << 20, files: 5 << 20, ..Residence::default() }),
        segment_bytes: 1 << 20,
        ..Snapshot::default()
    }
}

/// Where the first cell of each device's map lies.
pub(crate) const FIRST_CELL: u64 = 0x7f00_0000_0000;

/// Device memory, `t` of 1 after its start: two devices, and memory pinned for the second.
fn devices(t: f64) -> Vec<DevicePool> {
    const GIB: u64 = 1 << 30;
    let pool = |of, name: &str, memory_bytes: u64, in_use: f64, reserved: f64| {
        let cell_bytes = 2 << 20;
        let held = (reserved * memory_bytes as f64) as u64;
        let used = (in_use * memory_bytes as f64) as u64;
        let mut cells = Vec::new();
        for at in 0..held / cell_bytes {
            let share = at as f64 / (held / cell_bytes) as f64;
            let gap = at % 61 > 52;
            cells.push(match share {
                _ if share > 0.96 => cell::SMALL,
                _ if share > 0.9 => cell::GRAPH,
                _ if gap && at % 3 == 0 => cell::PENDING,
                _ if gap => cell::FREE,
                _ => cell::LARGE,
            });
        }
        let mut counters = vec![0; DEVICE_COUNTERS.len()];
        for (counter, value) in [
            (DeviceCounter::CurrentUsage, used),
            (DeviceCounter::SamplePeriod, 4 << 20),
            (DeviceCounter::PeakUsage, used + used / 20),
            (DeviceCounter::Held, held),
            (DeviceCounter::PeakHeld, held),
            (DeviceCounter::Free, held - used.min(held)),
            (DeviceCounter::LargestHole, (held - used.min(held)) / 2),
            (DeviceCounter::FragmentationBytes, (held - used.min(held)) / 3),
            (DeviceCounter::AllocationCount, (4_123_456.0 * t) as u64),
            (DeviceCounter::ThreadHits, (4_000_000.0 * t) as u64),
            (DeviceCounter::LargeHits, (120_000.0 * t) as u64),
            (DeviceCounter::CacheMisses, 812),
            (DeviceCounter::FromOtherStreams, 97),
            (DeviceCounter::DriverCalls, 2000 + (1800.0 * t) as u64),
        ] {
            counters[counter as usize] = value;
        }
        if of == Place::Device(1) {
            counters[DeviceCounter::LadderClimbed as usize] = 3;
            counters[DeviceCounter::LadderAllCachesTried as usize] = 3;
            counters[DeviceCounter::LadderPendingFreesTried as usize] = 2;
        }
        let name = name.into();
        // The cells lie one behind the other, and are of the default stream and another one in turns of eight.
        let places = (0..cells.len()).map(|at| place::of(FIRST_CELL + at as u64 * cell_bytes, Some(at / 8 % 2)));
        let (places, streams) = (places.collect(), vec![0, 0x55aa_1000]);
        DevicePool { place: of, name, memory_bytes, time_ns: 0, counters, cells, cell_bytes, places, streams }
    };
    let wave = (t * 40.0).sin() * 0.03;
    vec![
        pool(Place::Device(0), "First of two", 16 * GIB, 0.55 + wave, 0.62),
        pool(Place::Device(1), "Second of two, with a long name", 8 * GIB, 0.2 + 0.5 * t, 0.3 + 0.55 * t),
        pool(Place::Pinned(1), "Second of two, with a long name", 0, 0.0, 0.0),
    ]
}

/// Three minutes of a server that has device memory, too.
pub(crate) fn model_with_devices() -> Model {
    let mut modeller = Modeller { with_tree: true, ..Modeller::default() };
    let mut model = None;
    for second in (1..=180).step_by(3) {
        let t = second as f64 / 180.0;
        let snapshot = Snapshot { devices: devices(t), ..snapshot_at(second) };
        let mut profile = profile_at(t);
        for (at, (site, device)) in [(0, 0), (5, 0), (2, 1)].into_iter().enumerate() {
            let mut site = profile.sites[site].clone();
            site.place = Place::Device(device);
            // Blocks that are as much larger.
            site.in_use.bytes *= 64.0;
            for held in Arc::make_mut(&mut site.held).iter_mut() {
                held.size *= 64;
                held.amount.bytes *= 64.0;
            }
            profile.sites.push(site);
            if at == 2 {
                Arc::make_mut(&mut profile.locations)[5].frames[1].name = "kv::model::evaluate".into();
            }
        }
        let growths = growths(&profile);
        model = Some(modeller.next(snapshot, profile, &observed(&growths), &ThreadNames::default()));
    }
    model.expect("there were readings")
}

/// What the last of some readings shows, a second apart.
pub(crate) fn model_of(profiles: impl IntoIterator<Item = Profile>) -> Model {
    let mut modeller = Modeller { with_tree: true, ..Modeller::default() };
    let models = (1..).zip(profiles).map(|(second, profile)| {
        let growths = growths(&profile);
        modeller.next(snapshot_at(second), profile, &observed(&growths), &ThreadNames::default())
    });
    models.last().expect("there were readings")
}

/// Three minutes of it.
pub(crate) fn model() -> Model {
    static MODEL: std::sync::OnceLock<Model> = std::sync::OnceLock::new();
    MODEL.get_or_init(|| model_with(|_| {})).clone()
}

/// Three minutes of it; the last reading is changed by `edit`.
pub(crate) fn model_with(edit: impl FnOnce(&mut Snapshot)) -> Model {
    let names: ThreadNames =
        (0..7).map(|i| (4242 + i, if i == 0 { "kvserver".into() } else { format!("worker-{i}") })).collect();
    let mut modeller = Modeller { with_tree: true, ..Modeller::default() };
    for second in 1..180 {
        let profile = profile_at(second as f64 / 180.0);
        let growths = growths(&profile);
        modeller.next(snapshot_at(second), profile, &observed(&growths), &names);
    }
    let mut last = snapshot_at(180);
    edit(&mut last);
    let profile = profile();
    let growths = growths(&profile);
    modeller.next(last, profile, &observed(&growths), &names)
}

/// It has looked for leaks: a site has lost blocks, which lead to some of another one.
pub(crate) fn model_with_leaks() -> Model {
    let block = |at: u64, stack, size, verdict| LiveBlock {
        stack,
        address: 0x7f00_0000_0000 + at * 0x1000,
        size,
        weight: 1.0,
        time_ns: 21_000_000_000 + at * 1_000_000_000,
        tid: 4243,
        verdict,
        ..LiveBlock::default()
    };
    let mut model = model_with(|snapshot| {
        snapshot.exact = true;
        snapshot.search =
            Some(Search { threads: 7, stopped: 7, blocks: 190_000, bytes: 170 << 20, ..Search::default() });
        let lost = (0..100).map(|at| block(at, 0, 208, Verdict::Direct));
        let behind = (100..130).map(|at| block(at, 1, 1024, Verdict::Indirect(0x7f00_0000_0000)));
        let kept = (130..140).map(|at| block(at, 1, 1024, Verdict::Reachable));
        snapshot.live = lost.chain(behind).chain(kept).collect();
    });
    model.site_of_stacks = [Some(1), Some(0)].into();
    model
}
