//! Publishes the modules that capture has seen.

use core::sync::atomic::AtomicU32;

use poolscope_capture::{module, module_count, module_generation};
use poolscope_wire::{MODULE_PATH_MAX, ModuleRecord, Region};

use super::sequence;
use crate::segment::Segment;

/// What the segment holds already.
pub struct Published {
    generation: u64,
    modules: u32,
    replaced: u64,
    /// The next modules to be published have frames in stacks that were taken before.
    inherited: bool,
}

impl Published {
    /// Nothing.
    pub const fn new() -> Self {
        Published { generation: 0, modules: 0, replaced: 0, inherited: false }
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
            let mut record = ModuleRecord {
                build_id_len: info.build_id.len() as u16,
                path_len: info.path.len() as u16,
                start: info.start,
                end: info.end,
                load_bias: info.load_bias,
                first_stack: if self.inherited { 0 } else { stacks },
                last_stack: if info.replaced { stacks } else { u32::MAX },
                ..ModuleRecord::ZERO
            };
            for (to, from) in record.build_id.iter_mut().zip(info.build_id) {
                *to = *from;
            }
            for (to, from) in record.path[..MODULE_PATH_MAX].iter_mut().zip(info.path) {
                *to = *from;
            }
            // SAFETY: as above.
            sequence::change(seq, |seq| unsafe { place.write_volatile(ModuleRecord { seq, ..record }) });
            segment.raise_count(Region::Modules, index + 1);
        }
        self.modules = self.modules.max(count);
        self.replaced = replaced;
        self.inherited = false;
    }
}
