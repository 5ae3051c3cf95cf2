//! Call sites as comma-separated values (RFC 4180), for spreadsheets and data frames: a line each, and one of names.

use std::io::{self, Write};

use crate::build::site_name::SiteName;
use crate::model::profile::{Profile, Site};

/// The columns.
pub const COLUMNS: [&str; 12] = [
    "kind",
    "device",
    "function",
    "file",
    "line",
    "inuse_space",
    "inuse_objects",
    "alloc_space",
    "alloc_objects",
    "peak_space",
    "incomplete",
    "stack",
];

/// Writes all call sites. `stack` has the functions from the outermost on, joined by semicolons; `device` is empty for
/// host memory. `peak_space` is empty where nobody knows who had the memory at the peak: a pprof file does not say.
pub fn write_csv(profile: &Profile, mut out: impl Write) -> io::Result<()> {
    writeln!(out, "{}\r", COLUMNS.join(","))?;
    let of_whom = |site: &Site| (site.place.kind(), site.place.device());
    let mut peaks_known: Vec<_> = profile.sites.iter().filter(|site| site.peak.bytes > 0.0).map(of_whom).collect();
    peaks_known.sort_unstable();
    peaks_known.dedup();
    for site in &profile.sites {
        let peak_known = peaks_known.contains(&of_whom(site));
        let name = SiteName::of(profile, site);
        let function = name.as_ref().map(|name| name.function);
        let line = function.and_then(|function| function.line).map(|line| line.to_string());
        let fields = [
            site.place.kind().name().to_owned(),
            site.place.device().map(|device| device.to_string()).unwrap_or_default(),
            quoted(function.map_or("", |function| &function.name)),
            quoted(function.and_then(|function| function.file.as_deref()).unwrap_or_default()),
            line.unwrap_or_default(),
            format!("{:.0}", site.in_use.bytes),
            format!("{:.0}", site.in_use.objects),
            format!("{:.0}", site.allocated.bytes),
            format!("{:.0}", site.allocated.objects),
            if peak_known { format!("{:.0}", site.peak.bytes) } else { String::new() },
            site.incomplete.to_string(),
            quoted(&profile.path(site)),
        ];
        writeln!(out, "{}\r", fields.join(","))?;
    }
    out.flush()
}

fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing;

    #[test]
    fn what_has_a_comma_or_a_quote_is_quoted() {
        let profile = testing::profile(&[("main;map<int, \"x\">", 100.0)]);
        let mut text = Vec::new();
        write_csv(&profile, &mut text).expect("is written");
        let text = String::from_utf8(text).expect("is text");
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!(lines[0], COLUMNS.join(","));
        assert!(lines[1].starts_with("host,,\"map<int, \"\"x\"\">\","), "{}", lines[1]);
        assert!(lines[1].ends_with(",\"main;map<int, \"\"x\"\">\""), "{}", lines[1]);
    }
}
