//! The macro that declares every setting once.

/// Declares the settings. Of `key: type = default, variable, range, change;` with its documentation come
///
/// - a row of `SETTINGS`, whose help is the documentation;
/// - `Current::key()`, which reads the setting;
/// - `Config::key(value)`, which says what it is to be.
macro_rules! settings {
    ($(
        $(#[doc = $help:literal])+
        $key:ident: $type:ty = $default:expr, $variable:literal, $range:expr, $change:ident;
    )*) => {
        /// Places in the table.
        #[allow(non_camel_case_types, reason = "named as the settings are")]
        #[derive(Clone, Copy)]
        enum Index {
            $($key,)*
        }

        /// Number of settings.
        pub const COUNT: usize = [$(Index::$key),*].len();

        /// Every setting of the pool.
        pub static SETTINGS: [Setting; COUNT] = {
            use Quantity::{Bytes, Number, PowerOfTwo};
            use Range::*;
            [$(Setting {
                key: stringify!($key),
                variable: match CStr::from_bytes_with_nul(concat!($variable, "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name has no zero byte"),
                },
                range: $range,
                default: $default,
                change: Change::$change,
                help: concat!($($help),+).trim_ascii_start(),
            },)*]
        };

        impl Current {
            $(
                $(#[doc = $help])+
                #[inline]
                pub fn $key(self) -> $type {
                    <$type as values::Word>::from_word(store::get(Index::$key as usize))
                }
            )*
        }

        /// Settings to be changed: a method for each, then [`Config::apply`].
        #[derive(Clone, Copy, Debug)]
        #[must_use = "nothing changes before apply()"]
        pub struct Config {
            $($key: Option<$type>,)*
        }

        impl Config {
            /// Nothing to be changed yet.
            pub const fn new() -> Self {
                Config { $($key: None,)* }
            }

            $(
                $(#[doc = $help])+
                ///
                #[doc = concat!("`", $variable, "` in the environment; [`SETTINGS`] has the values that it takes.")]
                pub const fn $key(mut self, value: $type) -> Self {
                    self.$key = Some(value);
                    self
                }
            )*

            /// The words of what is to be changed.
            fn words(&self) -> [Option<u64>; COUNT] {
                [$(self.$key.map(values::Word::to_word),)*]
            }
        }
    };
}
pub(crate) use settings;
