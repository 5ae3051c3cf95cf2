//! What `memray transform csv` writes: a row for each stack that held memory at the peak, or at the end with `--leaks`.
//!
//! memray's own files have no documented format, and change with its versions. Its exporter names the columns:
//! `allocator,num_allocations,size,tid,thread_name,stack_trace`, the last one as `function;file;line|...` with the
//! innermost function first.

use crate::imports::sites::Sites;
use crate::imports::{ImportError, Imported};
use crate::model::memory::Place;
use crate::model::profile::Frame;
use crate::model::snapshot::Amount;
use crate::words::printable::printable_str;

const FORMAT: &str = "table of memray";

/// Whether it is one of memray's own files: its name stands at the beginning, behind the head of a frame of LZ4 if it
/// is packed.
pub(super) fn is_own_file(bytes: &[u8]) -> bool {
    const NAME: &[u8] = b"memray";
    const LZ4: &[u8] = &[0x04, 0x22, 0x4d, 0x18];
    let begin = &bytes[..bytes.len().min(32)];
    begin.starts_with(NAME) || begin.starts_with(LZ4) && begin.windows(NAME.len()).any(|part| part == NAME)
}

/// How the table begins.
pub(super) const HEAD: &[u8] = b"allocator,num_allocations,size,";
/// What to do with one of memray's own files.
pub(super) const ADVICE: &str =
    "memray alone can read its files: let it write a table (memray transform csv -o OUT.csv FILE), which is read here";

const COLUMNS: [&str; 6] = ["allocator", "num_allocations", "size", "tid", "thread_name", "stack_trace"];

fn damaged(line: usize, why: &str) -> ImportError {
    ImportError::Damaged { format: FORMAT, why: format!("row {line}: {why}") }
}

/// Reads a table.
pub(super) fn read(bytes: &[u8]) -> Result<Imported, ImportError> {
    let text = String::from_utf8_lossy(bytes);
    let mut sites = Sites::default();
    let mut rows = rows(&text);
    let head = rows.next().unwrap_or_default();
    let place = |name: &str| head.iter().position(|column| column == name).ok_or_else(|| damaged(1, "no column"));
    let [_, count, size, _, _, stack] = COLUMNS;
    let (count, size, stack) = (place(count)?, place(size)?, place(stack)?);
    for (number, row) in (2..).zip(rows) {
        if row.len() != head.len() {
            return Err(damaged(number, "it has more or fewer columns than the first one"));
        }
        let figure = |at: usize| row[at].parse::<u64>().map_err(|_| damaged(number, "a figure is none"));
        let amount = Amount { objects: figure(count)? as f64, bytes: figure(size)? as f64, samples: figure(count)? };
        let locations = frames(&row[stack]).into_iter().map(|frame| sites.location(frame)).collect();
        let at = sites.site(locations, Place::Host);
        let site = sites.at(at);
        site.allocated += amount;
        site.in_use += amount;
        site.peak += amount;
    }
    let lacks = Some("what came and went: memray exports what was held at the peak, or with --leaks at the end");
    Ok(Imported { profile: sites.finish(String::new()), format: FORMAT, lacks })
}

/// The rows of a table as Python writes it: values with a comma, a quote or an end of line stand in quotes, and a quote
/// in them twice.
fn rows(text: &str) -> impl Iterator<Item = Vec<String>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut row = vec![String::new()];
        let mut is_quoted = false;
        let mut chars = rest.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let last = row.last_mut()?;
            match c {
                '"' if !is_quoted => is_quoted = true,
                '"' if chars.next_if(|&(_, next)| next == '"').is_some() => last.push('"'),
                '"' => is_quoted = false,
                ',' if !is_quoted => row.push(String::new()),
                '\r' if !is_quoted => {}
                '\n' if !is_quoted => {
                    rest = &rest[at + 1..];
                    return Some(row);
                }
                c => last.push(c),
            }
        }
        rest = "";
        Some(row)
    })
}

/// `function;file;line|...`. A function's name may have the separators in it (`operator|`): a frame ends where a number
/// stands behind two semicolons.
fn frames(stack: &str) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut whole = String::new();
    for part in stack.split('|') {
        if !whole.is_empty() {
            whole.push('|');
        }
        whole.push_str(part);
        let mut parts = whole.rsplitn(3, ';');
        let (line, file, function) = (parts.next(), parts.next(), parts.next());
        if let (Some(Ok(line)), Some(file), Some(function)) = (line.map(str::parse::<u32>), file, function) {
            let file = Some(printable_str(file.to_owned())).filter(|file| !file.is_empty());
            let line = Some(line).filter(|&line| line > 0 && file.is_some());
            frames.push(Frame { name: printable_str(function.to_owned()), file, line, ..Frame::default() });
            whole.clear();
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_site_and_a_name_may_have_commas_quotes_and_bars() {
        let text = "allocator,num_allocations,size,tid,thread_name,stack_trace\r\n\
            MALLOC,2,2048,1,\"Main, \"\"0\"\"\",\"operator|(A, B);a.cpp;7|main;app.py;3\"\r\n\
            MMAP,1,4096,1,x,main;app.py;3\r\n";
        let profile = read(text.as_bytes()).expect("is read").profile;
        let sites: Vec<_> =
            profile.sites.iter().map(|site| (profile.path(site), site.in_use.objects, site.peak.bytes)).collect();
        assert_eq!(sites, [("main".to_owned(), 1.0, 4096.0), ("main;operator|(A, B)".to_owned(), 2.0, 2048.0)]);
        let frame = profile.frames(&profile.sites[1]).next().expect("a function");
        assert_eq!((frame.file.as_deref(), frame.line), (Some("a.cpp"), Some(7)));
    }

    #[test]
    fn what_is_wrong_with_a_row_is_said() {
        for (row, why) in [("MALLOC,x,1,1,t,main;a;1", "a figure is none"), ("MALLOC,1,1", "fewer columns")] {
            let text = format!("{}\n{row}\n", COLUMNS.join(","));
            let error = read(text.as_bytes()).expect_err("is damaged").to_string();
            assert!(error.contains("row 2") && error.contains(why), "{error}");
        }
        assert!(read(b"allocator,num_allocations,size,\n").is_err());
    }
}
