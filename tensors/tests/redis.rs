//! The protocol over Redis as anybody speaks it, with a real redis-server.

mod support;

use std::time::Duration;

use poolscope_tensors::{NewTensor, Options, Owner};
use serde_json::{Value, json};
use support::{Folder, Process, Redis, options, stats, wait_until};

#[test]
#[ignore = "what other tests start"]
fn plays_a_part() {
    support::play_a_part();
}

fn create(name: &str) -> Value {
    json!({"op": "create", "name": name, "dtype": "f32", "shape": [2, 3], "device": 0})
}

#[test]
fn a_tensor_is_created_got_and_deleted_by_commands_alone() {
    let folder = Folder::new();
    let redis = Redis::start(&folder);
    let _owner = Owner::start(options(&folder.0, Some(folder.redis_url()))).unwrap();
    let made = redis.ask(create("X"));
    assert_eq!(made["ok"], true, "{made}");
    let hash = redis.hash("X");
    let text = |field: &str| hash.get(field).map(String::as_str).unwrap_or_default();
    assert_eq!(
        ["name", "dtype", "shape", "device", "bytes", "refcount"].map(text),
        ["X", "f32", "[2,3]", "0", "24", "1"]
    );
    assert_eq!(text("owner_pid"), std::process::id().to_string());
    // 64 bytes as base64.
    assert_eq!((text("ipc_handle").len(), text("transport")), (88, "legacy"));
    for field in ["ctime", "mtime", "generation", "boot_id", "pid_ns", "owner_start", "gpu_uuid", "slab", "offset"] {
        assert!(!text(field).is_empty(), "{field} in {hash:?}");
    }

    assert_eq!(redis.ask(json!({"op": "get", "name": "X"}))["refcount"], 2);
    assert_eq!(redis.hash("X")["refcount"], "2");
    assert_eq!(redis.ask(json!({"op": "delete", "name": "X"}))["refcount"], 1);
    assert_eq!(redis.ask(json!({"op": "delete", "name": "X"}))["refcount"], 0);
    assert!(redis.hash("X").is_empty());
    assert_eq!(redis.ask(json!({"op": "get", "name": "X"}))["code"], "no_such_name");

    let again = redis.ask(create("X"));
    assert_ne!(again["generation"], made["generation"]);
    let stale = json!({"op": "delete", "name": "X", "generation": made["generation"]});
    assert_eq!(redis.ask(stale)["code"], "mismatch");
}

#[test]
fn whatever_is_pushed_gets_a_reply_and_the_next_command_is_served() {
    let folder = Folder::new();
    let redis = Redis::start(&folder);
    let _owner = Owner::start(options(&folder.0, Some(folder.redis_url()))).unwrap();
    let mut connection = redis.connect();
    let long = format!("{{\"op\":\"create\",\"name\":\"{}\"}}", "x".repeat(1 << 20));
    for bad in ["{", "null", "\u{0}", &long, "{\"op\":\"create\",\"id\":{}}"] {
        let _: u64 = redis::cmd("RPUSH").arg("tensor:cmd").arg(bad).query(&mut connection).unwrap();
        let reply: Option<(String, String)> =
            redis::cmd("BLPOP").arg("tensor:reply").arg(10).query(&mut connection).unwrap();
        let reply: Value = serde_json::from_str(&reply.unwrap().1).unwrap();
        assert_eq!(reply["ok"], false, "{reply}");
        assert!(reply["error"].as_str().is_some_and(|words| words.len() < 300), "{reply}");
    }
    for (bad, code) in [
        (json!({"op": "burn"}), "bad_op"),
        (json!({"op": "create", "name": "a\u{7}", "dtype": "f32", "shape": [1]}), "bad_name"),
        (json!({"op": "create", "name": "a", "dtype": "f32", "shape": [1u64 << 62, 8]}), "bad_shape"),
        (json!({"op": "create", "name": "a", "dtype": "q7", "shape": [1]}), "bad_dtype"),
        (json!({"op": "create", "name": "a", "dtype": "f32", "shape": [1], "device": 9}), "no_device"),
        (json!({"op": "create", "name": "a", "dtype": "f32", "shape": [1u64 << 40]}), "no_memory"),
        (json!({"op": "hello"}), "bad_op"),
        (json!({"op": "slab", "slab": 1}), "denied"),
        (json!({"op": "get", "name": "x".repeat(1 << 20)}), "too_long"),
    ] {
        let reply = redis.ask(bad);
        assert_eq!(reply["code"], code, "{reply}");
    }
    // A key of another kind in the way of an entry, and of the list.
    let _: () = redis::cmd("SET").arg("tensor:name:X").arg("mine").query(&mut connection).unwrap();
    assert_eq!(redis.ask(create("X"))["ok"], true);
    assert_eq!(redis.hash("X")["dtype"], "f32");
    let _: () = redis::cmd("SET").arg("tensor:cmd").arg("mine").query(&mut connection).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let _: () = redis::cmd("DEL").arg("tensor:cmd").query(&mut connection).unwrap();
    assert_eq!(redis.ask(create("Y"))["ok"], true);
}

#[test]
fn a_reader_with_nothing_but_redis_has_the_same_memory_and_its_death_is_noticed() {
    let folder = Folder::new();
    let redis = Redis::start(&folder);
    let _owner = support::owner_process(&folder, true);
    assert_eq!(redis.ask(create("X"))["ok"], true);
    let mut one = Process::start("redis reader", &folder);
    let mut other = Process::start("redis reader", &folder);
    assert_eq!(one.ask("get X"), "got 0");
    // The reader writes one more into the next byte, which the other reads by the socket.
    let tensor = folder.store().get("X").unwrap();
    assert_eq!(tensor.to_vec().unwrap()[..2], [0, 1]);
    tensor.write(0, &[41]).unwrap();
    assert_eq!(other.ask("get X"), "got 41");
    assert_eq!(tensor.to_vec().unwrap()[1], 42);
    wait_until("all counted", || (redis.hash("X")["refcount"] == "4").then_some(()));
    assert_eq!(other.ask("drop"), "dropped");
    wait_until("it was back", || (redis.hash("X")["refcount"] == "3").then_some(()));
    one.kill();
    wait_until("the dead one's was back", || (redis.hash("X")["refcount"] == "2").then_some(()));
}

#[test]
fn memory_that_comes_by_descriptor_is_refused_to_a_reader_with_nothing_but_redis() {
    let folder = Folder::new();
    let redis = Redis::start(&folder);
    let _owner = support::owner_process(&folder, true);
    let mut posix = create("X");
    posix["transport"] = "posix".into();
    assert_eq!(redis.ask(posix)["ok"], true);
    let mut reader = Process::start("redis reader", &folder);
    let said = reader.ask("get X");
    assert!(said.starts_with("refused not_shared") && said.contains("tensors.sock"), "{said}");
    wait_until("nothing is left", || (redis.hash("X")["refcount"] == "1").then_some(()));
}

#[test]
fn redis_may_die_and_come_back_empty_and_nothing_is_lost() {
    let folder = Folder::new();
    let redis = Redis::start(&folder);
    let _owner = Owner::start(options(&folder.0, Some(folder.redis_url()))).unwrap();
    let store = folder.store();
    let tensor = store.create(&NewTensor::new("w", "u8", &[100])).unwrap().commit().unwrap();
    wait_until("it was entered", || redis.hash("w").contains_key("bytes").then_some(()));
    let generation = redis.hash("w")["generation"].clone();
    redis.kill();
    tensor.write(0, &[3; 100]).unwrap();
    let more = store.create(&NewTensor::new("more", "u8", &[5])).unwrap().commit().unwrap();
    store.delete("more").unwrap();
    let redis = Redis::start(&folder);
    wait_until("it was entered again", || redis.hash("w").contains_key("bytes").then_some(()));
    assert_eq!(redis.hash("w")["generation"], generation);
    assert!(redis.hash("more").is_empty());
    assert_eq!(redis.ask(json!({"op": "get", "name": "w"}))["refcount"], 3);
    drop(more);
    assert_eq!(store.get("w").unwrap().to_vec().unwrap(), [3; 100]);
}

#[test]
fn a_reply_comes_once_though_the_owners_connections_were_cut() {
    let folder = Folder::new();
    let redis = Redis::start(&folder);
    let _owner = Owner::start(options(&folder.0, Some(folder.redis_url()))).unwrap();
    for at in 0..5 {
        let mut connection = redis.connect();
        let _: u64 = redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).query(&mut connection).unwrap();
        // Commands are taken again by now, and the first reply finds that its connection is gone.
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(redis.ask(create(&format!("X{at}")))["ok"], true);
    }
    assert_eq!(redis.ask(json!({"op": "stats"}))["names"], 5);
    let left: Vec<String> = redis::cmd("KEYS").arg("tensor:reply*").query(&mut redis.connect()).unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn entries_come_back_when_redis_was_emptied_under_an_owner() {
    let folder = Folder::new();
    let redis = Redis::start(&folder);
    let _owner = Owner::start(options(&folder.0, Some(folder.redis_url()))).unwrap();
    assert_eq!(redis.ask(create("X"))["ok"], true);
    let before = redis.hash("X");
    let _: () = redis::cmd("FLUSHALL").query(&mut redis.connect()).unwrap();
    wait_until("it was entered again", || (redis.hash("X") == before).then_some(()));
}

#[test]
fn an_owner_that_another_one_followed_ends_and_changes_nothing() {
    let folder = Folder::new();
    let redis = Redis::start(&folder);
    let owner = Owner::start(options(&folder.0, Some(folder.redis_url()))).unwrap();
    assert_eq!(redis.ask(create("X"))["ok"], true);
    let second = Folder::new();
    let refused = Owner::start(options(&second.0, Some(folder.redis_url()))).err().unwrap();
    assert!(refused.words.contains("another owner"), "{refused}");
    // A later owner that this one does not know of: from another machine's view of the same Redis, say.
    let _: () =
        redis::cmd("HSET").arg("tensor:owner").arg("epoch").arg(u64::MAX >> 12).query(&mut redis.connect()).unwrap();
    let before = redis.hash("X");
    let reply = folder.store().request(&json!({"op": "get", "name": "X"})).unwrap();
    assert_eq!(reply["refcount"], 2);
    wait_until("it ended", || owner.is_stopping().then_some(()));
    assert_eq!(redis.hash("X"), before);
}

#[test]
fn who_may_delete_over_redis_needs_the_token_if_there_is_one() {
    let folder = Folder::new();
    let redis = Redis::start(&folder);
    let token = Some("secret".to_owned());
    let _owner = Owner::start(Options { token, ..options(&folder.0, Some(folder.redis_url())) }).unwrap();
    assert_eq!(redis.ask(create("X"))["ok"], true);
    assert_eq!(redis.ask(json!({"op": "delete", "name": "X"}))["code"], "denied");
    assert_eq!(redis.ask(json!({"op": "delete", "name": "X", "token": "guess"}))["code"], "denied");
    assert_eq!(redis.ask(json!({"op": "delete", "name": "X", "token": "secret"}))["ok"], true);
}

/// Many producers at once, each with its own replies; and every count comes out even.
#[test]
fn many_clients_at_once_lose_no_command() {
    let folder = Folder::new();
    let redis = Redis::start(&folder);
    let _owner = Owner::start(options(&folder.0, Some(folder.redis_url()))).unwrap();
    assert_eq!(redis.ask(create("X"))["ok"], true);
    std::thread::scope(|scope| {
        for at in 0..8 {
            let redis = &redis;
            scope.spawn(move || {
                let mut connection = redis.connect();
                let mut pipeline = redis::pipe();
                for n in 0..200 {
                    let request = json!({"op": "get", "name": "X", "id": format!("{at}-{n}")}).to_string();
                    pipeline.cmd("RPUSH").arg("tensor:cmd").arg(request).ignore();
                }
                let _: () = pipeline.query(&mut connection).unwrap();
                for n in 0..200 {
                    let key = format!("tensor:reply:{at}-{n}");
                    let reply: Option<(String, String)> =
                        redis::cmd("BLPOP").arg(key).arg(15).query(&mut connection).unwrap();
                    assert!(reply.unwrap().1.contains("\"ok\":true"));
                }
            });
        }
    });
    assert_eq!(redis.hash("X")["refcount"], "1601");
    assert_eq!(stats(&folder.store())["counts"]["refused"], 0);
}
