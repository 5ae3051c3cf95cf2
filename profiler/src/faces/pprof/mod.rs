//! Profiles in the format of `go tool pprof`: gzipped protocol buffers, heap profiles as Go writes them.
//!
//! What `go tool pprof` demands (and where it goes wrong in silence) decides what is written here:
//!
//! - Four sample types in Go's order, values already scaled from the samples. What was allocated is one sample for
//!   each stack; what is in use is one for each stack, size and thread, with the labels `bytes`, as in Go,
//!   and `thread`.
//! - Memory of devices has sample types of its own behind Go's (`gpu_inuse_space`), so that pprof never adds it to the
//!   host's, and the label `device`. A profile without such memory has Go's four types and no others.
//! - The first mapping is the main binary. Every mapping says that it has functions, because every location has a
//!   name, be it `[libfoo.so+0x1234]`: otherwise pprof would look for symbols itself, in files whose build id it
//!   does not always check, and would complain about those that are not there.
//! - A function's system name is its mangled symbol, or nothing. Where it equals the name, pprof takes the name for one
//!   that it has to simplify, and cuts out what stands in angle brackets:
//!   `<A as Maker>::make` and `<B as Maker>::make` were one function.
//! - A location's address is that of the call, which pprof expects for all but its own old text format.

mod messages;
pub mod reader;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::build::pool_frames;
use crate::model::memory::Kind;
use crate::model::of_memory::pprof_name;
use crate::model::profile::{Held, Location, Metric, Profile, Site};
use crate::model::snapshot::Amount;

/// The sample types of one kind of memory, in Go's order.
const SAMPLE_TYPES: [Metric; 4] =
    [Metric::AllocatedObjects, Metric::AllocatedBytes, Metric::InUseObjects, Metric::InUseBytes];

/// Writes a profile, with the figure that is shown where nobody asks for one: in use for a heap profile, allocated for
/// one of allocations. A profile may be a difference, with negative figures.
pub fn write_pprof(profile: &Profile, shown: Metric, out: impl Write) -> io::Result<()> {
    let kinds = profile.sites.iter().map(|site| site.place.kind());
    let mut writer = PprofWriter::new(profile, kinds, shown, out)?;
    writer.add(profile)?;
    writer.finish()
}

/// Sites whose samples are held in memory as messages at a time.
const BATCH: usize = 4096;

/// Writes a profile in parts: parts of a message that are written one after the other are one message, in which
/// repeated fields are joined (protobuf's encoding, "Last One Wins").
/// A million stacks as messages would take a gibibyte.
#[derive(Debug)]
pub struct PprofWriter<W: Write> {
    out: GzEncoder<W>,
    kinds: Vec<Kind>,
    strings: Strings,
    functions: HashMap<[i64; 3], u64>,
    locations: HashMap<Location, u64>,
    mapping: Vec<messages::Mapping>,
    labels: Labels,
}

impl<W: Write> PprofWriter<W> {
    /// Begins a profile. All but its locations and sites is that of `head`; its sites are of these kinds of memory.
    pub fn new(head: &Profile, kinds: impl Iterator<Item = Kind> + Clone, shown: Metric, out: W) -> io::Result<Self> {
        let mut strings = Strings::new();
        let has = |kind: Kind| kinds.clone().any(|of_site| of_site == kind);
        let default = Kind::ALL.into_iter().find(|&kind| has(kind)).unwrap_or_default();
        let kinds: Vec<Kind> = Kind::ALL.into_iter().filter(|&kind| kind == Kind::Host || has(kind)).collect();
        let mut sample_type = Vec::new();
        for &kind in &kinds {
            sample_type.extend(SAMPLE_TYPES.map(|metric| messages::ValueType {
                ty: strings.id(&pprof_name(kind, metric)),
                unit: strings.id(if metric.is_bytes() { "bytes" } else { "count" }),
            }));
        }
        let message = messages::Profile {
            sample_type,
            default_sample_type: strings.id(&pprof_name(default, shown)),
            period_type: Some(messages::ValueType { ty: strings.id("space"), unit: strings.id("bytes") }),
            period: head.period_bytes.clamp(1, i64::MAX as u64) as i64,
            time_nanos: i64::try_from(head.time_realtime_ns).unwrap_or_default(),
            duration_nanos: i64::try_from(head.duration_ns).unwrap_or_default(),
            comment: head.comments.iter().map(|comment| strings.id(comment)).collect(),
            drop_frames: strings.id(&pool_frames::drop_frames()),
            ..messages::Profile::default()
        };
        let mapping = encode_mappings(head, &mut strings);
        let labels = Labels::new(head, &mut strings);
        let out = GzEncoder::new(out, Compression::new(6));
        let (functions, locations) = (HashMap::new(), HashMap::new());
        let mut writer = Self { out, kinds, strings, functions, locations, mapping, labels };
        writer.part(&message)?;
        Ok(writer)
    }

    fn part(&mut self, part: &messages::Profile) -> io::Result<()> {
        self.out.write_all(&part.encode_to_vec())
    }

    /// Adds the sites of a profile with the modules of the first one, and those of its locations that are new.
    pub fn add(&mut self, profile: &Profile) -> io::Result<()> {
        let mut message = messages::Profile::default();
        let ids: Vec<u64> = profile.locations.iter().map(|location| self.location(location, &mut message)).collect();
        self.part(&message)?;
        for sites in profile.sites.chunks(BATCH) {
            let mut samples = messages::Profile::default();
            for site in sites {
                let place = self.kinds.iter().position(|&kind| kind == site.place.kind()).unwrap_or(0);
                let types = self.kinds.len() * SAMPLE_TYPES.len();
                let label = label_of_program(profile.label(site), &mut self.strings);
                let of_site: Vec<messages::Label> =
                    label_of_device(site, &mut self.strings).into_iter().chain(label).collect();
                encode_site(&ids, site, place, types, of_site, &mut self.strings, &mut self.labels, &mut samples);
            }
            self.part(&samples)?;
        }
        Ok(())
    }

    /// Ends the profile.
    pub fn finish(mut self) -> io::Result<()> {
        let mapping = std::mem::take(&mut self.mapping);
        let string_table = std::mem::take(&mut self.strings.table);
        self.part(&messages::Profile { mapping, string_table, ..messages::Profile::default() })?;
        self.out.finish()?.flush()
    }

    /// The number of a location, which is added to `message` if it is new.
    fn location(&mut self, location: &Location, message: &mut messages::Profile) -> u64 {
        if let Some(&known) = self.locations.get(location) {
            return known;
        }
        let id = self.locations.len() as u64 + 1;
        self.locations.insert(location.clone(), id);
        let line = location.frames.iter().map(|frame| {
            let name = self.strings.id(&frame.name);
            let system_name = self.strings.id(frame.symbol.as_deref().unwrap_or_default());
            let filename = self.strings.id(frame.file.as_deref().unwrap_or_default());
            let next = self.functions.len() as u64 + 1;
            let function_id = *self.functions.entry([name, system_name, filename]).or_insert_with(|| {
                message.function.push(messages::Function { id: next, name, system_name, filename, start_line: 0 });
                next
            });
            messages::Line { function_id, line: frame.line.unwrap_or(0).into() }
        });
        let line = line.collect();
        let module = location.module.map_or(0, |module| module as u64 + 1);
        let mapping = self.mapping.iter_mut().find(|mapping| mapping.id == module);
        let mapping_id = mapping.as_ref().map_or(0, |mapping| mapping.id);
        if let Some(mapping) = mapping {
            mapping.has_filenames |= location.frames.iter().any(|frame| frame.file.is_some());
            mapping.has_line_numbers |= location.frames.iter().any(|frame| frame.line.is_some());
            mapping.has_inline_frames |= location.frames.len() > 1;
        }
        message.location.push(messages::Location { id, mapping_id, address: location.address, line, is_folded: false });
        id
    }
}

fn encode_mappings(profile: &Profile, strings: &mut Strings) -> Vec<messages::Mapping> {
    let modules = profile.modules.iter().enumerate().map(|(index, module)| messages::Mapping {
        id: index as u64 + 1,
        memory_start: module.start,
        memory_limit: module.end,
        filename: strings.id(&module.path),
        build_id: strings.id(&module.build_id_hex()),
        has_functions: true,
        ..messages::Mapping::default()
    });
    let mut mapping: Vec<messages::Mapping> = modules.collect();
    // pprof takes the first mapping for the main binary, and warns if there is none. Where no frame is in the main
    // binary, its mapping holds no address.
    if profile.modules.first().is_none_or(|module| !profile.main.is_empty() && module.path != profile.main) {
        let filename = strings.id(if profile.main.is_empty() { "[unknown program]" } else { &profile.main });
        let id = mapping.len() as u64 + 1;
        mapping.insert(0, messages::Mapping { id, filename, has_functions: true, ..messages::Mapping::default() });
    }
    mapping
}

/// The labels of samples of what is in use: the size of the blocks, and the thread that allocated them.
#[derive(Debug)]
struct Labels {
    bytes: i64,
    thread: i64,
    names: BTreeMap<u32, String>,
}

impl Labels {
    fn new(profile: &Profile, strings: &mut Strings) -> Self {
        Self { bytes: strings.id("bytes"), thread: strings.id("thread"), names: profile.thread_names.clone() }
    }

    /// A thread without a name, because it has ended, goes by its number.
    fn of(&mut self, held: &Held, strings: &mut Strings) -> Vec<messages::Label> {
        let name = self.names.get(&held.tid).cloned().unwrap_or_else(|| held.tid.to_string());
        vec![
            messages::Label {
                key: self.bytes,
                num: i64::try_from(held.size).unwrap_or(i64::MAX),
                num_unit: self.bytes,
                ..messages::Label::default()
            },
            messages::Label { key: self.thread, str: strings.id(&name), ..messages::Label::default() },
        ]
    }
}

/// What all samples of a device's memory have: its number. As a number, because pprof takes `-tagfocus=device=1` for
/// one; and with the unit `count`, which pprof doesn't print, because it drops a number 0 without a unit.
fn label_of_device(site: &Site, strings: &mut Strings) -> Option<messages::Label> {
    site.place.device().map(|device| messages::Label {
        key: strings.id("device"),
        num: device.into(),
        num_unit: strings.id("count"),
        ..messages::Label::default()
    })
}

/// The label that the program gave, for `-tagfocus=label=cache`.
fn label_of_program(name: Option<&str>, strings: &mut Strings) -> Option<messages::Label> {
    let (key, str) = (strings.id("label"), strings.id(name?));
    Some(messages::Label { key, str, ..messages::Label::default() })
}

#[allow(clippy::too_many_arguments, reason = "what one sample is made of")]
fn encode_site(
    ids: &[u64],
    site: &Site,
    place: usize,
    types: usize,
    of_site: Vec<messages::Label>,
    strings: &mut Strings,
    labels: &mut Labels,
    message: &mut messages::Profile,
) {
    let location_id: Vec<u64> = site.locations.iter().filter_map(|&index| ids.get(index).copied()).collect();
    let mut push = |figures: [i64; 4], mut label: Vec<messages::Label>| {
        if figures != [0; 4] {
            let mut value = vec![0; types];
            value[4 * place..4 * place + 4].copy_from_slice(&figures);
            label.extend(of_site.clone());
            message.sample.push(messages::Sample { location_id: location_id.clone(), value, label });
        }
    };
    // What was in use at another time, of which nobody knows the blocks, has no labels.
    let apart = if site.held.is_empty() { site.in_use } else { Amount::default() };
    let Amount { objects, bytes, .. } = site.allocated;
    push([objects, bytes, apart.objects, apart.bytes].map(integer), Vec::new());
    let (mut objects, mut bytes) = (Rounded::default(), Rounded::default());
    for held in site.held.iter() {
        let value = [0, 0, objects.add(held.amount.objects), bytes.add(held.amount.bytes)];
        push(value, labels.of(held, strings));
    }
}

/// Rounds the parts of a sum so that they add up to the rounded sum.
#[derive(Default)]
struct Rounded {
    exact: f64,
    given: i64,
}

impl Rounded {
    fn add(&mut self, part: f64) -> i64 {
        self.exact += part;
        let step = integer(self.exact).saturating_sub(self.given);
        self.given = self.given.saturating_add(step);
        step
    }
}

/// Saturates; no number is 0.
fn integer(value: f64) -> i64 {
    value.round() as i64
}

/// The string table; the first string is the empty one.
#[derive(Debug)]
struct Strings {
    table: Vec<String>,
    ids: HashMap<String, i64>,
}

impl Strings {
    fn new() -> Self {
        let mut strings = Self { table: Vec::new(), ids: HashMap::new() };
        strings.id("");
        strings
    }

    fn id(&mut self, text: &str) -> i64 {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = self.table.len() as i64;
        self.table.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Arc;

    use super::*;
    use crate::model::memory::Place;
    use crate::model::testing;

    /// The message that the parts come to.
    fn whole(profile: &Profile, shown: Metric) -> messages::Profile {
        let (mut packed, mut bytes) = (Vec::new(), Vec::new());
        write_pprof(profile, shown, &mut packed).expect("is written");
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).expect("is packed");
        messages::Profile::decode(bytes.as_slice()).expect("is a profile")
    }

    #[test]
    fn parts_add_up_to_the_rounded_sum() {
        let mut rounded = Rounded::default();
        let parts: Vec<i64> = [0.4, 0.4, 0.4, 1e300].into_iter().map(|part| rounded.add(part)).collect();
        assert_eq!(parts[..3], [0, 1, 0]);
        assert_eq!(rounded.given, i64::MAX);
        assert_eq!(integer(f64::NAN), 0);
    }

    #[test]
    fn every_sample_has_four_values_and_every_reference_exists() {
        let message = whole(&testing::profile(&[("main;a", 100.0), ("main;b", 50.0)]), Metric::InUseBytes);
        assert_eq!(message.string_table[0], "");
        let types: Vec<&str> =
            message.sample_type.iter().map(|ty| message.string_table[ty.ty as usize].as_str()).collect();
        assert_eq!(types, ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]);
        assert_eq!(message.sample.len(), 4);
        for sample in &message.sample {
            assert_eq!(sample.value.len(), 4);
            assert!(sample.location_id.iter().all(|id| message.location.iter().any(|location| location.id == *id)));
        }
        for line in message.location.iter().flat_map(|location| &location.line) {
            assert!(message.function.iter().any(|function| function.id == line.function_id));
        }
        let bytes: i64 = message.sample.iter().map(|sample| sample.value[3]).sum();
        assert_eq!(bytes, 150);
    }

    #[test]
    fn memory_of_devices_has_types_and_a_label_of_its_own() {
        let mut profile = testing::profile(&[("main;a", 100.0), ("main;a", 64.0), ("main;a", 32.0)]);
        profile.sites[1].place = Place::Device(1);
        profile.sites[2].place = Place::Pinned(0);
        let message = whole(&profile, Metric::InUseBytes);
        let text = |id: i64| message.string_table[id as usize].as_str();
        let types: Vec<&str> = message.sample_type.iter().map(|ty| text(ty.ty)).collect();
        assert_eq!(
            types[3..8],
            ["inuse_space", "gpu_alloc_objects", "gpu_alloc_space", "gpu_inuse_objects", "gpu_inuse_space"]
        );
        assert_eq!(
            (types.len(), types[11], text(message.default_sample_type)),
            (12, "pinned_inuse_space", "inuse_space")
        );
        let in_use = |at: usize| message.sample.iter().map(|sample| sample.value[at]).sum::<i64>();
        assert_eq!((in_use(3), in_use(7), in_use(11)), (100, 64, 32));
        for sample in &message.sample {
            let device = sample.label.iter().find(|label| text(label.key) == "device").map(|label| label.num);
            let pinned = sample.value[8..].iter().any(|value| *value != 0);
            let expected = if sample.value[4..8] != [0; 4] { Some(1) } else { pinned.then_some(0) };
            assert_eq!(device, expected, "{:?}", sample.value);
        }
        profile.sites.remove(0);
        let message = whole(&profile, Metric::InUseBytes);
        let default = &message.string_table[message.default_sample_type as usize];
        assert_eq!(default, "gpu_inuse_space", "there is no host memory to show");
    }

    #[test]
    fn a_site_without_sizes_still_has_its_figures() {
        let mut profile = testing::profile(&[("main", 8.0)]);
        profile.sites[0].held = Arc::default();
        let message = whole(&profile, Metric::InUseBytes);
        let values: Vec<&[i64]> = message.sample.iter().map(|sample| sample.value.as_slice()).collect();
        assert_eq!(values, [[2, 16, 1, 8]]);
    }
}
