//! A folder of segments of a test's own, and programs that run on the pool with it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use poolscope_wire::{HEADER_LEN, Header, HeaderError, LiveRecord, Region, StackRecord, kind};

use crate::{Program, Scratch, library, poolscope};

/// A test's pool.
#[derive(Debug)]
pub struct Pool {
    scratch: Scratch,
    segments: Scratch,
}

impl Default for Pool {
    fn default() -> Self {
        Self::new()
    }
}

impl Pool {
    /// An empty folder for segments, and one for the test's files.
    pub fn new() -> Pool {
        Pool { scratch: Scratch::new(), segments: Scratch::in_shared_memory() }
    }

    /// The folder for the test's files.
    pub fn files(&self) -> &Scratch {
        &self.scratch
    }

    /// `POOLSCOPE_DIR` of the programs.
    pub fn segment_dir(&self) -> PathBuf {
        self.segments.path().to_owned()
    }

    /// A program under `LD_PRELOAD`; its segment stays after its end.
    pub fn program(&self, program: impl AsRef<std::ffi::OsStr>) -> Program {
        Program::new(program)
            .env("LD_PRELOAD", library())
            .env("POOLSCOPE_DIR", self.segment_dir())
            .env("POOLSCOPE_KEEP", "1")
            .dir(self.scratch.path())
    }

    /// The command, which looks into the same folder. It does not run on the pool itself.
    pub fn poolscope(&self) -> Program {
        Program::new(poolscope())
            .env("POOLSCOPE_DIR", self.segment_dir())
            .env("XDG_CACHE_HOME", self.scratch.path().join("cache"))
            .dir(self.scratch.path())
    }

    /// What a command that writes JSON says.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> serde_json::Value {
        let text = self.poolscope().args(args).run().success().stdout;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// All segments that lie in the folder.
    pub fn segments(&self) -> Vec<Segment> {
        let entries = std::fs::read_dir(self.segment_dir()).expect("the folder of segments is readable");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry is readable").path()).collect();
        paths.sort();
        paths.iter().filter_map(|path| Segment::open(path)).collect()
    }

    /// The segment of one process.
    pub fn segment(&self, pid: u32) -> Option<Segment> {
        self.segments().into_iter().rfind(|segment| segment.header.pid == pid)
    }

    /// Fails unless an executable with this file name ran on the pool: it left its segment.
    #[track_caller]
    pub fn assert_ran(&self, name: &str) {
        let ran: Vec<_> = self.segments().iter().map(Segment::executable).collect();
        let found = ran.iter().any(|path| path.rsplit('/').next().is_some_and(|file| file.starts_with(name)));
        assert!(found, "no segment of {name}: it did not run on the pool; those that did: {ran:?}");
    }
}

/// A segment's file, open.
#[derive(Debug)]
pub struct Segment {
    /// The file.
    pub path: PathBuf,
    /// Its first page.
    pub header: Header,
    file: File,
}

impl Segment {
    /// `None` if it is gone, or not complete yet; fails on one that readers would refuse.
    #[track_caller]
    pub fn open(path: &Path) -> Option<Segment> {
        let file = File::open(path).ok()?;
        let mut page = [0; HEADER_LEN];
        file.read_exact_at(&mut page, 0).ok()?;
        match Header::parse(&page, file.metadata().ok()?.len()) {
            Ok(header) => Some(Segment { path: path.to_owned(), header, file }),
            Err(HeaderError::NotASegment | HeaderError::TooShort { .. }) => None,
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }

    /// Path of the program.
    pub fn executable(&self) -> String {
        String::from_utf8_lossy(&self.header.exe[..self.header.exe_len as usize]).into_owned()
    }

    /// Samples ever taken, by the totals of all stacks.
    pub fn samples(&self) -> u64 {
        self.sum(|stack| stack.alloc_samples)
    }

    /// Estimate of the bytes ever allocated, by the totals of all stacks.
    pub fn allocated_bytes(&self) -> u64 {
        self.sum(|stack| stack.alloc_bytes)
    }

    /// Estimate of the bytes in use, by the totals of all stacks.
    pub fn in_use_bytes(&self) -> u64 {
        self.sum(|stack| stack.alloc_bytes - stack.free_bytes)
    }

    /// The records of sampled blocks that are in use.
    pub fn live(&self) -> Vec<LiveRecord> {
        let live = self.used(Region::Live, LiveRecord::LEN);
        let records = live.chunks_exact(LiveRecord::LEN).filter_map(LiveRecord::from_bytes);
        records.filter(|record| record.kind != kind::NONE).collect()
    }

    fn sum(&self, of: impl Fn(StackRecord) -> u64) -> u64 {
        let stacks = self.used(Region::Stacks, StackRecord::LEN);
        let records = stacks.chunks_exact(StackRecord::LEN).filter_map(StackRecord::from_bytes);
        records.map(of).sum()
    }

    /// The used part of a region, whose records have so many bytes.
    fn used(&self, region: Region, len: usize) -> Vec<u8> {
        let region = self.header.region(region);
        let mut used = vec![0; region.count as usize * len];
        self.file.read_exact_at(&mut used, region.offset).expect("a used part of the segment is readable");
        used
    }
}
