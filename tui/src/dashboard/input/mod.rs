//! What a person does: keys, and lines that are typed. Nothing here knows what a key is for.

pub(crate) mod choosing;
pub(crate) mod common;
pub(crate) mod filter;
pub(crate) mod find;
pub(crate) mod key;
pub(crate) mod keymap;
pub(crate) mod line_edit;
pub(crate) mod moment;
pub(crate) mod ordering;
pub(crate) mod search;
