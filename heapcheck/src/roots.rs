//! Which blocks of a scope a static or a thread-local keeps that was empty when the scope began: caches that are filled
//! when they are first needed. They are the program's for good, and no leak of whoever came first.
//!
//! What is kept there before the scope is known from its beginning: the words of statics and thread-locals that point
//! into the pool then. One that comes to point to a block of the scope later was filled first in it. What such a block
//! points to is kept as well, if it is of the scope. A static that held something before and has grown is none. Nor is an
//! address that stood in it before and has moved: unused places of a structure go along with the others, and have what
//! lay on the stack when it was filled (the standard library's cache of what it reads for backtraces).
//!
//! Memory is read through the kernel: what is unmapped meanwhile is skipped.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use poolscope_alloc::scope;

use crate::threads;

const WORD: usize = size_of::<usize>();
/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;
/// Static thread-local storage lies this near to its thread's control block.
const NEAR: usize = 1 << 20;

/// So far an address moves at most within a static, in bytes.
const MOVES: usize = 4096;

/// Words of statics and thread-locals that pointed into the pool.
#[derive(Debug, Default)]
pub(crate) struct Held {
    places: HashSet<usize>,
    /// Where each word was.
    places_of: HashMap<usize, Vec<usize>>,
}

impl Held {
    fn add(&mut self, at: usize, word: usize) {
        self.places.insert(at);
        self.places_of.entry(word).or_default().push(at);
    }

    /// Whether the word at a place may be what the static held before.
    fn had(&self, at: usize, word: usize) -> bool {
        let moved = |places: &Vec<usize>| places.iter().any(|before| before.abs_diff(at) < MOVES);
        self.places.contains(&at) || self.places_of.get(&word).is_some_and(moved)
    }
}

/// A block of a scope.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) address: usize,
    pub(crate) size: usize,
}

/// The words that hold something now.
pub(crate) fn held() -> Held {
    let mut held = Held::default();
    let Some(memory) = Memory::open() else { return held };
    let Ranges { statics, thread_locals } = ranges();
    for range in statics.into_iter().chain(thread_locals) {
        memory.words(range, |at, word| {
            if scope::is_of_pool(word) {
                held.add(at, word);
            }
        });
    }
    held
}

/// For each block, in their order, whether a static or a thread-local that held nothing before keeps it.
pub(crate) fn retained(blocks: &[Block], before: &Held) -> Vec<bool> {
    let mut kept = vec![false; blocks.len()];
    let Some(memory) = Memory::open().filter(|_| !blocks.is_empty()) else { return kept };
    let mut by_address: Vec<usize> = (0..blocks.len()).collect();
    by_address.sort_unstable_by_key(|&at| blocks[at].address);
    let block_at = |word: usize| {
        let behind = by_address.partition_point(|&at| blocks[at].address <= word);
        let at = *by_address[..behind].last()?;
        // A block of no bytes has an address, too.
        (word - blocks[at].address < blocks[at].size.max(1)).then_some(at)
    };
    let mut next = Vec::new();
    threads::while_none_ends(|threads| {
        let own = threads::control_block();
        let Ranges { statics, thread_locals } = ranges();
        let of_threads = threads.flat_map(|thread| {
            let in_thread = move |range: &Range<usize>| {
                let start = range.start.wrapping_sub(own).wrapping_add(thread);
                (thread != own && range.start.abs_diff(own) < NEAR).then(|| start..start.wrapping_add(range.len()))
            };
            thread_locals.iter().filter_map(in_thread)
        });
        for range in statics.into_iter().chain(thread_locals.iter().cloned()).chain(of_threads) {
            memory.words(range, |at, word| {
                if let Some(block) = block_at(word).filter(|_| !before.had(at, word))
                    && !std::mem::replace(&mut kept[block], true)
                {
                    next.push(block);
                }
            });
        }
    });
    while let Some(block) = next.pop() {
        let Block { address, size } = blocks[block];
        memory.words(address..address + size, |_, word| {
            if let Some(block) = block_at(word)
                && !std::mem::replace(&mut kept[block], true)
            {
                next.push(block);
            }
        });
    }
    kept
}

/// This process's memory, as the kernel reads it.
struct Memory(File);

impl Memory {
    fn open() -> Option<Memory> {
        File::open("/proc/self/mem").ok().map(Memory)
    }

    /// Calls `f` with each aligned word and its address.
    fn words(&self, range: Range<usize>, mut f: impl FnMut(usize, usize)) {
        let mut piece = vec![0; PIECE.min(range.len())];
        let mut from = range.start.next_multiple_of(WORD);
        while from < range.end {
            let wanted = PIECE.min(range.end - from);
            let read = self.0.read_at(&mut piece[..wanted], from as u64).unwrap_or(0);
            let words = piece[..read].chunks_exact(WORD).enumerate();
            for (at, word) in words {
                // Chunks of one word.
                f(from + at * WORD, usize::from_ne_bytes(word.try_into().unwrap_or_default()));
            }
            // What can't be read ends with its page.
            from = if read >= WORD { from + read / WORD * WORD } else { (from + 1).next_multiple_of(4096) };
        }
    }
}

/// Where values lie that live as long as the program or a thread does.
#[derive(Default)]
struct Ranges {
    /// Writable data of all modules.
    statics: Vec<Range<usize>>,
    /// The calling thread's.
    thread_locals: Vec<Range<usize>>,
}

fn ranges() -> Ranges {
    let mut ranges = Ranges::default();
    // SAFETY: the callback gets the pointer to `ranges` during this call only.
    unsafe { libc::dl_iterate_phdr(Some(add_module), (&raw mut ranges).cast()) };
    ranges
}

unsafe extern "C" fn add_module(info: *mut libc::dl_phdr_info, _: usize, ranges: *mut c_void) -> libc::c_int {
    // SAFETY: the loader passes a module's description, and what `ranges` passed.
    let (info, ranges) = unsafe { (&*info, &mut *ranges.cast::<Ranges>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader says where the headers are, and how many.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let place = |header: &libc::Elf64_Phdr| {
        let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        start..start.wrapping_add(header.p_memsz as usize)
    };
    // Read-only once it is relocated: tables of the compiler's.
    let fixed = headers.iter().find(|header| header.p_type == libc::PT_GNU_RELRO).map(place).unwrap_or_default();
    for header in headers {
        let range = place(header);
        match header.p_type {
            libc::PT_LOAD if header.p_flags & libc::PF_W != 0 => {
                let after = fixed.end.clamp(range.start, range.end);
                let before = fixed.start.clamp(range.start, after);
                ranges.statics.extend([range.start..before, after..range.end].into_iter().filter(|r| !r.is_empty()));
            }
            libc::PT_TLS if !info.dlpi_tls_data.is_null() => {
                let start = info.dlpi_tls_data as usize;
                ranges.thread_locals.push(start..start + range.len());
            }
            _ => {}
        }
    }
    0
}
