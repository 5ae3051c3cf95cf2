//! A machine for tests: with as many NUMA nodes and huge pages as they say, that refuses what they say, and notes what
//! it was asked. Addresses and memory are real, so that the pool's descriptors have a place, and zero is zero.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::vec::Vec;

use super::{Explicit, HUGE_PAGE, Policy, System};
use crate::kernel::os;
use crate::settings::NodeSet;

/// What it was asked of a range: from, to.
type Noted<T> = RefCell<Vec<(usize, usize, T)>>;

/// How a call that moves memory goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remaps {
    /// It is done.
    Well,
    /// It is refused before anything was done.
    NotAtAll,
    /// It is refused when the destination is unmapped already, as kernels before 6.17 do with several mappings, and all
    /// of them where a limit is reached.
    AfterUnmapping,
    /// And another thread has mapped something in the hole before anybody sees it.
    AfterUnmappingAndSomebodyIsFaster,
}

/// The machine.
pub struct Simulated {
    /// Nodes that have memory.
    pub nodes: Cell<NodeSet>,
    /// The node that threads run on.
    pub node: Cell<usize>,
    /// Bytes of address space that the process may have.
    pub limit: Cell<usize>,
    /// Bytes that can still be made usable.
    pub memory: Cell<usize>,
    /// Explicit huge pages that are left.
    pub huge_pool: Cell<usize>,
    /// What moving explicit huge pages into place comes to; an old kernel's is not [`Explicit::Mapped`].
    pub huge_result: Cell<Explicit>,
    /// Error number of every `mbind`, 0 for none.
    pub bind_error: Cell<i32>,
    /// Error number of every advice, 0 for none.
    pub advise_error: Cell<i32>,
    /// Whether memory is taken back.
    pub takes_back: Cell<bool>,
    /// What is given back stays, and nobody is told: as an emulator does with ranges that memory was moved away from.
    pub forgets: Cell<bool>,
    /// Addresses at which a mapping ends and another begins.
    pub mappings_end: RefCell<Vec<usize>>,
    /// How the next calls go that move memory, those behind the last one well.
    pub remaps: RefCell<Vec<Remaps>>,
    /// Ranges that memory was to be moved from.
    pub remapped: Noted<()>,
    /// Ranges that were bound.
    pub bound: Noted<Policy>,
    /// Ranges for which transparent huge pages were wanted, or not.
    pub advised: Noted<bool>,
    /// Ranges that are explicit huge pages.
    pub explicit: Noted<()>,
    /// Ranges that are reserved.
    pub reserved: RefCell<Vec<(usize, usize)>>,
}

impl Simulated {
    /// A machine with these nodes that refuses nothing.
    pub fn with_nodes(nodes: &str) -> Rc<Simulated> {
        Rc::new(Simulated {
            nodes: Cell::new(NodeSet::parse(nodes.as_bytes()).unwrap()),
            node: Cell::new(0),
            limit: Cell::new(usize::MAX),
            memory: Cell::new(usize::MAX),
            huge_pool: Cell::new(0),
            huge_result: Cell::new(Explicit::Mapped),
            bind_error: Cell::new(0),
            advise_error: Cell::new(0),
            takes_back: Cell::new(true),
            forgets: Cell::new(false),
            mappings_end: RefCell::default(),
            remaps: RefCell::default(),
            remapped: RefCell::default(),
            bound: RefCell::default(),
            advised: RefCell::default(),
            explicit: RefCell::default(),
            reserved: RefCell::default(),
        })
    }

    /// What was last asked of the range that an address lies in.
    pub fn at<T: Copy>(noted: &Noted<T>, p: *mut u8) -> Option<T> {
        let p = p as usize;
        noted.borrow().iter().rfind(|(from, to, _)| (*from..*to).contains(&p)).map(|found| found.2)
    }

    /// Takes back everything that is reserved. Nothing may refer to it.
    pub fn unmap_all(&self) {
        for (from, to) in self.reserved.take() {
            crate::layout::arena::release_between(from, to);
            // SAFETY: the caller's promise.
            unsafe { os::unmap(from as *mut u8, to - from) };
        }
    }
}

fn range(p: *mut u8, len: usize) -> (usize, usize) {
    (p as usize, p as usize + len)
}

impl System for Rc<Simulated> {
    fn address_space_limit(&self) -> usize {
        self.limit.get()
    }

    fn data_limit(&self) -> usize {
        usize::MAX
    }

    fn reserve(&self, len: usize) -> *mut u8 {
        if len > self.limit.get() {
            return core::ptr::null_mut();
        }
        let p = os::reserve(len);
        if !p.is_null() {
            self.reserved.borrow_mut().push(range(p, len));
        }
        p
    }

    unsafe fn unmap(&self, p: *mut u8, len: usize) {
        let (from, to) = range(p, len);
        let mut left = Vec::new();
        for &(start, end) in &*self.reserved.borrow() {
            left.extend([(start, end.min(from)), (start.max(to), end)].into_iter().filter(|(a, b)| a < b));
        }
        let bytes = |ranges: &[(usize, usize)]| ranges.iter().map(|(from, to)| to - from).sum::<usize>();
        assert_eq!(bytes(&left) + len, bytes(&self.reserved.borrow()), "only what is reserved is unmapped");
        self.reserved.replace(left);
        // SAFETY: the caller's promise.
        unsafe { os::unmap(p, len) }
    }

    unsafe fn commit(&self, p: *mut u8, len: usize) -> bool {
        if len > self.memory.get() {
            return false;
        }
        self.memory.set(self.memory.get() - len);
        // SAFETY: the caller's promise.
        unsafe { os::commit(p, len) }
    }

    unsafe fn make_readable(&self, p: *mut u8, len: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { os::make_readable(p, len) }
    }

    unsafe fn decommit(&self, p: *mut u8, len: usize) -> bool {
        assert_eq!(Simulated::at(&self.explicit, p), None, "explicit huge pages are kept");
        // SAFETY: the caller's promise.
        self.takes_back.get() && (self.forgets.get() || unsafe { os::decommit(p, len) })
    }

    fn is_one_mapping(&self, p: *mut u8, len: usize) -> bool {
        let (from, to) = range(p, len);
        !self.mappings_end.borrow().iter().any(|&end| from < end && end < to)
    }

    unsafe fn remap(&self, from: *mut u8, to: *mut u8, len: usize) -> bool {
        assert!(self.is_one_mapping(from, len), "several mappings are moved one by one");
        self.remapped.borrow_mut().push((from as usize, from as usize + len, ()));
        let mut remaps = self.remaps.borrow_mut();
        let how = if remaps.is_empty() { Remaps::Well } else { remaps.remove(0) };
        // SAFETY: the caller's promise: the destination holds nothing of use.
        unsafe {
            match how {
                Remaps::Well => {
                    core::ptr::copy_nonoverlapping(from, to, len);
                    from.write_bytes(0, len);
                    return true;
                }
                Remaps::NotAtAll => {}
                Remaps::AfterUnmapping => os::unmap(to, len),
                Remaps::AfterUnmappingAndSomebodyIsFaster => {
                    os::unmap(to, len);
                    assert!(os::close_hole(to, 4096), "somebody maps a page");
                }
            }
        }
        false
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
        if self.advise_error.get() == 0 {
            let (from, to) = range(p, len);
            self.advised.borrow_mut().push((from, to, wanted));
        }
        self.advise_error.get()
    }

    unsafe fn map_huge(&self, p: *mut u8, len: usize) -> Explicit {
        assert!((p as usize).is_multiple_of(HUGE_PAGE) && len.is_multiple_of(HUGE_PAGE));
        let pages = len / HUGE_PAGE;
        if pages > self.huge_pool.get() {
            return Explicit::Refused(libc::ENOMEM);
        }
        if self.huge_result.get() == Explicit::Mapped {
            self.huge_pool.set(self.huge_pool.get() - pages);
            let (from, to) = range(p, len);
            self.explicit.borrow_mut().push((from, to, ()));
            // SAFETY: the caller's promise.
            assert!(unsafe { os::commit(p, len) });
        }
        self.huge_result.get()
    }

    unsafe fn bind(&self, p: *mut u8, len: usize, policy: Policy) -> i32 {
        if self.bind_error.get() == 0 {
            let (from, to) = range(p, len);
            self.bound.borrow_mut().push((from, to, policy));
        }
        self.bind_error.get()
    }

    fn nodes(&self) -> NodeSet {
        self.nodes.get()
    }

    fn current_node(&self) -> usize {
        self.node.get()
    }
}
