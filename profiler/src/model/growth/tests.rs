//! Against programs whose growth is known: blocks come at random, as samples do, and live as long as the program says.

use super::*;
use crate::model::snapshot::{LiveBlock, ProcessInfo, Stack};

/// Bytes that a sample stands for.
const PERIOD: f64 = 65_536.0;
const SECOND: u64 = 1_000_000_000;

/// Marsaglia's xorshift64.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// A call stack: so many samples a second, which live so many seconds on average; for ever if that is infinite.
#[derive(Clone, Copy)]
struct Site {
    rate: f64,
    lifetime: f64,
}

/// The blocks of a program over `seconds`, as (stack, from, to).
fn run(random: &mut Random, sites: &[Site], seconds: f64) -> Vec<(u32, f64, f64)> {
    let mut blocks = Vec::new();
    for (stack, site) in sites.iter().enumerate() {
        // It has run long enough before; what never frees begins now.
        let before = if site.lifetime.is_finite() { 20.0 * site.lifetime } else { 0.0 };
        let mut at = -before;
        loop {
            at += random.exponential(1.0 / site.rate);
            if at > seconds {
                break;
            }
            let lifetime = if site.lifetime.is_finite() { random.exponential(site.lifetime) } else { f64::INFINITY };
            if at + lifetime > 0.0 {
                blocks.push((stack as u32, at, at + lifetime));
            }
        }
    }
    blocks
}

const START: f64 = 10_000.0;

fn snapshot(blocks: &[(u32, f64, f64)], stacks: usize, at: f64) -> Snapshot {
    let in_use = blocks.iter().filter(|(_, from, to)| *from <= at && at < *to);
    let live = in_use.map(|&(stack, from, _)| LiveBlock {
        stack,
        size: 64,
        weight: PERIOD / 64.0,
        time_ns: ((START + from) * 1e9) as u64,
        ..LiveBlock::default()
    });
    Snapshot {
        process: ProcessInfo { pid: 7, ..ProcessInfo::default() },
        taken_ns: ((START + at) * 1e9) as u64,
        stacks: vec![Stack::default(); stacks],
        live: live.collect(),
        ..Snapshot::default()
    }
}

/// What is known after `seconds` of readings each second.
fn watch(blocks: &[(u32, f64, f64)], stacks: usize, seconds: u32, window_ns: u64) -> Tracker {
    let mut tracker = Tracker::new(window_ns);
    for second in 0..=seconds {
        tracker.update(&snapshot(blocks, stacks, f64::from(second)));
    }
    tracker
}

fn slope(tracker: &Tracker, stack: u32) -> Slope {
    tracker.of_stack(stack).map_or_else(Slope::default, |growth| growth.slope)
}

/// Mean and variance of the slopes in standard errors.
fn spread(slopes: &[Slope]) -> (f64, f64) {
    let count = slopes.len() as f64;
    let mean = slopes.iter().map(|slope| slope.errors()).sum::<f64>() / count;
    (mean, slopes.iter().map(|slope| (slope.errors() - mean).powi(2)).sum::<f64>() / (count - 1.0))
}

#[test]
fn what_is_level_is_not_called_growing_however_long_blocks_live() {
    let mut random = Random(0x5eed);
    for (rate, lifetime) in [(40.0, 0.3), (10.0, 4.0), (4.0, 20.0), (1.0, 100.0), (0.5, 300.0)] {
        let slopes: Vec<Slope> = (0..150)
            .map(|_| {
                let blocks = run(&mut random, &[Site { rate, lifetime }], 60.0);
                slope(&watch(&blocks, 1, 60, 60 * SECOND), 0)
            })
            .collect();
        let (mean, variance) = spread(&slopes);
        assert!(mean.abs() < 0.25, "lifetime {lifetime}: {mean} standard errors on average");
        assert!((0.6..1.5).contains(&variance), "lifetime {lifetime}: a variance of {variance}");
        let false_alarms = slopes.iter().filter(|slope| slope.grows()).count();
        assert!(false_alarms <= 3, "lifetime {lifetime}: {false_alarms} of 150 grow");
    }
}

#[test]
fn a_leak_has_its_slope_and_an_error_that_holds() {
    let mut random = Random(0xfeed);
    let leak = Site { rate: 4.0, lifetime: f64::INFINITY };
    let truth = 4.0 * PERIOD * 60.0;
    let slopes: Vec<Slope> = (0..100)
        .map(|_| {
            let blocks = run(&mut random, &[leak], 60.0);
            slope(&watch(&blocks, 1, 60, 60 * SECOND), 0)
        })
        .collect();
    let mean = slopes.iter().map(|slope| slope.per_minute()).sum::<f64>() / 100.0;
    assert!((mean / truth - 1.0).abs() < 0.04, "{mean} of {truth}");
    let within = slopes.iter().filter(|slope| (slope.per_minute() - truth).abs() < 2.0 * slope.error()).count();
    assert!((89..=100).contains(&within), "{within} of 100 within two standard errors");
    assert!(slopes.iter().all(|slope| slope.grows()));
}

#[test]
fn a_leak_is_seen_within_fifteen_seconds_beside_what_is_busy() {
    let mut random = Random(0xbeef);
    let (busy, leak) = (Site { rate: 60.0, lifetime: 0.8 }, Site { rate: 2.0, lifetime: f64::INFINITY });
    let (mut seen, mut false_alarms) = (0, 0);
    for _ in 0..60 {
        let tracker = watch(&run(&mut random, &[busy, leak], 15.0), 2, 15, USUAL_WINDOW_NS);
        seen += usize::from(slope(&tracker, 1).grows());
        false_alarms += usize::from(slope(&tracker, 0).grows());
    }
    assert!(seen >= 57 && false_alarms <= 2, "{seen} seen, {false_alarms} false alarms");
}

/// A stack that does both: the leak is found beneath its own traffic.
#[test]
fn a_stack_that_leaks_a_part_of_what_it_allocates_grows() {
    let mut random = Random(0xabcd);
    let mut seen = 0;
    for _ in 0..40 {
        let sites = [Site { rate: 40.0, lifetime: 0.5 }, Site { rate: 3.0, lifetime: f64::INFINITY }];
        let mut blocks = run(&mut random, &sites, 60.0);
        blocks.iter_mut().for_each(|block| block.0 = 0);
        seen += usize::from(slope(&watch(&blocks, 1, 60, 60 * SECOND), 0).grows());
    }
    assert!(seen >= 38, "{seen} of 40");
}

/// What a program loads as it starts, and a leak behind it.
#[test]
fn a_ramp_that_levelled_off_does_not_grow_and_a_leak_behind_it_has_its_own_slope() {
    let mut random = Random(0x3a3a);
    let leak = Site { rate: 4.0, lifetime: f64::INFINITY };
    let (mut early, mut ramps, mut leaks) = (0, 0, 0);
    for _ in 0..60 {
        let mut blocks = run(&mut random, &[leak], 40.0);
        blocks.iter_mut().for_each(|block| block.0 = 3);
        // Weights: forty samples within four seconds. Their slope alone is clear.
        blocks.extend((0..40).map(|_| (0, 4.0 * random.unit(), f64::INFINITY)));
        early += usize::from(slope(&watch(&blocks, 4, 5, USUAL_WINDOW_NS), 0).grows());
        let tracker = watch(&blocks, 4, 40, USUAL_WINDOW_NS);
        assert!(slope(&tracker, 0).has_ended(), "{:?}", slope(&tracker, 0));
        ramps += usize::from(slope(&tracker, 0).grows());
        // Both together, as the total has it.
        let both = slope(&tracker, 0).and(slope(&tracker, 3));
        let truth = 4.0 * PERIOD * 60.0;
        leaks += usize::from(both.grows() && (both.per_minute() - truth).abs() < 4.0 * both.error());
    }
    assert!(early >= 50, "{early} of 60 grow while they load");
    assert!(ramps == 0, "{ramps} of 60 grow when they have loaded");
    assert!(leaks >= 55, "{leaks} of 60 leaks are seen behind a ramp");
}

/// Which entry of a full cache goes for a new one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Evicts {
    Oldest,
    Any,
}

/// A cache with room for so many samples: it is filled within `fill` seconds, and from then on an entry goes for each
/// that comes, so it has the same bytes in use for ever. `rate` samples come a second.
fn cache(
    random: &mut Random,
    room: f64,
    rate: f64,
    evicts: Evicts,
    (fill, seconds): (f64, f64),
) -> Vec<(u32, f64, f64)> {
    let stays = room / rate;
    let mut blocks = Vec::new();
    let mut at = 0.0;
    loop {
        let fills = at < fill;
        at += random.exponential(1.0 / if fills { room / fill } else { rate });
        if at > seconds {
            return blocks;
        }
        let goes = match evicts {
            Evicts::Oldest if at < fill => fill + stays * at / fill,
            Evicts::Oldest => at + stays,
            Evicts::Any => at.max(fill) + random.exponential(stays),
        };
        blocks.push((0, at, goes));
    }
}

#[test]
fn a_cache_that_is_full_does_not_grow_whatever_its_size() {
    let mut random = Random(0xcac4e);
    let mut alarms = 0;
    for evicts in [Evicts::Oldest, Evicts::Any] {
        for (room, rate) in [(12.0, 0.3), (40.0, 2.0), (130.0, 40.0), (400.0, 13.0), (400.0, 2.0), (1500.0, 60.0)] {
            for (fill, seconds) in [(5.0, 40), (20.0, 60), (0.5, 20)] {
                let grows = |_: &u32| {
                    let blocks = cache(&mut random, room, rate, evicts, (fill, f64::from(seconds)));
                    slope(&watch(&blocks, 1, seconds, USUAL_WINDOW_NS), 0).grows()
                };
                let grow = (0..10).filter(grows).count();
                assert!(
                    grow <= 4,
                    "{evicts:?}, room for {room}, {rate} a second, full after {fill}: {grow} of 10 grow"
                );
                alarms += grow;
            }
        }
    }
    assert!(alarms <= 8, "{alarms} of 360 grow");
}

/// A window that is much longer than there are readings: those that are kept get further apart.
#[test]
fn a_long_window_keeps_few_readings_and_its_error() {
    let mut random = Random(0x1234);
    let mut slopes = Vec::new();
    for _ in 0..24 {
        let sites = [Site { rate: 2.0, lifetime: 60.0 }, Site { rate: 0.2, lifetime: f64::INFINITY }];
        let tracker = watch(&run(&mut random, &sites, 900.0), 2, 900, 1800 * SECOND);
        assert!(tracker.times.len() <= READINGS && tracker.watched_ns() > 890 * SECOND);
        slopes.push(slope(&tracker, 0));
        assert!(slope(&tracker, 1).grows());
    }
    let (mean, variance) = spread(&slopes);
    assert!(mean.abs() < 0.7 && (0.3..2.2).contains(&variance), "{mean}, {variance}");
}

#[test]
fn what_has_left_the_window_does_not_count() {
    // It grows for a minute, and then is level for two.
    let blocks: Vec<(u32, f64, f64)> = (0..600).map(|at| (0, f64::from(at) / 10.0, f64::INFINITY)).collect();
    assert!(slope(&watch(&blocks, 1, 60, 60 * SECOND), 0).grows());
    let later = watch(&blocks, 1, 180, 60 * SECOND);
    assert_eq!(slope(&later, 0), Slope::default());
    assert!(later.watched_ns() <= 60 * SECOND);
}

#[test]
fn sites_and_totals_are_sums() {
    let mut random = Random(0x77);
    let leak = Site { rate: 2.0, lifetime: f64::INFINITY };
    let tracker = watch(&run(&mut random, &[leak, leak, leak], 30.0), 3, 30, USUAL_WINDOW_NS);
    // A reading of no time has no ages to tell from.
    let sites = tracker.of_sites(&Snapshot::default(), &[Some(0), Some(1), Some(0)], 2);
    let both = slope(&tracker, 0).and(slope(&tracker, 2));
    assert!((sites[0].slope.per_minute() - both.per_minute()).abs() < 1.0 && sites[1].slope == slope(&tracker, 1));
    let all = tracker.total(Memory::Host);
    assert!((all.per_minute() - both.and(slope(&tracker, 1)).per_minute()).abs() < 1.0 && all.grows());
    let series = sites[1].series;
    assert!(series[0] < series[SERIES / 2] && series[SERIES / 2] < series[SERIES - 1], "{series:?}");
    assert_eq!(tracker.total(Memory::Device(None)), Slope::default());
}

/// A training run takes much and gives it back within each step, and the readings come at any moment of one.
#[test]
fn a_device_that_leaks_is_told_from_one_that_goes_up_and_down() {
    use crate::model::snapshot::DevicePool;

    let mut random = Random(0xde7);
    let place = Place::Device(0);
    let mut watched = |leak: f64, seconds: u32| -> Slope {
        let mut tracker = Tracker::default();
        for second in 0..=seconds {
            let mut counters = vec![0; poolscope_wire::DEVICE_COUNTERS.len()];
            let in_use = 2e9 + 6e8 * random.unit() + leak * f64::from(second);
            counters[DeviceCounter::CurrentUsage as usize] = in_use as u64;
            let pool = DevicePool { place, counters, ..DevicePool::default() };
            let reading = Snapshot { devices: vec![pool], ..snapshot(&[], 1, f64::from(second)) };
            tracker.update(&reading);
        }
        let found = tracker.of_devices();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, place);
        found[0].1
    };
    assert_eq!(watched(1e7, 10), Slope::default(), "too few readings");
    let (mut level, mut leaks) = (0, 0);
    for _ in 0..200 {
        level += usize::from(watched(0.0, 60).grows()) + usize::from(watched(0.0, 20).grows());
        let leak = watched(2e7, 120);
        leaks += usize::from(leak.grows() && (leak.per_minute() / 1.2e9 - 1.0).abs() < 0.3);
    }
    assert!(level <= 6, "{level} of 400 grow");
    assert!(leaks >= 190, "{leaks} of 200 leaks are seen");
}

#[test]
fn another_process_begins_anew() {
    let blocks: Vec<(u32, f64, f64)> = (0..300).map(|at| (0, f64::from(at) / 10.0, f64::INFINITY)).collect();
    let mut tracker = watch(&blocks, 1, 30, USUAL_WINDOW_NS);
    assert!(slope(&tracker, 0).grows());
    let mut other = snapshot(&blocks, 1, 31.0);
    other.process.pid = 8;
    tracker.update(&other);
    assert_eq!((slope(&tracker, 0), tracker.watched_ns()), (Slope::default(), 0));
}

/// A stack that holds the same blocks all the time has no readings written down; once it changes, it has had what it
/// held, and when that lies before the window it is level again.
#[test]
fn what_was_level_has_its_past_when_it_changes() {
    let old: Vec<(u32, f64, f64)> = (0..5).map(|_| (0, -10.0, f64::INFINITY)).collect();
    let leak = (0..20).map(|at| (0, 20.5 + f64::from(at), f64::INFINITY));
    let blocks: Vec<(u32, f64, f64)> = old.into_iter().chain(leak).collect();
    let mut tracker = Tracker::new(20 * SECOND);
    let at = |tracker: &mut Tracker, from: u32, to: u32| {
        (from..=to).for_each(|second| tracker.update(&snapshot(&blocks, 1, f64::from(second))));
    };
    at(&mut tracker, 0, 20);
    assert!(tracker.series[0].past.is_none());
    assert_eq!(slope(&tracker, 0).per_minute(), 0.0);

    at(&mut tracker, 21, 30);
    let growth = tracker.of_stack(0).expect("holds some");
    assert_eq!((growth.series[0], growth.series[SERIES - 1]), (5.0 * PERIOD as f32, 15.0 * PERIOD as f32));
    assert!(growth.series.is_sorted() && growth.slope.is_clear(), "{growth:?}");

    at(&mut tracker, 31, 62);
    assert!(tracker.series[0].past.is_none());
    let growth = tracker.of_stack(0).expect("holds some");
    assert_eq!(growth.series, [25.0 * PERIOD as f32; SERIES]);
}
