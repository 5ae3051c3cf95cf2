//! What holds a block: a shortest chain of pointers to it, from a variable, a stack or a register.
//!
//! The search in the process notes of each block that can be reached the last step of such a chain
//! ([`Holder`]); here the steps are put together. Only stacks of blocks in the chains that are shown get names.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use crate::build::builder::ProfileBuilder;
use crate::build::site_name::SiteName;
use crate::model::memory::Place;
use crate::model::reach::{Holder, Verdict};
use crate::model::snapshot::{LiveBlock, Snapshot};
use crate::symbols::function_name;
use crate::symbols::variables::Variables;
use crate::words::figures;
use crate::words::pattern;

/// Steps of a chain that are looked at; a longer one is shown from its end.
const LONGEST: usize = 1 << 16;
/// Blocks of a chain that are shown at each of its ends.
const SHOWN: usize = 4;
/// Roots that are listed.
const MOST_ROOTS: usize = 20;

/// All blocks of a snapshot, by what holds them.
#[derive(Debug)]
pub struct Chains<'a> {
    /// Blocks of host memory, ascending.
    blocks: Vec<&'a LiveBlock>,
}

/// A chain of pointers.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain<'a> {
    /// What the first block is held by. `None` if the chain is longer than any that is followed.
    pub root: Option<Holder>,
    /// The blocks, the one that the root points to first, each with the offset in it at which the pointer to the next
    /// one lies. The last one is the block that was asked for, with 0.
    pub blocks: Vec<(&'a LiveBlock, u64)>,
}

impl<'a> Chains<'a> {
    /// Those of a snapshot whose process has searched.
    pub fn new(snapshot: &'a Snapshot) -> Self {
        let mut blocks: Vec<&LiveBlock> = snapshot.live.iter().filter(|block| block.place == Place::Host).collect();
        blocks.sort_by_key(|block| block.address);
        Self { blocks }
    }

    /// The block that an address lies in.
    pub fn block(&self, address: u64) -> Option<&'a LiveBlock> {
        let behind = self.blocks.partition_point(|block| block.address <= address);
        let last = self.blocks[..behind].last()?;
        (address - last.address < last.size.max(1)).then_some(*last)
    }

    /// What holds a block. `None` if nothing is known to: it is leaked, or came after the search.
    pub fn of(&self, block: &'a LiveBlock) -> Option<Chain<'a>> {
        let mut blocks = vec![(block, 0)];
        let mut holder = block.holder?;
        // A record may have changed since the search, so that the steps of two searches meet in a circle.
        let mut seen = HashSet::from([block.address]);
        while let Holder::Word(place) = holder
            && let Some(before) = self.block(place)
        {
            let Some(next) = before.holder.filter(|_| seen.insert(before.address) && seen.len() < LONGEST) else {
                blocks.reverse();
                return Some(Chain { root: None, blocks });
            };
            blocks.push((before, place - before.address));
            holder = next;
        }
        blocks.reverse();
        Some(Chain { root: Some(holder), blocks })
    }
}

/// Which blocks are asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The one that this address lies in.
    Address(u64),
    /// Those of call sites with a function or a source file that matches this pattern.
    Site(String),
}

impl Asked {
    /// An address begins with `0x`; all else is a pattern.
    pub fn of(text: &str) -> Self {
        let digits = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        digits.map_or_else(|| Asked::Site(text.to_owned()), Asked::Address)
    }
}

/// Blocks that one root holds.
#[derive(Clone, Debug)]
struct Held<'a> {
    blocks: u64,
    bytes: u64,
    /// Bytes behind the variable's start, as text, where the chain begins.
    offset: String,
    /// A shortest chain to one of them.
    chain: Chain<'a>,
}

/// Says what holds the blocks that are asked about: for each root how many, and a shortest chain. `None` if there are
/// no such blocks.
pub fn explain(snapshot: &Snapshot, builder: &mut ProfileBuilder, asked: &Asked) -> Option<String> {
    let chains = Chains::new(snapshot);
    let (profile, sites) = builder.build_with_sites(snapshot, |_| false);
    let short = |site| Some(function_name::with_place(SiteName::of(&profile, site)?.function));
    let names: Vec<String> =
        profile.sites.iter().map(|site| short(site).unwrap_or_else(|| "[no frames]".to_owned())).collect();
    let site_of = |block: &LiveBlock| sites.get(block.stack as usize).copied().flatten();
    let name_of =
        |block: &LiveBlock| site_of(block).and_then(|site| names.get(site)).map_or("[no frames]", String::as_str);
    let wanted: Vec<bool> = match asked {
        Asked::Address(_) => Vec::new(),
        Asked::Site(text) => {
            let matches = |site| {
                let mut frames = profile.frames(site);
                frames.any(|frame| {
                    pattern::matches(text, &frame.name)
                        || frame.file.as_ref().is_some_and(|file| pattern::matches(text, file))
                })
            };
            profile.sites.iter().map(matches).collect()
        }
    };
    let blocks: Vec<&LiveBlock> = match asked {
        Asked::Address(address) => chains.block(*address).into_iter().collect(),
        Asked::Site(_) => {
            let is_wanted =
                |block: &&&LiveBlock| site_of(block).and_then(|site| wanted.get(site)).copied() == Some(true);
            chains.blocks.iter().filter(is_wanted).copied().collect()
        }
    };
    if blocks.is_empty() {
        return None;
    }

    let mut variables = Variables::of(snapshot.process.pid);
    let (mut by_root, mut leaked, mut others) = (BTreeMap::<String, Held<'_>>::new(), (0, 0), (0, 0));
    for block in blocks {
        let Some(chain) = chains.of(block) else {
            let sum = if block.verdict.is_leaked() { &mut leaked } else { &mut others };
            *sum = (sum.0 + 1, sum.1 + block.size);
            continue;
        };
        let (root, offset) = root_text(chain.root, &mut variables);
        match by_root.get_mut(&root) {
            Some(held) => {
                held.blocks += 1;
                held.bytes += block.size;
                if chain.blocks.len() < held.chain.blocks.len() {
                    (held.chain, held.offset) = (chain, offset);
                }
            }
            None => _ = by_root.insert(root, Held { blocks: 1, bytes: block.size, offset, chain }),
        }
    }
    let mut by_root: Vec<(String, Held<'_>)> = by_root.into_iter().collect();
    by_root.sort_by_key(|(_, held)| std::cmp::Reverse(held.bytes));
    let mut text = String::new();
    let amount = |blocks, bytes| format!("{} B in {}", figures::grouped(bytes), figures::count(blocks, "block"));
    for (root, held) in by_root.iter().take(MOST_ROOTS) {
        let _ = writeln!(text, "{} held by {root}", amount(held.blocks, held.bytes));
        let _ = writeln!(text, "    {root}{}{}", held.offset, chain_text(&held.chain, name_of));
    }
    if by_root.len() > MOST_ROOTS {
        let _ = writeln!(text, "{} more hold the rest.", figures::count((by_root.len() - MOST_ROOTS) as u64, "root"));
    }
    if leaked.0 > 0 {
        let _ = writeln!(text, "{} held by nothing: leaked.", amount(leaked.0, leaked.1));
    }
    if others.0 > 0 {
        let _ = writeln!(
            text,
            "{} of which nothing is known: allocated since the search, or ignored.",
            amount(others.0, others.1)
        );
    }
    Some(text)
}

/// `static CACHE (libfoo.so)`, or whose stack, register or thread-local storage it is; and ` + 0x18`.
fn root_text(root: Option<Holder>, variables: &mut Variables) -> (String, String) {
    let text = match root {
        None => "a chain that is too long".to_owned(),
        Some(Holder::Stack(tid)) => format!("stack of thread {tid}"),
        Some(Holder::Register(tid)) => format!("register of thread {tid}"),
        Some(Holder::Thread(0)) => "thread-local storage of a thread that has ended".to_owned(),
        Some(Holder::Thread(tid)) => format!("thread-local storage of thread {tid}"),
        Some(Holder::InUse) => "the pool, which is just handing it out, or a thread that runs on it".to_owned(),
        Some(Holder::Descriptor(descriptor)) => format!("epoll of descriptor {descriptor}"),
        Some(Holder::Timer(timer)) => format!("timer {timer}"),
        Some(Holder::Region(address)) => format!("region that the program has named, at {address:#x}"),
        Some(Holder::Word(address)) => {
            let place = variables.find(address);
            let behind = if place.offset > 0 { format!(" + {:#x}", place.offset) } else { String::new() };
            match (place.variable.is_empty(), place.module.is_empty()) {
                (false, _) => return (format!("static {} ({})", place.variable, place.module), behind),
                (true, false) => return (format!("variable of {}", place.module), behind),
                (true, true) => format!("memory at {address:#x}"),
            }
        }
    };
    (text, String::new())
}

/// ` -> 64 B from insert (map.rs:40) + 0x8 -> this`.
fn chain_text<'b>(chain: &Chain<'_>, name_of: impl Fn(&LiveBlock) -> &'b str) -> String {
    let mut text = String::new();
    let (last, before) = match chain.blocks.split_last() {
        Some((last, before)) => (last.0, before),
        None => return text,
    };
    for (at, (block, offset)) in before.iter().enumerate() {
        if before.len() > 2 * SHOWN && (SHOWN..before.len() - SHOWN).contains(&at) {
            if at == SHOWN {
                let _ = write!(text, " -> ... {} more ...", before.len() - 2 * SHOWN);
            }
            continue;
        }
        let behind = if *offset > 0 { format!(" + {offset:#x}") } else { String::new() };
        let _ = write!(text, " -> {} B from {}{behind}", figures::grouped(block.size), name_of(block));
    }
    let possibly = if last.verdict == Verdict::Possible { ", by a pointer into the middle of a block" } else { "" };
    let _ = write!(text, " -> this ({} B from {}{possibly})", figures::grouped(last.size), name_of(last));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(address: u64, size: u64, holder: Option<Holder>) -> LiveBlock {
        let verdict = if holder.is_some() { Verdict::Reachable } else { Verdict::Direct };
        LiveBlock { address, size, holder, verdict, ..LiveBlock::default() }
    }

    fn snapshot(live: &[LiveBlock]) -> Snapshot {
        Snapshot { live: live.to_vec(), ..Snapshot::default() }
    }

    #[test]
    fn a_chain_leads_from_the_root_to_the_block() {
        let live = [
            block(0x1000, 64, Some(Holder::Word(0x50))),
            block(0x2000, 64, Some(Holder::Word(0x1018))),
            block(0x3000, 64, Some(Holder::Word(0x2008))),
            block(0x4000, 64, None),
        ];
        let snapshot = snapshot(&live);
        let chains = Chains::new(&snapshot);
        let chain = chains.of(&snapshot.live[2]).expect("is held");
        assert_eq!(chain.root, Some(Holder::Word(0x50)));
        let steps: Vec<(u64, u64)> = chain.blocks.iter().map(|(block, offset)| (block.address, *offset)).collect();
        assert_eq!(steps, [(0x1000, 0x18), (0x2000, 0x8), (0x3000, 0)]);
        assert_eq!(chains.of(&snapshot.live[3]), None);
        assert_eq!(
            chain_text(&chain, |_| "f (a.c:1)"),
            " -> 64 B from f (a.c:1) + 0x18 -> 64 B from f (a.c:1) + 0x8 -> this (64 B from f (a.c:1))"
        );
    }

    #[test]
    fn steps_of_two_searches_that_meet_in_a_circle_end() {
        let live = [block(0x1000, 64, Some(Holder::Word(0x2000))), block(0x2000, 64, Some(Holder::Word(0x1000)))];
        let snapshot = snapshot(&live);
        let chain = Chains::new(&snapshot).of(&snapshot.live[0]).expect("is held");
        assert_eq!(chain.root, None);
    }

    #[test]
    fn what_is_asked_is_an_address_or_a_pattern() {
        assert_eq!(Asked::of("0x7f00"), Asked::Address(0x7f00));
        assert_eq!(Asked::of("insert"), Asked::Site("insert".into()));
        assert_eq!(Asked::of("0xyz"), Asked::Site("0xyz".into()));
    }
}
