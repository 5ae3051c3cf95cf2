//! Where the pool's memory lies: how much of the address space it reserves.

use std::path::PathBuf;

use poolscope_e2e::{Pool, Program, Running, compiler};
use serde_json::Value;

fn program(pool: &Pool) -> PathBuf {
    compiler::compile_linked(pool.files(), "tests/csrc/placement.c", "placement", &["-O2"])
}

/// `tests/csrc/placement.c` while it waits, with what it said of itself.
struct Held {
    running: Running,
    stats: Value,
}

impl Held {
    fn of(program: Program) -> Held {
        let mut running = program.start();
        let line = running.wait_for_line("STATS ");
        let stats = serde_json::from_str(&line["STATS ".len()..]).expect("JSON");
        Held { running, stats }
    }

    /// A number of the statistics' part `system`.
    fn system(&self, name: &str) -> u64 {
        self.stats["system"][name].as_u64().unwrap_or_else(|| panic!("{} has no {name}", self.stats["system"]))
    }
}

#[test]
fn the_first_reservation_is_as_large_as_asked_for_and_more_follows_when_it_is_used_up() {
    let pool = Pool::new();
    let program = program(&pool);
    let reserved = |arena: Option<&str>, mib: &str, block: &str| {
        let program = pool.program(&program).args([mib, block]);
        let held = Held::of(if let Some(arena) = arena { program.env("POOLSCOPE_ARENA", arena) } else { program });
        let reserved = held.system("reserved_bytes");
        held.running.finish().silent_success();
        reserved >> 20
    };
    assert_eq!(reserved(None, "1", "4096"), 256 << 10);
    assert_eq!(reserved(Some("64M"), "1", "4096"), 64);
    assert_eq!(reserved(Some("1G"), "1", "4096"), 1024);
    // 64 and 128 MiB hold less than 200 with their tables; 256 more do not.
    assert_eq!(reserved(Some("64M"), "200", "65536"), 64 + 128 + 256);
    // A block that is larger than the next arena gets one that it fits in.
    assert_eq!(reserved(Some("64M"), "300", "314572800"), 64 + 384);
    assert_eq!(reserved(Some("1G"), "200", "65536"), 1024);
}
