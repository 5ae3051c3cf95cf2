//! A program whose allocator has its settings with it. It has no test harness: what counts is the process as a whole.

use poolscope_alloc::Configured;
use poolscope_alloc::config::{self, Huge, SettingError};

#[global_allocator]
static POOL: Configured = Configured(poolscope_alloc::config().arena(1 << 30).huge(Huge::Off).period(64 << 10));

fn main() {
    let now = config::current();
    assert_eq!((now.arena(), now.huge()), (1 << 30, Huge::Off), "what the allocator says is in force before main");

    // The environment has the last word over what was said before the start.
    let period = std::env::var("POOLSCOPE_PERIOD").map_or(64 << 10, |text| text.parse().expect("plain bytes"));
    assert_eq!(now.period(), period);

    // Later the program has it.
    poolscope_alloc::config().period(1 << 20).apply().expect("it can change at any time");
    assert_eq!(now.period(), 1 << 20);

    // All or nothing.
    let late = poolscope_alloc::config().period(1 << 21).huge(Huge::Explicit).apply();
    let Err(SettingError::TooLate(setting)) = late else { panic!("{late:?}") };
    assert_eq!(setting.key, "huge");
    assert_eq!((now.period(), now.huge()), (1 << 20, Huge::Off));
    println!("done");
}
