//! Commands at random over Redis: those that make sense against a plain model of names and counts, and those that make
//! none, each of which gets a refusal. In the end nothing is left.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use poolscope_tensors::Owner;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use support::{Folder, Redis, list, options, stats, wait_until};

#[test]
#[ignore = "what other tests start"]
fn plays_a_part() {
    support::play_a_part();
}

#[derive(Clone, Debug)]
enum Command {
    Create(u8, u64),
    Get(u8),
    Delete(u8, bool),
    Nonsense(Value),
}

/// Any JSON, not too deep.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{0,6}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A request whose fields are anything; for most operations that is refused, and never more than that.
fn nonsense() -> impl Strategy<Value = Command> {
    let op = prop_oneof![
        Just("create"),
        Just("get"),
        Just("delete"),
        Just("get_many"),
        Just("release"),
        Just("commit"),
        Just("publish"),
        Just("slab"),
        Just("hello"),
        Just("words"),
        Just("show"),
        Just("list"),
        Just("gc"),
        Just("stats"),
        Just("no"),
    ];
    let field = prop_oneof![
        Just("name"),
        Just("dtype"),
        Just("shape"),
        Just("device"),
        Just("meta"),
        Just("expect"),
        Just("transport"),
        Just("who"),
        Just("generations"),
        Just("generation"),
        Just("slab"),
        Just("prefix"),
        Just("all"),
        Just("after"),
        Just("holds"),
        Just("client"),
        Just("token"),
        Just("ipc_handle"),
        Just("offset"),
        Just("slab_bytes"),
    ];
    let fields = prop::collection::btree_map(field, anything(), 0..6);
    (op, fields).prop_map(|(op, fields)| {
        let mut request = json!({"op": op});
        for (field, value) in fields {
            request[field] = value;
        }
        Command::Nonsense(request)
    })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        2 => (0u8..4, 1u64..50_000).prop_map(|(name, bytes)| Command::Create(name, bytes)),
        3 => (0u8..4).prop_map(Command::Get),
        3 => (0u8..4, prop::bool::weighted(0.2)).prop_map(|(name, all)| Command::Delete(name, all)),
        3 => nonsense(),
    ]
}

#[test]
fn random_commands_do_what_a_plain_model_says_and_leave_nothing() {
    let folder = Folder::new();
    let redis = Redis::start(&folder);
    let _owner = Owner::start(options(&folder.0, Some(folder.redis_url()))).unwrap();
    let store = folder.store();
    let case = AtomicU32::new(0);
    let mut runner = TestRunner::new(Config { cases: 48, failure_persistence: None, ..Config::default() });
    let tried = runner.run(&prop::collection::vec(command(), 1..30), |commands| {
        let case = case.fetch_add(1, Ordering::Relaxed);
        let name = |n: u8| format!("case {case}/{n}");
        // References of each name that there is.
        let mut model: BTreeMap<u8, u64> = BTreeMap::new();
        for command in commands {
            match command {
                Command::Create(n, bytes) => {
                    let transport = if bytes % 2 == 0 { "posix" } else { "legacy" };
                    let reply = redis.ask(json!({"op": "create", "name": name(n), "dtype": "u8", "shape": [bytes],
                        "transport": transport}));
                    match model.get(&n) {
                        Some(_) => prop_assert_eq!(&reply["code"], "exists"),
                        None => prop_assert_eq!(&reply["refcount"], 1),
                    }
                    model.entry(n).or_insert(1);
                }
                Command::Get(n) => {
                    let reply = redis.ask(json!({"op": "get", "name": name(n)}));
                    match model.get_mut(&n) {
                        Some(count) => {
                            *count += 1;
                            prop_assert_eq!(&reply["refcount"], *count);
                        }
                        None => prop_assert_eq!(&reply["code"], "no_such_name"),
                    }
                }
                Command::Delete(n, all) => {
                    let reply = redis.ask(json!({"op": "delete", "name": name(n), "all": all}));
                    match model.get(&n).map(|count| if all { 0 } else { count - 1 }) {
                        Some(0) => {
                            prop_assert_eq!(&reply["refcount"], 0);
                            model.remove(&n);
                        }
                        Some(left) => {
                            prop_assert_eq!(&reply["refcount"], left);
                            model.insert(n, left);
                        }
                        None => prop_assert_eq!(&reply["code"], "no_such_name"),
                    }
                }
                Command::Nonsense(request) => {
                    let reply = redis.ask(request);
                    prop_assert!(reply["ok"] == true || reply["code"].is_string(), "{}", reply);
                }
            }
            for (n, count) in &model {
                prop_assert_eq!(&redis.hash(&name(*n))["refcount"], &count.to_string());
            }
        }
        for n in model.into_keys() {
            prop_assert_eq!(&redis.ask(json!({"op": "delete", "name": name(n), "all": true}))["ok"], true);
        }
        Ok(())
    });
    tried.unwrap();
    // Nonsense may have made a tensor that makes sense.
    for tensor in list(&store)["tensors"].as_array().unwrap() {
        store.delete(tensor["name"].as_str().unwrap()).unwrap();
    }
    wait_until("all memory was free", || (stats(&store)["held_bytes"] == 0).then_some(()));
    let names: Vec<String> = redis::cmd("SMEMBERS").arg("tensor:names").query(&mut redis.connect()).unwrap();
    assert_eq!(names, Vec::<String>::new());
}
