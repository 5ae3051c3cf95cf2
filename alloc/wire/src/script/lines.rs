//! The line of an instruction of Python's, by the table that CPython has of each function. Ruby's calls have it.
//!
//! Three formats: steps of bytecode and lines until 3.9 (`Objects/lnotab_notes.txt`), ranges in 3.10 (PEP 626), and
//! since 3.11 entries with columns and ends of lines, too (`Objects/locations.md`).

use core::iter::Peekable;

use super::Lines;

/// The line of the instruction `at` bytes behind the first of a function, which begins in line `first` and has this
/// table. `None` where the table says that there is none, or does not reach so far.
pub fn line(lines: Lines, first: u32, table: impl Iterator<Item = u8>, at: u32) -> Option<u32> {
    let first = i64::from(first);
    let line = match lines {
        Lines::Steps => by_steps(table, first, at),
        Lines::Ranges => by_ranges(table, first, at),
        Lines::Locations => by_locations(table.peekable(), first, at),
        Lines::Given => Some(i64::from(at)),
    };
    line.and_then(|line| u32::try_from(line).ok())
}

/// Pairs of bytes: so much further in the bytecode it is another line. The last line goes on to the end.
fn by_steps(mut table: impl Iterator<Item = u8>, mut line: i64, at: u32) -> Option<i64> {
    let mut reached = 0;
    while let (Some(bytes), Some(lines)) = (table.next(), table.next()) {
        reached += u32::from(bytes);
        if reached > at {
            break;
        }
        line += i64::from(lines as i8);
    }
    Some(line)
}

/// Pairs of bytes: the next so many bytes are of another line, or of none.
fn by_ranges(mut table: impl Iterator<Item = u8>, mut line: i64, at: u32) -> Option<i64> {
    const NONE: i8 = -128;
    let mut end = 0;
    while let (Some(bytes), Some(lines)) = (table.next(), table.next()) {
        let lines = lines as i8;
        if lines != NONE {
            line += i64::from(lines);
        }
        end += u32::from(bytes);
        if at < end {
            return (lines != NONE).then_some(line);
        }
    }
    None
}

/// Entries that begin with a byte whose highest bit is set: what kind it is, and how many units of two bytes it is of.
fn by_locations(mut table: Peekable<impl Iterator<Item = u8>>, mut line: i64, at: u32) -> Option<i64> {
    let mut end = 0;
    while let Some(head) = table.next() {
        let has_line = match head >> 3 & 0xf {
            15 => false,
            13 | 14 => {
                line += signed(&mut table)?;
                true
            }
            kind @ 10..13 => {
                line += i64::from(kind - 10);
                true
            }
            _ => true,
        };
        while table.next_if(is_inside).is_some() {}
        end += 2 * (u32::from(head & 7) + 1);
        if at < end {
            return has_line.then_some(line);
        }
    }
    None
}

/// Whether a byte goes on with an entry.
fn is_inside(byte: &u8) -> bool {
    byte & 0x80 == 0
}

/// A number of which each byte has six bits, the lowest first, and whether more follow; its lowest bit is its sign.
fn signed(table: &mut Peekable<impl Iterator<Item = u8>>) -> Option<i64> {
    let mut value: u64 = 0;
    for at in 0..10 {
        let byte = table.next_if(is_inside)?;
        value |= u64::from(byte & 0x3f) << (6 * at);
        if byte & 0x40 == 0 {
            let amount = (value >> 1) as i64;
            return Some(if value & 1 != 0 { -amount } else { amount });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    use super::*;

    /// The line of each instruction of two bytes.
    fn lines(lines: Lines, table: &[u8], bytes: u32) -> Vec<u32> {
        let line = |at| line(lines, 10, table.iter().copied(), at);
        (0..bytes).step_by(2).map(|at| line(at).unwrap_or(0)).collect()
    }

    /// So many instructions of each line.
    fn expected(lines: &[(u32, usize)]) -> Vec<u32> {
        lines.iter().flat_map(|&(line, count)| vec![line; count]).collect()
    }

    // The tables are those that each version makes of this function in line 10. The lines are those that its own
    // `co_lines`, or `dis.findlinestarts`, says.
    //
    //     def f(a):
    //         x = [0]
    //         for b in (
    //             a,
    //         ):
    //             x += b
    //         return x

    #[test]
    fn lines_until_3_9_are_steps() {
        let table = [0, 1, 6, 2, 2, 255, 8, 3, 10, 1];
        let of_f = expected(&[(11, 3), (13, 1), (12, 4), (15, 5), (16, 2)]);
        assert_eq!(lines(Lines::Steps, &table, 30), of_f);
    }

    #[test]
    fn lines_of_3_10_are_ranges_of_which_some_have_none() {
        let table = [6, 1, 2, 2, 8, 255, 10, 3, 4, 1];
        let of_f = expected(&[(11, 3), (13, 1), (12, 4), (15, 5), (16, 2)]);
        assert_eq!(lines(Lines::Ranges, &table, 30), of_f);
        assert_eq!(lines(Lines::Ranges, &[2, 1, 4, 128, 2, 1], 10), [11, 0, 0, 12, 0]);
    }

    #[test]
    fn lines_since_3_11_are_entries_with_columns() {
        let of_3_11 = [
            128, 0, 216, 9, 10, 136, 3, 128, 65, 224, 8, 9, 240, 3, 2, 14, 6, 240, 0, 3, 5, 15, 240, 0, 3, 5, 15, 136,
            1, 240, 6, 0, 9, 10, 136, 81, 137, 6, 136, 1, 136, 1, 216, 11, 12, 128, 72,
        ];
        let of_f = expected(&[(10, 1), (11, 3), (13, 1), (12, 4), (15, 6), (16, 2)]);
        assert_eq!(lines(Lines::Locations, &of_3_11, 34), of_f);
        let of_3_13 = [
            128, 0, 216, 9, 10, 136, 3, 128, 65, 224, 8, 9, 243, 3, 2, 14, 6, 136, 1, 240, 6, 0, 9, 10, 137, 6, 138, 1,
            241, 7, 2, 14, 6, 240, 8, 0, 12, 13, 128, 72,
        ];
        let of_f = expected(&[(10, 1), (11, 3), (13, 1), (12, 5), (15, 6), (12, 2), (16, 2)]);
        assert_eq!(lines(Lines::Locations, &of_3_13, 40), of_f);
        assert_eq!(lines(Lines::Locations, &[0xf8, 0xe9, 0x7f], 4), [0, 0], "none, and one that is cut off");
    }
}
