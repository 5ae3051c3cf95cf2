//! The formats that a profile is written in, by their names and by the endings of files.

use std::io::{self, Write};
use std::path::Path;

use clap::ValueEnum;
use poolscope_profiler::faces::{collapsed, csv, dhat, firefox, perfetto, pprof};
use poolscope_profiler::{Metric, Profile, Site};

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For go tool pprof, Pyroscope, speedscope and Perfetto: *.pb.gz, *.pb, *.pprof
    Pprof,
    /// For dh_view.html and the Firefox Profiler: *.dhat.json
    Dhat,
    /// The Firefox Profiler's own: *.firefox.json
    Firefox,
    /// A trace for ui.perfetto.dev, a heap for the host and one for each device: *.pftrace, *.perfetto-trace
    Perfetto,
    /// A line for each stack, for flamegraph.pl, inferno and speedscope: *.collapsed, *.folded
    Collapsed,
    /// A line for each call site: *.csv
    Csv,
}

/// Which files are of which format.
const ENDINGS: [(&str, Format); 10] = [
    (".pb.gz", Format::Pprof),
    (".pb", Format::Pprof),
    (".pprof", Format::Pprof),
    (".dhat.json", Format::Dhat),
    (".firefox.json", Format::Firefox),
    (".pftrace", Format::Perfetto),
    (".perfetto-trace", Format::Perfetto),
    (".collapsed", Format::Collapsed),
    (".folded", Format::Collapsed),
    (".csv", Format::Csv),
];

/// Whose profile it is, for formats that say so.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    /// 0 if it is not known.
    pub(crate) pid: u32,
    pub(crate) command: String,
    /// Nanoseconds from its start to the profile, or to its end; 0 if that is not known.
    pub(crate) ran_ns: u64,
}

impl Format {
    /// By the ending of a file's name.
    pub(crate) fn of(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_str()?;
        ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)).map(|&(_, format)| format)
    }

    /// What can't be told from a file's name, for a message.
    pub(crate) fn endings() -> String {
        ENDINGS.map(|(ending, _)| ending).join(", ")
    }

    /// Why a file of this name has to say more, if it is not to be what nobody expects.
    pub(crate) fn ambiguous(path: &Path) -> Option<String> {
        let is_json = path.extension().is_some_and(|ending| ending == "json") && Format::of(path).is_none();
        is_json.then(|| {
            let path = path.display();
            format!(
                "{path} does not say which JSON it is to have: .dhat.json and .firefox.json do, and so does --format"
            )
        })
    }

    /// What is to be said of a profile that was written and has nothing to show.
    pub(crate) fn remark(self, profile: &Profile, metric: Metric) -> Option<String> {
        let has = |site: &Site| self != Format::Collapsed || metric.of(site).round() != 0.0;
        let what = if self == Format::Collapsed { metric.describe() } else { "memory" };
        (!profile.sites.iter().any(has)).then(|| format!("nothing is in what was written: no call site has {what}"))
    }

    /// Writes a profile. `metric` is the figure of formats that have one, and the one that pprof shows.
    pub(crate) fn write(self, profile: &Profile, origin: &Origin, metric: Metric, out: impl Write) -> io::Result<()> {
        let Origin { pid, command, ran_ns } = origin;
        match self {
            Format::Pprof => pprof::write_pprof(profile, metric, out),
            Format::Dhat => dhat::write_dhat(profile, command, *pid, *ran_ns, out),
            Format::Firefox => firefox::write_firefox(profile, command, *pid, out),
            Format::Perfetto => perfetto::write_perfetto(profile, command, *pid, out),
            Format::Collapsed => collapsed::write_collapsed(profile, metric, out),
            Format::Csv => csv::write_csv(profile, out),
        }
    }
}
