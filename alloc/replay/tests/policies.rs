//! Every placement policy: nobody's memory is given out too early, what is freed is used again,
//! and bad calls are errors.

use std::sync::Arc;

use poolscope_gpu::{Config, Device, Fault, Kernel, Simulated, Stream, Violation};
use poolscope_replay::{Policy, PolicyError, policies};
use proptest::prelude::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// A program on a policy; the access checker knows all its blocks and all its work.
struct Program {
    device: Arc<Simulated>,
    policy: Box<dyn Policy>,
}

impl Program {
    fn new(name: &str, memory: u64) -> Program {
        let device = Arc::new(Simulated::new(memory));
        let policy = policies::build(name, device.clone(), &Config::default()).unwrap().unwrap();
        assert_eq!(policy.name(), name);
        Program { device, policy }
    }

    fn alloc(&self, size: u64, stream: Stream) -> Result<u64, PolicyError> {
        let address = self.policy.allocate(size, stream)?;
        assert!(address.is_multiple_of(256));
        self.device.lend(address, size);
        self.device.launch(stream, Kernel::writing(address, size, MS));
        Ok(address)
    }

    fn free(&self, address: u64, stream: Stream) {
        self.device.take_back(address);
        self.policy.free(address, stream).unwrap();
    }

    fn order(&self, first: Stream, second: Stream) {
        self.device.untroubled(|device| {
            let event = device.create_event().unwrap();
            device.record(event, first).unwrap();
            device.wait(second, event).unwrap();
            device.destroy_event(event).unwrap();
        });
    }

    fn assert_in_order(&self) {
        assert_eq!(self.device.violations(), Vec::<Violation>::new(), "{}", self.policy.name());
    }
}

fn each(memory: u64, scenario: impl Fn(&Program)) {
    for name in policies::NAMES {
        let program = Program::new(name, memory);
        scenario(&program);
        program.assert_in_order();
    }
}

#[test]
fn there_is_no_policy_of_another_name() {
    let device = Arc::new(Simulated::new(MIB));
    assert!(policies::build("best", device, &Config::default()).is_none());
    assert!(policies::NAMES.iter().all(|name| policies::describe(name).is_some()));
}

#[test]
fn a_stream_gets_back_what_it_freed() {
    each(256 * MIB, |program| {
        let stream = program.device.non_blocking_stream();
        for size in [256, 100 * KIB, 3 * MIB] {
            let first = program.alloc(size, stream).unwrap();
            program.free(first, stream);
            let held = program.policy.stats().reserved;
            let second = program.alloc(size, stream).unwrap();
            assert_eq!(second, first, "{} at {size}", program.policy.name());
            assert_eq!(program.policy.stats().reserved, held);
            program.free(second, stream);
        }
    });
}

#[test]
fn another_stream_gets_it_behind_an_event() {
    each(64 * MIB, |program| {
        let (one, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
        let block = program.alloc(30 * MIB, one).unwrap();
        program.free(block, one);
        let again = program.alloc(30 * MIB, other).unwrap();
        program.free(again, other);
        let held = program.policy.stats().peak_reserved;
        assert!(held < 60 * MIB, "{} holds {held}", program.policy.name());
    });
}

#[test]
fn a_third_stream_waits_for_the_first_one_through_the_second() {
    each(64 * MIB, |program| {
        let streams: Vec<_> = (0..3).map(|_| program.device.non_blocking_stream()).collect();
        let halves: Vec<u64> = streams[..2].iter().map(|stream| program.alloc(15 * MIB, *stream).unwrap()).collect();
        for (half, stream) in halves.iter().zip(&streams) {
            program.free(*half, *stream);
        }
        for stream in [streams[1], streams[2]] {
            if let Ok(block) = program.alloc(30 * MIB, stream) {
                program.free(block, stream);
            }
        }
    });
}

#[test]
fn a_block_that_another_stream_frees_is_used_again_after_its_work() {
    each(256 * MIB, |program| {
        let (one, other) = (program.device.non_blocking_stream(), program.device.non_blocking_stream());
        for size in [KIB, 5 * MIB] {
            let block = program.alloc(size, one).unwrap();
            program.order(one, other);
            program.device.launch(other, Kernel::writing(block, size, MS));
            program.free(block, other);
            for stream in [one, other] {
                let again = program.alloc(size, stream).unwrap();
                program.free(again, stream);
            }
        }
    });
}

#[test]
fn a_full_device_is_an_error_that_says_what_is_held() {
    each(64 * MIB, |program| {
        let stream = program.device.non_blocking_stream();
        let block = program.alloc(8 * MIB, stream).unwrap();
        for size in [100 * MIB, u64::MAX] {
            let error = program.alloc(size, stream).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&size.to_string()) && text.contains("out of memory"), "{text}");
        }
        program.free(block, stream);
        let block = program.alloc(8 * MIB, stream).unwrap();
        program.free(block, stream);
    });
}

#[test]
fn memory_that_is_short_is_found_among_what_is_free() {
    each(128 * MIB, |program| {
        let stream = program.device.non_blocking_stream();
        let small: Vec<u64> = (0..12).map(|_| program.alloc(4 * MIB, stream).unwrap()).collect();
        small.iter().for_each(|block| program.free(*block, stream));
        let large = program.alloc(64 * MIB, stream);
        program.free(large.unwrap_or_else(|error| panic!("{}: {error}", program.policy.name())), stream);
    });
}

#[test]
fn what_is_no_block_is_not_freed() {
    each(64 * MIB, |program| {
        let stream = program.device.non_blocking_stream();
        let block = program.alloc(4 * KIB, stream).unwrap();
        for address in [0, block + 256, 0xdead_0000] {
            assert!(program.policy.free(address, stream).is_err(), "{} frees {address:#x}", program.policy.name());
        }
        program.free(block, stream);
        assert_eq!(program.policy.stats().in_use, 0);
    });
}

#[test]
fn what_nobody_uses_goes_back_to_the_device() {
    each(256 * MIB, |program| {
        let stream = program.device.non_blocking_stream();
        let blocks: Vec<_> = [KIB, MIB, 40 * MIB].map(|size| program.alloc(size, stream).unwrap()).into();
        blocks.iter().for_each(|block| program.free(*block, stream));
        program.policy.release().unwrap();
        let stats = program.policy.stats();
        assert_eq!((stats.in_use, stats.reserved), (0, 0), "{}", program.policy.name());
        assert!(stats.peak_reserved >= 41 * MIB && stats.driver_calls > 0);
    });
}

#[test]
fn a_policy_that_ends_leaves_nothing_on_the_device() {
    for name in policies::NAMES {
        let program = Program::new(name, 256 * MIB);
        let stream = program.device.non_blocking_stream();
        for size in [KIB, 30 * MIB] {
            let block = program.alloc(size, stream).unwrap();
            program.free(block, stream);
        }
        let Program { device, policy } = program;
        drop(policy);
        let info = device.memory_info().unwrap();
        assert_eq!(info.free, info.total, "{name}");
        assert_eq!(device.violations(), []);
    }
}

#[test]
fn threads_may_share_a_policy() {
    each(1024 * MIB, |program| {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    let stream = program.device.non_blocking_stream();
                    let mut blocks = Vec::new();
                    for round in 0..200u64 {
                        let size = 256 << ((round * 7 + thread * 5) % 14);
                        blocks.push(program.alloc(size, stream).unwrap());
                        if blocks.len() > 6 {
                            program.free(blocks.remove((round % 6) as usize), stream);
                        }
                    }
                    blocks.into_iter().for_each(|block| program.free(block, stream));
                });
            }
        });
        assert_eq!(program.policy.stats().in_use, 0);
    });
}

#[test]
fn default_streams_of_threads_are_not_taken_for_one_stream() {
    each(256 * MIB, |program| {
        let churn = |size| {
            let block = program.alloc(size, Stream::PER_THREAD).unwrap();
            program.free(block, Stream::PER_THREAD);
        };
        for size in [4 * KIB, 20 * MIB] {
            churn(size);
            std::thread::scope(|scope| scope.spawn(|| churn(size)).join().unwrap());
            churn(size);
        }
    });
}

#[derive(Clone, Debug)]
enum Step {
    Alloc { size: u64, stream: usize },
    Free { which: usize, stream: Option<usize> },
    Use { which: usize, duration: u64 },
    Pass { time: u64 },
    Release,
    Fail { nth: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![1..4 * KIB, 4 * KIB..2 * MIB, MIB..24 * MIB];
    prop_oneof![
        12 => (size, 0..4usize).prop_map(|(size, stream)| Step::Alloc { size, stream }),
        10 => (any::<usize>(), prop::option::weighted(0.3, 0..4usize))
            .prop_map(|(which, stream)| Step::Free { which, stream }),
        6 => (any::<usize>(), 0..20 * MS).prop_map(|(which, duration)| Step::Use { which, duration }),
        2 => (0..50 * MS).prop_map(|time| Step::Pass { time }),
        1 => Just(Step::Release),
        1 => (1..12u64).prop_map(|nth| Step::Fail { nth }),
    ]
}

/// What a program in order does is in order on the device, also where calls fail.
fn run(name: &str, steps: &[Step]) {
    let program = Program::new(name, 128 * MIB);
    let mut streams: Vec<_> = (0..3).map(|_| program.device.non_blocking_stream()).collect();
    streams.push(Stream::LEGACY);
    // Address, size and stream.
    let mut blocks: Vec<(u64, u64, Stream)> = Vec::new();
    for step in steps {
        match *step {
            Step::Alloc { size, stream } => {
                if let Ok(address) = program.alloc(size, streams[stream]) {
                    blocks.push((address, size, streams[stream]));
                }
            }
            Step::Free { which, stream } if !blocks.is_empty() => {
                let (address, _, own) = blocks.swap_remove(which % blocks.len());
                let on = stream.map_or(own, |stream| streams[stream]);
                if on != own {
                    program.order(own, on);
                }
                program.device.untroubled(|_| program.free(address, on));
            }
            Step::Use { which, duration } if !blocks.is_empty() => {
                let (address, size, stream) = blocks[which % blocks.len()];
                program.device.launch(stream, Kernel::writing(address, size, duration));
            }
            Step::Pass { time } => program.device.advance(time),
            Step::Release => {
                // One that fails has changed nothing, or has given back less.
                let _ = program.policy.release();
            }
            Step::Fail { nth } => program.device.fail(None, nth, Fault::Driver(999)),
            _ => {}
        }
    }
    program.device.fail_no_more();
    let asked: u64 = blocks.iter().map(|(_, size, _)| size).sum();
    assert!(program.policy.stats().in_use >= asked);
    for (address, _, stream) in blocks {
        program.free(address, stream);
    }
    assert_eq!(program.policy.stats().in_use, 0);
    program.policy.release().unwrap();
    program.assert_in_order();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn what_a_program_in_order_does_is_in_order_on_the_device(steps in prop::collection::vec(step(), 1..120)) {
        policies::NAMES.iter().for_each(|name| run(name, &steps));
    }
}
