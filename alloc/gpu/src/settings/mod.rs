//! What a program may change: one table, from which come [`Config`] and its defaults, what each setting takes, the
//! environment's variables, and the lists in docs/guide/settings.md and poolscope_gpu.h.
//!
//! Who speaks last wins: the defaults, then what the program says when it makes the pool, then the environment (of
//! whoever starts the program: [`Config::with_environment`]), then what the program changes while the pool runs.

mod environment;
mod range;

use std::fmt;

pub use poolscope_wire::quantity::Quantity;
pub use range::Range;
use range::Value;

use crate::device::GRANULE;

/// When a setting can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Only when the pool is made.
    WhenMade,
    /// At any time.
    Anytime,
}

/// A row of the table.
#[derive(Debug)]
pub struct Setting {
    /// The field of [`Config`], and what the functions of C call it.
    pub name: &'static str,
    /// Environment variable.
    pub variable: &'static str,
    /// Which values it takes.
    pub range: Range,
    /// What holds when nobody says anything, as the word that [`Range`] reads.
    pub default: u64,
    /// When it can change.
    pub change: Change,
    /// What it does.
    pub help: &'static str,
}

/// Declares the settings: `name: type = default, variable, range, change;` with its documentation.
macro_rules! settings {
    ($(
        $(#[doc = $help:literal])+
        $name:ident: $type:ty = $default:expr, $variable:literal, $range:expr, $change:ident;
    )*) => {
        /// A pool's settings. All but those that say so can be changed while it runs.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $($(#[doc = $help])+ pub $name: $type,)*
        }

        const COUNT: usize = [$($variable),*].len();

        /// Every setting of a pool of device memory.
        pub static SETTINGS: [Setting; COUNT] = {
            use Quantity::{Bytes, Number, PowerOfTwo};
            use Range::*;
            [$(Setting {
                name: stringify!($name),
                variable: $variable,
                range: $range,
                default: $default,
                change: Change::$change,
                help: concat!($($help),+).trim_ascii_start(),
            },)*]
        };

        impl Config {
            /// The words of all settings, in the order of the table.
            fn words(&self) -> [u64; COUNT] {
                [$(Value::to_word(self.$name)),*]
            }
        }

        impl Default for Config {
            fn default() -> Config {
                Config { $($name: Value::from_word($default),)* }
            }
        }

        impl Config {
            /// Puts a word of the table's row `at` in force, which the row's range allows.
            fn put(&mut self, at: usize, word: u64) {
                #[allow(non_camel_case_types, reason = "named as the settings are")]
                enum Index { $($name,)* }
                $(if at == Index::$name as usize {
                    self.$name = Value::from_word(word);
                })*
            }
        }
    };
}

settings! {
    /// Bytes to a multiple of which every block is aligned and rounded up.
    alignment: u64 = 256, "POOLSCOPE_GPU_ALIGNMENT", Of(PowerOfTwo { min: 256, max: GRANULE }), Anytime;

    /// Bytes of memory that the pool holds at most; 0 for as many as the device has.
    /// What it holds already it keeps until it is free.
    memory_limit: u64 = 0, "POOLSCOPE_GPU_MEMORY_LIMIT", Of(Bytes { min: 0, max: 1 << 50 }), Anytime;

    /// 1 lets a request take memory that another stream has freed, behind an event, before memory is created. With 0 it
    /// takes what that stream is known to be done with, and no stream waits for another one.
    wait_for_streams: bool = 1, "POOLSCOPE_GPU_WAIT_FOR_STREAMS", Switch, Anytime;

    /// The part of its time for which a stream at work may be held up by what others have freed, before memory is
    /// created instead. With 0 it takes only what is over before its own work is; with 1 it waits as long as it takes,
    /// and a pool whose streams are far behind holds up to a fifth less.
    wait_share: f64 = 0.01_f64.to_bits(), "POOLSCOPE_GPU_WAIT_SHARE", Fraction, Anytime;

    /// The length of the pieces in which memory is created: half of what is new, where several streams use the pool an
    /// eighth; at most what is held divided by this, or 48 MiB (8 MiB) where that is more; at least the lesser of these
    /// two. 0: 2 MiB. With a small divisor cold starts are quick, since the driver charges for pieces; but a piece is
    /// put together with others as a whole, so that more memory is held.
    piece_divisor: u64 = 96, "POOLSCOPE_GPU_PIECE_DIVISOR", Of(Number { min: 0, max: 1 << 40 }), Anytime;

    /// Bytes that the pool holds up to which blocks of 64 KiB to 1 MiB take what was asked for and no power of two, as
    /// larger ones do, unless threads often wait for each other. A pool holds up to a third less by it. A thread keeps
    /// such blocks for requests of the same length; for other lengths it takes the pool's lock. 0: never.
    fit_medium_below: u64 = 1 << 50, "POOLSCOPE_GPU_FIT_MEDIUM_BELOW", Of(Bytes { min: 0, max: 1 << 50 }), Anytime;

    /// Free blocks of a size class that a thread keeps for a stream, at most. Of large classes it begins with 1 MiB,
    /// and keeps more if that turns out to be too few.
    thread_cache_max_blocks: usize = 64, "POOLSCOPE_GPU_THREAD_CACHE_MAX_BLOCKS",
        Of(Number { min: 0, max: 1 << 20 }), Anytime;

    /// Free blocks of a size class that all threads together keep for a stream, beside their own.
    global_cache_max_blocks: usize = 1024, "POOLSCOPE_GPU_GLOBAL_CACHE_MAX_BLOCKS",
        Of(Number { min: 0, max: 1 << 30 }), Anytime;

    /// Blocks that move between these at a time.
    batch_alloc_count: usize = 16, "POOLSCOPE_GPU_BATCH_ALLOC_COUNT", Of(Number { min: 1, max: 65_536 }), Anytime;

    /// 1 serves requests from pinned host memory where there is no device memory and nothing else has helped.
    pinned_fallback: bool = 0, "POOLSCOPE_GPU_PINNED_FALLBACK", Switch, Anytime;

    /// 1 counts blocks as they come and go. Without, the counts, totals and hits stay as they are, and what small
    /// blocks take includes those in caches, from then on.
    enable_stats: bool = 1, "POOLSCOPE_GPU_ENABLE_STATS", Switch, Anytime;

    /// 1 looks at every free: two threads that free one block at once, a stream that is gone. A freed block waits
    /// before it is given out again.
    hardened: bool = 0, "POOLSCOPE_GPU_HARDENED", Switch, WhenMade;

    /// 1 lets the background work defragment.
    enable_defrag: bool = 1, "POOLSCOPE_GPU_ENABLE_DEFRAG", Switch, Anytime;

    /// The part of the held memory that may lie free in pieces too small for the largest recent request, before the
    /// background work defragments.
    defrag_threshold: f64 = 0.3_f64.to_bits(), "POOLSCOPE_GPU_DEFRAG_THRESHOLD", Fraction, Anytime;

    /// Time that passes at least before the background work defragments again.
    defrag_interval_ms: u64 = 5_000, "POOLSCOPE_GPU_DEFRAG_INTERVAL_MS",
        Milliseconds { min: 1, max: 1_000_000_000 }, Anytime;

    /// Time after which free granules go back to the device.
    idle_release_ms: u64 = 10_000, "POOLSCOPE_GPU_IDLE_RELEASE_MS",
        Milliseconds { min: 0, max: 1_000_000_000 }, Anytime;

    /// Time between two rounds of the pool's own thread, which does the background work; 0: it has none, and the
    /// program calls for a round (`maintain`). Where time is simulated, there is no thread either.
    background_interval_ms: u64 = 20, "POOLSCOPE_GPU_BACKGROUND_INTERVAL_MS",
        Milliseconds { min: 0, max: 3_600_000 }, Anytime;

    /// Calls to the driver that the background work may make in a second.
    driver_calls_per_second: u64 = 1_000, "POOLSCOPE_GPU_DRIVER_CALLS_PER_SECOND",
        Of(Number { min: 0, max: 1_000_000_000 }), Anytime;
}

/// A setting that can't be so.
#[derive(Clone, Debug, PartialEq)]
pub enum ConfigError {
    /// There is no setting of this name.
    Unknown {
        /// The name.
        name: String,
    },
    /// It does not take this value.
    NotValid {
        /// Its place in the table.
        setting: usize,
        /// What it was set to.
        value: String,
    },
    /// It is decided when the pool is made.
    TooLate {
        /// Its place in the table.
        setting: usize,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Unknown { name } => {
                write!(f, "no setting has the name {name}; there are")?;
                let mut names = SETTINGS.iter().enumerate();
                names.try_for_each(|(at, it)| write!(f, "{} {}", if at == 0 { "" } else { "," }, it.name))
            }
            ConfigError::NotValid { setting, value } => {
                let Setting { name, range, .. } = &SETTINGS[*setting];
                write!(f, "{name} = {value}: it takes {range}")
            }
            ConfigError::TooLate { setting } => {
                let Setting { name, variable, .. } = &SETTINGS[*setting];
                write!(
                    f,
                    "{name} is decided when the pool is made: set {variable} in the environment, \
                     or, in Rust, Config::{name}"
                )
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Changes a setting by its name, to a value as the environment has it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        let at = find(name)?;
        let refused = || ConfigError::NotValid { setting: at, value: value.to_owned() };
        self.put(at, SETTINGS[at].range.parse(value.trim()).ok_or_else(refused)?);
        Ok(())
    }

    /// A setting by its name, as [`set`](Self::set) takes it.
    pub fn get(&self, name: &str) -> Result<String, ConfigError> {
        let at = find(name)?;
        Ok(SETTINGS[at].range.show(self.words()[at]).to_string())
    }

    /// Every setting's name and value.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, String)> {
        SETTINGS.iter().zip(self.words()).map(|(setting, word)| (setting.name, setting.range.show(word).to_string()))
    }

    /// Refuses the first setting that takes other values.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut rows = SETTINGS.iter().zip(self.words()).enumerate();
        match rows.find(|(_, (setting, word))| !setting.range.allows(*word)) {
            Some((at, (setting, word))) => {
                Err(ConfigError::NotValid { setting: at, value: setting.range.show(word).to_string() })
            }
            None => Ok(()),
        }
    }

    /// The same, and the first setting that differs from those of a pool which was made with them for good.
    pub(crate) fn check_change_from(&self, made_with: &Config) -> Result<(), ConfigError> {
        self.check()?;
        let mut words = SETTINGS.iter().zip(self.words().into_iter().zip(made_with.words()));
        match words.position(|(setting, (new, old))| setting.change == Change::WhenMade && new != old) {
            Some(setting) => Err(ConfigError::TooLate { setting }),
            None => Ok(()),
        }
    }
}

fn find(name: &str) -> Result<usize, ConfigError> {
    let at = SETTINGS.iter().position(|setting| setting.name == name);
    at.ok_or_else(|| ConfigError::Unknown { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::{Config, SETTINGS};

    #[test]
    fn every_row_is_consistent() {
        for setting in &SETTINGS {
            assert_eq!(setting.variable.strip_prefix("POOLSCOPE_GPU_").unwrap().to_ascii_lowercase(), setting.name);
            assert!(setting.range.allows(setting.default), "{}", setting.name);
            assert!(setting.help.ends_with('.') && !setting.help.contains('|'), "{}", setting.help);
            let default = setting.range.show(setting.default).to_string();
            assert_eq!(setting.range.parse(&default), Some(setting.default), "{default}");
            assert_eq!(Config::default().get(setting.name).unwrap(), default);
        }
    }

    #[test]
    fn settings_change_by_their_names() {
        let mut config = Config::default();
        for (name, value, shown) in [
            ("memory_limit", " 1048576 ", "1M"),
            ("memory_limit", "24GiB", "24G"),
            ("defrag_threshold", "0.5", "0.5"),
            ("enable_stats", "false", "0"),
            ("pinned_fallback", "1", "1"),
            ("batch_alloc_count", "32", "32"),
        ] {
            config.set(name, value).unwrap();
            assert_eq!(config.get(name).unwrap(), shown);
        }
        let expected = Config {
            memory_limit: 24 << 30,
            defrag_threshold: 0.5,
            enable_stats: false,
            pinned_fallback: true,
            batch_alloc_count: 32,
            ..Config::default()
        };
        assert_eq!(config, expected);
        assert!(config.rows().any(|row| row == ("memory_limit", "24G".to_owned())));
    }

    #[test]
    fn an_unknown_setting_and_a_bad_value_are_refused_in_words() {
        let mut config = Config::default();
        let refusal = config.set("memory_limit", "lots").unwrap_err().to_string();
        assert_eq!(refusal, "memory_limit = lots: it takes bytes from 0 to 1024T");
        let refusal = config.set("memorylimit", "1").unwrap_err().to_string();
        assert!(
            refusal.starts_with("no setting has the name memorylimit; there are alignment, memory_limit"),
            "{refusal}"
        );
        for (name, value) in [("defrag_threshold", "1.1"), ("defrag_threshold", "NaN"), ("alignment", "384")] {
            assert!(config.set(name, value).is_err(), "{name} {value}");
        }
        assert_eq!(config, Config::default());
        let refusal = Config { alignment: 100, ..config }.check().unwrap_err().to_string();
        assert_eq!(refusal, "alignment = 100: it takes a power of two of bytes from 256 to 2M");
    }
}
