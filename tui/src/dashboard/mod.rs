//! The dashboard: a thread that reads the segment, one that reads keys, one for signals, one for the program's output;
//! all of them send to one channel, and one loop takes from it, changes the state and draws.
//!
//! ```text
//! feed, input, signals, output, waiter --Event--> control::run --key--> dispatch --> State --> frame::draw (&State)
//! ```
//!
//! What stands later in this list uses what stands before it.

pub(crate) mod theme;

pub(crate) mod input;

pub(crate) mod model;

pub(crate) mod lens;

pub(crate) mod events;

pub(crate) mod widgets;

pub(crate) mod panes;

pub(crate) mod state;

pub(crate) mod frame;

pub(crate) mod json;

pub(crate) mod export;

pub(crate) mod control;

pub(crate) mod everybody;
pub(crate) mod measure;
pub(crate) mod once;
pub(crate) mod options;
#[cfg(test)]
mod screens;
