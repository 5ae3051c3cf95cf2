//! The process's mappings, as the kernel lists them in `/proc/thread-self/maps` (proc(5)), and which of their pages
//! were written. `/proc/self` is empty when the first thread has ended.

use super::table::Table;
use crate::kernel::os::{self, Descriptor};
use crate::kernel::system_call::system_call;

/// Most mappings that are looked at: the kernel's own default limit (`vm.max_map_count`), and some more.
const MAX: usize = 1 << 17;

/// What memory is called that is shared, and nobody else's.
const OURS: [&[u8]; 2] = [b"/dev/zero", b"anon_inode:[io_uring]"];

/// A mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: usize,
    /// The one behind the last.
    pub end: usize,
    /// It can be read, and is not the kernel's own (`[vvar]`, `[vdso]`), which holds nothing of the program's.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// Other processes see what is written.
    pub shared: bool,
    /// These are forked children or the kernel alone: no file has it (`MAP_SHARED | MAP_ANONYMOUS`), or it is a ring of
    /// io_uring, with requests and what the program has given with them.
    pub ours: bool,
    /// The file's number; 0 for anonymous memory.
    pub inode: u64,
    /// It is the first thread's stack.
    pub is_stack: bool,
}

impl Mapping {
    /// Reads a line, or its first bytes.
    pub fn parse(line: &[u8]) -> Option<Mapping> {
        let mut fields = line.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
        let (range, access) = (fields.next()?, fields.next()?);
        let (_offset, _device, inode) = (fields.next()?, fields.next()?, fields.next()?);
        let dash = range.iter().position(|&byte| byte == b'-')?;
        let flag = |at: usize, letter: u8| access.get(at) == Some(&letter);
        let name = fields.next().unwrap_or_default();
        Some(Mapping {
            start: number(&range[..dash], 16)?,
            end: number(&range[dash + 1..], 16)?,
            readable: flag(0, b'r') && !name.starts_with(b"[v"),
            writable: flag(1, b'w'),
            shared: flag(3, b's'),
            ours: flag(3, b's') && OURS.iter().any(|own| name.starts_with(own)),
            inode: number(inode, 10)? as u64,
            is_stack: name.starts_with(b"[stack]"),
        })
    }
}

/// A number in digits of a base.
pub fn number(text: &[u8], base: u32) -> Option<usize> {
    text.iter().try_fold(0usize, |number, &byte| {
        let digit = char::from(byte).to_digit(base)?;
        number.checked_mul(base as usize)?.checked_add(digit as usize)
    })
}

/// All mappings, ascending. `None` if the kernel does not say, or there are too many.
pub fn read() -> Option<Table<Mapping>> {
    let mut mappings = Table::new(MAX)?;
    let mut fits = true;
    let read = os::for_each_line(c"/proc/thread-self/maps", |line| {
        fits &= Mapping::parse(line).is_none_or(|mapping| mappings.push(mapping));
    });
    (read && fits && !mappings.as_slice().is_empty()).then_some(mappings)
}

/// Which pages of private memory hold something.
pub enum Pages {
    /// `/proc/thread-self/pagemap` says it.
    Listed(Descriptor),
    /// That is closed to the process, as it is to one that has given up its user's rights or may not be dumped: what is
    /// resident holds something, and nothing of the process is elsewhere.
    Resident,
}

/// Bytes of a page of the kernel's.
pub const PAGE: usize = 4096;

/// What a page has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// What nobody has written.
    Nothing,
    /// Memory.
    Memory,
    /// A place in swap, or a mark that says that it must not be touched: it is to be read with care.
    Elsewhere,
}

impl Pages {
    /// `None` if the kernel does not say.
    pub fn open() -> Option<Pages> {
        match os::keep_errno(|| os::open_proc(c"/proc/thread-self/pagemap")) {
            Some(pages) => Some(Pages::Listed(pages)),
            None => os::is_nothing_swapped().then_some(Pages::Resident),
        }
    }

    /// Calls `f` with runs of pages between two addresses of a mapping that are of one kind and hold something. False if
    /// the kernel does not say.
    pub fn for_each_run(
        &self,
        mapping: &Mapping,
        from: usize,
        to: usize,
        mut f: impl FnMut(usize, usize, Content),
    ) -> bool {
        let Pages::Listed(listed) = self else {
            // Of a file that has become shorter, pages may be called resident that are not there.
            let content = if mapping.inode == 0 { Content::Memory } else { Content::Elsewhere };
            return for_each_resident_run(from, to, content, f);
        };
        let mut entries = [0u64; 512];
        let (mut at, to) = (from & !(PAGE - 1), to.next_multiple_of(PAGE));
        let mut run = (at, Content::Nothing);
        while at < to {
            let want = ((to - at) / PAGE).min(entries.len());
            let offset = (at / PAGE * size_of::<u64>()) as i64;
            // SAFETY: the kernel writes at most as many bytes as asked for.
            let read = os::keep_errno(|| unsafe {
                system_call!(libc::SYS_pread64, listed.number(), entries.as_mut_ptr(), want * size_of::<u64>(), offset)
            });
            let got = (read.max(0) as usize / size_of::<u64>()).min(want);
            if got == 0 {
                return false;
            }
            for &entry in &entries[..got] {
                let content = content(entry);
                if content != run.1 {
                    pass_on(run, at, &mut f);
                    run = (at, content);
                }
                at += PAGE;
            }
        }
        pass_on(run, to, &mut f);
        true
    }
}

/// Calls `f` with runs of pages of shared memory between two addresses that somebody has written. A copy of the process
/// has none of them in its tables before it reads them, and to read one that nobody wrote would take memory for it.
pub fn for_each_shared_run(from: usize, to: usize, f: impl FnMut(usize, usize, Content)) {
    for_each_resident_run(from, to, Content::Memory, f);
}

/// Calls `f` with runs of resident pages, as of such content. False if the kernel does not say of some, which are passed
/// over.
fn for_each_resident_run(from: usize, to: usize, resident: Content, mut f: impl FnMut(usize, usize, Content)) -> bool {
    let mut residence = [0u8; 512];
    let (mut at, to) = (from & !(PAGE - 1), to.next_multiple_of(PAGE));
    let mut known = true;
    while at < to {
        let pages = ((to - at) / PAGE).min(residence.len());
        let end = at + pages * PAGE;
        // SAFETY: there is a byte for each page.
        if unsafe { os::resident(at, pages * PAGE, residence.as_mut_ptr()) } {
            let mut run = (at, Content::Nothing);
            for (n, byte) in residence[..pages].iter().enumerate() {
                let content = if byte & 1 == 0 { Content::Nothing } else { resident };
                if content != run.1 {
                    pass_on(run, at + n * PAGE, &mut f);
                    run = (at + n * PAGE, content);
                }
            }
            pass_on(run, end, &mut f);
        } else {
            known = false;
        }
        at = end;
    }
    known
}

fn pass_on((from, content): (usize, Content), to: usize, f: &mut impl FnMut(usize, usize, Content)) {
    if content != Content::Nothing && from < to {
        f(from, to, content);
    }
}

/// What an entry says (Documentation/admin-guide/mm/pagemap.rst): a page of a file, or of shared memory, is none that
/// this process has written.
fn content(entry: u64) -> Content {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    match entry {
        _ if entry & OF_FILE != 0 => Content::Nothing,
        _ if entry & PRESENT != 0 => Content::Memory,
        _ if entry & SWAPPED != 0 => Content::Elsewhere,
        _ => Content::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_where_a_mapping_lies_and_what_may_be_done() {
        let parse = |line: &str| Mapping::parse(line.as_bytes());
        let library = parse("7f1a2b3c4000-7f1a2b3c6000 rw-p 001d3000 fe:00 326279   /usr/lib/a b (deleted)");
        let of = |start, end| Mapping {
            start,
            end,
            readable: true,
            writable: true,
            shared: false,
            ours: false,
            inode: 0,
            is_stack: false,
        };
        assert_eq!(library, Some(Mapping { inode: 326_279, ..of(0x7f1a_2b3c_4000, 0x7f1a_2b3c_6000) }));
        assert_eq!(parse("1000-2000 rw-p 00000000 00:00 0 "), Some(of(0x1000, 0x2000)));
        let stack = parse("7ffd3d126000-7ffd3d147000 rw-p 00000000 00:00 0     [stack]");
        assert_eq!(stack, Some(Mapping { is_stack: true, ..of(0x7ffd_3d12_6000, 0x7ffd_3d14_7000) }));
        let closed = parse("1000-2000 ---s 00000000 00:01 5 /dev/zero").expect("a mapping");
        assert!(!closed.readable && !closed.writable && closed.shared);
        let shared = parse("1000-2000 rw-s 00000000 00:01 5 /dev/zero (deleted)").expect("a mapping");
        assert!(shared.shared && shared.ours);
        let ring = parse("1000-2000 rw-s 10000000 00:0d 1030 anon_inode:[io_uring]").expect("a mapping");
        assert!(ring.shared && ring.ours);
        let of_file = parse("1000-2000 rw-s 00000000 00:01 5 /dev/shm/x").expect("a mapping");
        assert!(of_file.shared && !of_file.ours);
        let kernels = parse("7ffd0000-7ffd4000 r--p 00000000 00:00 0 [vvar]").expect("a mapping");
        assert!(!kernels.readable);
        assert_eq!(parse("no mapping"), None);
    }

    #[test]
    fn this_process_has_mappings_and_its_stack_was_written() {
        let here = 0usize;
        let address = &raw const here as usize;
        let mappings = read().expect("mappings");
        let has = |mapping: &&Mapping| (mapping.start..mapping.end).contains(&address);
        let own = mappings.as_slice().iter().find(has).expect("a stack");
        assert!(own.readable && own.writable && !own.shared);
        let pages = Pages::open().expect("pages");
        let mut found = false;
        let known = pages.for_each_run(own, address, address + 1, |from, to, content| {
            found = (from..to).contains(&address) && content == Content::Memory;
        });
        assert!(known && found);
    }

    #[test]
    fn memory_that_nobody_wrote_is_passed_over() {
        let bytes = 64 * PAGE;
        let memory = os::map(bytes);
        assert!(!memory.is_null());
        let page = |n: usize| memory as usize + n * PAGE;
        for n in [3, 4, 9] {
            // SAFETY: the page was just mapped.
            unsafe { (page(n) as *mut u8).write_volatile(1) };
        }
        let mut runs = Vec::new();
        let pages = Pages::open().expect("pages");
        let mapping =
            Mapping::parse(format!("{:x}-{:x} rw-p 0 00:00 0", page(0), page(64)).as_bytes()).expect("a mapping");
        for pages in [pages, Pages::Resident] {
            runs.clear();
            let note = |from, to, content| runs.push((from, to, content));
            assert!(pages.for_each_run(&mapping, page(0), page(64), note));
            assert_eq!(runs, [(page(3), page(5), Content::Memory), (page(9), page(10), Content::Memory)]);
        }
        // SAFETY: nobody has it.
        unsafe { os::unmap(memory, bytes) };
    }
}
