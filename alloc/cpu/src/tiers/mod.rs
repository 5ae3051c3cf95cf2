//! The tiers: what a thread keeps, what threads hand to each other, what all share, and large blocks.

pub mod central_cache;
pub mod give_back;
pub mod large;
pub mod medium_cache;
pub mod notes;
pub mod publish;
pub mod static_heaps;
pub mod thread_cache;
pub mod transfer_cache;
