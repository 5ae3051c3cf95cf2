//! All processes together: a row for each, and call sites by name over all of them.

use std::fmt::Write;

use serde::Serialize;

use super::events::named_sites::NamedSite;
use super::events::processes::{Listed, ProcessRow, Processes};
use super::export;
use super::panes::Records;
use crate::words::{clip, numbers};

/// All that run.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Everybody {
    version: u32,
    /// The largest resident set first.
    processes: Vec<OneProcess>,
    /// Call sites of one name, of all processes together, the largest first.
    sites: Vec<NamedSite>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OneProcess {
    pid: u32,
    /// The user that it is, by number.
    uid: Option<u32>,
    name: String,
    arguments: String,
    /// By the pool's counter.
    in_use_bytes: Option<u64>,
    rss_bytes: Option<u64>,
    /// Over the last minutes; null where it is not clear of none.
    growth_bytes_per_minute: Option<f64>,
    age_seconds: f64,
}

impl From<&ProcessRow> for OneProcess {
    fn from(row: &ProcessRow) -> Self {
        OneProcess {
            pid: row.pid,
            uid: row.uid,
            name: row.name.clone(),
            arguments: row.arguments.clone(),
            in_use_bytes: row.in_use,
            rss_bytes: row.rss,
            growth_bytes_per_minute: Some(row.trend).filter(|trend| trend.is_clear()).map(|trend| trend.per_minute()),
            age_seconds: row.age.as_secs_f64(),
        }
    }
}

/// All that run, or those that are called so, as such a table, the largest resident set first.
pub(crate) fn table(name: Option<&str>) -> Result<Records, String> {
    let processes = Processes::read(&Listed { name: name.map(str::to_owned), ..Listed::default() });
    match processes.trouble {
        Some(trouble) => Err(trouble),
        None => Ok(export::records(processes.running.iter())),
    }
}

impl Everybody {
    /// Reads all that run; with a name, those that are called so. Whose segment can't be read has a row and no sites.
    pub(crate) fn read(name: Option<&str>) -> Result<Everybody, String> {
        let listed = Listed { name: name.map(str::to_owned), with_sites: true, ..Listed::default() };
        let processes = Processes::read(&listed);
        if let Some(trouble) = processes.trouble {
            return Err(trouble);
        }
        let sites = processes.sites.unwrap_or_default();
        Ok(Everybody { version: 1, processes: processes.running.iter().map(OneProcess::from).collect(), sites })
    }

    /// As lines of so many columns and rows.
    pub(crate) fn text(&self, columns: usize, rows: usize) -> String {
        let bytes = |bytes: Option<f64>| bytes.map_or("-".to_owned(), numbers::bytes);
        let mut out = String::new();
        let mut line = |text: &str| {
            out += clip(text, columns).trim_end();
            out.push('\n');
        };
        line(&format!("{:>8} {:>10} {:>10} {:>14}  COMMAND", "PID", "RSS", "LIVE", "GROWTH/MIN"));
        for process in &self.processes {
            let growth = process.growth_bytes_per_minute.map_or("level".to_owned(), |slope| {
                format!("{}{}", if slope > 0.0 { "+" } else { "" }, numbers::bytes(slope))
            });
            let (rss, live) = (process.rss_bytes.map(|b| b as f64), process.in_use_bytes.map(|b| b as f64));
            let (rss, live) = (bytes(rss), bytes(live));
            let mut text = format!("{:>8} {rss:>10} {live:>10} {growth:>14}  ", process.pid);
            let _ = write!(text, "{} {}", process.name, process.arguments);
            line(&text);
        }
        line("");
        line(&format!("{:>10} {:>10} {:>9}  CALL SITE", "IN USE", "OBJECTS", "PROCESSES"));
        for site in self.sites.iter().take(rows.saturating_sub(self.processes.len() + 3).max(3)) {
            let (in_use, objects) = (numbers::bytes(site.in_use_bytes), numbers::scaled(site.in_use_objects));
            let place = site.place.as_deref().unwrap_or_default();
            line(&format!("{in_use:>10} {objects:>10} {:>9}  {} {place}", site.processes, site.function));
        }
        out
    }
}
