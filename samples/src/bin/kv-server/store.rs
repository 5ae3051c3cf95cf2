//! The keys and values: shards behind locks, with times to live and a bound on the bytes held.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const SHARDS: usize = 16;

struct Entry {
    value: Vec<u8>,
    expires: Instant,
}

/// A map that many workers use at once.
pub(crate) struct Store {
    hasher: RandomState,
    shards: [Mutex<HashMap<String, Entry>>; SHARDS],
}

impl Store {
    pub(crate) fn new() -> Store {
        Store { hasher: RandomState::new(), shards: std::array::from_fn(|_| Mutex::new(HashMap::new())) }
    }

    fn shard(&self, key: &str) -> std::sync::MutexGuard<'_, HashMap<String, Entry>> {
        let index = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[index].lock().expect("a worker panicked with this shard in hand")
    }

    /// Puts a value in place of any old one.
    pub(crate) fn set(&self, key: String, value: Vec<u8>, ttl: Duration) {
        let entry = Entry { value, expires: Instant::now() + ttl };
        let old = self.shard(&key).insert(key, entry);
        drop(old);
    }

    /// A copy of the value, unless there is none or it has expired.
    pub(crate) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let shard = self.shard(key);
        shard.get(key).filter(|entry| entry.expires > Instant::now()).map(|entry| entry.value.clone())
    }

    /// Whether there was one.
    pub(crate) fn del(&self, key: &str) -> bool {
        let old = self.shard(key).remove(key);
        old.is_some()
    }

    /// Adds to a value; returns its new length. A value stops growing at 64 KiB.
    pub(crate) fn append(&self, key: String, tail: &[u8]) -> usize {
        let mut shard = self.shard(&key);
        let entry = shard
            .entry(key)
            .or_insert_with(|| Entry { value: Vec::new(), expires: Instant::now() + Duration::from_secs(10) });
        if entry.value.len() + tail.len() > 64 << 10 {
            entry.value = Vec::new();
        }
        entry.value.extend_from_slice(tail);
        entry.value.len()
    }

    /// The first hundred keys with this beginning, in order.
    pub(crate) fn scan(&self, prefix: &str) -> Vec<String> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().expect("a worker panicked with this shard in hand");
            keys.extend(shard.keys().filter(|key| key.starts_with(prefix)).cloned());
        }
        keys.sort_unstable();
        keys.truncate(100);
        keys
    }

    /// Drops what has expired; returns how many entries that were.
    pub(crate) fn expire(&self) -> usize {
        let now = Instant::now();
        let mut dropped = 0;
        for shard in &self.shards {
            let mut shard = shard.lock().expect("a worker panicked with this shard in hand");
            let before = shard.len();
            shard.retain(|_, entry| entry.expires > now);
            dropped += before - shard.len();
            if shard.capacity() > 4 * shard.len() + 64 {
                shard.shrink_to_fit();
            }
        }
        dropped
    }

    /// Number of entries and the bytes of their values.
    pub(crate) fn size(&self) -> (usize, usize) {
        self.shards.iter().fold((0, 0), |(entries, bytes), shard| {
            let shard = shard.lock().expect("a worker panicked with this shard in hand");
            (entries + shard.len(), bytes + shard.values().map(|entry| entry.value.len()).sum::<usize>())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_values_are_gone_before_the_sweep_and_after() {
        let store = Store::new();
        store.set("old".into(), vec![1], Duration::ZERO);
        store.set("new".into(), vec![2], Duration::from_secs(60));
        assert_eq!((store.get("old"), store.get("new")), (None, Some(vec![2])));
        assert_eq!(store.expire(), 1);
        assert_eq!(store.size(), (1, 1));
    }
}
