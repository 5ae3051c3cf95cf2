//! What the pool makes of traces on the simulated device, a line each: what it holds too much in the first pass and in
//! all, what an H200's driver charges for an operation in the first pass, the second one and the warm ones, and the
//! longest operation.
//!
//! `cargo run --release -p poolscope-replay --example mixes -- [--policy NAME] [--set SETTING=VALUE ...]
//! [--passes NUMBER] [--work NANOSECONDS] [mix-4x512-7 | TRACE.gz ...]`
//!
//! With `--work`, each allocation gives its stream work of so long, and the host needs as much time for each operation,
//! divided by the streams: they are at work when others ask for what they have freed.
//! The last columns are what the program needs where no stream waits for another one's memory, if that could be cut at
//! will (those that did wait got later to what they freed), and for how much of all streams' time they only waited.
//!
//! Without a trace: the mixes that the tests have.

use std::sync::Arc;

use poolscope_gpu::{Config, Device, Simulated};
use poolscope_replay::policies::build;
use poolscope_replay::{AtWork, Latencies, Playback, synthetic};

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let (mut policy, mut config, mut passes, mut work) = ("tiered".to_owned(), Config::default(), 8_usize, 0);
    while let Some(option) = arguments.first().filter(|first| first.starts_with("--")).cloned() {
        let value = arguments.drain(..2).nth(1).expect("an option takes a value");
        match (option.as_str(), value.split_once('=')) {
            ("--policy", _) => policy = value,
            ("--set", Some((setting, to))) => config.set(setting, to).unwrap_or_else(|error| panic!("{error}")),
            ("--passes", _) => passes = value.parse::<usize>().expect("a number").max(2),
            ("--work", _) => work = value.parse().expect("a number"),
            _ => {
                panic!("{option}: there are --policy NAME, --set SETTING=VALUE, --passes NUMBER and --work NANOSECONDS")
            }
        }
    }
    if arguments.is_empty() {
        arguments.extend(synthetic::MIXES.map(|mix| mix.name()));
    }
    println!(
        "{:>20} {:>8} {:>8} {:>6} {:>6} {:>7} {:>7} {:>7} {:>7} {:>8} {:>8} {:>8}",
        "trace",
        "live MiB",
        "held MiB",
        "cold%",
        "all%",
        "MiB +",
        "cold ns",
        "2nd ns",
        "warm ns",
        "longest us",
        "flow MiB",
        "waits %"
    );
    for name in arguments {
        let trace = synthetic::open(&name, 17).unwrap_or_else(|error| panic!("{name}: {error}"));
        let device = Arc::new(Simulated::new(140 << 30));
        let pool = build(&policy, device.clone(), &config).expect("a policy").expect("the device is there");
        let pool = AtWork::new(&*pool, device.clone(), work, trace.streams() as u32);
        let streams = (0..trace.streams()).map(|_| device.non_blocking_stream()).collect();
        let mut playback = Playback::new(&trace, streams);
        let mut latencies = Latencies::default();
        let (mut held, mut times) = (Vec::new(), Vec::new());
        for _ in 0..passes {
            let begun = device.now();
            let pass = playback.run_timed(&pool, &|| device.now(), &mut latencies).expect("the device has room");
            times.push((device.now() - begun) as f64 / trace.operations() as f64);
            held.push(pass.peak_reserved);
        }
        let over = |held: u64| 100.0 * (1.0 - trace.peak() as f64 / held as f64);
        let last = held[passes - 1];
        let warm = &times[passes / 2..];
        let short = name.rsplit('/').next().unwrap_or(&name).trim_end_matches(".trace.gz");
        println!(
            "{short:>20} {:>8.1} {:>8} {:>6.2} {:>6.2} {:>7.1} {:>7.0} {:>7.0} {:>7.0} {:>8} {:>8} {:>8.2}",
            trace.peak() as f64 / (1 << 20) as f64,
            last >> 20,
            over(held[0]),
            over(last),
            (last - trace.peak()) as f64 / (1 << 20) as f64,
            times[0],
            times[1],
            warm.iter().sum::<f64>() / warm.len() as f64,
            latencies.part(1.0) / 1000,
            pool.flow() >> 20,
            100.0 * device.waited() as f64 / (device.now() * trace.streams().max(1) as u64) as f64,
        );
    }
}
