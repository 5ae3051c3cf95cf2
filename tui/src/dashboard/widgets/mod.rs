//! Pieces that views are made of; none knows the state.

pub(crate) mod bar;
pub(crate) mod flame;
pub(crate) mod memory_map;
pub(crate) mod panel;
pub(crate) mod split;
pub(crate) mod table;
pub(crate) mod time_chart;
