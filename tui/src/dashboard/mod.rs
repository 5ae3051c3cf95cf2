//! The dashboard: a thread that reads the segment, one that reads keys, one for signals, one for the program's output;
//! all of them send to one channel, and one loop takes from it, changes the state and draws.
//!
//! ```text
//! feed, input, signals, tail, waiter --Event--> app::run --key--> update --> State --> views::draw (&State)
//! ```

pub(crate) mod app;
pub(crate) mod event;
pub(crate) mod feed;
pub(crate) mod find;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod flame_state;
pub(crate) mod flame_tree;
pub(crate) mod history;
pub(crate) mod json;
pub(crate) mod keys;
pub(crate) mod line_edit;
pub(crate) mod model;
pub(crate) mod mouse;
pub(crate) mod once;
pub(crate) mod options;
pub(crate) mod output;
#[cfg(test)]
mod screens;
pub(crate) mod site;
pub(crate) mod sort;
pub(crate) mod state;
pub(crate) mod terminal;
pub(crate) mod theme;
pub(crate) mod update;
pub(crate) mod views;
pub(crate) mod widgets;
