//! What a pool of device memory says of its blocks and of itself, and what it is told of its holders.

use poolscope_wire::holders::Sampled;
#[cfg(doc)]
use poolscope_wire::kind;

/// A block of device memory that is to be recorded.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Block {
    /// Where it lies, as the device knows it.
    pub address: u64,
    /// Bytes that the program asked for.
    pub size: u64,
    /// Objects that it stands for, in units of 1/65536.
    pub weight: u64,
    /// Bytes that its pool has given out now, with this block.
    pub in_use: u64,
    /// Where the pool says so ([`attach`](crate::device::attach)); `u32::MAX` if nowhere.
    pub place: u32,
    /// Number of the device.
    pub device: u32,
    /// [`kind::DEVICE`] or [`kind::PINNED`].
    pub kind: u16,
}

/// What a pool of device memory says of itself.
#[derive(Clone, Copy, Debug)]
pub struct State<'a> {
    /// Number of the device.
    pub device: u32,
    /// [`kind::DEVICE`] or [`kind::PINNED`].
    pub kind: u16,
    /// The device's name.
    pub name: &'a [u8],
    /// Bytes of memory that the device has.
    pub memory_bytes: u64,
    /// Counters, indexed by [`poolscope_wire::DeviceCounter`].
    pub counters: &'a [u64],
    /// What lies where: values of [`poolscope_wire::cell`].
    pub cells: &'a [u8],
    /// Bytes that a cell stands for.
    pub cell_bytes: u64,
    /// Where each of the cells lies, and whose it is: [`poolscope_wire::place`].
    pub places: &'a [u64],
    /// The streams that places name, as the driver's handles.
    pub streams: &'a [u64],
}

/// Frames that a [`Holder`] shows, the innermost ones.
pub const HOLDER_FRAMES: usize = 32;

/// A stack whose blocks hold memory of a device, as the samples estimate it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Holder {
    /// Bytes that are in use, as the pool counts blocks.
    pub sampled: Sampled,
    /// Blocks that are in use, in units of 1/65536.
    pub objects: u64,
    /// How many of `frames` there are.
    pub depth: u32,
    /// Return addresses, innermost first; where Python called, the calls of its functions alone.
    pub frames: [u64; HOLDER_FRAMES],
}

impl Holder {
    /// Holds nothing.
    pub const EMPTY: Holder = Holder { sampled: Sampled::NONE, objects: 0, depth: 0, frames: [0; HOLDER_FRAMES] };

    /// The return addresses that there are.
    pub fn frames(&self) -> &[u64] {
        self.frames.get(..self.depth as usize).unwrap_or(&self.frames)
    }
}
