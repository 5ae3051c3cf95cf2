//! The processes to choose from, alone and with the call sites of all.

use std::path::PathBuf;

use poolscope_profiler::model::growth::Slope;

use super::*;
use crate::dashboard::events::named_sites::NamedSite;
use crate::dashboard::events::processes::{ProcessRow, Processes};
use crate::dashboard::events::watched::Watched;

fn row(pid: u32, name: &str, mib: u64, age: u64) -> ProcessRow {
    ProcessRow {
        pid,
        uid: Some(poolscope_profiler::process::own_uid()),
        user: "root".into(),
        watched: Watched::Segment(PathBuf::from(format!("/dev/shm/{pid}"))),
        name: name.into(),
        arguments: format!("--port {pid}"),
        in_use: Some(mib << 20),
        rss: Some((mib + 20) << 20),
        trend: if name == "worker" { Slope::new(5e6, 1e5) } else { Slope::default() },
        age: Duration::from_secs(age),
    }
}

fn everybody(state: &mut State) {
    let site = |function: &str, processes, bytes| NamedSite {
        function: function.into(),
        place: Some("store.rs:87".into()),
        processes,
        in_use_bytes: bytes,
        in_use_objects: 1200.0,
        samples: 90,
    };
    let sites = vec![site("kv::store::Store::put", 2, 9e7), site("worker::parse", 1, 3e6)];
    state.with_sites = true;
    state.overlay = Overlay::Choose;
    let running = vec![row(31, "kv-server", 80, 300), row(7, "worker", 9, 4000), row(112, "kv-server", 120, 20)];
    state.take_processes(Processes { running, is_read: true, sites: Some(sites), ..Processes::default() });
}

/// The process ids of the list, in its order, and the selected one.
fn listed(state: &State) -> (Vec<u32>, Option<u32>) {
    let text = screen(state);
    let lines = text.lines().filter(|line| line.contains("--port"));
    let pid = |line: &str| line.split_whitespace().find_map(|word| word.parse().ok());
    let rows: Vec<&str> = lines.collect();
    let selected = rows.iter().find(|line| line.contains('▶')).and_then(|line| pid(line));
    (rows.iter().filter_map(|line| pid(line)).collect(), selected)
}

#[test]
fn all_processes_together() {
    at_every_size("everybody", everybody);
}

/// The list as it stands: its order, and only what the filter leaves.
#[test]
fn processes_are_written_as_csv_as_they_are_shown() {
    let folder = std::env::temp_dir().join(format!("poolscope-processes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut state = state(120, 40);
    everybody(&mut state);
    press(&mut state, "fserver\n");
    let path = crate::dashboard::export::processes(&state, &folder).unwrap();
    let csv = std::fs::read_to_string(path).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines[0], "pid,program,in_use_bytes,rss_bytes,growth_bytes_per_minute,age_seconds,arguments,user");
    let pids: Vec<&str> = lines[1..].iter().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(pids, ["112", "31"], "{csv}");
    assert!(crate::dashboard::export::processes(&state, std::path::Path::new("/proc/nowhere")).is_err());
}

#[test]
fn processes_are_ordered_by_keys_and_clicks_and_the_selected_one_stays() {
    let mut state = state(120, 40);
    everybody(&mut state);
    assert_eq!(listed(&state), (vec![112, 31, 7], Some(112)), "by resident set");
    press(&mut state, "s");
    assert_eq!(listed(&state), (vec![7, 31, 112], Some(112)), "by growth, and then by number");
    press(&mut state, "s");
    assert_eq!(listed(&state).0, [7, 31, 112], "by age");
    press(&mut state, "r");
    assert_eq!(listed(&state), (vec![112, 31, 7], Some(112)));
    let text = screen(&state);
    let (y, titles) = text.lines().enumerate().find(|(_, line)| line.contains("Program")).expect("titles");
    let x = titles[..titles.find("Program").expect("a title")].chars().count() - 1;
    left_click(&mut state, x, y);
    assert_eq!(listed(&state), (vec![31, 112, 7], Some(112)), "by name");
    // What is read later has the same order.
    let processes = state.processes.clone();
    state.take_processes(Processes { running: processes.running.into_iter().rev().collect(), ..processes });
    assert_eq!(listed(&state), (vec![31, 112, 7], Some(112)));
}

/// Root sees everybody's: whose they are is said where they are not all one's own, and can be asked for.
#[test]
fn processes_of_other_users_are_told_apart() {
    let mut state = state(120, 40);
    everybody(&mut state);
    assert!(!screen(&state).contains("User"), "{}", screen(&state));
    let mut processes = state.processes.clone();
    let others = processes.running.iter_mut().find(|row| row.pid == 31).unwrap();
    (others.uid, others.user) = (Some(4_000_000_000), "varnishd".into());
    state.take_processes(processes);
    let text = screen(&state);
    assert!(text.contains("User") && text.contains("varnishd"), "{text}");
    press(&mut state, "fvarnishd\n");
    assert_eq!(listed(&state).0, [31]);
}

/// The same language as everywhere, and the same keys.
#[test]
fn processes_are_filtered_and_their_columns_chosen() {
    let mut state = state(120, 40);
    everybody(&mut state);
    press(&mut state, "fworker\n");
    assert_eq!(listed(&state), (vec![7], Some(7)));
    assert!(screen(&state).contains("1 of 3 processes"), "{}", screen(&state));
    // What is read later is filtered, too; Escape takes the filter away before it leads back.
    everybody(&mut state);
    assert_eq!(listed(&state).0, [7]);
    press(&mut state, "\x1b");
    assert_eq!((listed(&state), state.overlay), ((vec![112, 31, 7], Some(7)), Overlay::Choose));
    press(&mut state, "/grow>1M\n");
    assert_eq!(listed(&state).0, [7]);
    press(&mut state, "\x1b");
    let effect = press(&mut state, "y");
    assert_eq!(effect, Some(Effect::Copy("7".into())));

    assert!(screen(&state).contains("Growth/min"));
    press(&mut state, "C↓↓↓↓↓ ");
    assert!(screen(&state).contains("[ ] Growth/min"), "{}", screen(&state));
    press(&mut state, "\x1b");
    assert_eq!(state.overlay, Overlay::Choose);
    assert!(!screen(&state).contains("Growth/min") && screen(&state).contains("Arguments"));
}

#[test]
fn the_help_lies_over_the_processes_and_gives_them_back() {
    let mut state = state(120, 40);
    everybody(&mut state);
    let before = screen(&state);
    assert!(before.contains("Call sites of all, by name") && before.contains("Store::put"), "{before}");
    press(&mut state, "?");
    assert!(screen(&state).contains("Show or hide this help"));
    press(&mut state, "\x1b");
    assert_eq!(screen(&state), before);
    let effect = press(&mut state, "↓\n");
    assert!(matches!(effect, Some(Effect::Watch(Watched::Segment(path))) if path.ends_with("31")));
    assert_eq!(state.overlay, Overlay::None);
}

/// A person who looks at a shell or a compiler's driver, and asks for another process, means the largest one
/// that it started.
#[test]
fn the_largest_process_that_it_started_is_selected_first() {
    let mut state = state(120, 40);
    let mut model = fixture::model();
    let kin = |pid, mib: u64, on_pool| crate::dashboard::model::Kin {
        child: poolscope_profiler::process::family::Child { pid, name: "worker".into(), rss: mib << 20 },
        on_pool,
    };
    model.family = vec![kin(4, 400, false), kin(7, 29, true), kin(31, 9, true)];
    state.take_reading(Arc::new(model));
    assert_eq!(press(&mut state, "o"), Some(Effect::List(true)));
    everybody(&mut state);
    assert_eq!(listed(&state).1, Some(7));
    // From then on the selection is the user's.
    press(&mut state, "↑");
    everybody(&mut state);
    assert_eq!(listed(&state).1, Some(31));
}
