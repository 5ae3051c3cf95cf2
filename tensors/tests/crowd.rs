//! Many clients at once that stall, break off and announce more than they send: each is refused in words, the others are
//! served, and the owner's memory has a bound.

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use poolscope_tensors::NewTensor;
use serde_json::Value;
use support::{Folder, MIB, Process, wait_until};

/// How long the owner of these tests waits for the rest of a request.
const STALL: Duration = Duration::from_millis(500);

#[test]
#[ignore = "what other tests start"]
fn plays_a_part() {
    support::play_a_part();
}

/// What the kernel says that a process has in memory.
fn resident(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    4096 * statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
}

/// What is answered to somebody who waits for it: a refusal, and then the end.
fn refusal(mut socket: UnixStream) -> String {
    let mut all = Vec::new();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // Who was refused in the middle may find the connection broken behind the answer.
    let _ = socket.read_to_end(&mut all);
    let length = u32::from_le_bytes(all[..4].try_into().unwrap()) as usize;
    let reply: Value = serde_json::from_slice(&all[4..4 + length]).unwrap();
    assert_eq!(reply["ok"], false);
    reply["code"].as_str().unwrap().to_owned()
}

/// So many clients, a quarter each: nothing said, half a head, half of a short request, most of a long one.
fn crowd(count: usize) {
    let folder = Folder::new();
    let mut owner = Process::start(&format!("owner stall {}", STALL.as_millis()), &folder);
    assert_eq!(owner.hear(), "ready");
    let store = folder.store();
    drop(store.create(&NewTensor::new("w", "u8", &[100])).unwrap().commit().unwrap());
    let before = resident(owner.pid());

    let long = vec![b' '; 900_000];
    let mut crowd: Vec<UnixStream> = Vec::new();
    for n in 0..count {
        // Those that break off at once make room for nobody's answer.
        let mut passing = UnixStream::connect(folder.socket()).unwrap();
        let _ = passing.write_all(&[9, 0, 0, 0, b'{'][..n % 5]);
        drop(passing);
        let mut socket = UnixStream::connect(folder.socket()).unwrap();
        socket.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let said: &[&[u8]] = match n % 4 {
            0 => &[],
            1 => &[&[7, 0]],
            2 => &[&[200, 0, 0, 0], b"{\"op\":"],
            _ => &[&1_000_000u32.to_le_bytes(), &long],
        };
        // What was refused already takes no more.
        let _ = said.iter().try_for_each(|part| socket.write_all(part));
        crowd.push(socket);
    }
    // Others are served while they stand there.
    let started = Instant::now();
    for _ in 0..200 {
        drop(store.get("w").unwrap());
    }
    let (served, grown) = (started.elapsed(), resident(owner.pid()).saturating_sub(before));
    let mut codes: Vec<String> = crowd.into_iter().map(refusal).collect();
    codes.sort();
    let timeouts = codes.iter().filter(|code| *code == "timeout").count();
    let busy = codes.iter().filter(|code| *code == "busy").count();
    assert_eq!(timeouts + busy, count, "{codes:?}");
    // 32 long requests at the same time, what the kernel keeps for a thread, and the short ones.
    let bound = 32 * MIB + count as u64 * (64 << 10) + 8 * MIB;
    assert!(grown < bound, "{} MiB more for {count} clients: at most {}", grown / MIB, bound / MIB);
    println!(
        "{count} clients: {timeouts} timeouts, {busy} busy; {} KiB more in memory; 200 gets beside them in {served:?}",
        grown >> 10
    );
    wait_until("they were gone", || (threads(owner.pid()) < 20).then_some(()));
    drop(folder.store().get("w").unwrap());
}

fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

#[test]
fn a_crowd_that_stalls_is_refused_in_words_within_bounded_memory_and_nobody_else_waits() {
    crowd(240);
}

#[test]
#[ignore = "a measurement with a thousand clients"]
fn a_crowd_of_a_thousand() {
    crowd(std::env::var("CROWD").ok().and_then(|n| n.parse().ok()).unwrap_or(1000));
}

#[test]
fn one_that_has_said_who_it_is_may_be_silent() {
    let folder = Folder::new();
    let mut owner = Process::start(&format!("owner stall {}", STALL.as_millis()), &folder);
    assert_eq!(owner.hear(), "ready");
    let store = folder.store();
    let before = threads(owner.pid());
    std::thread::sleep(3 * STALL);
    // Its thread serves it still.
    assert_eq!(threads(owner.pid()), before);
    drop(store.request(&serde_json::json!({"op": "stats"})).unwrap());
}
