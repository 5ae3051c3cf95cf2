//! Addresses to names, files and lines, out of process.
//!
//! Names come from the files that the module records name, not from the living process, so a process that was killed
//! yesterday has names too, as long as its files are still what they were: a file is only used if it has the build id
//! that the process saw. Wrong names would be worse than none, and `go tool pprof` does not check.
//!
//! The work is done by `blazesym`: the symbol table, DWARF, inlined functions, and separate debug information found by
//! debug link or build id. What it found is kept for each module and address, because the dashboard asks again with
//! every frame.
//!
//! A [`SymbolCache`] cannot be sent to another thread (the parsed files can't); build it where it is used.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use blazesym::helper::read_elf_build_id;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use crate::printable::printable_str;
use crate::profile::{Frame, Location};
use crate::snapshot::{Module, ProcessInfo, ProcessState};

/// How the kernel marks the path of a file that is no longer there.
const DELETED: &str = " (deleted)";

/// Longer names are shown as they are: demangling one could take very long.
const LONGEST_MANGLED: usize = 16 * 1024;

/// Where distributions put debug information by build id.
const DEBUG_BY_BUILD_ID: &str = "/usr/lib/debug/.build-id";

/// Why frames of a module have no names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SymbolWarning {
    /// The file is another one than the process loaded.
    #[error("no names for {module}: {} has changed since the process loaded it ({why}); its frames show as [{module}+OFFSET]", path.display())]
    Replaced {
        /// File name of the module.
        module: String,
        /// The file.
        path: PathBuf,
        /// How we know.
        why: &'static str,
    },
    /// The file is not there, or may not be read.
    #[error("no names for {module}: cannot read {}: {error}; its frames show as [{module}+OFFSET]", path.display())]
    Unreadable {
        /// File name of the module.
        module: String,
        /// The file.
        path: PathBuf,
        /// What went wrong.
        error: String,
    },
}

/// Names of addresses, remembered.
#[derive(Debug, Default)]
pub struct SymbolCache {
    modules: HashMap<ModuleKey, ModuleSymbols>,
    warnings: Vec<SymbolWarning>,
}

/// A file's contents, whatever process and address it was loaded at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModuleKey {
    path: String,
    build_id: Vec<u8>,
}

#[derive(Debug)]
struct ModuleSymbols {
    /// The file that holds the symbols and its parsed contents; none if there is no such file.
    file: Option<(PathBuf, Symbolizer)>,
    names: HashMap<u64, Arc<[Frame]>>,
}

impl SymbolCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// The functions at `address` (already less one for a return address) in a module of a process, innermost first;
    /// a placeholder if none is known.
    pub fn frames(&mut self, process: &ProcessInfo, module: &Module, address: u64) -> Arc<[Frame]> {
        let key = ModuleKey { path: module.path.clone(), build_id: module.build_id.clone() };
        let warnings = &mut self.warnings;
        let symbols = self.modules.entry(key).or_insert_with(|| ModuleSymbols::open(process, module, warnings));
        // Virtual address in the file, as `objdump` shows it.
        let virtual_address = address.wrapping_sub(module.load_bias);
        let ModuleSymbols { file, names } = symbols;
        let frames = names.entry(virtual_address).or_insert_with(|| {
            let found = file.as_ref().and_then(|(path, symbolizer)| lookup(symbolizer, path, virtual_address));
            found.unwrap_or_else(|| vec![Location::placeholder(Some(module), address)]).into()
        });
        Arc::clone(frames)
    }

    /// Takes what went wrong since the last call; each module is reported once.
    pub fn take_warnings(&mut self) -> Vec<SymbolWarning> {
        std::mem::take(&mut self.warnings)
    }
}

impl ModuleSymbols {
    fn open(process: &ProcessInfo, module: &Module, warnings: &mut Vec<SymbolWarning>) -> Self {
        let file = match find_file(process, module) {
            Ok(path) => path.map(|path| (path, symbolizer())),
            Err(warning) => {
                warnings.push(warning);
                None
            }
        };
        Self { file, names: HashMap::new() }
    }
}

/// One for each file: a file that is replaced while we run keeps the contents that were checked.
fn symbolizer() -> Symbolizer {
    Symbolizer::builder()
        .enable_auto_reload(false)
        .enable_code_info(true)
        .enable_inlined_fns(true)
        // It takes the C function `a` for the mangled type `signed char`: see `demangle`.
        .enable_demangling(false)
        .build()
}

/// The file with the contents that the process loaded. `None` for what is no file (`[vdso]`, generated code).
fn find_file(process: &ProcessInfo, module: &Module) -> Result<Option<PathBuf>, SymbolWarning> {
    let (path, deleted) = match module.path.strip_suffix(DELETED) {
        Some(path) => (path, true),
        None => (module.path.as_str(), false),
    };
    if !path.starts_with('/') {
        return Ok(None);
    }
    let mut first_problem = None;
    for candidate in candidates(process, module, path, deleted) {
        match check_file(&candidate, process, module) {
            Ok(()) => return Ok(Some(candidate)),
            Err(problem) => first_problem.get_or_insert(problem),
        };
    }
    first_problem.map_or(Ok(None), Err)
}

/// Where the file's contents may be found, the likeliest first.
fn candidates(process: &ProcessInfo, module: &Module, path: &str, deleted: bool) -> Vec<PathBuf> {
    let mut candidates = vec![PathBuf::from(path)];
    if process.state == ProcessState::Running {
        let pid = process.pid;
        // A process in a container has another root.
        candidates.push(PathBuf::from(format!("/proc/{pid}/root{path}")));
        if process.exe.strip_suffix(DELETED).unwrap_or(&process.exe) == path {
            candidates.push(PathBuf::from(format!("/proc/{pid}/exe")));
        }
        if deleted {
            candidates.extend(mapped_file(pid, module.start));
        }
    }
    let id = module.build_id_hex();
    if id.len() > 2 {
        candidates.push(PathBuf::from(format!("{DEBUG_BY_BUILD_ID}/{}/{}.debug", &id[..2], &id[2..])));
    }
    candidates
}

/// The entry of `/proc/PID/map_files` of the mapping that begins at `start`. It opens the very file that is mapped,
/// deleted or not, but needs `CAP_CHECKPOINT_RESTORE` (proc(5)).
fn mapped_file(pid: u32, start: u64) -> Option<PathBuf> {
    let prefix = format!("{start:x}-");
    let entry = fs::read_dir(format!("/proc/{pid}/map_files"))
        .ok()?
        .flatten()
        .find(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)))?;
    Some(entry.path())
}

/// Whether a file is the one that the process loaded.
fn check_file(path: &Path, process: &ProcessInfo, module: &Module) -> Result<(), SymbolWarning> {
    let unreadable =
        |error: String| SymbolWarning::Unreadable { module: module.name().to_owned(), path: path.to_owned(), error };
    let replaced = |why| Err(SymbolWarning::Replaced { module: module.name().to_owned(), path: path.to_owned(), why });
    let metadata = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if !metadata.is_file() {
        return Err(unreadable("not a regular file".to_owned()));
    }
    let build_id = read_elf_build_id(path).map_err(|error| unreadable(error.to_string()))?;
    match (build_id, module.build_id.as_slice()) {
        // The record holds at most 32 bytes of the id.
        (Some(on_disk), seen) if !seen.is_empty() => {
            let same = on_disk.as_ref() == seen || (seen.len() == 32 && on_disk.starts_with(seen));
            if same { Ok(()) } else { replaced("its build id differs") }
        }
        (None, []) => {
            let started = UNIX_EPOCH + Duration::from_nanos(process.start_realtime_ns);
            match metadata.modified() {
                Ok(modified) if modified > started => replaced("it is newer than the process and has no build id"),
                _ => Ok(()),
            }
        }
        _ => replaced("its build id differs"),
    }
}

/// Asks for one address; debug information that cannot be read costs files and lines, not the names.
fn lookup(symbolizer: &Symbolizer, path: &Path, virtual_address: u64) -> Option<Vec<Frame>> {
    let ask = |debug_syms| {
        let mut elf = Elf::new(path);
        elf.debug_syms = debug_syms;
        let found = symbolizer.symbolize_single(&Source::Elf(elf), Input::VirtOffset(virtual_address));
        // A function may have debug information that does not name it.
        found.ok().and_then(Symbolized::into_sym).filter(|symbol| !symbol.name.is_empty())
    };
    ask(true).or_else(|| ask(false)).map(|symbol| frames_of(&symbol))
}

/// Innermost first. `blazesym` gives the function that was compiled, then those inlined into it from the outside in,
/// each with the place in its own source.
fn frames_of(symbol: &Sym<'_>) -> Vec<Frame> {
    let frame = |name: &str, code: Option<&CodeInfo<'_>>, inlined| Frame {
        name: printable_str(demangle(name)),
        file: code.map(|code| printable_str(code.to_path().to_string_lossy().into_owned())),
        line: code.and_then(|code| code.line).filter(|&line| line > 0),
        inlined,
    };
    let inlined = symbol.inlined.iter().rev().map(|function| frame(&function.name, function.code_info.as_ref(), true));
    inlined.chain([frame(&symbol.name, symbol.code_info.as_deref(), false)]).collect()
}

/// A name as its programmer wrote it. Only what has the prefix of a mangling scheme is demangled: `a` is a C function,
/// although it is also how C++ mangles `signed char`.
fn demangle(name: &str) -> String {
    // The version of a dynamic symbol is no part of its name, nor is the mark of glibc's aliases for its own calls.
    let name = name.find('@').filter(|&at| at > 0).map_or(name, |at| &name[..at]);
    let name = name.strip_prefix("__GI_").filter(|name| !name.is_empty()).unwrap_or(name);
    if name.len() > LONGEST_MANGLED {
        return name.to_owned();
    }
    if (name.starts_with("_R") || name.starts_with("_ZN"))
        && let Ok(rust) = rustc_demangle::try_demangle(name)
    {
        return format!("{rust:#}");
    }
    let cpp = name.starts_with("_Z").then(|| cpp_demangle::Symbol::new(name).ok()).flatten();
    cpp.and_then(|symbol| symbol.demangle().ok()).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn only_mangled_names_are_demangled() {
        for (name, expected) in [
            ("a", "a"),
            ("i", "i"),
            ("main", "main"),
            ("St", "St"),
            ("_ZN7mycrate5cache3new17h0123456789abcdefE", "mycrate::cache::new"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_ZN5Cache6insertEi", "Cache::insert(int)"),
            ("_Znwm", "operator new(unsigned long)"),
            ("_Zbroken", "_Zbroken"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("__GI_setlocale", "setlocale"),
            ("_ZN5Cache6insertEi.cold", "Cache::insert(int) [clone .cold]"),
            ("", ""),
        ] {
            assert_eq!(demangle(name), expected, "{name}");
        }
    }
}
