//! Streams as C programs use them, on a simulated device that the test gives work to.

use std::ffi::{CStr, CString};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use poolscope_gpu::{Device, Kernel, Simulated, Stream};
use poolscope_tensors::{DeviceChoice, Options, Owner, Store, StoreOptions};
use serde_json::Value;

use super::*;
use crate::tensor::*;

const MIB: u64 = 1 << 20;

struct World {
    device: Arc<Simulated>,
    store: *mut poolscope_store,
    socket: CString,
    folder: PathBuf,
    _owner: Owner,
}

impl World {
    fn new(name: &str) -> World {
        let folder = std::env::temp_dir().join(format!("pst-c-{}-{name}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
        let socket = folder.join("tensors.sock");
        let owner = Owner::start(Options {
            redis: None,
            devices: vec![DeviceChoice::Simulated(256 * MIB)],
            socket: socket.clone(),
            keeper: Vec::new(),
            clients: 100,
            stall: Duration::from_secs(10),
            token: None,
            metrics: None,
            standby: false,
        });
        let device = Arc::new(Simulated::in_process(256 * MIB, 0));
        let options = StoreOptions { socket: socket.clone(), patience: Duration::from_secs(10) };
        let store = Store::open(options).unwrap().with_device("GPU-simulated-0", device.clone());
        let socket = CString::new(socket.to_str().unwrap()).unwrap();
        let store = Box::into_raw(Box::new(poolscope_store(store)));
        World { device, store, socket, folder, _owner: owner.unwrap() }
    }

    /// A stream with work of so many milliseconds.
    fn busy(&self, milliseconds: u64) -> Stream {
        let stream = self.device.non_blocking_stream();
        self.device.launch(stream, Kernel { duration: milliseconds * 1_000_000, accesses: Vec::new() });
        stream
    }

    fn create(&self, name: &CStr) -> *mut poolscope_tensor {
        let shape = [1000];
        // SAFETY: texts that end with a zero, one number, and a store that is open.
        unsafe {
            poolscope_tensors_create(self.store, name.as_ptr(), c"u8".as_ptr(), shape.as_ptr(), 1, 0, ptr::null())
        }
    }

    fn ask(&self, request: &CStr) -> Value {
        // SAFETY: a text that ends with a zero, and a reply that is read before it is freed.
        unsafe {
            let reply = poolscope_tensors_request(self.store, request.as_ptr());
            let read = serde_json::from_slice(CStr::from_ptr(reply).to_bytes()).unwrap();
            poolscope_tensors_free(reply.cast());
            read
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // SAFETY: it was opened, and nothing of it is used any more.
        unsafe { poolscope_tensors_close(self.store) };
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn what_c_gives_back_behind_a_stream_is_used_again_when_its_work_is_done() {
    let world = World::new("record");
    let (kept, tensor) = (world.create(c"kept"), world.create(c"w"));
    let stream = world.busy(300);
    let started = Instant::now();
    // SAFETY: tensors of an open store, released once each.
    unsafe {
        assert_eq!(poolscope_tensors_commit(world.store, kept), 0);
        assert_eq!(poolscope_tensors_commit(world.store, tensor), 0);
        assert_eq!(poolscope_tensor_record_stream(tensor, stream.0), 0);
        poolscope_tensor_release(tensor);
    }
    world.ask(c"{\"op\":\"delete\",\"name\":\"w\",\"all\":true}");
    assert_eq!(world.ask(c"{\"op\":\"list\"}")["quarantine"][0]["name"], "w");
    while world.ask(c"{\"op\":\"stats\"}")["quarantined"] != 0 {
        assert!(started.elapsed() < Duration::from_secs(20));
        // A simulated word is written when somebody calls the device.
        let _ = world.device.now();
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(started.elapsed() >= Duration::from_millis(290));
    // SAFETY: as above.
    unsafe { poolscope_tensor_release(kept) };
}

#[test]
fn a_reader_in_c_waits_by_its_stream_or_for_so_long_as_it_said() {
    let world = World::new("commit");
    let tensor = world.create(c"w");
    let (writes, started) = (world.busy(300), Instant::now());
    // SAFETY: tensors and stores that are open, closed and released once each.
    unsafe {
        assert_eq!(poolscope_tensor_commit_on(tensor, writes.0), 0);
        let impatient = poolscope_tensors_open_within(world.socket.as_ptr(), 0.05);
        assert!(poolscope_tensors_get(impatient, c"w".as_ptr(), ptr::null()).is_null());
        assert_eq!(CStr::from_ptr(poolscope_tensors_error_code()), c"timeout");
        poolscope_tensors_close(impatient);
        let device = Arc::clone(&world.device);
        // A simulated word is written when somebody calls the writer's device; its readers' streams wait on the host.
        let caller = std::thread::spawn(move || {
            while started.elapsed() < Duration::from_secs(1) {
                let _ = device.now();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let reads = world.device.non_blocking_stream();
        let found = poolscope_tensors_get_on(world.store, c"w".as_ptr(), ptr::null(), reads.0);
        assert!(!found.is_null() && started.elapsed() >= Duration::from_millis(290));
        caller.join().unwrap();
        poolscope_tensor_release(found);
        poolscope_tensor_release(tensor);
    }
}
