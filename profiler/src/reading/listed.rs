//! The processes that a server has readings of, as a list to choose from.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::model::growth::{Slope, USUAL_WINDOW_NS};
use crate::model::snapshot::Snapshot;
use crate::segment::discovery::SegmentEntry;
use crate::words::printable::printable_str;

/// The most processes of a list that are taken from a server.
const MOST: usize = 10_000;

/// What a server hands out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListedProcesses {
    /// The version of the list.
    pub version: u32,
    /// It serves every process of its user's; otherwise one.
    pub all: bool,
    /// Those that there are now.
    pub processes: Vec<ListedProcess>,
}

/// A process of the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListedProcess {
    /// Its process id.
    pub pid: u32,
    /// The user that it is, where it runs; an older server does not say.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The program's name.
    pub name: String,
    /// Its arguments.
    pub arguments: String,
    /// Bytes in use by the pool's counter; none if its segment can't be read.
    pub in_use_bytes: Option<u64>,
    /// Its resident set.
    pub rss_bytes: Option<u64>,
    /// How the bytes in use have developed in the last minutes.
    pub growth_bytes_per_minute: f64,
    /// The standard error of that; 0 if nothing is known.
    pub growth_error: f64,
    /// How long it has run.
    pub age_seconds: f64,
}

impl ListedProcess {
    /// The row of a process, with what its segment says, if that can be read.
    pub fn new(entry: &SegmentEntry, snapshot: Option<&Snapshot>) -> ListedProcess {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let called = entry.args.first().filter(|called| !called.is_empty()).unwrap_or(&entry.exe);
        let trend = snapshot.map(|s| s.history.trend(USUAL_WINDOW_NS, s.taken_ns)).unwrap_or_default();
        // What has ended is no growth; a reader of the list can't see that.
        let trend = if trend.goes_on() { trend } else { Slope::new(0.0, trend.error()) };
        // An empty argument is two quotes, not a gap.
        let given = entry.args.iter().skip(1);
        let arguments: Vec<&str> = given.map(|text| if text.is_empty() { "''" } else { text.as_str() }).collect();
        ListedProcess {
            pid: entry.pid,
            uid: Some(entry.user()),
            name: printable_str(called.rsplit('/').next().unwrap_or(called).to_owned()),
            arguments: printable_str(arguments.join(" ")),
            in_use_bytes: snapshot.filter(|s| !s.classes.is_empty()).map(|s| s.stats().usage().in_use),
            rss_bytes: snapshot.and_then(|s| s.memory).map(|memory| memory.rss),
            growth_bytes_per_minute: trend.per_minute(),
            growth_error: trend.error(),
            age_seconds: now.saturating_sub(Duration::from_nanos(entry.start_realtime_ns)).as_secs_f64(),
        }
    }

    /// How the bytes in use have developed.
    pub fn trend(&self) -> Slope {
        Slope::new(self.growth_bytes_per_minute, self.growth_error)
    }
}

impl ListedProcesses {
    /// Those that there are, the largest first.
    pub fn new(all: bool, mut processes: Vec<ListedProcess>) -> ListedProcesses {
        processes.sort_by_key(|row| (std::cmp::Reverse(row.rss_bytes), row.pid));
        ListedProcesses { version: 1, all, processes }
    }

    /// Reads what somebody sent: text of it is safe to show. None if it is no such list.
    pub fn read(bytes: &[u8]) -> Option<ListedProcesses> {
        let mut list: ListedProcesses = serde_json::from_slice(bytes).ok()?;
        let is_sound = |row: &ListedProcess| row.age_seconds >= 0.0 && row.age_seconds < 1e12;
        if list.version != 1 || list.processes.len() > MOST || !list.processes.iter().all(is_sound) {
            return None;
        }
        for row in &mut list.processes {
            row.name = printable_str(std::mem::take(&mut row.name));
            row.arguments = printable_str(std::mem::take(&mut row.arguments));
        }
        Some(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_came_over_a_network_is_harmless_or_refused() {
        let row = ListedProcess { pid: 7, name: "kv\x1b[31m".into(), age_seconds: 3.0, ..ListedProcess::default() };
        let bytes = |list: &ListedProcesses| serde_json::to_vec(list).unwrap();
        let read = ListedProcesses::read(&bytes(&ListedProcesses::new(true, vec![row.clone()]))).unwrap();
        assert_eq!((read.all, read.processes[0].name.as_str()), (true, "kv\u{fffd}[31m"));

        let endless = ListedProcess { age_seconds: 1e300, ..row.clone() };
        assert_eq!(ListedProcesses::read(&bytes(&ListedProcesses::new(true, vec![endless]))), None);
        let newer = ListedProcesses { version: 2, ..ListedProcesses::new(true, vec![row]) };
        assert_eq!(ListedProcesses::read(&bytes(&newer)), None);
        assert_eq!(ListedProcesses::read(b"<h1>Welcome</h1>"), None);
    }
}
