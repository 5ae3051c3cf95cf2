//! Which module an address was in when a stack was captured.

use std::collections::HashMap;

use crate::build::pool_frames;
use crate::model::snapshot::Module;

/// The most modules that are tried for one address: more never overlap in a real process.
const MAX_OVERLAPPING: usize = 64;

/// Finds the module of an address; modules may have been at the same address one after the other.
#[derive(Debug, Default)]
pub(crate) struct ModuleIndex {
    pub(crate) modules: Vec<Module>,
    /// The same, without those that are another one's file, loaded somewhere else.
    pub(crate) files: Vec<Module>,
    /// For each module its file.
    file_of: Vec<usize>,
    /// Start, and index into `modules`; ascending.
    by_start: Vec<(u64, usize)>,
    /// For each of these the largest end so far.
    largest_end: Vec<u64>,
    /// The first stacks that were captured with other modules than those before them; ascending.
    changes: Vec<u32>,
}

impl ModuleIndex {
    pub(crate) fn new(modules: &[Module]) -> Self {
        let mut by_start: Vec<(u64, usize)> = modules.iter().enumerate().map(|(i, module)| (module.start, i)).collect();
        by_start.sort_unstable();
        let mut largest = 0;
        let largest_end = by_start
            .iter()
            .map(|&(_, i)| {
                largest = largest.max(modules[i].end);
                largest
            })
            .collect();
        let (mut files, mut known): (Vec<Module>, HashMap<_, usize>) = (Vec::new(), HashMap::new());
        let file_of = modules.iter().enumerate().map(|(i, module)| {
            // Without a build id nobody knows whether it is the same.
            let apart = if module.build_id.is_empty() { i } else { usize::MAX };
            let key = (&module.path, &module.build_id, module.end.wrapping_sub(module.start), apart);
            *known.entry(key).or_insert_with(|| {
                files.push(module.clone());
                files.len() - 1
            })
        });
        let file_of = file_of.collect();
        let mut changes: Vec<u32> = modules.iter().flat_map(|m| [m.stacks.start, m.stacks.end]).collect();
        changes.sort_unstable();
        changes.dedup();
        Self { modules: modules.to_vec(), files, file_of, by_start, largest_end, changes }
    }

    /// Whether the same modules were there when two stacks were captured.
    pub(crate) fn are_the_same(&self, one: u32, later: u32) -> bool {
        let before = |stack: u32| self.changes.partition_point(|&change| change <= stack);
        before(one) == before(later)
    }

    /// It is the pool's library.
    pub(crate) fn is_pool(&self, module: Option<usize>) -> bool {
        module.is_some_and(|module| pool_frames::is_pool_module(&self.files[module]))
    }

    /// The file that a frame of the stack `stack` lies in, and the address there where it was loaded first.
    pub(crate) fn find(&self, address: u64, stack: u32) -> (u64, Option<usize>) {
        let Some(module) = self.module(address, stack) else { return (address, None) };
        let file = self.file_of[module];
        let moved = self.files[file].load_bias.wrapping_sub(self.modules[module].load_bias);
        (address.wrapping_add(moved), Some(file))
    }

    /// The module that a frame of the stack `stack` lies in; the one seen last if there are several.
    fn module(&self, address: u64, stack: u32) -> Option<usize> {
        let end = self.by_start.partition_point(|&(start, _)| start <= address);
        (0..end)
            .rev()
            .take_while(|&i| self.largest_end[i] > address)
            .take(MAX_OVERLAPPING)
            .map(|i| self.by_start[i].1)
            .filter(|&module| {
                let module = &self.modules[module];
                address < module.end && (module.stacks.contains(&stack) || is_loaded(module, stack))
            })
            .max()
    }
}

/// `u32::MAX` as the end means that the module is still loaded.
fn is_loaded(module: &Module, stack: u32) -> bool {
    module.stacks.end == u32::MAX && stack >= module.stacks.start
}
