//! How memory looks: pages and their descriptors, slabs, size classes, blocks, and the mailboxes that blocks wait in.

pub mod arena;
pub mod block;
pub mod free_list;
pub mod holes;
pub mod inbox;
pub mod lean;
pub mod mailbox;
pub mod misuse;
pub mod size_class;
pub mod slab;
pub mod slab_list;
