//! Writes a recording: events into columns, columns into blocks.

use std::io::{self, Write};
use std::time::Duration;

use crate::recording::events::call_paths::CallPaths;
use crate::recording::events::functions::Functions;
use crate::recording::events::live_table::LiveTable;
use crate::recording::events::place::{self, HOST_END, Lane};
use crate::recording::events::session::{RecordedModule, Session, Summary};
use crate::recording::file::append::Continuation;
use crate::recording::file::format::{
    BLOCK_EVENTS, BLOCK_FUNCTIONS, BLOCK_HEADER_LEN, BlockHeader, EventColumns, FOOTER_LEN, Kind, Packer, footer, op,
    write_file_header,
};

/// A block of events is written after this time, so that a recorder that is killed loses no more.
pub const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// Writes a recording to `out`, which only ever gets longer. Before the first event nothing is written: a recording
/// without one is none.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    /// What comes before the first block of events, until that is written.
    head: Option<Vec<u8>>,
    packer: Packer,
    columns: EventColumns,
    /// Of the block of events that is next, and of the latest event: the same as long as it has none.
    first_us: u64,
    last_us: u64,
    /// Time of the parts before this one.
    begins_us: u64,
    thread: Option<u32>,
    /// Nodes, stacks and functions that are in the file.
    nodes: usize,
    paths: usize,
    functions: usize,
    /// Bytes written.
    bytes: u64,
    allocs: u64,
    frees: u64,
    since_addresses: u64,
    index: Vec<(u64, BlockHeader)>,
}

impl<W: Write> Writer<W> {
    /// Begins a recording.
    pub fn new(out: W, session: &Session) -> io::Result<Self> {
        let mut head = Vec::new();
        write_file_header(&mut head)?;
        Self::behind(head, out, session, &Continuation::default())
    }

    /// Begins another part of a recording, behind what `before` has found in its file.
    pub fn append(out: W, session: &Session, before: &Continuation) -> io::Result<Self> {
        Self::behind(Vec::new(), out, session, before)
    }

    fn behind(head: Vec<u8>, out: W, session: &Session, before: &Continuation) -> io::Result<Self> {
        let mut writer = Self {
            out,
            head: Some(head),
            packer: Packer::new()?,
            columns: EventColumns::default(),
            first_us: before.time_us,
            last_us: before.time_us,
            begins_us: before.time_us,
            thread: None,
            nodes: 1,
            paths: 1,
            functions: 0,
            bytes: before.offset,
            allocs: 0,
            frees: 0,
            since_addresses: 0,
            index: before.index.clone(),
        };
        writer.json(Kind::Session, &Session { begins_us: before.time_us, ..session.clone() })?;
        Ok(writer)
    }

    /// Bytes of the file so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that the file has at least when it is finished now.
    pub fn bytes_when_finished(&self) -> u64 {
        let columns = (self.columns.ops.len() * 4) as u64;
        self.bytes + columns + (self.index.len() * 32) as u64 + 4096
    }

    /// Allocations and frees so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.allocs, self.frees)
    }

    /// Whether there was no event yet.
    pub fn is_empty(&self) -> bool {
        self.counts() == (0, 0)
    }

    /// Whether anything was written.
    pub fn has_begun(&self) -> bool {
        self.head.is_none()
    }

    #[inline(always)]
    fn op(&mut self, op: u8) {
        self.columns.ops.push(op);
    }

    /// Events that follow are at this time of this part, or at that of the last one if that is later.
    #[inline]
    pub fn time(&mut self, us: u64) {
        let us = self.begins_us + us;
        if us > self.last_us {
            self.op(op::TIME);
            self.columns.times.push(us - self.last_us);
            self.last_us = us;
        }
    }

    /// Events that follow are of this thread.
    #[inline]
    pub fn thread(&mut self, thread: u32) {
        if self.thread != Some(thread) {
            self.thread = Some(thread);
            self.op(op::THREAD);
            self.columns.threads.push(thread);
        }
    }

    /// The event that follows is of a device's memory, if it is.
    #[inline]
    fn lane(&mut self, lane: Option<Lane>) {
        if let Some(Lane { place, stream }) = lane {
            self.op(op::DEVICE);
            self.columns.places.push(place::number(place));
            self.columns.streams.push(stream);
        }
    }

    /// A block is allocated; if it is not followed, it gets no number. Its stack says which memory it is of.
    #[inline(always)]
    pub fn alloc(&mut self, size: u64, stack: u32, followed: bool, lane: Option<Lane>) {
        self.lane(lane);
        self.op(if followed { op::ALLOC } else { op::ALLOC_UNFOLLOWED });
        self.columns.sizes.push(size);
        self.columns.stacks.push(stack);
        self.allocs += 1;
    }

    /// The block with this number is freed, from a stack if stacks of frees were asked for.
    #[inline(always)]
    pub fn free(&mut self, number: u32, stack: Option<u32>, lane: Option<Lane>) {
        self.lane(lane);
        self.op(op::FREE);
        self.columns.numbers.push(number);
        if let Some(stack) = stack {
            self.columns.free_stacks.push(stack);
        }
        self.frees += 1;
    }

    /// A block that is not known is freed.
    pub fn free_unknown(&mut self, stack: Option<u32>, lane: Option<Lane>) {
        self.lane(lane);
        self.op(op::FREE_UNKNOWN);
        self.columns.free_stacks.extend(stack);
        self.frees += 1;
    }

    /// The block with this number was freed by an event that was lost.
    pub fn free_lost(&mut self, number: u32) {
        self.op(op::FREE_LOST);
        self.columns.numbers.push(number);
    }

    /// The block of events is full.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.columns.ops.len() >= BLOCK_EVENTS - 8
    }

    /// Writes out what there is: new stacks, then the events. Times and threads alone are no events.
    pub fn flush(&mut self, paths: &CallPaths) -> io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.stacks(paths)?;
        if self.columns.ops.is_empty() {
            return self.flush_out();
        }
        let (columns, packer) = (&self.columns, &mut self.packer);
        packer.out.clear();
        packer.bytes(&columns.ops)?;
        packer.numbers(columns.sizes.iter().copied())?;
        packer.numbers(columns.stacks.iter().map(|&stack| stack.into()))?;
        packer.numbers(columns.numbers.iter().map(|&number| number.into()))?;
        packer.numbers(columns.free_stacks.iter().map(|&stack| stack.into()))?;
        packer.numbers(columns.times.iter().copied())?;
        packer.numbers(columns.threads.iter().map(|&thread| thread.into()))?;
        packer.numbers(columns.places.iter().copied())?;
        packer.numbers(columns.streams.iter().copied())?;
        let events = columns.ops.len();
        self.block(Kind::Events, events as u32)?;
        self.since_addresses += events as u64;
        self.columns.clear();
        // A block is read by itself.
        self.thread = None;
        self.first_us = self.last_us;
        self.flush_out()
    }

    fn flush_out(&mut self) -> io::Result<()> {
        if self.has_begun() { self.out.flush() } else { Ok(()) }
    }

    fn stacks(&mut self, paths: &CallPaths) -> io::Result<()> {
        self.functions(&paths.functions)?;
        // A million stacks at once are several blocks.
        while self.nodes < paths.nodes().len() || self.paths < paths.paths().len() {
            let nodes = &paths.nodes()[self.nodes..];
            let nodes = &nodes[..nodes.len().min(BLOCK_EVENTS)];
            let all_nodes = self.nodes + nodes.len() == paths.nodes().len();
            // Stacks point at nodes: they come when their nodes are there.
            let known = if all_nodes { &paths.paths()[self.paths..] } else { &[] };
            let known = &known[..known.len().min(BLOCK_EVENTS)];
            let packer = &mut self.packer;
            packer.out.clear();
            packer.numbers(nodes.iter().map(|node| node.parent.into()))?;
            packer.numbers(nodes.iter().map(|node| node.address))?;
            packer.numbers(known.iter().map(|path| path.node.into()))?;
            packer.numbers(known.iter().map(|path| path.flags.into()))?;
            packer.numbers(known.iter().map(|path| place::number(path.place)))?;
            self.nodes += nodes.len();
            self.paths += known.len();
            self.block(Kind::Stacks, 0)?;
        }
        Ok(())
    }

    fn functions(&mut self, functions: &Functions) -> io::Result<()> {
        while self.functions < functions.count() {
            let (mut lens, words) = functions.after(self.functions);
            lens.truncate(BLOCK_FUNCTIONS);
            let words = &words[..lens.iter().sum()];
            let packer = &mut self.packer;
            packer.out.clear();
            packer.numbers(lens.iter().map(|&len| len as u64))?;
            packer.bytes(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())?;
            self.functions += lens.len();
            self.block(Kind::Functions, 0)?;
        }
        Ok(())
    }

    /// Whether so much has happened that it is time to write down where the blocks lie.
    pub fn wants_addresses(&self, live: usize) -> bool {
        self.since_addresses > 16 * live as u64 + (4 << 20)
    }

    /// Writes down where the blocks of host memory lie that are in use. Everything before it is written out first.
    pub fn addresses(&mut self, paths: &CallPaths, live: &LiveTable) -> io::Result<()> {
        self.flush(paths)?;
        self.since_addresses = 0;
        let mut blocks: Vec<(u64, u32)> = live.iter().filter(|&(address, _)| address < HOST_END).collect();
        blocks.sort_unstable();
        for part in blocks.chunks(BLOCK_EVENTS) {
            let packer = &mut self.packer;
            packer.out.clear();
            // One that goes on with the last block's addresses says so.
            packer.numbers(std::iter::once(u64::from(part[0] != blocks[0])))?;
            let before = std::iter::once(0).chain(part.iter().map(|&(address, _)| address >> 4));
            packer.numbers(part.iter().zip(before).map(|(&(address, _), before)| (address >> 4) - before))?;
            packer.numbers(part.iter().map(|&(_, number)| number.into()))?;
            self.block(Kind::Addresses, part.len() as u32)?;
        }
        Ok(())
    }

    /// Writes the list of modules.
    pub fn modules(&mut self, modules: &[RecordedModule]) -> io::Result<()> {
        self.json(Kind::Modules, modules)
    }

    /// Writes what is known of losses and threads so far.
    pub fn summary(&mut self, summary: &Summary) -> io::Result<()> {
        self.json(Kind::Summary, summary)
    }

    /// Ends the file: the index, and where it lies. Without an event nothing is written.
    pub fn finish(mut self) -> io::Result<W> {
        if !self.has_begun() {
            return Ok(self.out);
        }
        let packer = &mut self.packer;
        packer.out.clear();
        packer.numbers(self.index.iter().map(|(offset, _)| *offset))?;
        packer.numbers(self.index.iter().map(|(_, block)| block.kind as u64))?;
        packer.numbers(self.index.iter().map(|(_, block)| block.stored.into()))?;
        packer.numbers(self.index.iter().map(|(_, block)| block.events.into()))?;
        packer.numbers(self.index.iter().map(|(_, block)| block.first_us))?;
        packer.numbers(self.index.iter().map(|(_, block)| block.last_us))?;
        let offset = self.bytes;
        self.block(Kind::Index, 0)?;
        self.out.write_all(&footer(offset))?;
        self.bytes += FOOTER_LEN as u64;
        self.out.flush()?;
        Ok(self.out)
    }

    fn json(&mut self, kind: Kind, value: &(impl serde::Serialize + ?Sized)) -> io::Result<()> {
        let json = serde_json::to_vec(value).map_err(io::Error::other)?;
        self.packer.out.clear();
        self.packer.bytes(&json)?;
        self.block(kind, 0)?;
        self.flush_out()
    }

    /// Writes what was packed as a block, or keeps it for the first block of events.
    fn block(&mut self, kind: Kind, events: u32) -> io::Result<()> {
        let packed = &self.packer.out;
        let header = BlockHeader {
            kind,
            stored: packed.len() as u32,
            events,
            first_us: self.first_us,
            last_us: self.last_us,
            checksum: crc32fast::hash(packed),
        };
        let head = if kind == Kind::Events { self.head.take() } else { None };
        head.map_or(Ok(()), |head| self.out.write_all(&head))?;
        let bytes = header.to_bytes();
        match &mut self.head {
            Some(head) => head.extend(bytes.iter().chain(packed)),
            None => {
                self.out.write_all(&bytes)?;
                self.out.write_all(packed)?;
            }
        }
        self.index.push((self.bytes, header));
        self.bytes += (BLOCK_HEADER_LEN + packed.len()) as u64;
        Ok(())
    }
}
