//! What is recorded within the scopes of the leak checker.

use poolscope_wire::{LiveRecord, kind};

use super::scopes::Counts;
use super::{SAMPLER, Sampler, stack_table};
use crate::sync::spin_lock::SlowPath;

/// Calls `f` with each live record of a scope of the leak checker, and with the frames of its stack.
pub fn visit_scope(slow: SlowPath, scope: u32, mut f: impl FnMut(&LiveRecord, &[u64])) {
    let sampler = SAMPLER.lock(slow);
    let Some(segment) = sampler.segment else { return };
    for slot in 0..sampler.live.len() {
        let Some(record) = sampler.live.get(slot) else { continue };
        if record.kind != kind::NONE && record.scope == scope {
            let (words, depth) = stack_table::words(&segment, record.stack);
            f(record, words.get(..depth).unwrap_or_default());
        }
    }
}

/// Opens a scope of the leak checker within another one, or within none (0).
pub fn open_scope(slow: SlowPath, outer: u32) -> u32 {
    SAMPLER.lock(slow).scopes.open(outer)
}

/// Closes a scope. What was recorded in it stays recorded.
pub fn close_scope(slow: SlowPath, scope: u32) {
    SAMPLER.lock(slow).scopes.close(scope);
}

/// Gives the blocks of a scope that are in use to the scope around it, or to none.
pub fn hand_over_scope(slow: SlowPath, scope: u32) {
    let mut sampler = SAMPLER.lock(slow);
    let Sampler { live, scopes, segment, .. } = &mut *sampler;
    let Some(segment) = segment.as_ref().filter(|_| scopes.counts(scope).is_none_or(|counts| counts.blocks > 0)) else {
        return;
    };
    let outer = scopes.around(scope);
    for slot in 0..live.len() {
        live.change(segment, slot, |record: &mut LiveRecord| {
            let is_of_it = record.kind != kind::NONE && record.scope == scope;
            if is_of_it {
                record.scope = outer;
            }
            is_of_it
        });
    }
}

/// Has blocks of threads that are in no scope recorded in this one, as far as they are recorded; 0 ends that.
pub fn set_scope_of_all(slow: SlowPath, scope: u32) {
    SAMPLER.lock(slow).scopes.set_for_all(scope);
}

/// Whether a scope has not been closed.
pub fn scope_is_open(slow: SlowPath, scope: u32) -> bool {
    SAMPLER.lock(slow).scopes.is_open(scope)
}

/// What was counted for a scope; `None` if it is not open, or not counted.
pub fn scope_counts(slow: SlowPath, scope: u32) -> Option<Counts> {
    SAMPLER.lock(slow).scopes.counts(scope)
}
