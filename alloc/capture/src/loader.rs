//! What the dynamic loader says: which module an address lies in, and where the main stack ends. Where it can't be
//! asked, as with musl and before glibc 2.35, the executable is the only module that is known: all there is of a static
//! program.

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::elf;

// The symbols are weak: `_dl_find_object` came with glibc 2.35, and a program need not have a glibc at all. Rust has
// no weak references on stable, assembly has. The words are relocated by the loader, to zero where the symbol is
// missing. Their names carry the version, so that two versions of this crate can live in one program.
core::arch::global_asm!(
    ".weak _dl_find_object",
    ".weak __libc_stack_end",
    ".weak getauxval",
    ".pushsection .data.rel.ro.poolscope_capture,\"aw\"",
    ".balign 8",
    ".globl poolscope_capture_0_1_find_object",
    ".hidden poolscope_capture_0_1_find_object",
    ".type poolscope_capture_0_1_find_object, %object",
    ".size poolscope_capture_0_1_find_object, 8",
    "poolscope_capture_0_1_find_object: .8byte _dl_find_object",
    ".globl poolscope_capture_0_1_stack_end",
    ".hidden poolscope_capture_0_1_stack_end",
    ".type poolscope_capture_0_1_stack_end, %object",
    ".size poolscope_capture_0_1_stack_end, 8",
    "poolscope_capture_0_1_stack_end: .8byte __libc_stack_end",
    ".globl poolscope_capture_0_1_getauxval",
    ".hidden poolscope_capture_0_1_getauxval",
    ".type poolscope_capture_0_1_getauxval, %object",
    ".size poolscope_capture_0_1_getauxval, 8",
    "poolscope_capture_0_1_getauxval: .8byte getauxval",
    ".popsection",
);

type FindObject = unsafe extern "C" fn(pc: *const c_void, result: *mut DlFindObject) -> i32;

unsafe extern "C" {
    #[link_name = "poolscope_capture_0_1_find_object"]
    static FIND_OBJECT: Option<FindObject>;
    #[link_name = "poolscope_capture_0_1_stack_end"]
    static STACK_END: Option<&'static usize>;
    #[link_name = "poolscope_capture_0_1_getauxval"]
    static GETAUXVAL: Option<unsafe extern "C" fn(kind: u64) -> u64>;
}

/// `struct dl_find_object` of `<dlfcn.h>`, for machines that have neither `dlfo_eh_dbase` nor `dlfo_eh_count`.
#[repr(C)]
struct DlFindObject {
    flags: u64,
    map_start: usize,
    map_end: usize,
    link_map: *const LinkMap,
    eh_frame: usize,
    reserved: [u64; 7],
}

/// The public head of `struct link_map` of `<link.h>`.
#[repr(C)]
struct LinkMap {
    load_bias: usize,
    name: *const c_char,
    dynamic: *const c_void,
    next: *const LinkMap,
    previous: *const LinkMap,
}

/// A module as the loader knows it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// First mapped address; the ELF header, in all but odd files.
    pub(crate) start: usize,
    /// Address after the last.
    pub(crate) end: usize,
    /// The segment `PT_GNU_EH_FRAME` in memory; 0 if there is none.
    pub(crate) eh_frame_hdr: usize,
    /// The loader's own record; 0 if it was not asked, and this is the executable.
    link_map: usize,
}

impl Object {
    /// What the loader added to the file's addresses.
    pub(crate) fn load_bias(&self) -> usize {
        // SAFETY: the loader keeps the record of a module that it just named; see `find`.
        match unsafe { (self.link_map as *const LinkMap).as_ref() } {
            Some(map) => map.load_bias,
            None => EXECUTABLE.load_bias.load(Ordering::Relaxed),
        }
    }

    /// The file that the loader opened, empty for the executable.
    pub(crate) fn name(&self) -> &core::ffi::CStr {
        // SAFETY: as for `load_bias`; the name lives as long as the record and ends in zero.
        unsafe {
            match (self.link_map as *const LinkMap).as_ref() {
                Some(map) if !map.name.is_null() => core::ffi::CStr::from_ptr(map.name),
                _ => c"",
            }
        }
    }

    /// Whether this is the executable itself, which is never unloaded.
    pub(crate) fn is_executable(&self) -> bool {
        // SAFETY: as for `load_bias`.
        unsafe { (self.link_map as *const LinkMap).as_ref() }
            .is_none_or(|map| map.previous.is_null() && self.name().is_empty())
    }
}

/// Whether a module was loaded when the program started: such ones are never unloaded.
///
/// The loader appends what is opened later to its list, behind all of them, and it is itself among them, by the order
/// of needs mostly the last one. What lies before it in the list never changes.
pub(crate) fn is_of_the_start(object: &Object) -> bool {
    // `elf.h`.
    const AT_BASE: u64 = 7;
    // SAFETY: as in `find`; the function reads what the kernel left for the process.
    let Some(base) = (unsafe { GETAUXVAL.map(|get| get(AT_BASE) as usize) }).filter(|base| *base != 0) else {
        return false;
    };
    let Some(own) = find(base) else { return false };
    let mut map = own.link_map as *const LinkMap;
    while !map.is_null() {
        if map as usize == object.link_map {
            return true;
        }
        // SAFETY: the records of these modules stay, and so does their order.
        map = unsafe { (*map).previous };
    }
    false
}

/// The module that `address` lies in. Lock-free, and safe in a signal handler (glibc 2.35, `NEWS`).
///
/// The answer holds as long as the module stays loaded: for a module that a frame of the calling thread returns into,
/// that is until the frame returns, unless the program is broken anyway.
pub(crate) fn find(address: usize) -> Option<Object> {
    // SAFETY: the word is written by the loader before any code of this module runs, and never again.
    let Some(find) = (unsafe { FIND_OBJECT }) else {
        return EXECUTABLE.object().filter(|object| object.start <= address && address < object.end);
    };
    let mut found =
        DlFindObject { flags: 0, map_start: 0, map_end: 0, link_map: core::ptr::null(), eh_frame: 0, reserved: [0; 7] };
    // SAFETY: the function has this signature in every glibc that has it, and takes any address.
    let status = unsafe { find(address as *const c_void, &mut found) };
    (status == 0 && found.map_start <= address && address < found.map_end).then_some(Object {
        start: found.map_start,
        end: found.map_end,
        eh_frame_hdr: found.eh_frame,
        link_map: found.link_map as usize,
    })
}

/// The executable, by what the kernel says of it.
struct Executable {
    start: AtomicUsize,
    /// 0 until the others are known, which it is written after. They never change.
    end: AtomicUsize,
    eh_frame_hdr: AtomicUsize,
    load_bias: AtomicUsize,
}

static EXECUTABLE: Executable = Executable {
    start: AtomicUsize::new(0),
    end: AtomicUsize::new(0),
    eh_frame_hdr: AtomicUsize::new(0),
    load_bias: AtomicUsize::new(0),
};

impl Executable {
    fn object(&self) -> Option<Object> {
        if self.end.load(Ordering::Acquire) == 0 {
            self.look()?;
        }
        let of = |word: &AtomicUsize| word.load(Ordering::Relaxed);
        Some(Object { start: of(&self.start), end: of(&self.end), eh_frame_hdr: of(&self.eh_frame_hdr), link_map: 0 })
    }

    /// Reads its headers. Its pieces need not lie one behind the other.
    #[cold]
    fn look(&self) -> Option<()> {
        let (table, count) = executable_headers()?;
        let segments = elf::segments_at(table, count)?;
        let (mut start, mut end) = (usize::MAX, 0);
        for segment in segments {
            match segment.kind {
                elf::PT_LOAD => (start, end) = (start.min(segment.start), end.max(segment.memory_end)),
                elf::PT_GNU_EH_FRAME => self.eh_frame_hdr.store(segment.start, Ordering::Relaxed),
                _ => {}
            }
        }
        self.start.store(start, Ordering::Relaxed);
        self.load_bias.store(segments.load_bias, Ordering::Relaxed);
        self.end.store(end, Ordering::Release);
        Some(())
    }
}

/// Whether libgcc, too, can ask the loader without a lock.
pub(crate) fn is_safe_to_ask() -> bool {
    // SAFETY: as in `find`.
    unsafe { FIND_OBJECT }.is_some()
}

/// Where the executable's program headers lie in memory, and how many there are.
pub(crate) fn executable_headers() -> Option<(usize, u16)> {
    // `elf.h`.
    const AT_PHDR: u64 = 3;
    const AT_PHNUM: u64 = 5;
    // SAFETY: as in `find`; the function reads what the kernel left for the process.
    let (table, count) = unsafe {
        let get = GETAUXVAL?;
        (get(AT_PHDR) as usize, get(AT_PHNUM))
    };
    (table != 0).then_some((table, u16::try_from(count).ok()?))
}

/// Bytes of the kernel's pages.
pub(crate) fn page_size() -> Option<usize> {
    // `elf.h`.
    const AT_PAGESZ: u64 = 6;
    // SAFETY: as in `find`; the function reads what the kernel left for the process.
    let bytes = unsafe { GETAUXVAL.map(|get| get(AT_PAGESZ) as usize) };
    bytes.filter(|bytes| bytes.is_power_of_two())
}

/// Where the main thread's stack began, or a little above; `None` where neither the C library nor the kernel says so.
pub(crate) fn main_stack_end() -> Option<usize> {
    // `elf.h`: random bytes, which the kernel leaves above all that a program gets on its stack.
    const AT_RANDOM: u64 = 25;
    // SAFETY: as in `find`; glibc writes the variable before it runs the program's first constructor.
    unsafe { STACK_END.copied().or_else(|| GETAUXVAL.map(|get| get(AT_RANDOM) as usize & !7)) }.filter(|end| *end != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_the_same_of_the_executable_as_the_loader() {
        let here = the_kernel_says_the_same_of_the_executable_as_the_loader as *const () as usize;
        let kernels = EXECUTABLE.object().expect("there are headers");
        assert!(kernels.is_executable() && kernels.name().is_empty());
        assert!((kernels.start..kernels.end).contains(&here));
        // SAFETY: as in `find`.
        if unsafe { FIND_OBJECT }.is_some() {
            let loaders = find(here).expect("it is loaded");
            assert!(loaders.is_executable());
            assert_eq!(kernels.load_bias(), loaders.load_bias());
            assert_eq!(kernels.eh_frame_hdr, loaders.eh_frame_hdr);
            assert_eq!(kernels.start & !4095, loaders.start & !4095);
            assert_eq!(elf::headers(&kernels).build_id, elf::headers(&loaders).build_id);
            assert_eq!(elf::headers(&kernels).tables, elf::headers(&loaders).tables);
        }
    }

    #[test]
    fn the_main_stack_ends_where_the_kernel_began_it() {
        let stat = std::fs::read_to_string("/proc/self/stat").expect("it can be read");
        // The name may have spaces; the state behind it is the third field, and this one the 28th (proc(5)).
        let start = stat.rsplit(") ").next().and_then(|fields| fields.split(' ').nth(25)).expect("the field");
        let start: usize = start.parse().expect("an address");
        let end = main_stack_end().expect("somebody says so");
        let strings = 8 << 20;
        assert!((start..start + strings).contains(&end), "{start:x}, {end:x}");
    }
}
