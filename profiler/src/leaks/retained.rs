//! Which blocks a static or a thread-local keeps that the scope filled first: caches that are made when they are first
//! needed. They are the program's for good, and no leak of whoever came first.

use std::collections::HashSet;

use crate::model::memory::Place;
use crate::model::reach::Holder;
use crate::model::snapshot::{LiveBlock, Module, Snapshot};

/// What is known of a block's chain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    /// It is being followed.
    OnTheWay,
    Kept(bool),
}

/// Whether each block of a snapshot is kept so, in their order. A chain of pointers leads to such a block from a
/// variable of a module, or from thread-local storage, by blocks that are all `in_scope`.
pub fn retained(snapshot: &Snapshot, in_scope: impl Fn(&LiveBlock) -> bool) -> Vec<bool> {
    let blocks = &snapshot.live;
    let mut by_address: Vec<usize> = (0..blocks.len()).filter(|&at| blocks[at].place == Place::Host).collect();
    by_address.sort_unstable_by_key(|&at| blocks[at].address);
    let block_at = |address: u64| {
        let behind = by_address.partition_point(|&at| blocks[at].address <= address);
        let at = *by_address[..behind].last()?;
        (address - blocks[at].address < blocks[at].size.max(1)).then_some(at)
    };
    let mut known = vec![Known::Nothing; blocks.len()];
    let mut way = Vec::new();
    for start in 0..blocks.len() {
        let mut at = start;
        let is_kept = loop {
            match known[at] {
                Known::Kept(is_kept) => break is_kept,
                // Records may have changed since the search, so that the steps of two searches meet in a circle.
                Known::OnTheWay => break false,
                Known::Nothing => {}
            }
            known[at] = Known::OnTheWay;
            way.push(at);
            match blocks[at].holder {
                _ if !in_scope(&blocks[at]) => break false,
                Some(Holder::Thread(_)) => break true,
                Some(Holder::Word(place)) => match block_at(place) {
                    Some(before) => at = before,
                    None => break is_in_a_module(&snapshot.modules, place),
                },
                _ => break false,
            }
        };
        way.drain(..).for_each(|at| known[at] = Known::Kept(is_kept));
    }
    known.into_iter().map(|known| known == Known::Kept(true)).collect()
}

fn is_in_a_module(modules: &[Module], address: u64) -> bool {
    modules.iter().any(|module| (module.start..module.end).contains(&address))
}

/// The addresses of those that are kept so in the whole run of a process, for who looks at a part of the snapshot.
pub(super) fn retained_addresses(snapshot: &Snapshot) -> HashSet<u64> {
    let kept = retained(snapshot, |_| true);
    let kept = snapshot.live.iter().zip(kept).filter(|(_, is_kept)| *is_kept);
    kept.map(|(block, _)| block.address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATIC: u64 = 0x50;

    fn snapshot(live: &[(u64, u64, Option<Holder>)]) -> Snapshot {
        let block =
            |&(time_ns, address, holder)| LiveBlock { time_ns, address, size: 64, holder, ..LiveBlock::default() };
        let module = Module {
            start: 0x40,
            end: 0x80,
            load_bias: 0,
            build_id: Vec::new(),
            file: 0,
            path: "/bin/app".into(),
            stacks: 0..u32::MAX,
        };
        Snapshot { live: live.iter().map(block).collect(), modules: vec![module], ..Snapshot::default() }
    }

    #[test]
    fn a_variable_that_the_scope_filled_is_told_from_one_that_grew_in_it() {
        let live = [
            (5, 0x1000, Some(Holder::Word(STATIC))),
            (6, 0x2000, Some(Holder::Word(0x1000))),
            (1, 0x3000, Some(Holder::Word(STATIC + 8))),
            (6, 0x4000, Some(Holder::Word(0x3000))),
            (6, 0x5000, Some(Holder::Stack(7))),
            (6, 0x6000, Some(Holder::Thread(7))),
            // Memory that the program has mapped, and nothing.
            (6, 0x7000, Some(Holder::Word(0x20_0000))),
            (6, 0x8000, None),
        ];
        let kept = retained(&snapshot(&live), |block| block.time_ns >= 5);
        assert_eq!(kept, [true, true, false, false, false, true, false, false]);
    }

    #[test]
    fn long_lists_and_circles_end() {
        let list: Vec<(u64, u64, Option<Holder>)> = (1..=100_000u64)
            .map(|n| (1, n << 12, Some(Holder::Word(if n == 100_000 { STATIC } else { (n + 1) << 12 }))))
            .collect();
        assert!(retained(&snapshot(&list), |_| true).into_iter().all(|kept| kept));
        let circle = [(1, 0x1000, Some(Holder::Word(0x2000))), (1, 0x2000, Some(Holder::Word(0x1000)))];
        assert_eq!(retained(&snapshot(&circle), |_| true), [false, false]);
    }
}
