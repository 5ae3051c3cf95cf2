//! Segments of the versions before this one, read as if they were of this one: a segment outlives the upgrade of the
//! command.
//!
//! | version | what came with it |
//! |---|---|
//! | 12 | stacks that share their outer frames ([`outer`](crate::outer)) |
//! | 13 | functions of Python's and Ruby's in stacks ([`script`](crate::script)) |
//!
//! What came later was zero before, or is not in what was written before. Where a version changes more than that,
//! [`OLDEST_VERSION`](crate::OLDEST_VERSION) is raised past it.

/// What segments of a version and of those before it don't have, that a reader would miss.
const LACKS: [(u32, &str); 1] = [(12, "Python's functions in stacks")];

/// What a segment of a version does not have, in the words for it.
pub fn lacks(version: u32) -> impl Iterator<Item = &'static str> {
    LACKS.into_iter().filter(move |(last, _)| version <= *last).map(|(_, what)| what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HEADER_LEN, Header, MAGIC, OLDEST_VERSION, Region, RegionEntry, VERSION};

    /// The regions are empty and lie one behind the other.
    fn header(version: u32) -> Header {
        let mut header = Header { magic: MAGIC, version, ..Header::ZERO };
        for region in Region::ALL {
            let record_len = region.record_len() as u32;
            header.regions[region as usize] =
                RegionEntry { offset: HEADER_LEN as u64, record_len, ..RegionEntry::ZERO };
        }
        header
    }

    #[test]
    fn two_versions_before_this_one_are_read_and_no_other() {
        let parse = |version| Header::parse(&header(version).to_bytes(), HEADER_LEN as u64);
        assert_eq!(OLDEST_VERSION, VERSION - 2);
        for version in OLDEST_VERSION..=VERSION {
            assert_eq!(parse(version).expect("is read").version, version);
        }
        assert!(parse(OLDEST_VERSION - 1).is_err() && parse(VERSION + 1).is_err());
    }

    #[test]
    fn what_a_version_lacks_is_said_of_it_alone() {
        assert!(lacks(12).eq(["Python's functions in stacks"]));
        assert_eq!((lacks(11).count(), lacks(VERSION).count()), (1, 0));
        assert!(LACKS.iter().all(|(last, _)| *last >= OLDEST_VERSION));
    }
}
