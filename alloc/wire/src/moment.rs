//! When a hook is called, of the host's pool or of one of device memory: the numbers are those of both header files.

/// When a hook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Moment {
    /// Before an allocation: there is no block yet.
    BeforeAlloc = 0,
    /// After it: there is no block if there was no memory.
    AfterAlloc = 1,
    /// Before a free: the block can still be read.
    BeforeFree = 2,
    /// After it: the block may be somebody else's by now, and its address is a number only. It does not come where the
    /// free was refused.
    AfterFree = 3,
}
