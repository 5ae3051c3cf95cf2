//! Names, references and memory over the socket.

mod support;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use poolscope_tensors::{Code, DeviceChoice, NewTensor, Options, Owner, Store, StoreOptions, Transport};
use serde_json::json;
use support::{Folder, MIB, Process, list, mapped_slabs, options, owner, stats, wait_until};

#[test]
#[ignore = "what other tests start"]
fn plays_a_part() {
    support::play_a_part();
}

fn make(store: &Store, name: &str, bytes: u64, fill: u8) -> poolscope_tensors::Tensor {
    let created = store.create(&NewTensor::new(name, "u8", &[bytes])).unwrap();
    created.write(0, &vec![fill; bytes as usize]).unwrap();
    created.commit().unwrap()
}

#[test]
fn one_name_is_one_memory_in_two_processes() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    let store = folder.store();
    let tensor = make(&store, "llama/wq", 1000, 7);
    let mut other = Process::start("client", &folder);
    assert_eq!(other.ask("get llama/wq"), "got 7");
    tensor.write(0, &[8; 1000]).unwrap();
    assert_eq!(other.ask("read llama/wq"), "8 all");
    assert_eq!(other.ask("create theirs 600 9"), "created");
    assert_eq!(store.get("theirs").unwrap().to_vec().unwrap(), [9; 600]);
}

#[test]
fn a_draft_is_nobodys_until_it_is_finished_and_goes_with_its_process() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    let store = folder.store();
    let mut other = Process::start("client", &folder);
    assert_eq!(other.ask("draft half 1000"), "created");
    assert_eq!(store.get("half").err().unwrap().code, Code::Unfinished);
    assert_eq!(store.create(&NewTensor::new("half", "u8", &[5])).err().unwrap().code, Code::Exists);
    other.kill();
    wait_until("the draft was gone", || store.get("half").err().filter(|refusal| refusal.code == Code::NoName));
    wait_until("its memory was free", || (stats(&store)["held_bytes"] == 0).then_some(()));
}

#[test]
fn memory_without_a_name_stays_with_those_who_hold_it_and_is_shown_with_them() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    let store = folder.store();
    drop(make(&store, "w", 4096, 1));
    let mut other = Process::start("client", &folder);
    assert_eq!(other.ask("get w"), "got 1");
    let reply = store.delete("w").unwrap();
    assert_eq!(reply["held_by"][0]["pid"], other.pid());
    // Another tensor of the same name and size has other memory.
    let again = make(&store, "w", 4096, 2);
    assert_eq!(other.ask("read w"), "1 all");
    let listed = list(&store);
    let held = &listed["quarantine"][0];
    assert_eq!((&held["name"], &held["held_by"][0]["pid"]), (&json!("w"), &json!(other.pid())));
    assert!(held["freed_at"].as_u64() > Some(0) && held["generation"] != again.entry()["generation"]);
    assert_eq!(stats(&store)["quarantined_bytes"], 4096);
    other.kill();
    wait_until("it was free", || (stats(&store)["quarantined"] == 0).then_some(()));
    assert_eq!(again.to_vec().unwrap(), [2; 4096]);
}

#[test]
fn references_of_a_killed_process_come_back_and_the_name_stays() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    let store = folder.store();
    let tensor = make(&store, "w", 100, 1);
    let mut other = Process::start("client", &folder);
    for _ in 0..3 {
        assert_eq!(other.ask("get w"), "got 1");
    }
    let refcount = || store.request(&json!({"op": "show", "name": "w"})).unwrap()["refcount"].as_u64();
    assert_eq!(refcount(), Some(5));
    assert_eq!(other.ask("drop w"), "dropped");
    // A release has no answer, and comes by another connection.
    wait_until("they were released", || (refcount() == Some(2)).then_some(()));
    assert_eq!(other.ask("get w"), "got 1");
    other.kill();
    wait_until("they were back", || (refcount() == Some(2)).then_some(()));
    drop(tensor);
    assert_eq!(refcount(), Some(1));
}

#[test]
fn a_thousand_names_cost_one_import_and_the_mapping_goes_with_the_last() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    let store = folder.store();
    let created: Vec<_> =
        (0..1000).map(|n| store.create(&NewTensor::new(&format!("model/{n:03}"), "f32", &[64, 4])).unwrap()).collect();
    store.release(store.commit_all(created).unwrap());
    assert_eq!(mapped_slabs(), 0);
    let tensors = store.get_many("model/").unwrap();
    assert_eq!((tensors.len(), mapped_slabs()), (1000, 1));
    assert_eq!((tensors[3].name(), tensors[3].strides()), ("model/003", &[4, 1][..]));
    let one = store.get("model/007").unwrap();
    assert_eq!(one.address(), tensors[7].address());
    store.release(tensors);
    assert_eq!(mapped_slabs(), 1);
    drop(one);
    assert_eq!(mapped_slabs(), 0);
}

#[test]
fn what_can_not_be_done_is_said_with_a_code() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    let store = folder.store();
    let refused = |request: serde_json::Value| store.request(&request).unwrap_err().code;
    let create = |name: &str, dtype: &str, shape: serde_json::Value, device: u64| {
        refused(json!({"op": "create", "name": name, "dtype": dtype, "shape": shape, "device": device}))
    };
    assert_eq!(refused(json!({"op": "explode"})), Code::BadOp);
    assert_eq!(refused(json!([1])), Code::BadJson);
    assert_eq!(create("x", "f33", json!([1]), 0), Code::BadDtype);
    assert_eq!(create("x", "f32", json!([u64::MAX, 2]), 0), Code::BadShape);
    assert_eq!(create("x", "f32", json!([1]), 3), Code::NoDevice);
    assert_eq!(create("x", "f32", json!([1u64 << 40]), 0), Code::NoMemory);
    assert_eq!(create(&"x".repeat(MIB as usize / 2), "f32", json!([1]), 0), Code::BadName);
    assert_eq!(create("a\u{1b}[31m", "f32", json!([1]), 0), Code::BadName);
    assert_eq!(refused(json!({"op": "get", "name": "nobody"})), Code::NoName);
    assert_eq!(refused(json!({"op": "commit", "generations": [1]})), Code::Denied);
    let _there = make(&store, "x", 10, 1);
    assert_eq!(create("x", "f32", json!([1]), 0), Code::Exists);
    assert_eq!(refused(json!({"op": "slab", "slab": 99})), Code::Denied);
    // Nothing of all that left memory behind.
    assert_eq!(stats(&store)["names"], 1);
}

#[test]
fn a_request_that_is_too_long_is_refused_at_once_and_the_store_goes_on() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    let store = folder.store();
    let since = Instant::now();
    assert_eq!(store.get(&"n".repeat(2 << 20)).err().unwrap().code, Code::TooLong);
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    assert_eq!(store.get(&"n".repeat(1000)).err().unwrap().code, Code::BadName);
}

#[test]
fn a_draft_that_is_given_up_leaves_its_name_and_memory() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    let store = folder.store();
    drop(store.create(&NewTensor::new("w", "u8", &[100])).unwrap());
    assert_eq!(store.get("w").err().unwrap().code, Code::NoName);
    assert_eq!(stats(&store)["in_use_bytes"], 0);
    let again = folder.store().create(&NewTensor::new("w", "u8", &[5])).unwrap().commit().unwrap();
    assert_eq!(again.shape(), [5]);
}

#[test]
fn a_full_device_says_so_and_goes_on() {
    let folder = Folder::new();
    let devices = vec![DeviceChoice::Simulated(100 * MIB)];
    let _owner = Owner::start(Options { devices, ..options(&folder.0, None) }).unwrap();
    let store = folder.store();
    let first = make(&store, "first", 60 * MIB, 1);
    let full = store.create(&NewTensor::new("second", "u8", &[60 * MIB])).err().unwrap();
    assert_eq!(full.code, Code::NoMemory);
    drop(make(&store, "small", 20 * MIB, 1));
    drop(first);
    store.delete("first").unwrap();
    // Memory that nothing is in goes back at once where it is needed.
    drop(make(&store, "second", 60 * MIB, 2));
}

#[test]
fn a_reader_gets_what_it_expects_or_nothing() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    let store = folder.store();
    let meta = |revision: &str| json!({"model": "llama", "revision": revision}).as_object().unwrap().clone();
    let new = NewTensor { meta: meta("a1"), ..NewTensor::new("w", "f32", &[4]) };
    let tensor = store.create(&new).unwrap().commit().unwrap();
    assert_eq!(tensor.meta()["revision"], "a1");
    assert_eq!(store.get_expecting("w", &meta("a1")).unwrap().address(), tensor.address());
    let refused = store.get_expecting("w", &meta("b2")).err().unwrap();
    assert_eq!(refused.code, Code::Mismatch);
    assert!(refused.words.contains("a1") && refused.words.contains("b2"), "{refused}");
}

#[test]
fn memory_that_somebody_else_made_gets_a_name_and_outlives_its_maker() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    let store = folder.store();
    let mut other = Process::start("client", &folder);
    assert_eq!(other.ask("create source 5000 3"), "created");
    let source = store.get("source").unwrap();
    // The part behind the first 1,000 bytes of memory that this process has not made.
    let new = NewTensor::new("part", "u8", &[4000]);
    store.publish(&new, source.gpu_uuid(), source.address() + 1000).unwrap();
    drop(source);
    store.delete("source").unwrap();
    other.kill();
    let part = store.get("part").unwrap();
    assert_eq!(part.to_vec().unwrap(), [3; 4000]);
    drop(part);
    store.delete("part").unwrap();
    wait_until("all was free", || (stats(&store)["held_bytes"] == 0).then_some(()));
}

#[test]
fn the_socket_is_this_users_alone() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    let mode = std::fs::metadata(folder.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let open = Folder::new();
    std::fs::set_permissions(&open.0, std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused = Owner::start(options(&open.0, None)).err().unwrap();
    assert_eq!(refused.code, Code::Denied);

    let second = Owner::start(options(&folder.0, None)).err().unwrap();
    assert_eq!(second.code, Code::Busy);
    assert!(second.words.contains(&std::process::id().to_string()), "{second}");
}

#[test]
fn a_client_that_stalls_holds_nobody_up_and_too_many_are_told_so() {
    let folder = Folder::new();
    let _owner = Owner::start(Options { clients: 20, ..options(&folder.0, None) }).unwrap();
    let store = folder.store();
    let mut stalled = UnixStream::connect(folder.socket()).unwrap();
    stalled.write_all(&[200, 0, 0, 0, b'{']).unwrap();
    let started = Instant::now();
    drop(make(&store, "w", 100, 1));
    assert!(started.elapsed() < Duration::from_secs(2));
    let others: Vec<_> = (0..30).map(|_| UnixStream::connect(folder.socket()).unwrap()).collect();
    let options = StoreOptions { socket: folder.socket(), patience: Duration::from_secs(5) };
    let refused = wait_until("it was full", || Store::open(options.clone()).err());
    assert_eq!(refused.code, Code::Busy);
    drop(others);
    wait_until("there was room", || Store::open(options.clone()).ok());
}

#[test]
fn the_first_tensor_of_a_slab_comes_with_its_memory_by_one_question() {
    let folder = Folder::new();
    let _owner = owner(&folder);
    drop(make(&folder.store(), "w", 1000, 7));
    let reader = folder.store();
    let questions = || support::stats(&reader)["counts"]["requests"].as_u64().unwrap();
    let before = questions();
    let tensor = reader.get("w").unwrap();
    // The second look counts itself.
    assert_eq!(questions() - before, 2);
    let again = reader.get("w").unwrap();
    assert_eq!((tensor.to_vec().unwrap(), again.address()), (vec![7; 1000], tensor.address()));
}

#[test]
fn legacy_memory_opens_in_another_process_too() {
    let folder = Folder::new();
    let _owner = support::owner_process(&folder, false);
    let store = folder.store();
    let new = NewTensor { transport: Transport::Legacy, ..NewTensor::new("w", "u8", &[100]) };
    let tensor = store.create(&new).unwrap().commit().unwrap();
    tensor.write(0, &[5; 100]).unwrap();
    let mut other = Process::start("client", &folder);
    assert_eq!(other.ask("get w"), "got 5");
}

/// Somebody cleared the folder, say.
#[test]
fn an_owner_ends_when_the_file_of_its_socket_is_gone() {
    let folder = Folder::new();
    let owner = Owner::start(options(&folder.0, None)).unwrap();
    std::fs::remove_file(folder.0.join("tensors.sock")).unwrap();
    let (says, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || says.send(owner.end(true).is_ok()));
    assert_eq!(said.recv_timeout(Duration::from_secs(20)), Ok(true));
}
