//! What the page heap asks of the system: addresses, memory, huge pages, and the NUMA nodes that memory comes from.
//!
//! The kernel is one [`System`]; tests have another, which has as many nodes as they like, refuses what they say, and
//! notes what it was asked (`system/simulated.rs`).

use crate::kernel::os;
pub use crate::kernel::os::Explicit;
use crate::settings::NodeSet;

mod topology;

#[cfg(test)]
pub mod simulated;

/// Bytes of a huge page.
pub const HUGE_PAGE: usize = 2 << 20;

/// Which nodes the memory of a range comes from when it is touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Whichever the process's own policy says: if it has none, the one that the touching thread runs on.
    AsTheProcess,
    /// This one as long as it has memory, then those that are near to it.
    Prefer(usize),
    /// These in turn, page by page.
    Interleave(NodeSet),
    /// These and no others.
    Bind(NodeSet),
}

/// The system; every call is a plain one.
pub trait System {
    /// Bytes of address space that the process may have.
    fn address_space_limit(&self) -> usize;

    /// Bytes of private memory that the process may make usable.
    fn data_limit(&self) -> usize;

    /// Reserves addresses that can't be touched; null if there are none.
    fn reserve(&self, len: usize) -> *mut u8;

    /// Gives reserved addresses back.
    ///
    /// # Safety
    /// Nothing refers to the range any more.
    unsafe fn unmap(&self, p: *mut u8, len: usize);

    /// Makes reserved addresses usable. False without memory.
    ///
    /// # Safety
    /// The range is the caller's.
    unsafe fn commit(&self, p: *mut u8, len: usize) -> bool;

    /// Makes reserved addresses readable, as zero.
    ///
    /// # Safety
    /// The range is the caller's, and nobody has written to it.
    unsafe fn make_readable(&self, p: *mut u8, len: usize) -> bool;

    /// Gives memory back; it reads as zero afterwards. Returns whether it worked.
    ///
    /// # Safety
    /// The range is the caller's and holds nothing of use.
    unsafe fn decommit(&self, p: *mut u8, len: usize) -> bool;

    /// Whether a usable range is one mapping of the kernel's.
    fn is_one_mapping(&self, p: *mut u8, len: usize) -> bool;

    /// Moves the memory of a range that is one mapping; the source reads as zero afterwards. Returns whether it worked.
    /// If not, the source is whole, and the destination may be a hole.
    ///
    /// # Safety
    /// Both ranges are the caller's, usable, and apart; the destination holds nothing of use.
    unsafe fn remap(&self, from: *mut u8, to: *mut u8, len: usize) -> bool;

    /// Makes a range usable if all of it is a hole.
    ///
    /// # Safety
    /// The range is the caller's, or a hole that was.
    unsafe fn close_hole(&self, p: *mut u8, len: usize) -> bool;

    /// Whether no part of a range is a hole.
    fn has_no_hole(&self, p: *mut u8, len: usize) -> bool;

    /// Makes a usable range one mapping with its like around it, and zero. Returns whether it worked.
    ///
    /// # Safety
    /// The range is the caller's and holds nothing of use.
    unsafe fn renew(&self, p: *mut u8, len: usize) -> bool;

    /// Says whether transparent huge pages are wanted in a range. Returns 0 or an error number.
    ///
    /// # Safety
    /// The range is the caller's.
    unsafe fn advise_huge(&self, p: *mut u8, len: usize, wanted: bool) -> i32;

    /// Puts explicit huge pages in the place of reserved addresses.
    ///
    /// # Safety
    /// The range is the caller's, was never made usable, and begins and ends at multiples of [`HUGE_PAGE`].
    unsafe fn map_huge(&self, p: *mut u8, len: usize) -> Explicit;

    /// Says which nodes the memory of a range comes from. Returns 0 or an error number.
    ///
    /// # Safety
    /// The range is the caller's.
    unsafe fn bind(&self, p: *mut u8, len: usize, policy: Policy) -> i32;

    /// The nodes that have memory which the process may use.
    fn nodes(&self) -> NodeSet;

    /// The node that the calling thread runs on.
    fn current_node(&self) -> usize;
}

/// Linux.
#[derive(Clone, Copy)]
pub struct Kernel;

impl System for Kernel {
    fn address_space_limit(&self) -> usize {
        os::address_space_limit()
    }

    fn data_limit(&self) -> usize {
        os::data_limit()
    }

    fn reserve(&self, len: usize) -> *mut u8 {
        os::reserve(len)
    }

    unsafe fn unmap(&self, p: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { os::unmap(p, len) }
    }

    unsafe fn commit(&self, p: *mut u8, len: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { os::commit(p, len) }
    }

    unsafe fn make_readable(&self, p: *mut u8, len: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { os::make_readable(p, len) }
    }

    unsafe fn decommit(&self, p: *mut u8, len: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { os::decommit(p, len) }
    }

    fn is_one_mapping(&self, p: *mut u8, len: usize) -> bool {
        os::is_one_mapping(p, len)
    }

    unsafe fn remap(&self, from: *mut u8, to: *mut u8, len: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { os::remap(from, to, len) }
    }

    unsafe fn close_hole(&self, p: *mut u8, len: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { os::close_hole(p, len) }
    }

    fn has_no_hole(&self, p: *mut u8, len: usize) -> bool {
        os::has_no_hole(p, len)
    }

    unsafe fn renew(&self, p: *mut u8, len: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { os::renew(p, len) }
    }

    unsafe fn advise_huge(&self, p: *mut u8, len: usize, wanted: bool) -> i32 {
        let advice = if wanted { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
        // SAFETY: the caller's promise; the advice takes nothing away.
        unsafe { os::advise(p, len, advice) }
    }

    unsafe fn map_huge(&self, p: *mut u8, len: usize) -> Explicit {
        // SAFETY: the caller's promise.
        unsafe { os::map_huge(p, len) }
    }

    unsafe fn bind(&self, p: *mut u8, len: usize, policy: Policy) -> i32 {
        let (mode, nodes) = match policy {
            Policy::AsTheProcess => return 0,
            Policy::Prefer(node) => (libc::MPOL_PREFERRED, 1 << node),
            Policy::Interleave(nodes) => (libc::MPOL_INTERLEAVE, nodes.bits()),
            Policy::Bind(nodes) => (libc::MPOL_BIND, nodes.bits()),
        };
        // SAFETY: the caller's promise.
        unsafe { os::bind(p, len, mode, nodes) }
    }

    fn nodes(&self) -> NodeSet {
        topology::nodes()
    }

    fn current_node(&self) -> usize {
        os::current_node()
    }
}
