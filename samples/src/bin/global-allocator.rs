//! A program that is on the pool by one line of Rust: no preload, no `poolscope run`.
//!
//! It builds an index of words in several threads, keeps one part of it, says its process id and waits until standard
//! input ends, so that there is time for `poolscope top PID`.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::thread;

#[global_allocator]
static POOL: poolscope_alloc::Poolscope = poolscope_alloc::Poolscope;

type Index = BTreeMap<String, Vec<u32>>;

/// Where each of a made-up text's words occurs.
#[inline(never)]
fn index_words(seed: u32) -> Index {
    let mut index = Index::new();
    for position in 0..100_000_u32 {
        let word = position.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 18;
        index.entry(format!("word-{word}")).or_default().push(position);
    }
    index
}

fn main() -> io::Result<()> {
    let workers: Vec<_> = (0..4).map(|seed| thread::spawn(move || index_words(seed))).collect();
    let mut indices: Vec<Index> = workers.into_iter().map(|worker| worker.join().expect("no worker panics")).collect();
    indices.truncate(1);
    println!("global-allocator: pid {}, {} words kept", std::process::id(), indices[0].len());
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
