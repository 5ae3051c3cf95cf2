//! pprof files as profiles: those that [`pprof`](crate::faces::pprof) wrote, and heap profiles of Go and others.

use std::collections::{BTreeMap, HashMap};
use std::io::{ErrorKind, Read};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use prost::Message;

use crate::faces::pprof::messages;
use crate::model::memory::{Kind, Place};
use crate::model::of_memory::pprof_name;
use crate::model::profile::{Frame, Held, Location, Metric, Profile, Site};
use crate::model::snapshot::{Amount, Module};
use crate::symbols::function_name::is_mangled;
use crate::words::printable::printable_str;

/// The largest profile that is read, unpacked: a file of a few kilobytes could unpack to any size.
const LARGEST: u64 = 1 << 30;

/// Why a file is no profile that can be read.
#[derive(Debug, thiserror::Error)]
pub enum PprofError {
    /// It is packed, and ends too early.
    #[error("it is cut off: what gzip packed goes on behind its end")]
    CutOff,
    /// It cannot be unpacked.
    #[error("gzip can't unpack it: {0}")]
    Unpack(std::io::Error),
    /// It is larger than any real profile.
    #[error("it unpacks to more than {} MiB", LARGEST >> 20)]
    TooLarge,
    /// It is no profile.
    #[error("it is no pprof profile: {0}")]
    Decode(String),
    /// It is one of something else.
    #[error(
        "it holds {found}, and none of the figures of a heap profile: inuse_space, inuse_objects, alloc_space, alloc_objects"
    )]
    NoHeap {
        /// The sample types that it has.
        found: String,
    },
}

/// Reads a profile, packed or not.
pub fn read_pprof(bytes: &[u8]) -> Result<Profile, PprofError> {
    let message = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        MultiGzDecoder::new(bytes).take(LARGEST + 1).read_to_end(&mut unpacked).map_err(|error| {
            match error.kind() {
                ErrorKind::UnexpectedEof => PprofError::CutOff,
                _ => PprofError::Unpack(error),
            }
        })?;
        if unpacked.len() as u64 > LARGEST {
            return Err(PprofError::TooLarge);
        }
        decode(&unpacked)?
    } else {
        decode(bytes)?
    };
    Reader::new(&message)?.profile()
}

fn decode(bytes: &[u8]) -> Result<messages::Profile, PprofError> {
    let message = messages::Profile::decode(bytes).map_err(|error| PprofError::Decode(error.to_string()))?;
    match message.string_table.first() {
        Some(first) if first.is_empty() => Ok(message),
        _ => Err(PprofError::Decode("its string table does not begin with the empty string".to_owned())),
    }
}

struct Reader<'a> {
    message: &'a messages::Profile,
    /// For each kind of memory and each of our metrics, which of the file's values it is.
    columns: [(Kind, [Option<usize>; 4]); 3],
}

impl<'a> Reader<'a> {
    fn new(message: &'a messages::Profile) -> Result<Self, PprofError> {
        let text = |id: i64| text(message, id);
        let names: Vec<&str> = message.sample_type.iter().map(|ty| text(ty.ty)).collect();
        let column = |kind, metric| names.iter().position(|&name| name == pprof_name(kind, metric));
        let columns = Kind::ALL.map(|kind| (kind, Metric::ALL.map(|metric| column(kind, metric))));
        if columns.iter().flat_map(|(_, columns)| columns).all(Option::is_none) {
            let found = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
            return Err(PprofError::NoHeap { found: printable_str(found) });
        }
        Ok(Self { message, columns })
    }

    fn profile(&self) -> Result<Profile, PprofError> {
        let message = self.message;
        let owned = |id: i64| printable_str(text(message, id).to_owned());
        let modules: Vec<Module> = message
            .mapping
            .iter()
            .map(|mapping| Module {
                start: mapping.memory_start,
                end: mapping.memory_limit,
                load_bias: mapping.memory_start.wrapping_sub(mapping.file_offset),
                build_id: from_hex(text(message, mapping.build_id)),
                file: 0,
                path: owned(mapping.filename),
                stacks: 0..u32::MAX,
            })
            .collect();
        let mapping_index: HashMap<u64, usize> = message.mapping.iter().enumerate().map(|(i, m)| (m.id, i)).collect();
        let functions: HashMap<u64, &messages::Function> = message.function.iter().map(|f| (f.id, f)).collect();
        let mut locations = Vec::with_capacity(message.location.len());
        for location in &message.location {
            let module = mapping_index.get(&location.mapping_id).copied();
            let mut frames = Vec::with_capacity(location.line.len());
            for (depth, line) in location.line.iter().enumerate() {
                let function = functions
                    .get(&line.function_id)
                    .ok_or_else(|| PprofError::Decode(format!("location {} has a line of no function", location.id)))?;
                let symbol = Some(owned(function.system_name));
                frames.push(Frame {
                    name: owned(function.name),
                    symbol: symbol.filter(|symbol| is_mangled(symbol)).map(Into::into),
                    file: Some(owned(function.filename)).filter(|file| !file.is_empty()),
                    line: u32::try_from(line.line).ok().filter(|&line| line > 0),
                    inlined: depth + 1 < location.line.len(),
                });
            }
            if frames.is_empty() {
                frames.push(Location::placeholder(module.map(|module| &modules[module]), location.address));
            }
            locations.push(Location { address: location.address, module, frames });
        }
        let (sites, thread_names) = self.sites()?;
        Ok(Profile {
            period_bytes: u64::try_from(message.period).unwrap_or(1).max(1),
            exact: message.period <= 1,
            time_realtime_ns: u64::try_from(message.time_nanos).unwrap_or(0),
            duration_ns: u64::try_from(message.duration_nanos).unwrap_or(0),
            comments: message.comment.iter().map(|&id| owned(id)).collect(),
            thread_names,
            peak: None,
            device_peaks: Vec::new(),
            naming: Arc::default(),
            main: modules.first().map(|module| module.path.clone()).unwrap_or_default(),
            modules,
            locations: Arc::new(locations),
            sites,
        })
    }

    /// One site for each stack, and the names of the threads by numbers that are ours.
    fn sites(&self) -> Result<(Vec<Site>, BTreeMap<u32, String>), PprofError> {
        let message = self.message;
        let index: HashMap<u64, usize> = message.location.iter().enumerate().map(|(i, l)| (l.id, i)).collect();
        let mut sites: Vec<Site> = Vec::new();
        let mut held: Vec<(usize, Held)> = Vec::new();
        let mut known: HashMap<(&[u64], Place), usize> = HashMap::new();
        let mut threads: HashMap<&str, u32> = HashMap::new();
        for sample in &message.sample {
            if sample.value.len() != message.sample_type.len() {
                return Err(PprofError::Decode(format!(
                    "a sample has {} values and there are {} types",
                    sample.value.len(),
                    message.sample_type.len()
                )));
            }
            let label = |key: &str| sample.label.iter().find(|label| text(message, label.key) == key);
            let says = |(_, columns): &&(Kind, [Option<usize>; 4])| {
                columns.iter().flatten().any(|&column| sample.value[column] != 0)
            };
            let &(kind, columns) = self.columns.iter().find(says).unwrap_or(&self.columns[0]);
            let device = label("device").and_then(|label| u32::try_from(label.num).ok());
            let place = match (kind, device.unwrap_or(0)) {
                (Kind::Host, _) => Place::Host,
                (Kind::Device, device) => Place::Device(device),
                (Kind::Pinned, device) => Place::Pinned(device),
            };
            let at = match known.get(&(sample.location_id.as_slice(), place)) {
                Some(&at) => at,
                None => {
                    let find = |id: &u64| index.get(id).copied();
                    let locations: Option<Arc<[usize]>> = sample.location_id.iter().map(find).collect();
                    let locations =
                        locations.ok_or_else(|| PprofError::Decode("a sample has no such location".to_owned()))?;
                    sites.push(Site { locations, place, ..Site::default() });
                    known.insert((&sample.location_id, place), sites.len() - 1);
                    sites.len() - 1
                }
            };
            let [in_use_bytes, in_use_objects, allocated_bytes, allocated_objects] =
                columns.map(|column| column.map_or(0.0, |column| sample.value[column] as f64));
            let in_use = Amount { objects: in_use_objects, bytes: in_use_bytes, samples: 0 };
            sites[at].in_use += in_use;
            sites[at].allocated += Amount { objects: allocated_objects, bytes: allocated_bytes, samples: 0 };
            if in_use != Amount::default() {
                let size = label("bytes").and_then(|label| u64::try_from(label.num).ok()).unwrap_or(0);
                let next = threads.len() as u32 + 1;
                let tid = label("thread").map_or(0, |l| *threads.entry(text(message, l.str)).or_insert(next));
                held.push((at, Held { size, tid, amount: in_use }));
            }
        }
        held.sort_by_key(|(at, held)| (*at, held.size, held.tid));
        for of_site in held.chunk_by(|(a, _), (b, _)| a == b) {
            sites[of_site[0].0].held = of_site.iter().map(|(_, held)| *held).collect();
        }
        sites.sort_by(|a, b| b.in_use.bytes.total_cmp(&a.in_use.bytes));
        Ok((sites, threads.into_iter().map(|(name, tid)| (tid, printable_str(name.to_owned()))).collect()))
    }
}

/// A string of the table; one that is not there is empty.
fn text(message: &messages::Profile, id: i64) -> &str {
    usize::try_from(id).ok().and_then(|id| message.string_table.get(id)).map_or("", String::as_str)
}

/// What is no build id is none.
fn from_hex(text: &str) -> Vec<u8> {
    let digits: Option<Vec<u8>> = text.bytes().map(|b| (b as char).to_digit(16).map(|digit| digit as u8)).collect();
    digits.unwrap_or_default().chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::pprof;
    use crate::model::testing;

    fn written(profile: &Profile) -> Vec<u8> {
        let mut bytes = Vec::new();
        pprof::write_pprof(profile, Metric::InUseBytes, &mut bytes).expect("is written");
        bytes
    }

    #[test]
    fn what_was_written_is_read_again() {
        let mut profile = testing::profile(&[("main;a;x", 100.0), ("main;b", 50.0)]);
        profile.thread_names.insert(42, "worker".to_owned());
        profile.comments.push("a comment".to_owned());
        let read = read_pprof(&written(&profile)).expect("is read");
        assert_eq!((read.period_bytes, read.exact, &read.comments), (524_288, false, &profile.comments));
        assert_eq!(read.modules, profile.modules);
        assert_eq!(read.locations, profile.locations);
        let figures = |profile: &Profile| -> Vec<(String, f64, f64, f64, u64)> {
            let of = |s: &Site| (profile.path(s), s.in_use.bytes, s.in_use.objects, s.allocated.bytes, s.held[0].size);
            profile.sites.iter().map(of).collect()
        };
        assert_eq!(figures(&read), figures(&profile));
        assert_eq!(read.thread_names.into_values().collect::<Vec<_>>(), ["worker"]);
    }

    #[test]
    fn what_is_no_heap_profile_is_refused_with_a_reason() {
        let reason = |bytes: &[u8]| read_pprof(bytes).expect_err("is none").to_string();
        assert!(reason(b"hello").starts_with("it is no pprof profile"), "{}", reason(b"hello"));
        assert!(reason(&[0x1f, 0x8b, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]).starts_with("gzip can't unpack it"));
        let whole = written(&testing::profile(&[("main", 8.0)]));
        for len in [5, whole.len() / 2, whole.len() - 1] {
            assert!(reason(&whole[..len]).starts_with("it is cut off"), "{len}: {}", reason(&whole[..len]));
        }
        let mut cpu = messages::Profile { string_table: vec![String::new(), "cpu".to_owned()], ..Default::default() };
        cpu.sample_type.push(messages::ValueType { ty: 1, unit: 0 });
        assert!(reason(&cpu.encode_to_vec()).starts_with("it holds cpu, and none of"));
        cpu.string_table[1] = "inuse_space".to_owned();
        cpu.sample.push(messages::Sample { location_id: vec![9], value: vec![1], label: Vec::new() });
        assert_eq!(reason(&cpu.encode_to_vec()), "it is no pprof profile: a sample has no such location");
        cpu.sample[0].value.clear();
        assert!(reason(&cpu.encode_to_vec()).ends_with("a sample has 0 values and there are 1 types"));
    }
}
