//! Names for addresses of variables of a process that runs: which module they lie in, and which symbol.

use std::collections::HashMap;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use blazesym::SymType;
use blazesym::inspect::Inspector;
use blazesym::inspect::source::{Elf, Source};

use crate::symbols::function_name::demangle;

/// A mapping of the process.
#[derive(Clone, Debug)]
struct Mapping {
    from: u64,
    to: u64,
    offset: u64,
    /// A file, or a name in brackets; empty for memory without a name.
    path: String,
}

/// A variable of a module, or where none is known, a place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The variable's name; empty if the module's symbols don't have it.
    pub variable: String,
    /// The module's file name; empty for memory that belongs to none.
    pub module: String,
    /// Bytes behind the variable's start, the module's, or the mapping's.
    pub offset: u64,
}

/// A variable: first address, the one behind the last, name.
type Symbol = (u64, u64, String);

/// Looks addresses up.
#[derive(Debug, Default)]
pub struct Variables {
    mappings: Vec<Mapping>,
    symbols: HashMap<String, Vec<Symbol>>,
}

impl Variables {
    /// Those of a process.
    pub fn of(pid: u32) -> Self {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        Self { mappings: maps.lines().filter_map(parse).collect(), symbols: HashMap::new() }
    }

    /// Where an address lies.
    pub fn find(&mut self, address: u64) -> Place {
        let unknown = Place { variable: String::new(), module: String::new(), offset: address };
        let Some(at) = self.mappings.iter().position(|mapping| (mapping.from..mapping.to).contains(&address)) else {
            return unknown;
        };
        let Some(path) = self.file_of(at) else {
            return Place { offset: address - self.mappings[at].from, ..unknown };
        };
        let module = Path::new(&path).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let base = self.mappings.iter().find(|mapping| mapping.path == path && mapping.offset == 0);
        let base = base.map_or(0, |mapping| mapping.from);
        let bias = if is_at_fixed_addresses(&path) { 0 } else { base };
        let symbols = self.symbols.entry(path.clone()).or_insert_with(|| variables_of(&path));
        let wanted = address - bias;
        let behind = symbols.partition_point(|symbol| symbol.0 <= wanted);
        match symbols[..behind].last().filter(|symbol| wanted < symbol.1) {
            Some(symbol) => Place { variable: demangle(&symbol.2), module, offset: wanted - symbol.0 },
            None => Place { variable: String::new(), module, offset: address.saturating_sub(base) },
        }
    }

    /// The file that a mapping belongs to: its own, or, as `.bss`, that of the one before.
    fn file_of(&self, at: usize) -> Option<String> {
        let mapping = &self.mappings[at];
        let before = at.checked_sub(1).map(|before| &self.mappings[before]);
        let is_bss = |before: &&Mapping| mapping.path.is_empty() && before.to == mapping.from;
        let owner = if mapping.path.is_empty() { before.filter(is_bss)? } else { mapping };
        owner.path.starts_with('/').then(|| owner.path.clone())
    }
}

/// A line of `/proc/PID/maps` (proc(5)).
fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (from, to) = fields.next()?.split_once('-')?;
    let offset = fields.nth(1)?;
    let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
    let path = fields.nth(2).unwrap_or_default().trim_start().to_owned();
    Some(Mapping { from: hexadecimal(from)?, to: hexadecimal(to)?, offset: hexadecimal(offset)?, path })
}

/// Whether a file is an executable that is loaded where it says (`ET_EXEC`).
fn is_at_fixed_addresses(path: &str) -> bool {
    const TYPE: u64 = 16;
    const ET_EXEC: u16 = 2;
    let mut kind = [0; 2];
    File::open(path).and_then(|file| file.read_exact_at(&mut kind, TYPE)).is_ok() && u16::from_le_bytes(kind) == ET_EXEC
}

/// The variables of a file, ascending; none if it can't be read.
fn variables_of(path: &str) -> Vec<Symbol> {
    let mut symbols = Vec::new();
    // Of debug information, functions alone would be known.
    let mut file = Elf::new(path);
    file.debug_syms = false;
    let source = Source::Elf(file);
    let _ = Inspector::new().for_each(&source, |symbol| {
        if symbol.sym_type == SymType::Variable
            && let Some(size) = symbol.size.filter(|&size| size > 0)
        {
            symbols.push((symbol.addr, symbol.addr + size as u64, symbol.name.to_string()));
        }
        ControlFlow::Continue(())
    });
    symbols.sort();
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;

    static VARIABLE_OF_THIS_TEST: [std::sync::atomic::AtomicU64; 4] =
        [const { std::sync::atomic::AtomicU64::new(7) }; 4];

    #[test]
    fn a_variable_of_this_program_is_found_by_an_address_in_it() {
        let mut variables = Variables::of(std::process::id());
        let place = variables.find(&raw const VARIABLE_OF_THIS_TEST[3] as u64);
        assert!(place.variable.contains("VARIABLE_OF_THIS_TEST"), "{place:?}");
        assert_eq!(place.offset, 24);
        assert!(place.module.starts_with("poolscope_profiler"), "{place:?}");
        let on_the_heap = Box::new(1);
        assert_eq!(variables.find(&raw const *on_the_heap as u64).variable, "");
        assert_eq!(variables.find(8), Place { variable: String::new(), module: String::new(), offset: 8 });
    }
}
