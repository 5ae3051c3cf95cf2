//! The order of streams across processes: by words in device memory that all share.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use poolscope_gpu::{Kernel, Simulated, Stream};
use poolscope_tensors::{Code, NewTensor, Store, StoreOptions};
use support::{Folder, MIB, Process, list, owner, stats, wait_until};

#[test]
#[ignore = "what other tests start"]
fn plays_a_part() {
    support::play_a_part();
}

/// A store whose device the test can give work to.
fn store(folder: &Folder) -> (Store, Arc<Simulated>) {
    let device = Arc::new(Simulated::in_process(256 * MIB, 0));
    (folder.store().with_device("GPU-simulated-0", device.clone()), device)
}

/// Work of so many milliseconds.
fn work(device: &Simulated, stream: Stream, milliseconds: u64) {
    device.launch(stream, Kernel { duration: milliseconds * 1_000_000, accesses: Vec::new() });
}

#[test]
fn memory_is_used_again_when_the_streams_of_another_process_are_done() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    let (store, device) = store(&folder);
    // Keeps the slab, so that the mapping stays.
    let _other = store.create(&NewTensor::new("other", "u8", &[1000])).unwrap().commit().unwrap();
    let mut tensor = store.create(&NewTensor::new("w", "u8", &[1000])).unwrap().commit().unwrap();
    let place = tensor.entry()["offset"].clone();
    let (slow, fast) = (device.non_blocking_stream(), device.non_blocking_stream());
    work(&device, slow, 400);
    work(&device, fast, 1);
    tensor.record_stream(slow);
    tensor.record_stream(fast);
    let started = Instant::now();
    drop(tensor);
    assert!(started.elapsed() < Duration::from_millis(200), "nobody waits for the stream");
    store.delete("w").unwrap();
    assert_eq!(list(&store)["quarantine"][0]["name"], "w");
    let while_busy = store.create(&NewTensor::new("w", "u8", &[1000])).unwrap();
    assert_ne!(while_busy.entry()["offset"], place);
    // A simulated word is written when somebody calls the device.
    wait_until("the work was done", || {
        work(&device, fast, 0);
        let _ = poolscope_gpu::Device::now(&*device);
        (stats(&store)["quarantined"] == 0).then_some(())
    });
    assert!(started.elapsed() >= Duration::from_millis(390));
    let after = store.create(&NewTensor::new("x", "u8", &[1000])).unwrap();
    assert_eq!(after.entry()["offset"], place);
}

#[test]
fn a_reader_waits_for_what_a_stream_still_writes() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    let (writer, device) = store(&folder);
    let created = writer.create(&NewTensor::new("w", "u8", &[1000])).unwrap();
    let stream = device.non_blocking_stream();
    work(&device, stream, 300);
    let started = Instant::now();
    let _tensor = created.commit_on(stream).unwrap();
    assert!(started.elapsed() < Duration::from_millis(200), "the writer does not wait");
    let calls = Arc::clone(&device);
    // The word is written while somebody calls the writer's device.
    let caller = std::thread::spawn(move || {
        while started.elapsed() < Duration::from_secs(1) {
            let _ = poolscope_gpu::Device::now(&*calls);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let impatient = StoreOptions { socket: folder.socket(), patience: Duration::from_millis(50) };
    let refused = Store::open(impatient).unwrap().get("w").err().unwrap();
    assert_eq!(refused.code, Code::Timeout);
    let (reader, other_device) = store(&folder);
    let _read = reader.get_on("w", other_device.non_blocking_stream()).unwrap();
    drop(reader.get("w").unwrap());
    assert!(started.elapsed() >= Duration::from_millis(290));
    caller.join().unwrap();
}

#[test]
fn what_a_dead_writer_had_not_finished_goes_and_nobody_waits_for_it() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    let mut other = Process::start("client", &folder);
    assert_eq!(other.ask("create-busy w 1000"), "created");
    let store = folder.store();
    assert_eq!(list(&store)["tensors"][0]["name"], "w");
    let started = Instant::now();
    let reader = folder.store();
    let waiting = std::thread::spawn(move || reader.get("w").map(drop));
    std::thread::sleep(Duration::from_millis(200));
    other.kill();
    wait_until("it was gone", || store.get("w").err().filter(|refusal| refusal.code == Code::NoName));
    // Who waited goes on; what it got is told apart by its state.
    let _ = waiting.join().unwrap();
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(stats(&store)["counts"]["lost"], 1);
}
