//! Who may take free memory: everyone, or one lane of one pool,
//! whose work comes after what the memory waits for anyway.
//!
//! It is a number, so that the [index](super::free_index) finds an owner's memory by one comparison; the owners of the
//! common pool are the lowest ones.

use crate::streams::{LaneId, Pending};

/// Graphs that are captured have pools of their own; 0 is the common one.
pub type PoolId = u32;

/// The pool of the chunks that small blocks are cut from.
pub const CHUNKS: PoolId = PoolId::MAX;

/// Who may take free memory without waiting: a pool, and a lane in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner(u64);

impl Owner {
    /// Everyone.
    pub const ANYONE: Owner = Owner(0);
    const SEVERAL: u32 = u32::MAX;

    /// Work of one lane.
    #[inline]
    pub fn lane(pool: PoolId, lane: LaneId) -> Owner {
        Owner(u64::from(pool) << 32 | (u64::from(lane) + 1))
    }

    /// Work of several lanes.
    pub fn several(pool: PoolId) -> Owner {
        Owner(u64::from(pool) << 32 | u64::from(Owner::SEVERAL))
    }

    /// Who may take what is of a pool and waits for this.
    #[inline]
    pub fn of(pool: PoolId, pending: &Pending) -> Owner {
        // Without a point it is 0, that of everyone.
        let lane = if pending.is_of_several() { Owner::SEVERAL } else { pending.lanes_number() };
        Owner(u64::from(pool) << 32 | u64::from(lane))
    }

    pub fn pool(self) -> PoolId {
        (self.0 >> 32) as PoolId
    }

    pub fn is_common(self) -> bool {
        self.pool() == 0
    }
}
