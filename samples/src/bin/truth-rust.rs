//! Holds known amounts of memory from known places, and says what they are: a profile can be held to it.
//!
//! `site_a` holds 300 MiB, `site_b` 100 MiB, `site_c` allocates 50 MiB and frees them. One line for each size tells how
//! many blocks of it a site allocated and how many of these it holds; then `READY`, and the program waits until
//! its standard input ends. `csrc/truth.c` is the same in C.

use std::hint::black_box;
use std::io::{self, Read, Write};

const MIB: usize = 1 << 20;

/// Block sizes; each gets the share of the bytes that stands beside it, in percent.
const MIX: [(usize, usize); 7] =
    [(48, 5), (200, 10), (1000, 15), (5000, 20), (40_000, 20), (200_000, 15), (900_000, 15)];

fn counts(total: usize) -> [(usize, usize); MIX.len()] {
    MIX.map(|(size, percent)| (size, total / 100 * percent / size))
}

/// Room for the blocks, made by the caller so that a site allocates its blocks and nothing else.
fn room(total: usize) -> Vec<Box<[u8]>> {
    Vec::with_capacity(counts(total).iter().map(|(_, count)| count).sum())
}

fn fill(blocks: &mut Vec<Box<[u8]>>, total: usize) {
    for (size, count) in counts(total) {
        for _ in 0..count {
            let mut block = vec![0_u8; black_box(size)].into_boxed_slice();
            block[0] = 1;
            blocks.push(black_box(block));
        }
    }
}

macro_rules! site {
    ($name:ident) => {
        #[inline(never)]
        fn $name(blocks: &mut Vec<Box<[u8]>>, total: usize) {
            fill(blocks, total);
            // Something after the call: no tail call takes this frame off the stack.
            black_box(blocks.len());
        }
    };
}

site!(site_a);
site!(site_b);
site!(site_c);

fn tell(site: &str, total: usize, held: bool) {
    for (size, count) in counts(total) {
        println!("TRUTH {site} {size} {count} {}", if held { count } else { 0 });
    }
}

fn main() -> io::Result<()> {
    let (a, b, c) = (300 * MIB, 100 * MIB, 50 * MIB);
    let mut blocks_a = room(a);
    let mut blocks_b = room(b);
    let mut blocks_c = room(c);
    site_a(&mut blocks_a, a);
    site_b(&mut blocks_b, b);
    site_c(&mut blocks_c, c);
    drop(blocks_c);
    tell("site_a", a, true);
    tell("site_b", b, true);
    tell("site_c", c, false);
    println!("READY");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(black_box((blocks_a, blocks_b)));
    Ok(())
}
