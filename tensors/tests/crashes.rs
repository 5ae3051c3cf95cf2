//! Owner, users, Redis and the keeper are killed at any moment: no name, no byte and no reference is lost or left.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use poolscope_tensors::{NewTensor, Store, Tensor};
use serde_json::json;
use support::{
    Folder, Process, Redis, is_whole_keeper, list, owner_process, processes_of, slabs_of, stats, wait_until,
};

#[test]
#[ignore = "what other tests start"]
fn plays_a_part() {
    support::play_a_part();
}

fn make(store: &Store, name: &str, bytes: u64, fill: u8) -> Tensor {
    let created = store.create(&NewTensor::new(name, "u8", &[bytes])).unwrap();
    created.write(0, &vec![fill; bytes as usize]).unwrap();
    created.commit().unwrap()
}

#[test]
fn names_and_memory_survive_the_owner_and_so_does_who_holds_them() {
    let folder = Folder::new();
    let owner = owner_process(&folder, false);
    let of_keeper = std::fs::metadata(folder.0.join("keeper.sock")).unwrap().permissions().mode();
    assert_eq!(of_keeper & 0o777, 0o600);
    let store = folder.store();
    drop(make(&store, "nobody holds it", 5000, 1));
    let held = make(&store, "held", 5000, 2);
    let mut other = Process::start("client", &folder);
    assert_eq!(other.ask("get held"), "got 2");
    assert_eq!(other.ask("draft half 100"), "created");
    owner.kill();
    // While there is no owner, memory is there to be used.
    held.write(0, &[3; 5000]).unwrap();
    assert_eq!(other.ask("read held"), "3 all");

    let owner = owner_process(&folder, false);
    assert_eq!(store.get("nobody holds it").unwrap().to_vec().unwrap(), [1; 5000]);
    let shown = store.request(&json!({"op": "show", "name": "held"})).unwrap();
    assert_eq!((&shown["refcount"], &shown["generation"]), (&json!(3), &held.entry()["generation"]));
    // A client that dies while there is no owner is noticed by the next one.
    owner.kill();
    other.kill();
    let _owner = owner_process(&folder, false);
    wait_until("its reference was back", || {
        let shown = store.request(&json!({"op": "show", "name": "held"})).unwrap();
        (shown["refcount"] == 2 && store.request(&json!({"op": "show", "name": "half"})).is_err()).then_some(())
    });
    assert_eq!(held.to_vec().unwrap(), [3; 5000]);
    assert_eq!(stats(&store)["counts"]["lost"], 0);
}

#[test]
fn giving_back_waits_for_nobody_and_is_done_before_the_next_question() {
    let folder = Folder::new();
    let owner = owner_process(&folder, false);
    let store = folder.store();
    let tensor = make(&store, "w", 5000, 1);
    owner.signal(libc::SIGSTOP);
    let begun = Instant::now();
    drop(tensor);
    let took = begun.elapsed();
    owner.signal(libc::SIGCONT);
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(store.request(&json!({"op": "show", "name": "w"})).unwrap()["refcount"], 1);
}

#[test]
fn what_a_process_had_not_given_back_at_its_end_is_known_by_name() {
    let folder = Folder::new();
    let _owner = owner_process(&folder, false);
    let store = folder.store();
    drop((make(&store, "kept", 5000, 1), make(&store, "given back", 700, 2)));
    let mut other = Process::start("client", &folder);
    assert_eq!((other.ask("get kept"), other.ask("get kept")), ("got 1".into(), "got 1".into()));
    let pid = other.pid();
    let left = || store.request(&json!({"op": "left", "pid": pid})).unwrap();
    assert_eq!(left()["running"][0]["tensors"][0]["name"], "kept");
    assert_eq!(left()["ended"], json!([]));
    other.kill();
    let ended = wait_until("its end was noticed", || Some(left()).filter(|left| left["running"] == json!([])));
    let tensors = ended["ended"][0]["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 1, "{ended}");
    assert_eq!((&tensors[0]["name"], &tensors[0]["bytes"]), (&json!("kept"), &json!(5000)));
    assert_eq!(tensors[0]["references"], 2);
    // One that gave everything back left nothing.
    let other = Process::start("client", &folder);
    let pid = other.pid();
    drop(other);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(store.request(&json!({"op": "left", "pid": pid})).unwrap()["ended"], json!([]));
}

#[test]
fn an_owner_in_waiting_takes_over_within_a_second() {
    let folder = Folder::new();
    let owner = owner_process(&folder, false);
    let store = folder.store();
    drop(make(&store, "w", 100, 9));
    let mut second = Process::start("owner standby", &folder);
    std::thread::sleep(Duration::from_millis(100));
    owner.kill();
    assert_eq!(second.hear(), "ready");
    assert_eq!(store.get("w").unwrap().to_vec().unwrap(), [9; 100]);
}

#[test]
fn a_keeper_that_was_killed_is_replaced_and_has_everything_again() {
    let folder = Folder::new();
    let owner = owner_process(&folder, false);
    let store = folder.store();
    drop(make(&store, "w", 100, 9));
    let keeper = || processes_of(&folder).into_iter().find(|pid| *pid != owner.pid());
    let first = keeper().unwrap();
    // SAFETY: plain numbers; the process is this test's.
    unsafe { libc::kill(first as i32, libc::SIGKILL) };
    wait_until("there was another", || keeper().filter(|pid| *pid != first && is_whole_keeper(*pid)));
    owner.kill();
    let _owner = owner_process(&folder, false);
    assert_eq!(store.get("w").unwrap().to_vec().unwrap(), [9; 100]);
}

#[test]
fn an_orderly_end_leaves_neither_memory_nor_processes_nor_entries() {
    let folder = Folder::new();
    let redis = Redis::start(&folder);
    let mut owner = owner_process(&folder, true);
    let store = folder.store();
    drop(make(&store, "w", 100, 9));
    wait_until("it was entered", || redis.hash("w").contains_key("bytes").then_some(()));
    owner.finish();
    wait_until("all had ended", || processes_of(&folder).is_empty().then_some(()));
    assert!(redis.hash("w").is_empty());
    let left: Vec<String> = redis::cmd("KEYS").arg("tensor:*").query(&mut redis.connect()).unwrap();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn a_client_of_another_pid_namespace_holds_and_its_death_is_noticed() {
    let folder = Folder::new();
    let owner = owner_process(&folder, false);
    let store = folder.store();
    drop(make(&store, "w", 1000, 4));
    let unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"];
    if !std::process::Command::new(unshare[0]).args(&unshare[1..]).arg("true").status().is_ok_and(|it| it.success()) {
        eprintln!("skipped: this machine makes no pid namespaces");
        return;
    }
    let mut other = Process::start_under(&unshare, "client", &folder);
    assert_eq!(other.ask("get w"), "got 4");
    store.delete("w").unwrap();
    // It is held across an owner's death, too: the pipe says so, whose number does not.
    owner.kill();
    let _owner = owner_process(&folder, false);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(list(&store)["quarantine"][0]["name"], "w");
    assert_eq!(other.ask("read w"), "4 all");
    other.kill();
    wait_until("it was free", || (stats(&store)["quarantined"] == 0).then_some(()));
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// Kills owner, users, Redis and the keeper in turn while users create, get, drop and delete.
fn kill_loop(rounds: u64) {
    let folder = Folder::new();
    let mut redis = Some(Redis::start(&folder));
    let mut owner = Some(owner_process(&folder, true));
    let store = folder.store();
    let weights: Vec<Tensor> = (0..5).map(|n| make(&store, &format!("weights/{n}"), 3000, n as u8)).collect();
    let mut users: Vec<Process> = (0..2).map(|_| Process::start("client", &folder)).collect();
    let mut random = Random(1);
    let mut killed = [0; 4];
    for round in 0..rounds {
        for user in &mut users {
            for n in 0..1 + random.below(3) {
                let name = format!("user/{round}/{}/{n}", user.pid());
                // Nothing is waited for: the next kill comes in the middle.
                user.tell(&format!("create {name} {} {}", 1 + random.below(9000), random.below(256)));
                if random.below(2) == 0 {
                    user.tell(&format!("delete {name}"));
                }
            }
        }
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        let victim = round % 4;
        killed[victim as usize] += 1;
        match victim {
            0 => {
                owner.take().unwrap().kill();
                owner = Some(owner_process(&folder, true));
            }
            1 => {
                users.remove(0).kill();
                users.push(Process::start("client", &folder));
            }
            2 => {
                redis.take().unwrap().kill();
                redis = Some(Redis::start(&folder));
            }
            _ => {
                // Never the keeper in the moment of the owner's death: then both copies of the books are gone.
                let known = [owner.as_ref().unwrap().pid(), users[0].pid(), users[1].pid()];
                let keeper = processes_of(&folder).into_iter().find(|pid| !known.contains(pid));
                if let Some(keeper) = keeper {
                    // SAFETY: plain numbers; the process is this test's.
                    unsafe { libc::kill(keeper as i32, libc::SIGKILL) };
                }
                wait_until("there was another keeper", || {
                    let other = processes_of(&folder).into_iter().find(|pid| !known.contains(pid));
                    other.filter(|pid| Some(*pid) != keeper && is_whole_keeper(*pid))
                });
            }
        }
        let named = list(&store);
        let named = named["tensors"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap());
        let named = named.filter(|name| name.starts_with("weights/")).count();
        assert_eq!(named, 5, "round {round}: {}, {:?}", stats(&store), processes_of(&folder));
        for (n, tensor) in weights.iter().enumerate() {
            assert_eq!(tensor.to_vec().unwrap(), [n as u8; 3000], "round {round}");
        }
    }
    drop(users);
    // What the users made has names still. It goes, and then nothing is left.
    let delete_all = || {
        for tensor in list(&store)["tensors"].as_array().unwrap() {
            let name = tensor["name"].as_str().unwrap();
            if name.starts_with("user/") && !tensor["draft"].as_bool().unwrap() {
                store.delete(name).unwrap();
            }
        }
    };
    let until = std::time::Instant::now() + Duration::from_secs(10);
    loop {
        // What a user asked for just before it was killed may still be done.
        delete_all();
        let last = stats(&store);
        if last["names"] == 5 && last["quarantined"] == 0 && last["clients"] == 1 {
            break;
        }
        assert!(std::time::Instant::now() < until, "{last}: {}", list(&store));
        std::thread::sleep(Duration::from_millis(20));
    }
    let redis = redis.unwrap();
    wait_until("the entries said so", || {
        let names: Vec<String> = redis::cmd("SMEMBERS").arg("tensor:names").query(&mut redis.connect()).unwrap();
        (names.len() == 5 && redis.hash("weights/0")["refcount"] == "2").then_some(())
    });
    assert_eq!(stats(&store)["counts"]["lost"], 0);
    drop(weights);
    (0..5).for_each(|n| drop(store.delete(&format!("weights/{n}")).unwrap()));
    wait_until("all memory was free", || (stats(&store)["held_bytes"] == 0).then_some(()));
    // The keeper lets go of a slab when it has read that it should.
    wait_until("no process had a slab", || {
        let left: usize = processes_of(&folder).into_iter().chain([std::process::id()]).map(slabs_of).sum();
        (left == 0).then_some(())
    });
    println!(
        "killed: owner {}, users {}, Redis {}, keeper {}; 0 bytes left",
        killed[0], killed[1], killed[2], killed[3]
    );
}

#[test]
fn nothing_is_lost_or_left_when_anybody_is_killed_at_any_moment() {
    kill_loop(12);
}

#[test]
#[ignore = "a measurement that takes minutes"]
fn nothing_is_lost_or_left_after_a_thousand_kills() {
    kill_loop(std::env::var("KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(1000));
}
