//! Goes through a recording's events in order, with the blocks that are in use at each moment.

use super::call_paths::{Node, Path};
use super::format::{EventColumns, op};
use super::live_table::MAX_BLOCKS;
use super::reader::{Block, RecordingError, RecordingReader, Tail};
use super::session::{RecordedModule, Summary};

/// A block that is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Bytes asked for.
    pub size: u64,
    /// Its stack.
    pub stack: u32,
    /// The thread that allocated it, as an index into [`Summary::threads`]; `u32::MAX` in a number that nobody has.
    pub thread: u32,
    /// When, microseconds since the start.
    pub time_us: u64,
    /// The allocating thread's allocations before it.
    pub order: u64,
}

const NOBODY: u32 = u32::MAX;

/// What the events up to some moment come to.
#[derive(Debug, Default)]
pub struct State {
    /// By number; those with [`NOBODY`]'s thread are not in use.
    blocks: Vec<InUse>,
    given_back: Vec<u32>,
    /// Time, microseconds since the start.
    pub time_us: u64,
    /// Events so far.
    pub events: u64,
    /// Bytes in use.
    pub bytes: u64,
    /// Blocks in use.
    pub objects: u64,
    /// The thread of the latest event.
    pub thread: u32,
    /// Allocations of each thread.
    orders: Vec<u64>,
}

impl State {
    /// The blocks in use, with their numbers.
    pub fn in_use(&self) -> impl Iterator<Item = (u32, &InUse)> {
        self.blocks.iter().enumerate().filter(|(_, block)| block.thread != NOBODY).map(|(n, block)| (n as u32, block))
    }

    /// The block with a number.
    pub fn block(&self, number: u32) -> Option<&InUse> {
        self.blocks.get(number as usize).filter(|block| block.thread != NOBODY)
    }

    /// Allocations of a thread so far.
    pub fn order(&self, thread: u32) -> u64 {
        self.orders.get(thread as usize).copied().unwrap_or(0)
    }
}

/// What happens, as [`Replay::run`] tells it: after it was applied to the state.
#[derive(Clone, Copy, Debug)]
pub enum Happening<'a> {
    /// A block was allocated.
    Alloc(&'a InUse),
    /// One was allocated that is not followed: it never counts as in use.
    Unfollowed(&'a InUse),
    /// A block was freed.
    Free(&'a InUse),
    /// A block was freed by an event that was lost.
    FreeLost(&'a InUse),
    /// A block was freed whose allocation is not in the recording.
    FreeUnknown,
}

/// What a whole recording says besides its events.
#[derive(Debug, Default)]
pub struct Replay {
    /// Nodes of the call tree.
    pub nodes: Vec<Node>,
    /// Stacks.
    pub paths: Vec<Path>,
    /// The latest list of modules.
    pub modules: Vec<RecordedModule>,
    /// The latest summary.
    pub summary: Summary,
    /// Where blocks lay when that was last written down before the end of the replay, and how many events came before it.
    pub addresses: Vec<(u64, u32)>,
    /// Events before `addresses` were written down.
    pub addresses_at: u64,
    /// How the file ends.
    pub tail: Tail,
    /// The state at the end of the replay.
    pub state: State,
}

impl Replay {
    /// Goes through all events up to a time, in microseconds since the start. `each` is told of every allocation and free, with the state after it, and says whether
    /// to go on.
    pub fn run(
        reader: &mut RecordingReader,
        until_us: u64,
        mut each: impl FnMut(&State, Happening<'_>) -> bool,
    ) -> Result<Replay, RecordingError> {
        reader.rewind()?;
        let mut replay = Replay {
            nodes: vec![Node { parent: 0, address: 0 }],
            paths: vec![Path { node: 0, flags: 0 }],
            ..Replay::default()
        };
        let mut goes_on = true;
        while let Some(block) = reader.next_block()? {
            match block {
                Block::Stacks { nodes, paths } => {
                    replay.nodes.extend(nodes);
                    replay.paths.extend(paths);
                }
                // Modules and the last summary hold for everything before them, too.
                Block::Modules(modules) => replay.modules = modules,
                Block::Summary(summary) => replay.summary = *summary,
                Block::Addresses { goes_on: more, blocks } if goes_on => {
                    if !more {
                        replay.addresses.clear();
                        replay.addresses_at = replay.state.events;
                    }
                    replay.addresses.extend(blocks);
                }
                Block::Events(columns) if goes_on => match replay.state.apply(&columns, until_us, &mut each) {
                    Some(go_on) => goes_on = go_on,
                    None => return Err(reader.damaged("more blocks are in use than a recorder follows")),
                },
                Block::Addresses { .. } | Block::Events(_) => {}
            }
        }
        replay.tail = reader.tail();
        Ok(replay)
    }
}

impl State {
    /// Applies a block of events; false if it was to stop, none if there are more blocks than any recording has.
    fn apply(
        &mut self,
        columns: &EventColumns,
        until_us: u64,
        each: &mut impl FnMut(&State, Happening<'_>) -> bool,
    ) -> Option<bool> {
        let (mut sizes, mut stacks) = (columns.sizes.iter(), columns.stacks.iter());
        let (mut numbers, mut times, mut threads) =
            (columns.numbers.iter(), columns.times.iter(), columns.threads.iter());
        for &op in &columns.ops {
            let go_on = match op {
                op::TIME => {
                    let time_us = self.time_us.saturating_add(times.next().copied().unwrap_or(0));
                    if time_us > until_us {
                        return Some(false);
                    }
                    self.time_us = time_us;
                    continue;
                }
                op::THREAD => {
                    self.thread = threads.next().copied().unwrap_or(0).min(NOBODY - 1);
                    continue;
                }
                op::ALLOC | op::ALLOC_UNFOLLOWED => {
                    let thread = self.thread as usize;
                    // More threads than this are one in the figures that go by their order.
                    let slot = thread.min(1 << 16);
                    if self.orders.len() <= slot {
                        self.orders.resize(slot + 1, 0);
                    }
                    let block = InUse {
                        size: sizes.next().copied().unwrap_or(0),
                        stack: stacks.next().copied().unwrap_or(0),
                        thread: self.thread,
                        time_us: self.time_us,
                        order: self.orders[slot],
                    };
                    self.orders[slot] += 1;
                    self.events += 1;
                    if op == op::ALLOC {
                        self.insert(block);
                        each(self, Happening::Alloc(&block))
                    } else {
                        each(self, Happening::Unfollowed(&block))
                    }
                }
                op::FREE | op::FREE_LOST => {
                    let number = numbers.next().copied().unwrap_or(0);
                    self.events += 1;
                    match self.remove(number) {
                        Some(block) if op == op::FREE => each(self, Happening::Free(&block)),
                        Some(block) => each(self, Happening::FreeLost(&block)),
                        None => true,
                    }
                }
                _ => {
                    self.events += 1;
                    each(self, Happening::FreeUnknown)
                }
            };
            if !go_on {
                return Some(false);
            }
        }
        (self.blocks.len() <= MAX_BLOCKS).then_some(true)
    }

    fn insert(&mut self, block: InUse) {
        self.bytes = self.bytes.saturating_add(block.size);
        self.objects += 1;
        match self.given_back.pop() {
            Some(number) => self.blocks[number as usize] = block,
            None => self.blocks.push(block),
        }
    }

    fn remove(&mut self, number: u32) -> Option<InUse> {
        let place = self.blocks.get_mut(number as usize).filter(|block| block.thread != NOBODY)?;
        let block = std::mem::replace(place, InUse { thread: NOBODY, ..InUse::default() });
        self.given_back.push(number);
        self.bytes = self.bytes.saturating_sub(block.size);
        self.objects -= 1;
        Some(block)
    }
}
