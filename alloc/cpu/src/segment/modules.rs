//! Publishes the modules that capture has seen.

use core::sync::atomic::AtomicU32;

use poolscope_capture::{ModuleInfo, module, module_count, module_generation};
use poolscope_wire::{MODULE_PATH_MAX, ModuleRecord, Region, file_number};

use crate::segment::Segment;
use crate::segment::sequence;

/// What the segment holds already.
pub struct Published {
    generation: u64,
    modules: u32,
    replaced: u64,
    /// Stacks that had been taken at the last look.
    stacks: u32,
    /// The next modules to be published have frames in stacks that were taken before.
    inherited: bool,
}

impl Published {
    /// Nothing.
    pub const fn new() -> Self {
        Published { generation: 0, modules: 0, replaced: 0, stacks: 0, inherited: false }
    }

    /// In a new segment: publish all again.
    pub fn restart(&mut self) {
        self.generation = 0;
        self.modules = 0;
        self.inherited = true;
    }

    /// Modules that were replaced so far.
    pub fn epoch(&self) -> u64 {
        self.replaced
    }

    /// Publishes what is new; `stacks` stacks were taken before.
    pub fn publish(&mut self, segment: &Segment, stacks: u32) {
        let generation = module_generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        let count = module_count() as u32;
        let mut replaced = 0;
        for index in 0..count {
            let Some(info) = module(index as usize) else { continue };
            replaced += u64::from(info.replaced);
            if index < self.modules && !info.replaced {
                continue;
            }
            if !segment.commit(Region::Modules, index + 1) {
                segment.header().dropped_modules = u64::from(count - index);
                break;
            }
            let place = segment.record::<ModuleRecord>(Region::Modules, index);
            // SAFETY: the record is committed, its number aligned; the caller holds the sampler's lock.
            let seq = unsafe { AtomicU32::from_ptr(&raw mut (*place).seq) };
            if index < self.modules {
                // SAFETY: as above.
                unsafe {
                    let last_stack = &raw mut (*place).last_stack;
                    if last_stack.read_volatile() == u32::MAX {
                        sequence::change(seq, |_| last_stack.write_volatile(stacks));
                    }
                }
                continue;
            }
            let earlier = (0..index as usize).filter_map(module);
            let first_stack = if self.inherited { 0 } else { first_stack(&info, earlier, self.stacks, stacks) };
            let last_stack = if info.replaced { stacks } else { u32::MAX };
            // SAFETY: as above; the record is not published yet, and zero but for its number.
            sequence::change(seq, |_| unsafe { write(place, &info, first_stack, last_stack) });
            segment.raise_count(Region::Modules, index + 1);
        }
        self.modules = self.modules.max(count);
        self.replaced = replaced;
        self.stacks = stacks;
        self.inherited = false;
    }
}

/// The first of the stacks that may have frames in a new module, where `before` had been taken at the last look and
/// `stacks` have by now.
///
/// Capture does without the table of modules while another thread writes to it, and a stack may come here before the
/// modules of its frames do. So a module counts as there since the last look, or since the start if it was; unless
/// another one was at its addresses before, whose frames are not to have its names.
fn first_stack(module: &ModuleInfo, mut earlier: impl Iterator<Item = ModuleInfo>, before: u32, stacks: u32) -> u32 {
    if module.stays {
        0
    } else if earlier.any(|other| other.start < module.end && module.start < other.end) {
        stacks
    } else {
        before
    }
}

/// Writes a module's record part by part: a whole one has no place on the program's stack.
///
/// # Safety
/// The record is the caller's, and zero but for its number.
unsafe fn write(place: *mut ModuleRecord, info: &ModuleInfo, first_stack: u32, last_stack: u32) {
    let (build_id, path) = (info.build_id, info.path);
    let (build_id_len, path_len) =
        (build_id.len().min(ModuleRecord::ZERO.build_id.len()), path.len().min(MODULE_PATH_MAX));
    // SAFETY: the caller's promise; the lengths are those of the fields at most.
    unsafe {
        (&raw mut (*place).build_id_len).write_volatile(build_id_len as u16);
        (&raw mut (*place).path_len).write_volatile(path_len as u16);
        (&raw mut (*place).start).write_volatile(info.start);
        (&raw mut (*place).end).write_volatile(info.end);
        (&raw mut (*place).load_bias).write_volatile(info.load_bias);
        let file = info.file.map_or(0, |file| file_number(file.inode, file.bytes, file.modified));
        (&raw mut (*place).file).write_volatile(file);
        (&raw mut (*place).first_stack).write_volatile(first_stack);
        (&raw mut (*place).last_stack).write_volatile(last_stack);
        (&raw mut (*place).build_id).cast::<u8>().copy_from_nonoverlapping(build_id.as_ptr(), build_id_len);
        (&raw mut (*place).path).cast::<u8>().copy_from_nonoverlapping(path.as_ptr(), path_len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: u64, stays: bool) -> ModuleInfo {
        let end = start + 0x1000;
        ModuleInfo {
            start,
            end,
            load_bias: start,
            build_id: &[],
            path: b"/lib/x.so",
            file: None,
            stays,
            replaced: false,
        }
    }

    #[test]
    fn a_module_of_the_start_has_frames_in_stacks_that_came_before_it() {
        assert_eq!(first_stack(&at(0x1000, true), core::iter::empty(), 5, 7), 0);
    }

    #[test]
    fn a_module_that_was_opened_has_none_in_stacks_from_before_the_last_look_nor_of_the_one_that_it_replaces() {
        assert_eq!(first_stack(&at(0x1000, false), [at(0x2000, false)].into_iter(), 5, 7), 5);
        assert_eq!(first_stack(&at(0x1000, false), [at(0x2000, false), at(0x1800, false)].into_iter(), 5, 7), 7);
    }
}
