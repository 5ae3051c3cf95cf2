//! Which of a process's addresses have memory, as the kernel says.

use std::fs::File;
use std::os::unix::fs::FileExt;

use poolscope_wire::Ground;

use crate::model::snapshot::Residence;
use crate::process::status_bytes;

/// `/proc/PID/smaps` and `/proc/PID/pagemap` speak of pages of this size.
const PAGE: u64 = 4096;

/// It takes about a second to ask about so many bytes of addresses.
const MOST: u64 = 256 << 30;

/// The most of which `/proc/PID/smaps` is asked, which takes several times as long as `/proc/PID/pagemap`.
const MOST_IN_SMAPS: u64 = 4 << 30;

/// A mapping.
#[derive(Debug, Default, PartialEq, Eq)]
struct Mapping {
    from: u64,
    to: u64,
    path: String,
    /// Bytes that are in memory.
    rss: u64,
    /// Bytes that are swapped out.
    swapped: u64,
    /// Bytes in explicit huge pages, which the resident set does not count.
    huge: u64,
}

impl Mapping {
    fn bytes(&self) -> u64 {
        self.rss + self.swapped + self.huge
    }
}

/// What the kernel says of a process's memory: how many bytes of the pool's pages have some, swapped out or not, and of
/// all the rest. The first is `None` if the kernel does not say, if there may be more addresses than `grounds`, or if
/// they are too many to ask about. `segment` is the name of the segment's file.
///
/// `/proc/PID/smaps` knows which pages are only the kernel's page of zeros, and which are not: `/proc/PID/pagemap` is
/// asked about what is large, and about parts of mappings.
pub fn residence(pid: u32, grounds: &[Ground], segment: &str) -> (Option<u64>, Option<Residence>) {
    let all = grounds.iter().map(|ground| ground.to.saturating_sub(ground.from)).fold(0, u64::saturating_add);
    let mappings = if all <= MOST_IN_SMAPS { mappings(pid) } else { None };
    let of_process = mappings.as_ref().map_or_else(|| by_status(pid), |mappings| Some(by_mappings(mappings, segment)));
    let is_known = all <= MOST
        && grounds.last().is_some_and(|last| last.to == 0)
        && rustix::param::page_size() as u64 == PAGE
        && (mappings.is_some() || all > MOST_IN_SMAPS);
    let pages = if is_known { of_grounds(pid, grounds, &mappings.unwrap_or_default()) } else { None };
    (pages, of_process)
}

/// Bytes of these addresses that have memory.
fn of_grounds(pid: u32, grounds: &[Ground], mappings: &[Mapping]) -> Option<u64> {
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).ok()?;
    let mut bytes = 0;
    for ground in grounds.iter().filter(|ground| ground.to > ground.from) {
        let mut at = ground.from;
        for mapping in mappings.iter().filter(|mapping| mapping.from >= ground.from && mapping.to <= ground.to) {
            bytes += in_pagemap(&pagemap, at, mapping.from)? + mapping.bytes();
            at = mapping.to;
        }
        bytes += in_pagemap(&pagemap, at, ground.to)?;
    }
    Some(bytes)
}

/// The mappings of a process in the order of their addresses.
fn mappings(pid: u32) -> Option<Vec<Mapping>> {
    let text = std::fs::read(format!("/proc/{pid}/smaps")).ok()?;
    // A process that is gone has an empty file.
    parse(&String::from_utf8_lossy(&text)).filter(|mappings| !mappings.is_empty())
}

fn parse(smaps: &str) -> Option<Vec<Mapping>> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-') {
            let address = |text| u64::from_str_radix(text, 16).ok();
            let path = line.find(['/', '[']).map_or("", |at| &line[at..]).to_owned();
            mappings.push(Mapping { from: address(from)?, to: address(to)?, path, ..Mapping::default() });
            continue;
        }
        let Some(mapping) = mappings.last_mut() else { continue };
        let place = match first {
            "Rss:" => &mut mapping.rss,
            "Swap:" => &mut mapping.swapped,
            "Private_Hugetlb:" | "Shared_Hugetlb:" => &mut mapping.huge,
            _ => continue,
        };
        *place += words.next()?.parse::<u64>().ok()?.checked_mul(1024)?;
    }
    Some(mappings)
}

fn by_mappings(mappings: &[Mapping], segment: &str) -> Residence {
    let sum = |of: fn(&Mapping) -> u64| mappings.iter().map(of).fold(0, u64::saturating_add);
    // What a recorder reads lies beside the segment, in files whose names begin with that of the segment's.
    let is_own = |mapping: &&Mapping| {
        mapping.path.rsplit('/').next().is_some_and(|name| !segment.is_empty() && name.starts_with(segment))
    };
    let of = |mapping: &Mapping| mapping.rss;
    let is_file = |mapping: &&Mapping| mapping.path.starts_with('/') && !is_own(mapping);
    Residence {
        rss: sum(of),
        swapped: sum(|mapping| mapping.swapped),
        huge: sum(|mapping| mapping.huge),
        segment: mappings.iter().filter(is_own).map(of).sum(),
        files: mappings.iter().filter(is_file).map(of).sum(),
    }
}

/// The same of a process with so many mappings or so much memory that only the sums are asked for: what is shared
/// memory counts as the segment's.
fn by_status(pid: u32) -> Option<Residence> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let bytes = |field| status_bytes(&status, field).unwrap_or(0);
    Some(Residence {
        rss: status_bytes(&status, "VmRSS")?,
        swapped: bytes("VmSwap"),
        huge: bytes("HugetlbPages"),
        segment: bytes("RssShmem"),
        files: bytes("RssFile"),
    })
}

/// Bytes between two addresses that have memory.
fn in_pagemap(pagemap: &File, from: u64, to: u64) -> Option<u64> {
    /// Of the entry of each page, two bits say that it is there, or swapped out
    /// (`Documentation/admin-guide/mm/pagemap.rst`).
    const HAS_MEMORY: u64 = 0b11 << 62;
    let mut buffer = [0; 1 << 15];
    let (mut page, end, mut bytes) = (from / PAGE, to / PAGE, 0);
    while page < end {
        let wanted = buffer.len().min((end - page).saturating_mul(8) as usize);
        let read = pagemap.read_at(&mut buffer[..wanted], page * 8).ok()? / 8;
        if read == 0 {
            return None;
        }
        let entries = buffer[..read * 8].as_chunks::<8>().0.iter().map(|entry| u64::from_le_bytes(*entry));
        bytes += entries.filter(|entry| entry & HAS_MEMORY != 0).count() as u64 * PAGE;
        page += read as u64;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
00400000-00401000 r-xp 00000000 08:01 12 /usr/bin/app
Rss:                   4 kB
Swap:                  0 kB
VmFlags: rd ex
10000000-20000000 rw-p 00000000 00:00 0 
Rss:                 100 kB
Swap:                 28 kB
Private_Hugetlb:    2048 kB
7f0000000000-7f0000100000 rw-s 00000000 00:1a 9 /dev/shm/poolscope-0/77.00000000000000aa
Rss:                  64 kB
7f0000200000-7f0000300000 rw-s 00000000 00:1a 9 /dev/shm/poolscope-0/77.00000000000000aa.trace
Rss:                   8 kB
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]
Rss:                  16 kB
";

    #[test]
    fn mappings_are_told_apart() {
        let mappings = parse(SMAPS).expect("is whole");
        let residence = by_mappings(&mappings, "77.00000000000000aa");
        let kib = |bytes: u64| bytes / 1024;
        assert_eq!(kib(residence.rss), 4 + 100 + 64 + 8 + 16);
        assert_eq!((kib(residence.swapped), kib(residence.huge)), (28, 2048));
        assert_eq!((kib(residence.segment), kib(residence.files)), (72, 4));
        assert_eq!(mappings[1].bytes(), (100 + 28 + 2048) * 1024);
    }

    #[test]
    fn this_process_has_memory_in_files() {
        let (_, residence) = residence(std::process::id(), &[], "");
        let residence = residence.expect("of this process");
        assert!(residence.files > 0 && residence.files < residence.rss && residence.segment == 0, "{residence:?}");
    }
}
