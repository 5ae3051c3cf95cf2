//! What holds the pool's lock, at a million free blocks. `cargo test --release -p poolscope-gpu many_blocks --
//! --ignored --nocapture` says how long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Large, Request};
use crate::device::{Driver, GRANULE, Simulated, Stream};

const MEMORY: u64 = 256 << 30;

fn time<T>(what: &str, call: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = call();
    let time = start.elapsed();
    println!("{what}: {:.1} us", time.as_nanos() as f64 / 1e3);
    (result, time)
}

/// Memory of which every second block of so many bytes is free, all of it used on two streams in turn.
struct Holes {
    large: Large<Simulated>,
    streams: [Stream; 2],
}

impl Holes {
    fn new(block: u64) -> Holes {
        let device = Arc::new(Simulated::new(MEMORY));
        let streams = [device.non_blocking_stream(), device.non_blocking_stream()];
        let large = Large::new(Arc::new(Driver::new(device))).expect("the device is there");
        let mut holes = Holes { large, streams };
        // All but what is to grow, in one piece.
        let whole = holes.request(MEMORY - (1 << 30), 0);
        let address = holes.large.grow(&whole).expect("the device has room");
        holes.large.free(address, whole.lane);
        let count = whole.size / block;
        let blocks: Vec<u64> = (0..count).map(|_| holes.allocate(block)).collect();
        for (at, address) in blocks.into_iter().enumerate().step_by(2) {
            let lane = holes.request(block, at / 2 % 2).lane;
            holes.large.free(address, lane);
        }
        holes.large.flush_hot();
        holes
    }

    fn request(&mut self, size: u64, stream: usize) -> Request {
        let stream = self.streams[stream];
        let lane = self.large.lanes.find(stream).expect("the stream is there");
        Request { size, align: 256, lane, stream, pool: 0 }
    }

    fn allocate(&mut self, size: u64) -> u64 {
        let request = self.request(size, 0);
        self.large.fit(&request).expect("it fits")
    }
}

#[test]
#[ignore = "a measurement"]
fn a_million_free_blocks() {
    for (name, block) in [("128 KiB", 128 << 10), ("2 MiB", GRANULE)] {
        let mut holes = Holes::new(block);
        println!("{} free blocks of {name}", (MEMORY - (1 << 30)) / block / 2);
        for size in [4 * GRANULE, 8 * GRANULE, 8 * GRANULE] {
            let request = holes.request(size, 0);
            assert_eq!(time("fit", || holes.large.fit(&request)).0, None);
            time("grow", || holes.large.grow(&request)).0.expect("the device has room");
        }
        time("free_below", || holes.large.free_below(4 * GRANULE));
        time("maintain", || holes.large.maintain(1, 1 << 40, 16));
        time("maintain, nothing idle", || holes.large.maintain(1, 1 << 40, 16));
        for sweep in ["a sweep", "another"] {
            holes.large.begin_to_coalesce();
            let (mut portions, mut longest, begin) = (0, Duration::ZERO, Instant::now());
            while holes.large.is_coalescing() {
                let start = Instant::now();
                holes.large.coalesce_some(512);
                longest = longest.max(start.elapsed());
                portions += 1;
            }
            let mean = begin.elapsed() / portions;
            println!("{sweep}: {portions} portions of {mean:?}, at most {longest:?}");
            holes.large.lanes.synchronize();
        }
        time("maintain, 16 calls", || holes.large.maintain(1 << 41, 1 << 40, 16));
    }
}

#[test]
#[ignore = "a measurement"]
fn many_free_chunks() {
    const CHUNKS: u64 = 65_536;
    let device = Arc::new(Simulated::new(MEMORY));
    let stream = device.non_blocking_stream();
    let mut large = Large::new(Arc::new(Driver::new(device))).expect("the device is there");
    let lane = large.lanes.find(stream).expect("the stream is there");
    let request = Request { size: GRANULE, align: 256, lane, stream, pool: 0 };
    let chunks: Vec<u64> = (0..CHUNKS).map(|_| large.grow_chunk(&request, 0).expect("the device has room")).collect();
    // Every second one, so that they stay apart.
    for address in chunks.into_iter().step_by(2) {
        large.free(address, lane);
    }
    println!("{} free chunks", CHUNKS / 2);
    for _ in 0..3 {
        time("fit_chunk", || large.fit_chunk(&request)).0.expect("one is free");
    }
}
