//! Which blocks of a scope a static or a thread-local keeps that held nothing when the scope began: values that are
//! made when they are first needed. They are the program's for good, and no leak of whoever came first.
//!
//! At the scope's beginning the words of statics are noted that point into the pool ([`note`]). One that points to a
//! block of the scope at its end, and was none of these, was filled in it; what such a block points to is kept, too, if
//! it is of the scope ([`left`]). An address that stood in a static before and has moved a little counts as one of
//! these: unused places of a structure go along with the others, and have what was in them. Statics are what modules
//! have in writable memory; of thread-local storage counts the calling thread's. What the pool's own library has says
//! nothing.
//!
//! Other threads run meanwhile, so the kernel reads the memory: what is unmapped is passed over.

use core::sync::atomic::{AtomicPtr, Ordering};

use super::frame;
use super::look::static_storage;
use super::maps::{self, Mapping};
use super::roots::Range;
use super::table::Table;
use crate::kernel::os;
use crate::layout::arena;

/// Scopes that can be open and noted at a time: a scope's number has its place in the low bits
/// (`sampler/scopes.rs`).
const PLACES: usize = 256;
/// Words that are noted of a scope at most. Of one with more, nothing counts as kept.
const MOST: usize = 1 << 20;
/// Words that are read at a time.
const PIECE: usize = 1 << 13;
const WORD: usize = size_of::<usize>();
/// So far an address moves at most within a static, in bytes.
const MOVES: usize = 4096;

/// A word of a static: where it lies, and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Word {
    at: usize,
    holds: usize,
}

/// The words noted of each scope, by where they lie, behind the scope's number and how many there are. Null where none
/// are.
static NOTED: [AtomicPtr<Word>; PLACES] = [const { AtomicPtr::new(core::ptr::null_mut()) }; PLACES];
const HEAD: usize = 1;

/// A block of a scope, as [`left`] asks for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    /// The first address.
    pub address: usize,
    /// Bytes that can be read; 0 of memory that is not the host's.
    pub size: usize,
    /// Bytes that count.
    pub bytes: u64,
}

fn place(scope: u32) -> &'static AtomicPtr<Word> {
    &NOTED[scope as usize % PLACES]
}

/// The words noted at a place, which are nobody's any more.
fn take(scope: u32) -> Option<Table<Word>> {
    let first = place(scope).swap(core::ptr::null_mut(), Ordering::AcqRel);
    if first.is_null() {
        return None;
    }
    // SAFETY: `note` gave a whole table away there, with its length in its first entry, and whoever swaps it out has it
    // alone.
    Some(unsafe { Table::from_parts(first, (*first).holds, MOST) })
}

/// Notes what statics hold when a scope begins.
pub fn note(scope: u32) {
    drop(take(scope));
    let Some(mut words) = Table::<Word>::new(MOST) else { return };
    let mut fits = words.push(Word { at: scope as usize, holds: 0 });
    let read = statics(&[words.addresses()], |at, holds| {
        if arena::is_of_arena(holds) {
            fits &= words.push(Word { at, holds });
        }
    });
    if !read || !fits {
        return;
    }
    let len = words.as_slice().len();
    words.as_mut_slice()[HEAD..].sort_unstable();
    words.as_mut_slice()[0].holds = len;
    let first = words.as_mut_slice().as_mut_ptr();
    core::mem::forget(words);
    place(scope).store(first, Ordering::Release);
}

/// The blocks and bytes of a scope that ends that no such static keeps. `blocks` are all of them.
pub fn left(scope: u32, blocks: &mut Table<Block>) -> (u64, u64) {
    blocks.as_mut_slice().sort_unstable();
    let own = blocks.addresses();
    let blocks = blocks.as_slice();
    let all = blocks.iter().fold((0, 0), |(count, bytes), block| (count + 1, bytes + block.bytes));
    let Some(noted) = take(scope).filter(|_| !blocks.is_empty()) else { return all };
    let own = [own, noted.addresses()];
    let noted = noted.as_slice();
    if noted.first().map(|head| head.at) != Some(scope as usize) {
        return all;
    }
    // SAFETY: zero bytes are no.
    let kept = unsafe { Table::<u8>::zeroed(blocks.len()) };
    let (Some(mut kept), Some(mut next)) = (kept, Table::<u32>::new(blocks.len())) else { return all };
    let block_at = |word: usize| {
        let at = blocks.partition_point(|block| block.address <= word).checked_sub(1)?;
        (word - blocks[at].address < blocks[at].size.max(1)).then_some(at)
    };
    let mut keep = |next: &mut Table<u32>, block: usize| {
        if core::mem::replace(&mut kept.as_mut_slice()[block], 1) == 0 {
            next.push(block as u32);
        }
    };
    // Of the other tables none has addresses in it yet.
    statics(&own, |at, word| {
        if arena::is_of_arena(word)
            && let Some(block) = block_at(word)
            && !had(&noted[HEAD..], at, word)
        {
            keep(&mut next, block);
        }
    });
    // What a kept block points to.
    let (Some(mut piece), mut followed) = (room(), 0) else { return all };
    while let Some(&at) = next.as_slice().get(followed) {
        followed += 1;
        let Block { address, size, .. } = blocks[at as usize];
        read_words((address, address + size), &mut piece, &mut |_, word| {
            if let Some(block) = block_at(word) {
                keep(&mut next, block);
            }
        });
    }
    let lost = blocks.iter().zip(kept.as_slice()).filter(|(_, kept)| **kept == 0);
    lost.fold((0, 0), |(count, bytes), (block, _)| (count + 1, bytes + block.bytes))
}

/// Whether the word at a place may be what the static held before.
fn had(noted: &[Word], at: usize, word: usize) -> bool {
    let near = noted.partition_point(|before| before.at + MOVES <= at);
    let mut near = noted[near..].iter().take_while(|before| before.at < at + MOVES);
    near.any(|before| before.at == at || before.holds == word)
}

/// Calls `f` with each word of statics and of this thread's locals, and where it lies. False if the kernel does not say
/// where they are. A table of this search may lie right behind a module's data, and look like a part of it: those in
/// `own_tables` are left out.
fn statics(own_tables: &[Range], mut f: impl FnMut(usize, usize)) -> bool {
    let (Some(mappings), Some(mut piece)) = (maps::read(), room()) else { return false };
    let here = [mappings.addresses(), piece.addresses()];
    let mut f = |at: usize, word: usize| {
        if !own_tables.iter().chain(&here).any(|&(from, to)| (from..to).contains(&at)) {
            f(at, word);
        }
    };
    let own = &raw const NOTED as usize;
    let has_own = |at: &usize| (mappings.as_slice()[*at].start..mappings.as_slice()[*at].end).contains(&own);
    let own = (0..mappings.as_slice().len()).find(has_own).map(|at| module_of(mappings.as_slice(), at));
    for (at, mapping) in mappings.as_slice().iter().enumerate() {
        if !mapping.readable || !mapping.writable || mapping.shared {
            continue;
        }
        let module = module_of(mappings.as_slice(), at);
        if module != 0 && Some(module) != own {
            read_words((mapping.start, mapping.end), &mut piece, &mut f);
        }
    }
    let control = frame::thread_pointer();
    read_words((control - static_storage().min(control), control), &mut piece, &mut f);
    true
}

/// The number of the file that a mapping belongs to; 0 if it is none's. What follows a module's data without a file is
/// the rest of it, which begins with zeroes (`.bss`).
fn module_of(mappings: &[Mapping], at: usize) -> u64 {
    let mapping = &mappings[at];
    let before = at.checked_sub(1).map(|before| &mappings[before]).filter(|before| before.end == mapping.start);
    match mapping.inode {
        0 => before.map_or(0, |before| before.inode),
        inode => inode,
    }
}

/// Room for what is read at a time.
fn room() -> Option<Table<usize>> {
    // SAFETY: zeroes are numbers.
    unsafe { Table::zeroed(PIECE) }
}

/// Calls `f` with the words of a range that can be read.
fn read_words((from, to): Range, piece: &mut Table<usize>, f: &mut impl FnMut(usize, usize)) {
    let mut at = from.next_multiple_of(WORD);
    while at + WORD <= to {
        let want = ((to - at) / WORD).min(PIECE);
        let got = os::read_own_memory(at, &mut piece.as_mut_slice()[..want]);
        piece.as_slice()[..got].iter().enumerate().for_each(|(n, &word)| f(at + n * WORD, word));
        // What can't be read ends with its page.
        at = if got == want { at + want * WORD } else { (at + got * WORD + 1).next_multiple_of(maps::PAGE) };
    }
}
