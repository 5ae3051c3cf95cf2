//! The audit trail: who signed in, and who watches which key.
//!
//! Here is the leak that the sample is about. A record is dropped once it is settled: a sign-in is settled when it has
//! been answered, a watch when the client takes it back. But UNWATCH looks its record up under the bare key, and
//! [`AuditTrail::remember_watch`] filed it under `connection:key`. Nothing is ever found, so nothing is ever
//! settled, and every WATCH request stays for good, with a copy of its filter.

use std::collections::HashMap;
use std::sync::Mutex;

/// A watch as the client asked for it.
pub(crate) struct WatchRecord {
    filter: String,
}

/// Records of requests that are not settled yet.
#[derive(Default)]
pub(crate) struct AuditTrail {
    sign_ins: Mutex<HashMap<u64, String>>,
    watches: Mutex<HashMap<String, Vec<WatchRecord>>>,
}

impl AuditTrail {
    /// Keeps the sign-in until [`AuditTrail::settle_sign_in`].
    #[inline(never)]
    pub(crate) fn remember_sign_in(&self, connection: u64, user: &str, token: &str) {
        let record = format!("{user} {token}");
        let mut sign_ins = self.sign_ins.lock().expect("a worker panicked with the trail in hand");
        sign_ins.insert(connection, record);
    }

    /// Drops the record of a sign-in that was answered.
    pub(crate) fn settle_sign_in(&self, connection: u64) {
        let mut sign_ins = self.sign_ins.lock().expect("a worker panicked with the trail in hand");
        sign_ins.remove(&connection);
    }

    /// Keeps the request until [`AuditTrail::settle_watch`], or so it was meant.
    #[inline(never)]
    pub(crate) fn remember_watch(&self, connection: u64, key: &str, filter: &str) {
        let record = WatchRecord { filter: filter.to_owned() };
        let mut watches = self.watches.lock().expect("a worker panicked with the trail in hand");
        watches.entry(format!("{connection}:{key}")).or_default().push(record);
    }

    /// Drops the records of a watch that the client took back; returns how many there were.
    pub(crate) fn settle_watch(&self, key: &str) -> usize {
        let mut watches = self.watches.lock().expect("a worker panicked with the trail in hand");
        watches.remove(key).map_or(0, |records| records.len())
    }

    /// Bytes of filters held.
    pub(crate) fn bytes(&self) -> usize {
        let watches = self.watches.lock().expect("a worker panicked with the trail in hand");
        watches.values().flatten().map(|record| record.filter.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sample stands on its leak: who repairs it takes the point out of the demo.
    #[test]
    fn a_watch_is_never_settled() {
        let trail = AuditTrail::default();
        trail.remember_watch(1, "k", "value > 3");
        assert_eq!(trail.settle_watch("k"), 0);
        assert_eq!(trail.bytes(), 9);
    }

    #[test]
    fn a_sign_in_is_settled() {
        let trail = AuditTrail::default();
        trail.remember_sign_in(1, "ada", "token");
        trail.settle_sign_in(1);
        assert!(trail.sign_ins.lock().unwrap().is_empty());
    }
}
