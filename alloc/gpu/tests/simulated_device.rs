//! The simulated device itself: time, order, memory, graphs, failures.

use poolscope_gpu::{Call, Device, DeviceError, Fault, GRANULE, Kernel, Progress, Simulated, Stream, Violation};

const MIB: u64 = 1 << 20;
const US: u64 = 1_000;

/// A device with one mapped and lent granule.
fn device_with_a_granule() -> (Simulated, u64) {
    let device = Simulated::new(64 * MIB);
    let address = device.reserve(8 * GRANULE).unwrap();
    let granule = device.create(GRANULE).unwrap();
    device.map(address, granule).unwrap();
    device.set_access(address, GRANULE).unwrap();
    device.lend(address, GRANULE);
    (device, address)
}

#[test]
fn an_event_is_done_when_the_streams_work_has_taken_its_time() {
    let (device, address) = device_with_a_granule();
    let stream = device.stream();
    device.launch(stream, Kernel::writing(address, 256, 100 * US));
    let event = device.create_event().unwrap();
    device.record(event, stream).unwrap();
    assert_eq!(device.query(event), Ok(Progress::Pending));
    device.advance(101 * US);
    assert_eq!(device.query(event), Ok(Progress::Done));
    assert_eq!(device.violations(), []);
}

#[test]
fn an_access_that_waited_for_nothing_is_a_race_even_when_the_clock_was_kind() {
    let (device, address) = device_with_a_granule();
    let (first, second) = (device.non_blocking_stream(), device.non_blocking_stream());
    device.launch(first, Kernel::writing(address, 256, US));
    device.advance(1_000 * US);
    device.launch(second, Kernel::reading(address + 128, 256, US));
    assert_eq!(device.violations(), [Violation::Race { earlier: address, later: address + 128 }]);
}

#[test]
fn events_queries_and_the_default_stream_order_accesses() {
    let (device, address) = device_with_a_granule();
    let (first, second) = (device.non_blocking_stream(), device.non_blocking_stream());
    let event = device.create_event().unwrap();

    device.launch(first, Kernel::writing(address, 256, US));
    device.record(event, first).unwrap();
    device.wait(second, event).unwrap();
    device.launch(second, Kernel::writing(address, 256, US));

    device.record(event, second).unwrap();
    device.advance(10 * US);
    assert_eq!(device.query(event), Ok(Progress::Done));
    let third = device.stream();
    device.launch(third, Kernel::writing(address, 256, US));

    device.launch(Stream::LEGACY, Kernel::writing(address, 256, US));
    device.launch(Stream::PER_THREAD, Kernel::writing(address, 256, US));
    assert_eq!(device.violations(), []);

    device.launch(first, Kernel::reading(address, 256, US));
    assert_eq!(device.violations(), [Violation::Race { earlier: address, later: address }]);
}

#[test]
fn two_reads_need_no_order() {
    let (device, address) = device_with_a_granule();
    device.launch(device.non_blocking_stream(), Kernel::reading(address, 256, US));
    device.launch(device.non_blocking_stream(), Kernel::reading(address, 256, US));
    assert_eq!(device.violations(), []);
}

#[test]
fn work_on_memory_that_is_not_mapped_or_not_lent_is_found() {
    let (device, address) = device_with_a_granule();
    device.launch(Stream::NULL, Kernel::writing(address + GRANULE, 256, US));
    device.take_back(address);
    device.launch(Stream::NULL, Kernel::writing(address, 256, US));
    device.take_back(address);
    let expected = [Violation::Unmapped(address + GRANULE), Violation::NotLent(address), Violation::NotABlock(address)];
    assert_eq!(device.violations(), expected);
}

#[test]
fn one_granule_under_two_addresses_is_one_memory() {
    let device = Simulated::new(64 * MIB);
    let address = device.reserve(4 * GRANULE).unwrap();
    let granule = device.create(GRANULE).unwrap();
    for at in [address, address + GRANULE] {
        device.map(at, granule).unwrap();
        device.set_access(at, GRANULE).unwrap();
    }
    device.lend(address, 4096);
    device.lend(address + GRANULE + 4096, 4096);
    assert_eq!(device.violations(), []);
    device.lend(address + GRANULE, 256);
    let given = address + GRANULE;
    assert_eq!(device.violations(), [Violation::LentTwice { given, holder: address }]);
}

#[test]
fn unmapping_under_work_is_found_until_the_host_knows_that_it_is_over() {
    let (device, address) = device_with_a_granule();
    device.launch(Stream::NULL, Kernel::writing(address, 256, US));
    device.take_back(address);
    device.advance(10 * US);
    device.unmap(address, GRANULE).unwrap();
    assert_eq!(device.violations(), [Violation::UnmappedInUse(address)]);

    let (device, address) = device_with_a_granule();
    device.launch(Stream::NULL, Kernel::writing(address, 256, US));
    device.take_back(address);
    device.synchronize_all();
    device.unmap(address, GRANULE).unwrap();
    assert_eq!(device.violations(), []);
}

#[test]
fn memory_ends_at_the_limit_and_comes_back_when_it_is_released() {
    let device = Simulated::new(2 * GRANULE);
    let first = device.create(GRANULE).unwrap();
    let plain = device.allocate(MIB).unwrap();
    let full = DeviceError { call: Call::Create, fault: Fault::OutOfMemory };
    assert_eq!(device.create(GRANULE), Err(full));
    assert_eq!(device.memory_info().unwrap().free, 0);
    device.free(plain).unwrap();
    device.release(first).unwrap();
    assert_eq!(device.memory_info().unwrap().free, 2 * GRANULE);
    assert_eq!(device.peak(), 2 * GRANULE);
}

#[test]
fn a_released_granule_is_freed_with_its_last_mapping() {
    let device = Simulated::new(GRANULE);
    let address = device.reserve(GRANULE).unwrap();
    let granule = device.create(GRANULE).unwrap();
    device.map(address, granule).unwrap();
    device.release(granule).unwrap();
    assert!(device.create(GRANULE).is_err());
    device.unmap(address, GRANULE).unwrap();
    assert!(device.create(GRANULE).is_ok());
}

#[test]
fn a_planned_call_fails_and_changes_nothing() {
    let device = Simulated::new(64 * MIB);
    device.fail(Some(Call::Create), 2, Fault::Driver(700));
    assert!(device.create(GRANULE).is_ok());
    assert_eq!(device.create(GRANULE), Err(DeviceError { call: Call::Create, fault: Fault::Driver(700) }));
    assert!(device.create(GRANULE).is_ok());
    assert_eq!(device.memory_info().unwrap().free, 60 * MIB);
    assert_eq!(device.calls(Call::Create), 3);
}

#[test]
fn random_failures_are_the_same_for_the_same_seed() {
    let run = |seed| {
        let device = Simulated::new(1 << 30);
        device.fail_at_random(0.3, seed);
        (0..100).map(|_| device.create(GRANULE).is_ok()).collect::<Vec<_>>()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
    assert!(run(7).contains(&false));
}

#[test]
fn a_query_during_a_capture_is_found_and_loses_the_graph() {
    let device = Simulated::new(64 * MIB);
    let (stream, event) = (device.stream(), device.create_event().unwrap());
    device.record(event, stream).unwrap();
    device.begin_capture(stream);
    assert_eq!(device.capturing(stream), Ok(true));
    assert!(device.query(event).is_err());
    assert_eq!(device.end_capture(stream), None);
    assert_eq!(device.violations(), [Violation::Captured(Call::Query)]);
}

#[test]
fn a_captured_kernel_runs_with_its_graph() {
    let (device, address) = device_with_a_granule();
    let stream = device.stream();
    device.begin_capture(stream);
    device.launch(stream, Kernel::writing(address, 256, 5 * US));
    let graph = device.end_capture(stream).unwrap();
    assert_eq!(device.idle_at(stream), 0);
    device.launch_graph(graph, stream);
    assert!(device.idle_at(stream) >= 5 * US);
    device.take_back(address);
    device.launch_graph(graph, stream);
    assert_eq!(device.violations(), [Violation::NotLent(address)]);
}

#[test]
fn calls_cost_what_they_do_on_an_h200() {
    let device = Simulated::new(64 * MIB);
    let start = device.now();
    let address = device.allocate(2 * MIB).unwrap();
    device.free(address).unwrap();
    assert_eq!(device.now() - start, 77 * US);
}

#[test]
fn a_piece_is_mapped_and_given_up_as_a_whole() {
    let device = Simulated::new(64 * MIB);
    let address = device.reserve(8 * GRANULE).unwrap();
    let piece = device.create(4 * GRANULE).unwrap();
    device.map(address, piece).unwrap();
    device.set_access(address, 4 * GRANULE).unwrap();
    assert!(device.unmap(address, GRANULE).is_err() && device.unmap(address + GRANULE, 3 * GRANULE).is_err());
    assert!(device.map(address + 3 * GRANULE, device.create(GRANULE).unwrap()).is_err());
    device.map(address + 4 * GRANULE, piece).unwrap();
    device.unmap(address, 8 * GRANULE).unwrap();
    assert_eq!(device.memory_info().unwrap().free, 64 * MIB - 5 * GRANULE);
    device.release(piece).unwrap();
    assert_eq!(device.memory_info().unwrap().free, 64 * MIB - GRANULE);
}
