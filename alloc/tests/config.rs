//! Settings that change while the program runs.

use poolscope_alloc::config::{self, SettingError};
use poolscope_wire::{HEADER_LEN, Header, flags};

#[global_allocator]
static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;

/// The header of this process's segment.
fn header() -> Header {
    // SAFETY: takes nothing.
    let folder = format!("/dev/shm/poolscope-{}", unsafe { libc::geteuid() });
    let mine = format!("{}.", std::process::id());
    let entries = std::fs::read_dir(folder).expect("there are segments").map(|entry| entry.unwrap().path());
    let entries: Vec<_> = entries.collect();
    let path = entries.iter().find(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&mine));
    let path = path.unwrap_or_else(|| panic!("this process, {mine}, has no segment among {entries:?}"));
    let bytes = std::fs::read(path).unwrap();
    Header::parse(&bytes[..HEADER_LEN], bytes.len() as u64).unwrap()
}

// One test: the settings are the process's.
#[test]
fn what_can_change_changes_at_once_and_readers_see_it() {
    assert_eq!(header().period_bytes, 512 << 10);
    assert_eq!(header().flags & flags::SERVES_MALLOC, 0, "only what Rust asks for comes from the pool");
    poolscope_alloc::config().period(4096).thread_cache(64 << 10).gc_ms(None).keep(false).apply().unwrap();
    let now = config::current();
    assert_eq!((now.period(), now.thread_cache(), now.gc_ms()), (4096, 64 << 10, None));
    assert_eq!(header().period_bytes, 4096);

    // Every allocation is recorded from here on, but those before were not.
    poolscope_alloc::config().period(0).apply().unwrap();
    assert_eq!((header().period_bytes, header().flags & flags::EXACT), (1, 0));

    for (wrong, message) in [
        (poolscope_alloc::config().thread_cache(1), "thread_cache takes bytes from 64K to 1G"),
        (poolscope_alloc::config().gc_ms(Some(0)), "gc_ms takes milliseconds from 1 to 3600000, or -1 (never)"),
        (poolscope_alloc::config().arena(3 << 30), "arena takes a power of two of bytes from 64M to 1T"),
    ] {
        let error = wrong.period(8192).apply().unwrap_err();
        assert!(matches!(error, SettingError::NotValid(_)), "{error:?}");
        assert_eq!(error.to_string(), message);
    }
    assert_eq!(now.period(), 0, "an error changes nothing");

    let late = poolscope_alloc::config().hardened(true).apply().unwrap_err().to_string();
    assert!(late.contains("hardened") && late.contains("POOLSCOPE_HARDENED"), "{late}");
    poolscope_alloc::config().hardened(false).apply().expect("what is as it was does not change");
}
