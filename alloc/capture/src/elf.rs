//! What a module's own headers say, read from memory: where its unwind tables may be read, and its build id.

use crate::loader::Object;
use crate::reader::Reader;
use crate::system;

/// Bytes of a build id that are kept.
pub(crate) const BUILD_ID_MAX: usize = 32;

pub(crate) const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const PT_PHDR: u32 = 6;
pub(crate) const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PF_R: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;
const PROGRAM_HEADER_SIZE: u16 = 56;
const PROGRAM_HEADERS_MAX: u16 = 128;

/// The parts of a module's headers that a capture needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Headers {
    /// The readable segment that holds the unwind tables; empty if there are none.
    pub(crate) tables: (usize, usize),
    /// Nobody is to write there.
    pub(crate) tables_are_constant: bool,
    /// The first segment of code, if it can be read; empty otherwise.
    pub(crate) code: (usize, usize),
    /// The segment that is mapped first, as far as it is in the file; empty if the headers can't be read.
    pub(crate) first: (usize, usize),
    /// The note `NT_GNU_BUILD_ID`, cut to fit.
    pub(crate) build_id: [u8; BUILD_ID_MAX],
    /// Bytes used of it.
    pub(crate) build_id_len: u8,
    /// Where the note lies in memory; 0 if there is none.
    pub(crate) build_id_at: usize,
}

/// One program header, with addresses in memory.
pub(crate) struct Segment {
    pub(crate) kind: u32,
    flags: u32,
    pub(crate) start: usize,
    /// Where it ends in the file.
    end: usize,
    /// Where it ends in memory.
    pub(crate) memory_end: usize,
    /// Bytes of the file before it.
    offset: u64,
    align: usize,
}

impl Segment {
    /// Whether such a range lies in it, and can be read.
    fn is_readable(&self, start: usize, end: usize) -> bool {
        self.kind == PT_LOAD && self.flags & PF_R != 0 && self.start <= start && end <= self.end
    }
}

/// The program headers of a module.
#[derive(Clone, Copy)]
pub(crate) struct Segments {
    table: Reader,
    pub(crate) load_bias: usize,
}

impl Segments {
    /// So many bytes from `start` on, if they lie in one of the segments, and that can be read.
    ///
    /// # Safety
    /// The module is loaded, and stays so while the reader and its copies are used.
    pub(crate) unsafe fn reader(mut self, start: usize, len: usize) -> Option<Reader> {
        let end = start.checked_add(len)?;
        let is_there = self.any(|segment| segment.is_readable(start, end));
        // SAFETY: the loader has mapped the segment so that it can be read; the caller's promise.
        is_there.then(|| unsafe { Reader::new(start, end) })
    }

    /// Where the dynamic section begins, and its bytes.
    pub(crate) fn dynamic(mut self) -> Option<(usize, usize)> {
        self.find(|segment| segment.kind == PT_DYNAMIC).map(|section| (section.start, section.end - section.start))
    }
}

impl Iterator for Segments {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let table = &mut self.table;
        let (kind, flags) = (table.u32()?, table.u32()?);
        let (offset, address, _physical) = (table.u64()?, table.u64()? as usize, table.u64()?);
        let (in_file, in_memory, align) = (table.u64()? as usize, table.u64()? as usize, table.u64()? as usize);
        let start = self.load_bias.wrapping_add(address);
        // What is not in the file is zeros, or a page that the file ends before.
        let (end, memory_end) = (start.checked_add(in_file)?, start.checked_add(in_memory)?);
        Some(Segment { kind, flags, start, end, memory_end, offset, align })
    }
}

/// The program headers of a module.
pub(crate) fn segments(object: &Object) -> Option<Segments> {
    segments_of_header(object).or_else(|| segments_of_executable(object))
}

/// The loader gives an executable whose segments have gaps between them (node's) piece by piece: then the piece does
/// not begin with the ELF header. The kernel says where its program headers are.
fn segments_of_executable(object: &Object) -> Option<Segments> {
    let (start, count) = crate::loader::executable_headers().filter(|_| object.is_executable())?;
    Some(Segments { table: table_at(start, count)?, load_bias: object.load_bias() })
}

/// The program headers of the executable, which lie at `start`: they say themselves how far from where the file wants
/// to be.
pub(crate) fn segments_at(start: usize, count: u16) -> Option<Segments> {
    const HEADER_SIZE: usize = 64;
    let table = table_at(start, count)?;
    let bias_by = |segment: Segment| match segment.kind {
        PT_PHDR => Some(start.wrapping_sub(segment.start)),
        // The ELF header lies there, and the program headers right behind it.
        PT_LOAD if segment.offset == 0 => Some(start.wrapping_sub(HEADER_SIZE).wrapping_sub(segment.start)),
        _ => None,
    };
    let load_bias = Segments { table, load_bias: 0 }.find_map(bias_by)?;
    Some(Segments { table, load_bias })
}

/// So many program headers of the executable.
fn table_at(start: usize, count: u16) -> Option<Reader> {
    let end = start.checked_add(usize::from(PROGRAM_HEADER_SIZE).checked_mul(usize::from(count))?)?;
    if count > PROGRAM_HEADERS_MAX || !system::is_readable(start) || !system::is_readable(end.checked_sub(1)?) {
        return None;
    }
    // SAFETY: the two pages that the table can touch are readable, and the executable is never unloaded.
    Some(unsafe { Reader::new(start, end) })
}

fn segments_of_header(object: &Object) -> Option<Segments> {
    if !system::is_readable(object.start) {
        return None;
    }
    // SAFETY: the first page of a confirmed module is mapped, and readable as just tested.
    let mut header = unsafe { Reader::new(object.start, object.start.checked_add(64)?) };
    let magic = header.u32()?.to_le_bytes();
    let (class, endian) = (header.u8()?, header.u8()?);
    if magic != *b"\x7fELF" || class != 2 || endian != 1 {
        return None;
    }
    header.skip(26)?;
    let table_offset = header.u64()? as usize;
    header.skip(14)?;
    let (entry_size, count) = (header.u16()?, header.u16()?);
    if entry_size != PROGRAM_HEADER_SIZE || count > PROGRAM_HEADERS_MAX {
        return None;
    }
    let start = object.start.checked_add(table_offset)?;
    let end = start.checked_add(usize::from(entry_size) * usize::from(count))?;
    if end > object.end || !system::is_readable(start) || !system::is_readable(end.checked_sub(1)?) {
        return None;
    }
    // SAFETY: the table lies in the module, and the two pages that it can touch are readable.
    let table = unsafe { Reader::new(start, end) };
    Some(Segments { table, load_bias: object.load_bias() })
}

/// Reads a module's headers; what they do not say stays empty.
pub(crate) fn headers(object: &Object) -> Headers {
    let mut headers = Headers::default();
    let Some(segments) = segments(object) else {
        return headers;
    };
    if let Some(first) = segments.clone().find(|segment| segment.kind == PT_LOAD) {
        headers.first = (first.start, first.end);
    }
    let readable = |start: usize, end: usize| {
        let holds = |segment: &Segment| segment.is_readable(start, end);
        // What the loader did not confirm may be gone, but for the executable.
        let confirmed = |segment: &Segment| object.start <= segment.start && segment.end <= object.end;
        segments.clone().find(holds).filter(|segment| confirmed(segment) || object.is_executable())
    };
    if object.eh_frame_hdr != 0
        && let Some(segment) = readable(object.eh_frame_hdr, object.eh_frame_hdr.saturating_add(12))
    {
        headers.tables = (segment.start, segment.end);
        headers.tables_are_constant = segment.flags & PF_W == 0;
    }
    let is_here = |segment: &Segment| segment.start < object.end && object.start < segment.end;
    let is_code = |segment: &Segment| segment.kind == PT_LOAD && segment.flags & PF_X != 0;
    let mut code = segments.filter(|segment| is_code(segment) && is_here(segment));
    if let Some(code) = code.next()
        && readable(code.start, code.end).is_some()
    {
        headers.code = (code.start, code.end);
    }
    for note in segments.filter(|segment| segment.kind == PT_NOTE) {
        if readable(note.start, note.end).is_none() {
            continue;
        }
        // SAFETY: the note lies in a readable segment of a confirmed module.
        let reader = unsafe { Reader::new(note.start, note.end) };
        if let Some(()) = build_id(reader, note.align, &mut headers) {
            break;
        }
    }
    headers
}

/// Looks for the build id among the notes of one segment.
fn build_id(mut notes: Reader, align: usize, headers: &mut Headers) -> Option<()> {
    let mask = if align == 8 { 7 } else { 3 };
    let padding = |length: usize| length.wrapping_neg() & mask;
    loop {
        let (name_len, len, kind) = (notes.u32()? as usize, notes.u32()? as usize, notes.u32()?);
        let mut name = notes.take(name_len)?;
        notes.skip(padding(name_len.wrapping_add(12)))?;
        let mut content = notes.take(len)?;
        if kind == NT_GNU_BUILD_ID && name_len == 4 && name.u32()?.to_le_bytes() == *b"GNU\0" {
            headers.build_id_at = content.at();
            for byte in &mut headers.build_id {
                let Some(value) = content.u8() else { break };
                *byte = value;
                headers.build_id_len = headers.build_id_len.saturating_add(1);
            }
            return Some(());
        }
        notes.skip(padding(len))?;
    }
}
