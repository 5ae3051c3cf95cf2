//! The numbers that a program may change.

/// A pool's settings. All can be changed while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Bytes to a multiple of which every block is aligned and rounded up: a power of two from 256 to 2 MiB.
    pub alignment: u64,
    /// Bytes of device memory that the pool holds at most; 0 for as many as the device has. What it holds already it keeps
    /// until it is free.
    pub memory_limit: u64,
    /// Free blocks of a size class that a thread keeps for a stream, at most. Of large classes it begins with 1 MiB, and
    /// keeps more if that turns out to be too few.
    pub thread_cache_max_blocks: usize,
    /// Free blocks of a size class that all threads together keep for a stream, beside their own.
    pub global_cache_max_blocks: usize,
    /// Blocks that move between these at a time.
    pub batch_alloc_count: usize,
    /// Whether blocks come from pinned host memory where there is no device memory and nothing else has helped. Decided when the
    /// pool is made; a later change of it is of no effect.
    pub pinned_fallback: bool,
    /// Whether blocks are counted as they come and go. Without, the counts, totals and hits stay as they are, and what small
    /// blocks take includes those in caches, from then on.
    pub enable_stats: bool,
    /// Whether the background work defragments.
    pub enable_defrag: bool,
    /// The part of the held memory that may lie free in pieces too small for the largest recent request, from 0 to 1, before
    /// the background work defragments.
    pub defrag_threshold: f64,
    /// Milliseconds that pass at least before the background work defragments again.
    pub defrag_interval_ms: u64,
    /// Milliseconds after which free granules go back to the device.
    pub idle_release_ms: u64,
    /// Milliseconds between two rounds of the pool's own thread, which does the background work; 0: it has none, and the program
    /// calls [`Pool::maintain`](crate::Pool::maintain). Decided when the pool is made. On a simulated device there is none.
    pub background_interval_ms: u64,
    /// Calls to the driver that the background work may make in a second.
    pub driver_calls_per_second: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            alignment: 256,
            memory_limit: 0,
            thread_cache_max_blocks: 64,
            global_cache_max_blocks: 1024,
            batch_alloc_count: 16,
            pinned_fallback: false,
            enable_stats: true,
            enable_defrag: true,
            defrag_threshold: 0.3,
            defrag_interval_ms: 5_000,
            idle_release_ms: 10_000,
            background_interval_ms: 20,
            driver_calls_per_second: 1_000,
        }
    }
}

/// A setting that makes no sense.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{setting} = {value}: it takes {takes}")]
pub struct ConfigError {
    /// Its name.
    pub setting: &'static str,
    /// What it was set to.
    pub value: String,
    /// What it takes.
    pub takes: &'static str,
}

impl Config {
    /// Changes a setting by its name, to a value as text. `check` says later whether it makes sense.
    pub fn set(&mut self, setting: &str, value: &str) -> Result<(), ConfigError> {
        fn parse<T: std::str::FromStr>(
            setting: &'static str,
            value: &str,
            takes: &'static str,
            to: &mut T,
        ) -> Result<(), ConfigError> {
            let refused = |_| ConfigError { setting, value: value.to_owned(), takes };
            *to = value.trim().parse().map_err(refused)?;
            Ok(())
        }
        macro_rules! settings {
            ($($name:ident: $takes:literal,)*) => {
                match setting {
                    $(stringify!($name) => parse(stringify!($name), value, $takes, &mut self.$name),)*
                    _ => Err(ConfigError {
                        setting: "setting",
                        value: setting.to_owned(),
                        takes: concat!("one of", $(" ", stringify!($name)),*),
                    }),
                }
            };
        }
        settings! {
            alignment: "a number of bytes",
            memory_limit: "a number of bytes",
            thread_cache_max_blocks: "a number",
            global_cache_max_blocks: "a number",
            batch_alloc_count: "a number",
            pinned_fallback: "true or false",
            enable_stats: "true or false",
            enable_defrag: "true or false",
            defrag_threshold: "a number from 0 to 1",
            defrag_interval_ms: "a number of milliseconds",
            idle_release_ms: "a number of milliseconds",
            background_interval_ms: "a number of milliseconds",
            driver_calls_per_second: "a number",
        }
    }

    /// Refuses the first setting that makes no sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |setting, value: &dyn std::fmt::Display, takes| {
            Err(ConfigError { setting, value: value.to_string(), takes })
        };
        if !self.alignment.is_power_of_two() || !(256..=crate::GRANULE).contains(&self.alignment) {
            return refuse("alignment", &self.alignment, "a power of two from 256 to 2097152");
        }
        if self.batch_alloc_count == 0 || self.batch_alloc_count > 65_536 {
            return refuse("batch_alloc_count", &self.batch_alloc_count, "a number from 1 to 65536");
        }
        if !(0.0..=1.0).contains(&self.defrag_threshold) {
            return refuse("defrag_threshold", &self.defrag_threshold, "a number from 0 to 1");
        }
        if self.driver_calls_per_second > 1_000_000_000 {
            return refuse("driver_calls_per_second", &self.driver_calls_per_second, "at most 1000000000");
        }
        if self.defrag_interval_ms == 0 {
            return refuse("defrag_interval_ms", &self.defrag_interval_ms, "at least 1");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Config;

    #[test]
    fn settings_change_by_their_names() {
        let mut config = Config::default();
        config.set("memory_limit", " 1048576 ").unwrap();
        config.set("defrag_threshold", "0.5").unwrap();
        config.set("enable_stats", "false").unwrap();
        let expected =
            Config { memory_limit: 1 << 20, defrag_threshold: 0.5, enable_stats: false, ..Config::default() };
        assert_eq!(config, expected);
    }

    #[test]
    fn an_unknown_setting_and_a_bad_value_are_refused_in_words() {
        let mut config = Config::default();
        let refusal = config.set("memory_limit", "lots").unwrap_err().to_string();
        assert_eq!(refusal, "memory_limit = lots: it takes a number of bytes");
        let refusal = config.set("memorylimit", "1").unwrap_err().to_string();
        assert!(refusal.starts_with("setting = memorylimit: it takes one of alignment memory_limit"), "{refusal}");
        assert_eq!(config, Config::default());
    }
}
