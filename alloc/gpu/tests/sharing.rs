//! Memory of the simulated device in two processes: slabs by descriptor, plain memory by legacy handle, words.
//!
//! The other process is this program, with one test of its own ([`the_other_process`]), told by its environment.

use std::os::fd::AsFd;
use std::process::{Command, Output, Stdio};

use poolscope_gpu::{Call, Device, DeviceError, Fault, GRANULE, Kernel, Sharing, Simulated, Stream};

const MIB: u64 = 1 << 20;
const WORK: &str = "POOLSCOPE_SHARING_TEST";

fn device() -> Simulated {
    Simulated::in_process(64 * MIB, 0)
}

fn other_process(work: &str, input: Stdio) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_other_process", "--ignored", "--nocapture"]).env(WORK, work).stdin(input);
    command.output().unwrap()
}

#[test]
#[ignore = "what other tests start"]
fn the_other_process() {
    let work = std::env::var(WORK).unwrap();
    let device = device();
    let address = match work.strip_prefix("legacy ") {
        None => {
            let slab = device.import_slab(std::io::stdin().as_fd()).unwrap();
            device.map_slab(slab, GRANULE).unwrap()
        }
        Some(digits) => {
            let byte = |at: usize| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap();
            device.open_legacy(std::array::from_fn(byte)).unwrap()
        }
    };
    let mut said = [0; 5];
    device.copy_out(address + 100, &mut said).unwrap();
    assert_eq!(&said, b"hello");
    device.copy_in(address + 200, b"world").unwrap();
    device.write_word(Stream::LEGACY, address + 512, 7).unwrap();
}

#[test]
fn what_one_process_writes_into_a_slab_the_other_reads() {
    let device = device();
    let slab = device.create_slab(2 * GRANULE).unwrap();
    let address = device.map_slab(slab, 2 * GRANULE).unwrap();
    device.copy_in(address + 100, b"hello").unwrap();
    let other = other_process("slab", Stdio::from(device.export_slab(slab).unwrap()));
    assert!(other.status.success(), "{other:?}");
    let mut said = [0; 5];
    device.copy_out(address + 200, &mut said).unwrap();
    assert_eq!(&said, b"world");
    device.wait_word(Stream::LEGACY, address + 512, 7).unwrap();
}

#[test]
fn a_legacy_handle_opens_in_another_process_and_not_in_its_own() {
    let device = device();
    let address = device.allocate(GRANULE).unwrap();
    let handle = device.legacy_handle(address).unwrap();
    device.copy_in(address + 100, b"hello").unwrap();
    assert!(matches!(device.open_legacy(handle), Err(DeviceError { call: Call::OpenLegacy, .. })));
    let digits: String = handle.iter().map(|byte| format!("{byte:02x}")).collect();
    let other = other_process(&format!("legacy {digits}"), Stdio::null());
    assert!(other.status.success(), "{other:?}");
    let mut said = [0; 5];
    device.copy_out(address + 200, &mut said).unwrap();
    assert_eq!(&said, b"world");

    device.free(address).unwrap();
    let other = other_process(&format!("legacy {digits}"), Stdio::null());
    assert!(!other.status.success(), "memory that was freed opened: {other:?}");
}

#[test]
fn a_slab_lives_as_long_as_anybody_has_it_and_counts_where_it_was_created() {
    let (owner, reader) = (device(), device());
    let slab = owner.create_slab(GRANULE).unwrap();
    let descriptor = owner.export_slab(slab).unwrap();
    assert_eq!(owner.memory_info().unwrap().free, 64 * MIB - GRANULE);
    let imported = reader.import_slab(descriptor.as_fd()).unwrap();
    let address = reader.map_slab(imported, GRANULE).unwrap();
    assert_eq!(reader.memory_info().unwrap().free, 64 * MIB);
    owner.release_slab(slab).unwrap();
    assert_eq!(owner.memory_info().unwrap().free, 64 * MIB);
    reader.copy_in(address, b"still here").unwrap();
    assert_eq!(reader.address_range(address + 5).unwrap(), (address, GRANULE));
    let retained = reader.retain_slab(address + 5).unwrap();
    reader.unmap_slab(address, GRANULE).unwrap();
    let again = reader.map_slab(retained, GRANULE).unwrap();
    let mut said = [0; 10];
    reader.copy_out(again, &mut said).unwrap();
    assert_eq!(&said, b"still here");
}

#[test]
fn a_word_is_written_when_the_streams_work_before_it_is_done() {
    let device = Simulated::new(64 * MIB);
    let slab = device.create_slab(GRANULE).unwrap();
    let address = device.map_slab(slab, GRANULE).unwrap();
    let stream = device.non_blocking_stream();
    device.launch(stream, Kernel { duration: 1000, accesses: Vec::new() });
    device.write_word(stream, address, 1).unwrap();
    let read = || {
        let mut word = [0; 8];
        device.copy_out(address, &mut word).unwrap();
        u64::from_le_bytes(word)
    };
    // Reading costs time, too, which is why the work must be long.
    device.launch(stream, Kernel { duration: 1_000_000_000, accesses: Vec::new() });
    device.write_word(stream, address, 2).unwrap();
    assert_ne!(read(), 2);
    device.advance(2_000_000_000);
    assert_eq!(read(), 2);
}

#[test]
fn what_is_no_slab_is_refused() {
    let device = device();
    let pipe = std::io::pipe().unwrap().0;
    let refused = device.import_slab(pipe.as_fd());
    assert_eq!(refused, Err(DeviceError { call: Call::ImportSlab, fault: Fault::Invalid("not an exported slab") }));
    assert!(device.create_slab(GRANULE + 1).is_err());
    assert_eq!(device.create_slab(128 * MIB).unwrap_err().fault, Fault::OutOfMemory);
    assert!(device.open_legacy([0; 64]).is_err());
    let slab = device.create_slab(GRANULE).unwrap();
    assert!(device.map_slab(slab, 2 * GRANULE).is_err());
    let address = device.map_slab(slab, GRANULE).unwrap();
    assert!(device.copy_in(address + GRANULE - 2, b"four").is_err());
    assert!(device.write_word(Stream::LEGACY, address + 1, 1).is_err());
    assert_eq!(device.memory_info().unwrap().free, 64 * MIB - GRANULE);
}
