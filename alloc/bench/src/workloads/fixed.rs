//! Blocks of one size: one at a time, and a thousand at a time.

use std::marker::PhantomData;

use crate::calls::Calls;
use crate::single::Workload;
use crate::table::Table;

/// Blocks in a batch.
const BATCH: usize = 1000;

/// How a block is asked for.
pub trait Request {
    /// A new block.
    fn allocate<C: Calls>(&self) -> *mut u8;
}

/// By `malloc`.
#[derive(Clone, Copy)]
pub struct Plain {
    /// In bytes.
    pub size: usize,
}

impl Request for Plain {
    #[inline(always)]
    fn allocate<C: Calls>(&self) -> *mut u8 {
        C::allocate(self.size)
    }
}

/// By `posix_memalign`.
#[derive(Clone, Copy)]
pub struct Aligned {
    /// In bytes.
    pub size: usize,
    /// In bytes, a power of two.
    pub align: usize,
}

impl Request for Aligned {
    #[inline(always)]
    fn allocate<C: Calls>(&self) -> *mut u8 {
        C::allocate_aligned(self.align, self.size)
    }
}

/// One block at a time: the block freed last is the next one allocated.
pub struct Lifo<R, C>(R, PhantomData<C>);

impl<R: Request, C: Calls> Lifo<R, C> {
    /// Asks for every block by `request`.
    pub fn new(request: R) -> Self {
        Lifo(request, PhantomData)
    }
}

impl<R: Request, C: Calls> Workload for Lifo<R, C> {
    fn run(&mut self, operations: u64) -> u64 {
        for _ in 0..operations {
            C::release(self.0.allocate::<C>());
        }
        operations
    }
}

/// A thousand blocks, then their frees in the same order.
pub struct Batch<R, C> {
    request: R,
    blocks: Table<*mut u8>,
    calls: PhantomData<C>,
}

impl<R: Request, C: Calls> Batch<R, C> {
    /// Asks for every block by `request`.
    pub fn new(request: R) -> Self {
        Batch { request, blocks: Table::new(BATCH, std::ptr::null_mut()), calls: PhantomData }
    }
}

impl<R: Request, C: Calls> Workload for Batch<R, C> {
    fn run(&mut self, operations: u64) -> u64 {
        let batches = operations.div_ceil(BATCH as u64);
        for _ in 0..batches {
            for block in &mut *self.blocks {
                *block = self.request.allocate::<C>();
            }
            for &block in &*self.blocks {
                C::release(block);
            }
        }
        batches * BATCH as u64
    }
}
