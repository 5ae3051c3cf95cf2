//! How the command speaks: numbers, how a program ended, text that fits its place and is safe to show. Reports,
//! messages and the dashboard use the same words.

pub(crate) mod clip;
pub(crate) mod ended;
pub(crate) mod name;
pub(crate) mod numbers;
pub(crate) mod printable;
pub(crate) mod users;

pub(crate) use clip::{clip, clip_path};
pub(crate) use ended::Ended;
pub(crate) use printable::{called, file_name, printable};
