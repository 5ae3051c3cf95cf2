//! Programs of several streams that are behind the host, on the simulated device.
//!
//! `--nocapture` prints the figures.

use std::sync::Arc;

use poolscope_gpu::{Config, Device, Pool, Simulated};
use poolscope_replay::{AtWork, Latencies, Playback, Trace, synthetic};

/// What eight passes of a mix hold at most, in MiB, each of whose allocations gives its stream 20 us of work; and how much
/// of all streams' time went by in which one only waited for another, by the device's own count, but for the 10 ms for
/// which each may be held up in the beginning. Then what part of that time the pool's counter says.
fn at_work(mix: &str, config: &Config) -> (u64, f64, f64) {
    let trace = Trace::parse(&synthetic::make(mix, 17).unwrap()).unwrap();
    let device = Arc::new(Simulated::new(140 << 30));
    let pool = Pool::new(device.clone(), config.clone()).unwrap();
    let at_work = AtWork::new(&pool, device.clone(), 20_000, trace.streams() as u32);
    let streams = (0..trace.streams()).map(|_| device.non_blocking_stream()).collect();
    let mut playback = Playback::new(&trace, streams);
    let mut latencies = Latencies::default();
    let passes = [(); 8].map(|()| playback.run_timed(&at_work, &|| 0, &mut latencies).unwrap());
    assert_eq!(device.violations(), []);
    let held = passes.map(|pass| pass.peak_reserved >> 20)[7];
    let streams = trace.streams() as u64;
    let waited = device.waited().saturating_sub(streams * 10_000_000) as f64 / (device.now() * streams) as f64;
    let told = pool.stats().streams_held_up_ns as f64 / device.waited() as f64;
    println!(
        "{mix}: live {} MiB, held {held} MiB, waited {:.2}%, {told:.2} of it told",
        trace.peak() >> 20,
        100.0 * waited
    );
    (held, waited, told)
}

#[test]
fn streams_at_work_are_not_held_up_for_longer_than_they_may_be_and_hold_little() {
    for (mix, most) in [("mix-6x384-6", 300), ("mix-4x512-7", 400), ("mix-3x2048-10", 1_290)] {
        let (held, waited, told) = at_work(mix, &Config::default());
        assert!((0.5..2.0).contains(&told), "{mix}: {told} of the time that the device counted");
        assert!(held <= most, "{mix}: {held} MiB");
        assert!(waited <= 0.012, "{mix}: {waited}");
    }
}

#[test]
fn with_a_larger_share_they_wait_more_and_hold_less() {
    let default = at_work("mix-3x2048-10", &Config::default());
    let larger = at_work("mix-3x2048-10", &Config { wait_share: 1.0, ..Config::default() });
    assert!(larger.0 < default.0 && larger.1 > default.1, "{larger:?}, {default:?}");
}
