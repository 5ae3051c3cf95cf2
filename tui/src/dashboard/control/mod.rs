//! What is done with events: keys, the mouse, and the loop that takes one after another.

pub(crate) mod dispatch;
pub(crate) mod mouse;
pub(crate) mod run;
pub(crate) mod screen;
pub(crate) mod terminal;
