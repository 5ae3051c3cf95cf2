//! A program with two containers on the pool, and everything else on the allocator that it always had.
//!
//! `poolscope top PID` shows the cache and the index alone: there is no `#[global_allocator]` line here, and nothing is
//! preloaded. The program says its process id and waits until standard input ends.

use std::io::{self, Read, Write};

use allocator_api2::vec::Vec as PoolVec;
use hashbrown::{DefaultHashBuilder, HashMap};
use poolscope_alloc::Pool;

type Cache = HashMap<u64, PoolVec<u8, Pool>, DefaultHashBuilder, Pool>;

/// Pages of a made-up file, by their numbers.
#[inline(never)]
fn fill_cache(pages: u64) -> Cache {
    let mut cache = Cache::new_in(Pool);
    for page in 0..pages {
        let mut bytes = PoolVec::with_capacity_in(4096, Pool);
        bytes.resize(4096, page as u8);
        cache.insert(page.wrapping_mul(0x9E37_79B9_7F4A_7C15), bytes);
    }
    cache
}

/// What the rest of a program does: none of this is the pool's.
#[inline(never)]
fn rest_of_the_program() -> Vec<String> {
    (0..200_000).map(|number| format!("a string that the system's allocator holds, number {number}")).collect()
}

fn main() -> io::Result<()> {
    let cache = fill_cache(4096);
    let strings = rest_of_the_program();
    println!("containers: pid {}, {} pages, {} strings", std::process::id(), cache.len(), strings.len());
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
