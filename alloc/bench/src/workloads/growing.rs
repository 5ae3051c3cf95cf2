//! A vector that grows to 64 MiB by `realloc`, and is freed. Every page is written when it comes in.

use crate::calls::{PAGE, opaque};
use crate::single::Workload;

const LEAST: usize = 4096;
const MOST: usize = 64 << 20;

/// How the next size follows from the last one.
#[derive(Clone, Copy)]
pub enum Growth {
    /// To the double.
    Doubling,
    /// By 4 KiB.
    Pages,
}

impl Growth {
    fn next(self, size: usize) -> usize {
        match self {
            Growth::Doubling => 2 * size,
            Growth::Pages => size + PAGE,
        }
    }
}

/// One operation is one `realloc`; vectors are grown to their end.
pub struct Growing(pub Growth);

impl Workload for Growing {
    fn run(&mut self, operations: u64) -> u64 {
        let mut done = 0;
        while done < operations {
            let (mut vector, mut from, mut size) = (std::ptr::null_mut::<u8>(), 0, LEAST);
            while size <= MOST {
                // SAFETY: null or what realloc returned last.
                vector = opaque(unsafe { libc::realloc(vector.cast(), size) }).cast();
                assert!(!vector.is_null(), "no memory for {size} bytes");
                for offset in (from..size).step_by(PAGE) {
                    // SAFETY: inside the block.
                    unsafe { vector.add(offset).write_volatile(1) };
                }
                done += 1;
                (from, size) = (size, self.0.next(size));
            }
            // SAFETY: the block is not used any more.
            unsafe { libc::free(vector.cast()) };
        }
        done
    }
}
