//! Segments of the versions before this one, read as if they were of this one: a segment outlives the upgrade of the
//! command.
//!
//! | version | what came with it |
//! |---|---|
//! | 8 | what the last search for unreachable blocks found: [`Header::reach`], the verdicts of the live table |
//! | 9 | the totals since the start: [`Header::history`]; searches that others ask for: [`Header::reach_request`] |
//!
//! What came later was zero before, or the end of the executable's path, which is shorter by that. Where a version
//! changes more than that, [`OLDEST_VERSION`](crate::OLDEST_VERSION) is raised past it.

use crate::Header;
use crate::reach::{ReachRecord, ReachRequest};

/// What segments of a version and of those before it don't have.
const LACKS: [(u32, &str); 3] = [
    (7, "what a search for leaks found"),
    (8, "the totals since the start"),
    (8, "a search for leaks that others ask for"),
];

/// What a segment of a version does not have, in the words for it.
pub fn lacks(version: u32) -> impl Iterator<Item = &'static str> {
    LACKS.into_iter().filter(move |(last, _)| version <= *last).map(|(_, what)| what)
}

/// Makes a header of an older version one of this version, whose words say nothing where the older one had none. Its
/// [`version`](Header::version) stays.
pub(crate) fn upgrade(header: &mut Header) {
    if header.version < 8 {
        header.reach = ReachRecord::ZERO;
    }
    if header.version < 9 {
        header.history = 0;
        header.reach_request = ReachRequest::ZERO;
        header.exe_len = header.exe_len.min(header.exe.len() as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HEADER_LEN, MAGIC, OLDEST_VERSION, Region, RegionEntry, VERSION};

    /// The regions are empty and lie one behind the other.
    fn header(version: u32) -> Header {
        let mut header =
            Header { magic: MAGIC, version, history: 7, exe_len: if version < 9 { 1016 } else { 824 }, ..Header::ZERO };
        header.reach.state = 1;
        header.exe.fill(b'x');
        for region in Region::ALL {
            let record_len = region.record_len() as u32;
            header.regions[region as usize] =
                RegionEntry { offset: HEADER_LEN as u64, record_len, ..RegionEntry::ZERO };
        }
        header
    }

    #[test]
    fn what_a_version_did_not_have_is_not_there() {
        let parse = |version| Header::parse(&header(version).to_bytes(), HEADER_LEN as u64);
        let seven = parse(7).expect("is read");
        assert_eq!((seven.version, seven.reach, seven.history, seven.exe_len), (7, ReachRecord::ZERO, 0, 824));
        let eight = parse(8).expect("is read");
        assert_eq!((eight.reach.state, eight.history, eight.exe_len), (1, 0, 824));
        assert_eq!(parse(9).expect("is read").history, 7);
        assert!(parse(OLDEST_VERSION - 1).is_err() && parse(VERSION + 1).is_err());
    }

    #[test]
    fn two_versions_before_this_one_are_read_and_said_to_lack_something() {
        assert_eq!(OLDEST_VERSION, VERSION - 2);
        assert_eq!(lacks(VERSION).count(), 0);
        for version in OLDEST_VERSION..VERSION {
            assert!(lacks(version).count() > 0, "{version}");
        }
        assert_eq!(lacks(7).count(), 3);
    }
}
