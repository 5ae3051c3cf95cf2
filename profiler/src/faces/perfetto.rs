//! Profiles as a trace of Perfetto (protos/perfetto/trace/profiling/profile_packet.proto), as heapprofd writes them:
//! the host's heap is one, and that of each device another one of the same process.
//!
//! Frames are by name, with their source; callstacks are from the outermost function on.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use prost::Message;

use crate::model::memory::Place;
use crate::model::profile::Profile;

/// The one writer of the trace's packets.
const SEQUENCE: u32 = 1;
/// What was interned on the sequence before does not count.
const CLEARED: u32 = 1;

/// Writes all sites as heaps of one process.
pub fn write_perfetto(profile: &Profile, command: &str, pid: u32, mut out: impl Write) -> io::Result<()> {
    let mut interned = Interned::default();
    let mapping = interned.mapping(&profile.main);
    let mut heaps: BTreeMap<Place, Vec<HeapSample>> = BTreeMap::new();
    let whole = |value: f64| value.round().max(0.0) as u64;
    for site in &profile.sites {
        let frames = profile.frames(site).rev().map(|frame| {
            interned.frame(&frame.name, frame.file.as_deref().unwrap_or_default(), frame.line.unwrap_or(0), mapping)
        });
        let frames: Vec<u64> = frames.collect();
        let (allocated, objects) = (site.allocated.bytes.max(site.in_use.bytes), site.allocated.objects);
        heaps.entry(site.place).or_default().push(HeapSample {
            callstack_id: interned.callstack(frames),
            self_allocated: whole(allocated),
            self_freed: whole(allocated) - whole(site.in_use.bytes).min(whole(allocated)),
            alloc_count: whole(objects.max(site.in_use.objects)),
            free_count: whole(objects - site.in_use.objects),
        });
    }
    let time = profile.time_realtime_ns;
    let dumps = heaps.into_iter().map(|(place, samples)| ProcessHeapSamples {
        pid: pid.into(),
        from_startup: true,
        heap_name: match place {
            Place::Host => "host".to_owned(),
            Place::Device(device) => format!("device {device}"),
            Place::Pinned(device) => format!("pinned {device}"),
        },
        sampling_interval_bytes: profile.period_bytes.max(1),
        timestamp: time,
        samples,
    });
    let processes =
        ProcessTree { processes: vec![Process { pid: pid as i32, ppid: 0, cmdline: vec![command.to_owned()] }] };
    let packet = |packet: TracePacket| TracePacket { timestamp: time, trusted_packet_sequence_id: SEQUENCE, ..packet };
    let trace = Trace {
        packet: vec![
            packet(TracePacket { process_tree: Some(processes), sequence_flags: CLEARED, ..TracePacket::default() }),
            packet(TracePacket { interned_data: Some(interned.data), ..TracePacket::default() }),
            packet(TracePacket {
                profile_packet: Some(ProfilePacket { process_dumps: dumps.collect() }),
                ..TracePacket::default()
            }),
        ],
    };
    out.write_all(&trace.encode_to_vec())?;
    out.flush()
}

/// What packets refer to by number.
#[derive(Default)]
struct Interned {
    data: InternedData,
    names: HashMap<String, u64>,
    sources: HashMap<String, u64>,
    frames: HashMap<(u64, u64, u32), u64>,
    callstacks: HashMap<Vec<u64>, u64>,
}

fn text(table: &mut Vec<InternedString>, known: &mut HashMap<String, u64>, text: &str) -> u64 {
    *known.entry(text.to_owned()).or_insert_with(|| {
        let iid = table.len() as u64 + 1;
        table.push(InternedString { iid, str: text.as_bytes().to_vec() });
        iid
    })
}

impl Interned {
    /// Each frame lies in a mapping: all in that of the program.
    fn mapping(&mut self, path: &str) -> u64 {
        self.data.mapping_paths.push(InternedString { iid: 1, str: path.as_bytes().to_vec() });
        self.data.build_ids.push(InternedString { iid: 1, str: Vec::new() });
        self.data.mappings.push(Mapping { iid: 1, build_id: 1, start: 0, end: u64::MAX, path_string_ids: vec![1] });
        1
    }

    fn frame(&mut self, name: &str, file: &str, line: u32, mapping_id: u64) -> u64 {
        let function_name_id = text(&mut self.data.function_names, &mut self.names, name);
        let source_path_iid =
            if file.is_empty() { 0 } else { text(&mut self.data.source_paths, &mut self.sources, file) };
        let Self { data, frames, .. } = self;
        *frames.entry((function_name_id, source_path_iid, line)).or_insert_with(|| {
            let iid = data.frames.len() as u64 + 1;
            // Frames of one mapping are told apart by their place in it.
            let rel_pc = iid;
            data.frames.push(Frame { iid, function_name_id, mapping_id, rel_pc, source_path_iid, line_number: line });
            iid
        })
    }

    fn callstack(&mut self, frame_ids: Vec<u64>) -> u64 {
        let Self { data, callstacks, .. } = self;
        *callstacks.entry(frame_ids).or_insert_with_key(|frame_ids| {
            let iid = data.callstacks.len() as u64 + 1;
            data.callstacks.push(Callstack { iid, frame_ids: frame_ids.clone() });
            iid
        })
    }
}

#[derive(Clone, PartialEq, Message)]
struct Trace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<TracePacket>,
}

#[derive(Clone, PartialEq, Message)]
struct TracePacket {
    #[prost(uint64, tag = "8")]
    timestamp: u64,
    #[prost(uint32, tag = "10")]
    trusted_packet_sequence_id: u32,
    #[prost(uint32, tag = "13")]
    sequence_flags: u32,
    #[prost(message, optional, tag = "2")]
    process_tree: Option<ProcessTree>,
    #[prost(message, optional, tag = "12")]
    interned_data: Option<InternedData>,
    #[prost(message, optional, tag = "37")]
    profile_packet: Option<ProfilePacket>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    processes: Vec<Process>,
}

#[derive(Clone, PartialEq, Message)]
struct Process {
    #[prost(int32, tag = "1")]
    pid: i32,
    #[prost(int32, tag = "2")]
    ppid: i32,
    #[prost(string, repeated, tag = "3")]
    cmdline: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct InternedData {
    #[prost(message, repeated, tag = "5")]
    function_names: Vec<InternedString>,
    #[prost(message, repeated, tag = "6")]
    frames: Vec<Frame>,
    #[prost(message, repeated, tag = "7")]
    callstacks: Vec<Callstack>,
    #[prost(message, repeated, tag = "16")]
    build_ids: Vec<InternedString>,
    #[prost(message, repeated, tag = "17")]
    mapping_paths: Vec<InternedString>,
    #[prost(message, repeated, tag = "18")]
    source_paths: Vec<InternedString>,
    #[prost(message, repeated, tag = "19")]
    mappings: Vec<Mapping>,
}

#[derive(Clone, PartialEq, Message)]
struct InternedString {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(bytes = "vec", tag = "2")]
    str: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Frame {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(uint64, tag = "2")]
    function_name_id: u64,
    #[prost(uint64, tag = "3")]
    mapping_id: u64,
    #[prost(uint64, tag = "4")]
    rel_pc: u64,
    #[prost(uint64, tag = "5")]
    source_path_iid: u64,
    #[prost(uint32, tag = "6")]
    line_number: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Callstack {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    frame_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    iid: u64,
    #[prost(uint64, tag = "2")]
    build_id: u64,
    #[prost(uint64, tag = "4")]
    start: u64,
    #[prost(uint64, tag = "5")]
    end: u64,
    #[prost(uint64, repeated, packed = "false", tag = "7")]
    path_string_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct ProfilePacket {
    #[prost(message, repeated, tag = "5")]
    process_dumps: Vec<ProcessHeapSamples>,
}

#[derive(Clone, PartialEq, Message)]
struct ProcessHeapSamples {
    #[prost(uint64, tag = "1")]
    pid: u64,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<HeapSample>,
    #[prost(bool, tag = "3")]
    from_startup: bool,
    #[prost(uint64, tag = "9")]
    timestamp: u64,
    #[prost(string, tag = "11")]
    heap_name: String,
    #[prost(uint64, tag = "12")]
    sampling_interval_bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
struct HeapSample {
    #[prost(uint64, tag = "1")]
    callstack_id: u64,
    #[prost(uint64, tag = "2")]
    self_allocated: u64,
    #[prost(uint64, tag = "3")]
    self_freed: u64,
    #[prost(uint64, tag = "5")]
    alloc_count: u64,
    #[prost(uint64, tag = "6")]
    free_count: u64,
}
