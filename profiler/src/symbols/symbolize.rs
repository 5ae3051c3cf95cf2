//! Addresses to names, files and lines, out of process.
//!
//! Names come from the files that the module records name, not from the living process, so a process that was killed
//! yesterday has names too, as long as its files are still what they were: a file is only used if it has the build id
//! that the process saw. Wrong names would be worse than none, and `go tool pprof` does not check.
//!
//! The work is done by `blazesym`: the symbol table, DWARF, inlined functions, and what debug links lead to. Which
//! files to ask is found in [`crate::symbols::symbol_files`], the kernel's library in [`crate::symbols::vdso`],
//! generated code in [`crate::symbols::perf_map`]. What was found is kept for each module and address, because the
//! dashboard asks again with every frame.
//!
//! A [`SymbolCache`] cannot be sent to another thread (the parsed files can't); build it where it is used.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use crate::model::profile::{Frame, Location};
use crate::model::snapshot::{Module, ProcessInfo, hexadecimal};
use crate::symbols::disk_cache::{DiskCache, is_name};
use crate::symbols::function_name::{demangle, is_mangled, with_path};
use crate::symbols::perf_map::PerfMap;
use crate::symbols::symbol_files;
use crate::symbols::vdso::Vdso;
use crate::symbols::warning::SymbolWarning;
use crate::words::printable::printable_str;

/// Names of addresses, remembered.
#[derive(Debug)]
pub struct SymbolCache {
    modules: HashMap<ModuleKey, ModuleSymbols>,
    /// Folders of separate debug information, those of the user first.
    debug_dirs: Vec<PathBuf>,
    /// Names that were found before.
    disk: Option<DiskCache>,
    /// The kernel's library, once it was asked for.
    vdso: Option<Option<Vdso>>,
    /// By [`ProcessInfo::identity`].
    generated: HashMap<(u32, u64), PerfMap>,
    warnings: Vec<SymbolWarning>,
}

/// A file's contents, whatever process and address it was loaded at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModuleKey {
    path: String,
    build_id: Vec<u8>,
    file: u64,
}

#[derive(Debug)]
struct ModuleSymbols {
    /// The files that hold the symbols, and their parsed contents; the best first.
    files: Vec<(PathBuf, Symbolizer)>,
    names: HashMap<u64, Arc<[Frame]>>,
    /// Addresses whose names have been looked up, and are in no file.
    new: HashSet<u64>,
}

impl Default for SymbolCache {
    fn default() -> Self {
        Self::new()
    }
}

impl SymbolCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::with_debug_dirs(&[])
    }

    /// An empty cache that looks for separate debug information in `debug_dirs` before it does so in `/usr/lib/debug`:
    /// under `.build-id`, and under the names that debug links have.
    pub fn with_debug_dirs(debug_dirs: &[PathBuf]) -> Self {
        let debug_dirs = debug_dirs.iter().cloned().chain(symbol_files::DEBUG_DIRS.map(PathBuf::from)).collect();
        let (modules, generated) = (HashMap::new(), HashMap::new());
        Self { modules, debug_dirs, disk: None, vdso: None, generated, warnings: Vec::new() }
    }

    /// The same, with the names that were found before in a folder of the user's, by build ids. New ones are written
    /// there when the cache goes.
    #[must_use]
    pub fn kept_in(mut self, folder: &Path) -> Self {
        self.disk = Some(DiskCache::new(folder.to_owned()));
        self
    }

    /// The functions at `address` (already less one for a return address) in a module of a process, innermost first;
    /// a placeholder if none is known.
    pub fn frames(&mut self, process: &ProcessInfo, module: &Module, address: u64) -> Arc<[Frame]> {
        let Module { path, build_id, file, .. } = module;
        let key = ModuleKey { path: path.clone(), build_id: build_id.clone(), file: *file };
        let Self { modules, debug_dirs, disk, vdso, warnings, .. } = self;
        let symbols = modules.entry(key.clone()).or_insert_with(|| {
            let vdso = if Vdso::is(&module.path) { vdso.get_or_insert_with(Vdso::copy).as_ref() } else { None };
            let mut symbols = ModuleSymbols::open(process, module, debug_dirs, vdso, warnings);
            if let Some(disk) = disk.as_ref().filter(|_| is_kept(&key)) {
                symbols.names.extend(disk.load(&module.build_id_hex(), &symbols.sources()));
            }
            symbols
        });
        // Virtual address in the file, as `objdump` shows it.
        let virtual_address = address.wrapping_sub(module.load_bias);
        let ModuleSymbols { files, names, new } = symbols;
        let frames = names.entry(virtual_address).or_insert_with(|| {
            let found = files.iter().find_map(|(path, symbolizer)| lookup(symbolizer, path, virtual_address));
            if found.is_some() {
                new.insert(virtual_address);
            }
            found.unwrap_or_else(|| vec![Location::placeholder(Some(module), address)]).into()
        });
        Arc::clone(frames)
    }

    /// Reads what a process has said since the last call of the code that it generated. True if there is anything new.
    pub fn update_generated(&mut self, process: &ProcessInfo) -> bool {
        self.generated.entry(process.identity()).or_default().update(process)
    }

    /// The generated function at an address of no module of a process ([`ProcessInfo::identity`]), as
    /// [`update_generated`](Self::update_generated) knows it.
    pub fn generated(&self, process: (u32, u64), address: u64) -> Option<Frame> {
        self.generated.get(&process)?.frame(address)
    }

    /// Takes what went wrong since the last call; each module is reported once.
    pub fn take_warnings(&mut self) -> Vec<SymbolWarning> {
        std::mem::take(&mut self.warnings)
    }
}

impl Drop for SymbolCache {
    /// Keeps what was looked up.
    fn drop(&mut self) {
        let Some(disk) = &self.disk else { return };
        for (module, symbols) in &self.modules {
            if symbols.new.is_empty() || !is_kept(module) {
                continue;
            }
            let (build_id, sources) = (hexadecimal(&module.build_id), symbols.sources());
            // Another process may have written since.
            let mut entries = disk.load(&build_id, &sources);
            entries.retain(|(address, _)| !symbols.new.contains(address));
            let found = symbols.new.iter().filter_map(|address| Some((*address, symbols.names.get(address)?.clone())));
            entries.extend(found);
            disk.save(&build_id, &sources, &entries);
        }
    }
}

/// Whether a module's names can be kept: a build id tells it from all others, and it lies in a file.
fn is_kept(module: &ModuleKey) -> bool {
    is_name(&module.build_id) && !Vdso::is(&module.path)
}

impl ModuleSymbols {
    fn open(
        process: &ProcessInfo,
        module: &Module,
        debug_dirs: &[PathBuf],
        vdso: Option<&Vdso>,
        warnings: &mut Vec<SymbolWarning>,
    ) -> Self {
        let found = match vdso {
            // That of another kernel, or none: nobody can help it.
            Some(vdso) if symbol_files::check(vdso.path(), module, false).is_err() => Vec::new(),
            Some(vdso) => vec![vdso.path().to_owned()],
            None => symbol_files::find(process, module, debug_dirs).unwrap_or_else(|warning| {
                warnings.push(warning);
                Vec::new()
            }),
        };
        let files = found.into_iter().map(|path| (path, symbolizer(debug_dirs))).collect();
        Self { files, names: HashMap::new(), new: HashSet::new() }
    }

    /// The files that the names come from.
    fn sources(&self) -> Vec<PathBuf> {
        self.files.iter().map(|(path, _)| path.clone()).collect()
    }
}

/// One for each file: a file that is replaced while we run keeps the contents that were checked.
fn symbolizer(debug_dirs: &[PathBuf]) -> Symbolizer {
    Symbolizer::builder()
        .enable_auto_reload(false)
        .enable_code_info(true)
        .enable_inlined_fns(true)
        // It takes the C function `a` for the mangled type `signed char`: see `demangle`.
        .enable_demangling(false)
        .set_debug_dirs(Some(debug_dirs))
        .build()
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
    let Some(symbol) = ask(true) else { return Some(frames_of(&ask(false)?)) };
    let mut frames = frames_of(&symbol);
    // Debug information of lines alone names a function without its path, as that of C does; the symbol table has it.
    if let Some(compiled) = frames.last_mut().filter(|frame| frame.symbol.is_none())
        && let Some(of_table) = ask(false).filter(|of_table| is_mangled(&of_table.name))
        && let Some(name) = with_path(&compiled.name, &demangle(&of_table.name))
    {
        (compiled.name, compiled.symbol) = (printable_str(name), symbol_of(&of_table.name));
    }
    Some(frames)
}

/// Innermost first. `blazesym` gives the function that was compiled, then those inlined into it from the outside in,
/// each with the place in its own source.
fn frames_of(symbol: &Sym<'_>) -> Vec<Frame> {
    let frame = |name: &str, code: Option<&CodeInfo<'_>>, inlined| Frame {
        name: printable_str(demangle(name)),
        symbol: symbol_of(name),
        file: code.map(|code| printable_str(code.to_path().to_string_lossy().into_owned())),
        line: code.and_then(|code| code.line).filter(|&line| line > 0),
        inlined,
    };
    let inlined = symbol.inlined.iter().rev().map(|function| frame(&function.name, function.code_info.as_ref(), true));
    inlined.chain([frame(&symbol.name, symbol.code_info.as_deref(), false)]).collect()
}

fn symbol_of(name: &str) -> Option<Arc<str>> {
    is_mangled(name).then(|| printable_str(name.to_owned()).into())
}
