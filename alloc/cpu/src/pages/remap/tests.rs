//! Moves that fail in each way in which a kernel fails them. The bytes are real.

use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::vec::Vec;

use super::*;
use crate::kernel::os;
use crate::pages::system::simulated::{Remaps, Simulated};

const MIB: usize = 1 << 20;
const LEN: usize = 4 * MIB;

/// The count of mappings is the process's.
static ALONE: Mutex<()> = Mutex::new(());

/// A source with a word on each page, and a destination with nothing of use on it.
struct Ranges {
    machine: Rc<Simulated>,
    from: *mut u8,
    to: *mut u8,
}

impl Ranges {
    /// The source is in mappings that end at these bytes.
    fn new(ends: &[usize], remaps: &[Remaps]) -> Ranges {
        let machine = Simulated::with_nodes("0");
        let (from, to) = (os::map(LEN), os::map(LEN));
        let ends = ends.iter().map(|end| from as usize + end);
        machine.mappings_end.replace(ends.collect());
        machine.remaps.replace(remaps.to_vec());
        let ranges = Ranges { machine, from, to };
        // SAFETY: both were just mapped.
        unsafe { to.write_bytes(0xa5, LEN) };
        for (at, word) in ranges.words(from).enumerate() {
            // SAFETY: as above.
            unsafe { word.write(at as u64 + 1) };
        }
        ranges
    }

    fn words(&self, p: *mut u8) -> impl Iterator<Item = *mut u64> + use<> {
        // SAFETY: the pages lie in a range.
        (0..LEN / KERNEL_PAGE).map(move |page| unsafe { p.add(page * KERNEL_PAGE + page % 512 * 8) }.cast())
    }

    /// The bytes are all there, or not.
    fn holds(&self, p: *mut u8) -> bool {
        // SAFETY: the range is mapped where it is looked at.
        self.words(p).enumerate().all(|(at, word)| unsafe { word.read() } == at as u64 + 1)
    }

    fn move_pages(&self) -> Moved {
        // SAFETY: the ranges are this test's own.
        unsafe { move_pages(&self.machine, self.from, self.to, LEN) }
    }

    /// The calls that were made: bytes from the source's start, and bytes.
    fn calls(&self) -> Vec<(usize, usize)> {
        let calls = self.machine.remapped.borrow();
        calls.iter().map(|&(from, to, ())| (from - self.from as usize, to - from)).collect()
    }

    fn forget(&self, moved: Moved) {
        if let Moved::Yes(mappings) = moved {
            // SAFETY: the range is this test's own.
            assert!(unsafe { renew(&self.machine, self.to, LEN, mappings) });
        }
    }
}

impl Drop for Ranges {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the ranges any more; what somebody else has mapped in one of them is the machine's.
        unsafe {
            os::unmap(self.from, LEN);
            os::unmap(self.to, LEN);
        }
    }
}

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_range_of_one_mapping_is_moved_by_one_call() {
    let _alone = alone();
    let ranges = Ranges::new(&[], &[]);
    let moved = ranges.move_pages();
    assert_eq!((moved, ranges.calls()), (Moved::Yes(2), [(0, LEN)].to_vec()));
    assert!(ranges.holds(ranges.to));
    // SAFETY: the source is mapped.
    assert!(ranges.words(ranges.from).all(|word| unsafe { word.read() } == 0));
    ranges.forget(moved);
}

#[test]
fn where_what_was_moved_away_is_forgotten_it_is_mapped_anew_and_blocks_are_copied_from_then_on() {
    let _alone = alone();
    KEPT.store(false, Ordering::Relaxed);
    let ranges = Ranges::new(&[MIB], &[]);
    ranges.machine.forgets.set(true);
    let moved = ranges.move_pages();
    assert!(matches!(moved, Moved::Yes(_)) && ranges.holds(ranges.to));
    // SAFETY: the source is mapped.
    assert!(ranges.words(ranges.from).all(|word| unsafe { word.read() } == 0));
    assert!(FORGOTTEN.load(Ordering::Relaxed) && !KEPT.load(Ordering::Relaxed));
    assert_eq!(Ranges::new(&[], &[]).move_pages(), Moved::No);
    ranges.forget(moved);
    FORGOTTEN.store(false, Ordering::Relaxed);
    // Memory that can't be given back says nothing of that.
    let ranges = Ranges::new(&[], &[]);
    ranges.machine.takes_back.set(false);
    let moved = ranges.move_pages();
    assert!(matches!(moved, Moved::Yes(_)) && ranges.holds(ranges.to));
    assert!(!FORGOTTEN.load(Ordering::Relaxed) && !KEPT.load(Ordering::Relaxed));
    // SAFETY: the source is mapped.
    assert!(ranges.words(ranges.from).all(|word| unsafe { word.read() } == 0));
    ranges.forget(moved);
}

#[test]
fn each_mapping_of_a_range_is_moved_by_itself() {
    let _alone = alone();
    let ranges = Ranges::new(&[KERNEL_PAGE, MIB, LEN - KERNEL_PAGE], &[]);
    let moved = ranges.move_pages();
    let pieces = [
        (0, KERNEL_PAGE),
        (KERNEL_PAGE, MIB - KERNEL_PAGE),
        (MIB, LEN - KERNEL_PAGE - MIB),
        (LEN - KERNEL_PAGE, KERNEL_PAGE),
    ];
    assert_eq!((moved, ranges.calls()), (Moved::Yes(5), pieces.to_vec()));
    assert!(ranges.holds(ranges.to));
    ranges.forget(moved);
}

#[test]
fn a_range_of_many_mappings_is_not_touched() {
    let _alone = alone();
    let ends: Vec<usize> = (1..9).map(|at| at * 3 * KERNEL_PAGE).collect();
    let ranges = Ranges::new(&ends, &[]);
    assert_eq!((ranges.move_pages(), ranges.calls()), (Moved::No, Vec::new()));
    assert!(ranges.holds(ranges.from));
}

/// Wherever and however a call fails, the bytes are all at one of the two places, and what is said is true.
#[test]
fn no_byte_is_lost_whichever_call_fails_in_whichever_way() {
    let _alone = alone();
    let ends = [MIB, 2 * MIB, LEN - 3 * KERNEL_PAGE];
    for failing in 0..4 {
        for way in [Remaps::NotAtAll, Remaps::AfterUnmapping, Remaps::AfterUnmappingAndSomebodyIsFaster] {
            let mut remaps = [Remaps::Well; 4];
            remaps[failing] = way;
            let ranges = Ranges::new(&ends, &remaps);
            let moved = ranges.move_pages();
            let case = std::format!("call {failing} fails {way:?}: {moved:?}");
            match (way, moved) {
                (Remaps::AfterUnmappingAndSomebodyIsFaster, Moved::Lost) => {
                    assert!(ranges.holds(ranges.from), "{case}")
                }
                (Remaps::AfterUnmappingAndSomebodyIsFaster, _) => panic!("{case}"),
                (_, Moved::No) => {
                    assert!(failing == 0 && ranges.holds(ranges.from), "{case}");
                    // All of the destination is usable.
                    // SAFETY: which is what is tested.
                    unsafe { ranges.to.write_bytes(1, LEN) };
                }
                (_, Moved::Yes(_)) => assert!(failing > 0 && ranges.holds(ranges.to), "{case}"),
                (_, Moved::Lost) => panic!("{case}"),
            }
            ranges.forget(moved);
        }
    }
}

#[test]
fn what_was_never_touched_is_not_touched_by_a_copy() {
    let (from, to) = (os::map(LEN), os::map(LEN));
    // SAFETY: both were just mapped; the kernel writes a byte for each page.
    unsafe {
        assert_eq!(os::advise(to, LEN, libc::MADV_NOHUGEPAGE), 0);
        from.add(5 * KERNEL_PAGE + 4095).write(1);
        from.add(9 * KERNEL_PAGE).write(2);
        copy(from, to, LEN - 100, true);
        assert_eq!(
            (to.add(5 * KERNEL_PAGE + 4095).read(), to.add(9 * KERNEL_PAGE).read(), to.add(LEN - 1).read()),
            (1, 2, 0)
        );
        let mut resident = [0u8; LEN / KERNEL_PAGE];
        assert_eq!(libc::mincore(to.cast(), LEN, resident.as_mut_ptr()), 0);
        // The last word was just looked at.
        assert_eq!(
            (0..LEN / KERNEL_PAGE).filter(|&page| resident[page] != 0).collect::<Vec<_>>(),
            [5, 9, LEN / KERNEL_PAGE - 1]
        );
        to.write_bytes(7, LEN);
        copy(from, to, LEN, false);
        assert_eq!((to.add(KERNEL_PAGE).read(), to.add(9 * KERNEL_PAGE).read()), (0, 2));
        os::unmap(from, LEN);
        os::unmap(to, LEN);
    }
}

#[test]
fn blocks_are_not_moved_when_there_are_many_mappings() {
    let _alone = alone();
    let mut moved = 0;
    loop {
        let ranges = Ranges::new(&[], &[]);
        match ranges.move_pages() {
            Moved::Yes(mappings) => moved += usize::from(mappings),
            other => {
                assert_eq!((other, ranges.calls()), (Moved::No, Vec::new()));
                break;
            }
        }
        assert!(moved <= MAPPINGS_MAX + 2, "{moved} mappings");
        if moved > 8 {
            // The rest of the way in one step.
            let rest = MAPPINGS_MAX + 1 - moved;
            MAPPINGS.fetch_add(rest, Ordering::Relaxed);
            moved += rest;
        }
    }
    MAPPINGS.fetch_sub(moved, Ordering::Relaxed);
}
