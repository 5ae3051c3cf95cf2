//! What a pool counts: a field for each row of the table of device counters (`poolscope_wire::device_counters`), so
//! that a counter has one name from where it is counted to where it is shown.

use std::fmt;

use poolscope_wire::DEVICE_COUNTERS;

macro_rules! stats {
    ($($variant:ident $name:ident $unit:ident $monotonic:literal $help:literal;)*) => {
        /// A pool's counters at one moment. Bytes of blocks are those that the blocks take, rounding included.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $(#[doc = $help] pub $name: u64,)*
        }

        impl Stats {
            /// The values, in the order of the table.
            pub fn values(&self) -> [u64; DEVICE_COUNTERS.len()] {
                [$(self.$name),*]
            }
        }
    };
}

poolscope_wire::device_counters!(stats);

impl Stats {
    /// Each counter's name and value.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
        DEVICE_COUNTERS.iter().map(|counter| counter.name).zip(self.values())
    }

    /// One JSON object with a number for each counter.
    pub fn to_json(&self) -> String {
        let rows: Vec<String> = self.rows().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", rows.join(","))
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows().try_for_each(|(name, value)| writeln!(f, "{name:<20} {value:>20}"))
    }
}
