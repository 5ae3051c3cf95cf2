//! Files of heaptrack: text, packed by zstd or gzip (heaptrack's `accumulatedtracedata.cpp` and `heaptrack_interpret`).
//!
//! Each line is a letter and numbers in base 16. `s` adds a string, `i` an address with its module and functions, `t` a
//! stack by its innermost address and the stack around that, `a` a kind of allocation (size and stack). `+` and `-` are
//! an allocation and a free of a kind. Strings, addresses and stacks are counted from 1, kinds from 0.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::imports::sites::Sites;
use crate::imports::{GZIP, ImportError, Imported, ZSTD};
use crate::model::memory::Place;
use crate::model::profile::Frame;
use crate::model::snapshot::Amount;
use crate::words::printable::printable_str;

const FORMAT: &str = "heaptrack file";
/// No stack is deeper.
const DEEPEST: usize = 4096;

/// Reads a file.
pub(super) fn read(path: &Path) -> Result<Imported, ImportError> {
    // The peak is known at the end: what each kind had then is counted by going through the file once more.
    let mut first = Pass::default();
    first.run(lines(path)?, u64::MAX)?;
    let mut second = Pass::default();
    second.run(lines(path)?, first.peak_event)?;
    first.into_profile(&second)
}

/// The file's lines, unpacked.
fn lines(path: &Path) -> Result<Box<dyn BufRead>, ImportError> {
    let mut file = BufReader::with_capacity(1 << 16, File::open(path)?);
    let begin = file.fill_buf()?;
    Ok(if begin.starts_with(&ZSTD) {
        Box::new(BufReader::new(zstd::stream::read::Decoder::with_buffer(file)?))
    } else if begin.starts_with(&GZIP) {
        Box::new(BufReader::new(MultiGzDecoder::new(file)))
    } else {
        Box::new(file)
    })
}

/// An address: its module and its functions, innermost first, each with a file and a line.
#[derive(Debug, Default)]
struct Address {
    ip: u64,
    module: u64,
    functions: Vec<(u64, u64, u32)>,
}

/// Blocks of one size from one stack.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    size: u64,
    trace: u64,
    allocated: u64,
    freed: u64,
}

#[derive(Debug, Default)]
struct Pass {
    command: String,
    strings: Vec<String>,
    addresses: Vec<Address>,
    /// For each stack its innermost address and the stack around it.
    traces: Vec<(u64, u64)>,
    kinds: Vec<Kind>,
    events: u64,
    in_use: u64,
    peak: u64,
    /// Events up to the peak.
    peak_event: u64,
}

fn damaged(line: u64, why: impl std::fmt::Display) -> ImportError {
    ImportError::Damaged { format: FORMAT, why: format!("line {line}: {why}") }
}

impl Pass {
    /// Goes through the lines up to an event.
    fn run(&mut self, mut lines: Box<dyn BufRead>, until: u64) -> Result<(), ImportError> {
        let mut line = Vec::new();
        let mut number = 0;
        while self.events < until {
            line.clear();
            // One that never ends is no line of heaptrack's.
            if (&mut lines).take(1 << 20).read_until(b'\n', &mut line)? == 0 {
                break;
            }
            number += 1;
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches('\n');
            let Some((letter, rest)) = text.split_once(' ') else { continue };
            self.line(letter, rest).map_err(|why| damaged(number, why))?;
        }
        if number == 0 && until > 0 { Err(damaged(0, "it is empty")) } else { Ok(()) }
    }

    fn line(&mut self, letter: &str, rest: &str) -> Result<(), String> {
        let mut words = rest.split(' ');
        let mut next = || -> Result<u64, String> {
            let word = words.next().ok_or("a number is missing")?;
            u64::from_str_radix(word, 16).map_err(|_| format!("{word:?} is no number in base 16"))
        };
        match letter {
            "v" => {
                let _ = next()?;
                let version = next()?;
                if !(2..=3).contains(&version) {
                    return Err(format!("the format is of version {version}, and versions 2 and 3 can be read"));
                }
            }
            "X" => self.command = printable_str(rest.to_owned()),
            // Its length goes before it since version 3.
            "s" => {
                let text = match rest.split_once(' ') {
                    Some((length, text)) if usize::from_str_radix(length, 16) == Ok(text.len()) => text,
                    _ => rest,
                };
                self.strings.push(printable_str(text.to_owned()));
            }
            "i" => {
                let mut address = Address { ip: next()?, module: next()?, functions: Vec::new() };
                while let Ok(function) = next() {
                    let file = next().unwrap_or(0);
                    address.functions.push((function, file, next().unwrap_or(0) as u32));
                }
                self.addresses.push(address);
            }
            "t" => {
                let trace = (next()?, next()?);
                if trace.1 > self.traces.len() as u64 {
                    return Err("a stack lies in one that comes later".to_owned());
                }
                self.traces.push(trace);
            }
            "a" => self.kinds.push(Kind { size: next()?, trace: next()?, ..Kind::default() }),
            "+" | "-" => {
                let at = next()? as usize;
                let kind = self.kinds.get_mut(at).ok_or("there is no allocation of this number")?;
                self.events += 1;
                if letter == "+" {
                    kind.allocated += 1;
                    self.in_use += kind.size;
                } else {
                    // heaptrack can be attached late, and sees frees of what it has not seen allocated.
                    if kind.freed < kind.allocated {
                        self.in_use -= kind.size;
                    }
                    kind.freed = (kind.freed + 1).min(kind.allocated);
                }
                if self.in_use > self.peak {
                    (self.peak, self.peak_event) = (self.in_use, self.events);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn into_profile(self, at_peak: &Pass) -> Result<Imported, ImportError> {
        let mut sites = Sites::default();
        for (at, kind) in self.kinds.iter().enumerate().filter(|(_, kind)| kind.allocated > 0) {
            let locations = self.stack(kind.trace, &mut sites);
            let number = sites.site(locations, Place::Host);
            let site = sites.at(number);
            let amount = |objects: u64| Amount {
                objects: objects as f64,
                bytes: objects as f64 * kind.size as f64,
                samples: objects,
            };
            site.allocated += amount(kind.allocated);
            site.in_use += amount(kind.allocated - kind.freed);
            let peak = at_peak.kinds.get(at).copied().unwrap_or_default();
            site.peak += amount(peak.allocated - peak.freed);
        }
        let profile = sites.finish(self.command);
        Ok(Imported { profile, format: FORMAT, lacks: None })
    }

    /// The functions of a stack, innermost first.
    fn stack(&self, mut trace: u64, sites: &mut Sites) -> Vec<usize> {
        let mut locations = Vec::new();
        while let Some(&(address, around)) = trace.checked_sub(1).and_then(|at| self.traces.get(at as usize)) {
            if locations.len() > DEEPEST {
                break;
            }
            if let Some(address) = address.checked_sub(1).and_then(|at| self.addresses.get(at as usize)) {
                if address.functions.is_empty() {
                    let module = self.text(address.module);
                    let module = module.rsplit('/').next().unwrap_or_default();
                    let name = format!("[{module}@{:#x}]", address.ip);
                    locations.push(sites.location(Frame { name, ..Frame::default() }));
                }
                for &(function, file, line) in &address.functions {
                    let name = match self.text(function) {
                        "" => format!("[{:#x}]", address.ip),
                        name => name.to_owned(),
                    };
                    let file = Some(self.text(file).to_owned()).filter(|file| !file.is_empty());
                    let line = Some(line).filter(|&line| line > 0 && file.is_some());
                    locations.push(sites.location(Frame { name, file, line, ..Frame::default() }));
                }
            }
            trace = around;
        }
        locations
    }

    fn text(&self, number: u64) -> &str {
        number.checked_sub(1).and_then(|at| self.strings.get(at as usize)).map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(text: &str) -> Result<Pass, ImportError> {
        let mut pass = Pass::default();
        pass.run(Box::new(std::io::Cursor::new(text.to_owned().into_bytes())), u64::MAX)?;
        Ok(pass)
    }

    const FILE: &str = "v 10400 3\nX ./app --fast\ns 4 main\ns 4 grow\ns 5 app.c\ni 10 0 1 3 c\ni 20 0 2 3 1f\nt 1 0\n\
                        t 2 1\na 100 2\na 10 1\n+ 0\n+ 0\n- 0\n+ 1\n+ 0\n+ 0\n- 0\n- 0\n";

    #[test]
    fn what_was_allocated_is_left_and_was_there_at_the_peak_is_counted() {
        let first = pass(FILE).expect("is read");
        assert_eq!((first.peak, first.peak_event), (0x310, 6));
        let mut at_peak = Pass::default();
        at_peak.run(Box::new(FILE.as_bytes()), first.peak_event).expect("is read");
        let profile = first.into_profile(&at_peak).expect("is made").profile;
        assert_eq!(profile.main, "./app --fast");
        let paths: Vec<String> = profile.sites.iter().map(|site| profile.path(site)).collect();
        assert_eq!(paths, ["main;grow", "main"]);
        let bytes = |at: usize| {
            let site = &profile.sites[at];
            [site.allocated.bytes, site.in_use.bytes, site.peak.bytes]
        };
        assert_eq!((bytes(0), bytes(1)), ([1024.0, 256.0, 768.0], [16.0, 16.0, 16.0]));
        let grow = profile.frames(&profile.sites[0]).next().expect("a function");
        assert_eq!((grow.file.as_deref(), grow.line), (Some("app.c"), Some(31)));
    }

    #[test]
    fn damaged_lines_are_named() {
        for (text, why) in [
            ("v 10400 9\n", "version 9"),
            ("v 10400 3\n+ 0\n", "line 2: there is no allocation"),
            ("v 10400 3\nt 1 5\n", "comes later"),
            ("v 10400 3\na xyz 1\n", "\"xyz\" is no number"),
            ("", "it is empty"),
        ] {
            let error = pass(text).expect_err("is damaged").to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
