//! Pieces that views are made of; none knows the state.

pub(crate) mod ascii;
pub(crate) mod bar;
pub(crate) mod flame;
pub(crate) mod growth;
pub(crate) mod memory_map;
pub(crate) mod panel;
pub(crate) mod picture;
pub(crate) mod plain;
pub(crate) mod rates;
pub(crate) mod search_line;
pub(crate) mod site_name;
pub(crate) mod split;
pub(crate) mod stack;
pub(crate) mod table;
pub(crate) mod time_chart;
