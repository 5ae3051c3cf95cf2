//! Real `go tool pprof` on a profile, and its `-raw` output taken apart.

use std::collections::BTreeMap;
use std::path::Path;

use crate::{Output, Pool, Program, Scratch};

/// Runs `go tool pprof ARGS PROFILE`; fails on any word on standard error, where pprof puts its warnings.
#[track_caller]
pub fn pprof(scratch: &Scratch, args: &[&str], profile: &Path) -> Output {
    Program::new("go")
        .args(["tool", "pprof"])
        .args(args)
        .arg(profile)
        .env("PPROF_TMPDIR", scratch.path())
        .env("HOME", scratch.path())
        .run()
        .silent_success()
}

/// A row of `go tool pprof -top`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Bytes that the function itself has.
    pub flat: u64,
    /// Bytes that it and those that it calls have.
    pub cumulative: u64,
    /// The function, without the note that it is inlined.
    pub function: String,
}

/// All rows of `go tool pprof -top`.
#[track_caller]
pub fn top(scratch: &Scratch, profile: &Path) -> Vec<Row> {
    let args = ["-top", "-unit=B", "-nodecount=100000", "-nodefraction=0", "-edgefraction=0"];
    let text = pprof(scratch, &args, profile).stdout;
    let rows = text.lines().skip_while(|line| !line.contains("flat%")).skip(1);
    let row = |line: &str| {
        let mut columns = line.split_ascii_whitespace();
        let bytes = |column: Option<&str>| column?.trim_end_matches('B').parse().ok();
        let (flat, cumulative) = (bytes(columns.next())?, bytes(columns.nth(2))?);
        let function = line.splitn(2, columns.next()?).last()?;
        // Two columns may be equal, so that the name is what follows the last of the percentages.
        let function = function.rsplit_once("%  ").map_or(function, |(_, function)| function);
        let function = function.trim().trim_end_matches(" (inline)").trim_end_matches(" (partial-inline)").to_owned();
        Some(Row { flat, cumulative, function })
    };
    rows.map(|line| row(line).unwrap_or_else(|| panic!("this is no row: {line:?}"))).collect()
}

/// A sample with all frames, innermost first.
#[derive(Clone, Debug)]
pub struct Sample {
    /// In the order of [`Raw::types`].
    pub values: Vec<i64>,
    /// Locations, by their number in the profile.
    pub locations: Vec<u64>,
}

/// A profile as `go tool pprof -raw` prints it.
#[derive(Clone, Debug, Default)]
pub struct Raw {
    /// `alloc_objects/count` and so on.
    pub types: Vec<String>,
    /// All samples.
    pub samples: Vec<Sample>,
    /// What stands behind the number of a location: address, mapping, and a function,
    /// file and line for each inlined frame.
    pub locations: BTreeMap<u64, String>,
    /// Lines of mappings.
    pub mappings: Vec<String>,
}

impl Raw {
    /// Reads the profile that the command writes of a process.
    #[track_caller]
    pub fn of_process(pool: &Pool, pid: u32) -> Raw {
        let profile = pool.files().join("heap.pb.gz");
        pool.poolscope().args(["dump", &pid.to_string(), "-o"]).arg(&profile).run().success();
        Raw::read(pool.files(), &profile)
    }

    /// Reads a profile.
    #[track_caller]
    pub fn read(scratch: &Scratch, profile: &Path) -> Raw {
        Raw::parse(&pprof(scratch, &["-raw"], profile).stdout)
    }

    fn parse(text: &str) -> Raw {
        #[derive(PartialEq)]
        enum Part {
            Head,
            Types,
            Samples,
            Locations,
            Mappings,
        }
        let mut raw = Raw::default();
        let mut part = Part::Head;
        let mut location = 0;
        for line in text.lines() {
            part = match (line, part) {
                ("Samples:", _) => Part::Types,
                ("Locations", _) => Part::Locations,
                ("Mappings", _) => Part::Mappings,
                (_, Part::Types) => {
                    raw.types = line.split_whitespace().map(|t| t.trim_end_matches("[dflt]").to_owned()).collect();
                    Part::Samples
                }
                (_, Part::Samples) => {
                    // Lines without this shape hold a sample's labels.
                    if let Some((values, locations)) = line.split_once(": ") {
                        let values: Result<Vec<i64>, _> = values.split_whitespace().map(str::parse).collect();
                        let locations: Result<Vec<u64>, _> = locations.split_whitespace().map(str::parse).collect();
                        if let (Ok(values), Ok(locations)) = (values, locations) {
                            raw.samples.push(Sample { values, locations });
                        }
                    }
                    Part::Samples
                }
                (_, Part::Locations) => {
                    let numbered = line.split_once(": ").and_then(|(n, rest)| Some((n.trim().parse().ok()?, rest)));
                    if let Some((number, rest)) = numbered {
                        location = number;
                        raw.locations.insert(location, rest.to_owned());
                    } else if let Some(text) = raw.locations.get_mut(&location) {
                        text.push(' ');
                        text.push_str(line);
                    }
                    Part::Locations
                }
                (_, Part::Mappings) => {
                    raw.mappings.push(line.to_owned());
                    Part::Mappings
                }
                (_, Part::Head) => Part::Head,
            };
        }
        assert!(!raw.types.is_empty(), "this is no output of pprof -raw:\n{text}");
        raw
    }

    /// Locations in which a function of this name lies, itself or inlined; the name stands alone or after a `::`.
    fn locations_of(&self, function: &str) -> Vec<u64> {
        let names = |text: &str| {
            text.split_whitespace().any(|word| {
                word.strip_suffix(function).is_some_and(|before| before.is_empty() || before.ends_with("::"))
            })
        };
        self.locations.iter().filter(|(_, text)| names(text)).map(|(number, _)| *number).collect()
    }

    /// The sum of one type over all samples in whose stack the function lies.
    #[track_caller]
    pub fn total_under(&self, function: &str, sample_type: &str) -> u64 {
        let column = self.types.iter().position(|t| t == sample_type);
        let column = column.unwrap_or_else(|| panic!("no {sample_type} among {:?}", self.types));
        let locations = self.locations_of(function);
        let under = self.samples.iter().filter(|sample| sample.locations.iter().any(|l| locations.contains(l)));
        under.map(|sample| sample.values[column]).sum::<i64>() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAW: &str = "\
PeriodType: space bytes
Period: 524288
Samples:
alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt]
         10       1000          5        500: 1 2 3 
                bytes:[100]
          1        200          0          0: 2 3 
Locations
     1: 0x1136 M=1 malloc ??:0:0 s=0()
     2: 0x1236 M=1 inner /x/a.c:3:0 s=0
             truth_rust::site_a /x/a.c:10:0 s=0(_ZN10truth_rust6site_a17h0123456789abcdefE)
     3: 0x1336 M=1 not_site_a /x/a.c:30:0 s=0
Mappings
1: 0x1000/0x2000/0x0 /x/a abcdef [FN]
";

    #[test]
    fn a_function_is_found_where_it_is_inlined_and_not_by_half_its_name() {
        let raw = Raw::parse(RAW);
        assert_eq!(raw.samples.len(), 2);
        assert_eq!(raw.locations_of("site_a"), [2]);
        assert_eq!(raw.total_under("site_a", "alloc_space/bytes"), 1200);
        assert_eq!(raw.total_under("malloc", "inuse_space/bytes"), 500);
        assert_eq!(raw.mappings.len(), 1);
    }
}
