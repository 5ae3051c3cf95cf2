//! What clients held at their end and had not given back: for those who look for leaks. The next owner does not know it.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::stock::{Stock, now};
use crate::books::HIDDEN;
use crate::identity::Identity;

/// So many ended clients are remembered.
const CLIENTS: usize = 256;
/// And so many tensors of each.
const TENSORS: usize = 1000;

struct Left {
    who: Identity,
    at: u64,
    tensors: Vec<Value>,
    /// References to tensors beyond those.
    more: u64,
}

/// The clients that ended last.
#[derive(Default)]
pub struct Remembered(VecDeque<Left>);

impl Stock {
    /// The tensors that a client holds, and how many there are beyond the limit.
    fn held_by(&self, client: u64) -> (Vec<Value>, u64) {
        let held = self.books.holdings_of(client).into_iter();
        let named = held.filter_map(|(generation, references)| {
            let tensor = self.books.tensors.get(&generation).filter(|tensor| !tensor.name.starts_with(HIDDEN))?;
            Some(json!({"name": tensor.name, "generation": generation, "bytes": tensor.bytes,
                "dtype": tensor.dtype, "shape": tensor.shape, "references": references}))
        });
        let mut named: Vec<Value> = named.collect();
        let more = named.len().saturating_sub(TENSORS);
        named.truncate(TENSORS);
        (named, more as u64)
    }

    /// Remembers what a client holds that has ended.
    pub fn remember(&mut self, client: u64) {
        let Some(who) = self.books.clients.get(&client).map(|client| client.who.clone()) else { return };
        let (tensors, more) = self.held_by(client);
        if tensors.is_empty() {
            return;
        }
        self.left.0.push_back(Left { who, at: now(), tensors, more });
        if self.left.0.len() > CLIENTS {
            self.left.0.pop_front();
        }
    }

    /// What a process of this pid namespace holds now, and what the last one with its number held at its end.
    pub fn left(&self, pid: u64) -> Value {
        let is_it = |who: &Identity| u64::from(who.pid) == pid && who.pid_ns == self.identity.pid_ns;
        let clients = self.books.clients.values().filter(|client| is_it(&client.who));
        let running: Vec<Value> = clients
            .map(|client| {
                let (tensors, more) = self.held_by(client.id);
                json!({"since": client.since, "tensors": tensors, "more": more})
            })
            .collect();
        let last = self.left.0.iter().rev().find(|left| is_it(&left.who));
        let ended = self.left.0.iter().filter(|left| last.is_some_and(|last| last.who == left.who));
        let ended = ended.map(|left| json!({"at": left.at, "tensors": left.tensors, "more": left.more}));
        json!({"ok": true, "pid": pid, "running": running, "ended": ended.collect::<Vec<_>>()})
    }
}
