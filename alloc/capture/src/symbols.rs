//! What a module's own table of dynamic symbols says, read from memory: no lock is taken, as `dlsym` takes the loader's.

use core::ffi::CStr;

use crate::elf;
use crate::loader::Object;
use crate::reader::Reader;

/// A symbol that a module defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Where it lies in memory.
    pub address: usize,
    /// Its bytes; 0 if that is not known.
    pub size: usize,
}

/// Entries of the dynamic section (`elf.h`).
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// Bytes of a symbol in the table.
const SYMBOL_SIZE: usize = 24;
/// Kinds of symbols: no kind, an object, and a function.
const KINDS: [u8; 3] = [0, 1, 2];

/// Entries and links that are followed at most: there are more in no table that is whole.
const STEPS_MAX: usize = 1 << 16;

/// Where a module has its symbols.
struct Tables {
    hash: usize,
    symbols: usize,
    strings: usize,
    strings_len: usize,
}

/// The symbol of this name that the module defines: what the loader would find in it, but for versions. `None` as well
/// where its table is none of GNU's kind, and of what each thread has its own of.
///
/// # Safety
/// The module is loaded, and stays so until this returns.
pub(crate) unsafe fn find(object: &Object, name: &CStr) -> Option<Symbol> {
    let segments = elf::segments(object)?;
    // SAFETY: the caller's promise.
    let at = |address: usize, len: usize| unsafe { segments.reader(address, len) };
    let tables = segments.dynamic().and_then(|(start, len)| tables(object, at(start, len)?))?;
    let wanted = hash(name);
    let mut head = at(tables.hash, 16)?;
    let (buckets, first) = (head.u32()? as usize, head.u32()? as usize);
    let (filter, shift) = (head.u32()? as usize, head.u32()?);
    if buckets == 0 || filter == 0 {
        return None;
    }
    // A bit for each of two of the hash's parts is set in the filter, if there is such a name.
    let filter_at = tables.hash.checked_add(16)?;
    let word = at(filter_at.checked_add(8 * (wanted as usize / 64 % filter))?, 8)?.u64()?;
    let bits = 1 << (wanted % 64) | 1 << (wanted.checked_shr(shift)? % 64);
    if word & bits != bits {
        return None;
    }
    let buckets_at = filter_at.checked_add(filter.checked_mul(8)?)?;
    let chain_at = buckets_at.checked_add(buckets.checked_mul(4)?)?;
    let begins = at(buckets_at.checked_add(wanted as usize % buckets * 4)?, 4)?.u32()? as usize;
    if begins < first {
        return None;
    }
    for index in (begins..).take(STEPS_MAX) {
        let link = at(chain_at.checked_add((index - first).checked_mul(4)?)?, 4)?.u32()?;
        if link | 1 == wanted | 1 {
            let mut symbol = at(tables.symbols.checked_add(index.checked_mul(SYMBOL_SIZE)?)?, SYMBOL_SIZE)?;
            let (name_at, kind, _other, section) =
                (symbol.u32()? as usize, symbol.u8()? & 0xf, symbol.u8()?, symbol.u16()?);
            let (value, size) = (symbol.u64()? as usize, symbol.u64()? as usize);
            let len = name.count_bytes() + 1;
            let fits = name_at.checked_add(len).is_some_and(|end| end <= tables.strings_len);
            if fits && section != 0 && KINDS.contains(&kind) {
                let mut text = at(tables.strings.checked_add(name_at)?, len)?;
                if name.to_bytes_with_nul().iter().all(|byte| text.u8() == Some(*byte)) {
                    return Some(Symbol { address: object.load_bias().wrapping_add(value), size });
                }
            }
        }
        if link & 1 == 1 {
            break;
        }
    }
    None
}

/// What the module's dynamic section says.
fn tables(object: &Object, mut section: Reader) -> Option<Tables> {
    let (mut hash, mut symbols, mut strings, mut strings_len) = (None, None, None, None);
    // glibc writes the addresses in memory over those of the file, where it may write.
    let place = |value: usize| {
        let is_of_memory = object.start <= value && value < object.end;
        if is_of_memory { value } else { object.load_bias().wrapping_add(value) }
    };
    while let (Some(kind @ 1..), Some(value)) = (section.u64(), section.u64()) {
        let value = value as usize;
        match kind {
            DT_GNU_HASH => hash = Some(place(value)),
            DT_SYMTAB => symbols = Some(place(value)),
            DT_STRTAB => strings = Some(place(value)),
            DT_STRSZ => strings_len = Some(value),
            _ => {}
        }
    }
    Some(Tables { hash: hash?, symbols: symbols?, strings: strings?, strings_len: strings_len? })
}

/// What a name is looked up by (the hash of Bernstein's that GNU's tables have).
fn hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader;
    use std::ffi::CString;

    /// What the loader says of a name in the library that was opened so.
    fn by_the_loader(library: &CStr, name: &CStr) -> usize {
        // SAFETY: the library is loaded already; asks for a name in it.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            assert!(!handle.is_null(), "{library:?}");
            libc::dlsym(handle, name.as_ptr()) as usize
        }
    }

    fn found_in(address: usize, name: &str) -> Option<Symbol> {
        let object = loader::find(address)?;
        // SAFETY: libraries of the start are never unloaded.
        unsafe { find(&object, &CString::new(name).unwrap()) }
    }

    #[test]
    fn what_a_library_defines_lies_where_the_loader_says() {
        let in_libc = libc::getpid as *const () as usize;
        if loader::find(in_libc).is_none_or(|object| object.is_executable()) {
            return;
        }
        let names = ["malloc", "getpid", "environ", "qsort", "stdout", "__libc_start_main", "fopen", "pthread_self"];
        for name in names {
            let symbol = found_in(in_libc, name).expect(name);
            assert_eq!(symbol.address, by_the_loader(c"libc.so.6", &CString::new(name).unwrap()), "{name}");
            assert!(symbol.size > 0 || name == "environ", "{name}: {symbol:?}");
        }
        // It has none of these; the last one each thread has its own of.
        for name in ["", "mallo", "malloc_", "PyUnicode_Type", "errno", "_Unwind_Backtrace"] {
            assert_eq!(found_in(in_libc, name), None, "{name}");
        }
    }
}
