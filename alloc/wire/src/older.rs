//! Segments of the versions before this one, read as if they were of this one: a segment outlives the upgrade of the
//! command.
//!
//! | version | what came with it |
//! |---|---|
//! | 10 | where the cells of a device's map lie, and which stream's they are: [`place`](crate::place) |
//! | 11 | how long calls for device memory are held up, and by what: the last counters of a device |
//!
//! What came later was zero before, or the end of a map. Where a version changes more than that,
//! [`OLDEST_VERSION`](crate::OLDEST_VERSION) is raised past it.

use crate::{MAP_CELLS, Region};

/// What segments of a version and of those before it don't have.
const LACKS: [(u32, &str); 2] = [
    (9, "who holds which piece of device memory, and on which stream"),
    (10, "how long calls for device memory are held up"),
];

/// What a segment of a version does not have, in the words for it.
pub fn lacks(version: u32) -> impl Iterator<Item = &'static str> {
    LACKS.into_iter().filter(move |(last, _)| version <= *last).map(|(_, what)| what)
}

/// Length of one record of a region in segments of a version.
pub(crate) fn record_len(version: u32, region: Region) -> usize {
    match region {
        Region::DeviceMaps if version < 10 => MAP_CELLS,
        _ => region.record_len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HEADER_LEN, Header, MAGIC, MAP_LEN, OLDEST_VERSION, RegionEntry, VERSION};

    /// The regions are empty and lie one behind the other.
    fn header(version: u32) -> Header {
        let mut header = Header { magic: MAGIC, version, ..Header::ZERO };
        for region in Region::ALL {
            let record_len = record_len(version, region) as u32;
            header.regions[region as usize] =
                RegionEntry { offset: HEADER_LEN as u64, record_len, ..RegionEntry::ZERO };
        }
        header
    }

    #[test]
    fn what_a_version_did_not_have_is_not_there() {
        let parse = |version| Header::parse(&header(version).to_bytes(), HEADER_LEN as u64);
        let nine = parse(9).expect("is read");
        assert_eq!((nine.version, nine.region(Region::DeviceMaps).record_len), (9, MAP_CELLS as u32));
        assert_eq!(parse(10).expect("is read").region(Region::DeviceMaps).record_len, MAP_LEN as u32);
        assert!(parse(OLDEST_VERSION - 1).is_err() && parse(VERSION + 1).is_err());
    }

    #[test]
    fn two_versions_before_this_one_are_read_and_said_to_lack_something() {
        assert_eq!(OLDEST_VERSION, VERSION - 2);
        assert_eq!(lacks(VERSION).count(), 0);
        for version in OLDEST_VERSION..VERSION {
            assert!(lacks(version).count() > 0, "{version}");
        }
        assert_eq!(lacks(9).count(), 2);
    }
}
