//! Segments made by hand, and the binary under test.

#![allow(dead_code)] // Each test binary uses a part of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use poolscope_wire::{
    ClassCounter, ClassRecord, HEADER_LEN, Header, LiveRecord, MAGIC, ModuleRecord, OBJECT_ONE, Region, RegionEntry,
    StackRecord, TIER_COUNTERS, TierCounter, VERSION, kind, state,
};

/// A folder that is removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    /// A fresh folder.
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("poolscope-tui-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The binary, with this folder for segments and nothing else from the environment that could matter.
pub fn poolscope(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolscope"));
    command.env("POOLSCOPE_DIR", folder).env_remove("POOLSCOPE_LIB").env_remove("LD_PRELOAD");
    command
}

/// A shared library that does no harm when it is preloaded: it stands for the pool where only the start matters.
pub fn some_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libc = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6")).expect("glibc");
    PathBuf::from(libc)
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes the segment of a process that exited and kept it: two stacks, 96 MiB and 4 MiB in use.
pub fn write_segment(folder: &Path, pid: u32) -> PathBuf {
    let classes = [(64u32, 65_536u32, 4u64), (1024, 1 << 20, 96)].map(|(block_bytes, slab_bytes, mib)| {
        let mut record =
            ClassRecord { block_bytes, slab_bytes, slab_blocks: slab_bytes / block_bytes, ..ClassRecord::ZERO };
        let blocks = (mib << 20) / u64::from(block_bytes);
        for (counter, value) in [
            (ClassCounter::SlabsTaken, (mib << 20) / u64::from(slab_bytes)),
            (ClassCounter::SampledAllocs, 2 * blocks),
            (ClassCounter::SharedFrees, blocks),
        ] {
            record.shared[counter as usize] = value;
        }
        record.to_bytes()
    });
    let mut tiers = vec![0u64; TIER_COUNTERS.len()];
    tiers[TierCounter::Samples as usize] = 4242;
    tiers[TierCounter::SlabBytes as usize] = 128 << 20;
    let mut module = ModuleRecord { start: 0x1000, end: 0x10_0000, load_bias: 0x1000, ..ModuleRecord::ZERO };
    module.last_stack = u32::MAX;
    let path = b"/nonexistent/kvserver";
    module.path[..path.len()].copy_from_slice(path);
    module.path_len = path.len() as u16;
    let amounts: [(u64, u64); 2] = [(96, 1024), (4, 64)];
    let stacks: Vec<u8> = amounts
        .iter()
        .enumerate()
        .flat_map(|(i, &(mib, size))| {
            let bytes = mib << 20;
            StackRecord {
                hash: 1 + i as u64,
                first_frame: 2 * i as u32,
                depth: 2,
                flags_and_kind: StackRecord::describe(0, kind::HOST, 0),
                alloc_samples: 200,
                alloc_objects: 2 * bytes / size * OBJECT_ONE,
                alloc_bytes: 2 * bytes,
                free_samples: 100,
                free_objects: bytes / size * OBJECT_ONE,
                free_bytes: bytes,
            }
            .to_bytes()
        })
        .collect();
    let live: Vec<u8> = amounts
        .iter()
        .enumerate()
        .flat_map(|(i, &(mib, size))| {
            // One sample a MiB.
            (0..mib).flat_map(move |n| {
                LiveRecord {
                    seq: 2,
                    stack: i as u32,
                    address: 0x7000_0000 + (n << 20),
                    size,
                    weight: (1 << 20) / size * OBJECT_ONE,
                    time_ns: 1,
                    tid: pid,
                    kind: kind::HOST,
                    ..LiveRecord::ZERO
                }
                .to_bytes()
            })
        })
        .collect();
    let frames: Vec<u8> = [0x2001u64, 0x3001, 0x4001, 0x3001].iter().flat_map(|f| f.to_le_bytes()).collect();
    let contents: [(Region, Vec<u8>); 10] = [
        (Region::Tiers, tiers.iter().flat_map(|t| t.to_le_bytes()).collect()),
        (Region::Classes, classes.concat()),
        (Region::Threads, Vec::new()),
        (Region::Stacks, stacks),
        (Region::Frames, frames),
        (Region::Modules, module.to_bytes().to_vec()),
        (Region::Live, live),
        (Region::Devices, Vec::new()),
        (Region::DeviceMaps, Vec::new()),
        (Region::Peaks, Vec::new()),
    ];

    let mut header = Header {
        magic: MAGIC,
        version: VERSION,
        header_len: HEADER_LEN as u32,
        state: state::EXITED,
        pid,
        generation: 0xfeed,
        start_ticks: 1,
        start_realtime_ns: 1_790_000_000_000_000_000,
        start_monotonic_ns: 1,
        period_bytes: 512 * 1024,
        ..Header::ZERO
    };
    let exe = b"/opt/kv/kvserver";
    header.exe[..exe.len()].copy_from_slice(exe);
    header.exe_len = exe.len() as u32;
    let cmdline = b"kvserver\0--port\x007000\0";
    header.cmdline[..cmdline.len()].copy_from_slice(cmdline);
    header.cmdline_len = cmdline.len() as u32;
    let mut body = Vec::new();
    for (region, bytes) in contents {
        let offset = (HEADER_LEN + body.len()) as u64;
        body.extend_from_slice(&bytes);
        body.resize(body.len().next_multiple_of(4096), 0);
        let room = (HEADER_LEN + body.len()) as u64 - offset;
        header.regions[region as usize] = RegionEntry {
            offset,
            capacity: room,
            committed: room,
            count: (bytes.len() / region.record_len()) as u64,
            record_len: region.record_len() as u32,
            reserved: 0,
        };
    }
    let path = folder.join(format!("{pid}.{:016x}", 0xfeed));
    fs::write(&path, [header.to_bytes().to_vec(), body].concat()).unwrap();
    path
}
