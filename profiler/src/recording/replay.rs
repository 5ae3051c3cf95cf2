//! Goes through a recording's events in order, with the blocks that are in use at each moment.

use super::call_paths::{Node, Path, UNKNOWN};
use super::format::{EventColumns, op};
use super::live_table::MAX_BLOCKS;
use super::reader::{Block, RecordingError, RecordingReader, Tail};
use super::session::{RecordedModule, Session, Summary};

/// A block that is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Bytes asked for.
    pub size: u64,
    /// Its stack.
    pub stack: u32,
    /// The thread that allocated it, as an index into the threads of [`Replay::summary`]; `u32::MAX` in a number that nobody has.
    pub thread: u32,
    /// When, microseconds since the start.
    pub time_us: u64,
    /// The allocating thread's allocations before it.
    pub order: u64,
}

const NOBODY: u32 = u32::MAX;
/// Threads that are told apart, in all parts; those that come later are one.
pub const MOST_THREADS: u32 = 1 << 16;

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
    /// The part of the latest event, as an index into [`Replay::parts`].
    pub part: usize,
    /// Threads and stacks of the parts before this one.
    first_thread: u32,
    first_stack: u32,
    /// Threads of all parts so far.
    threads: u32,
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
    /// A block was freed; the stack that freed it, if it is in the recording.
    Free(&'a InUse, Option<u32>),
    /// A block was freed by an event that was lost.
    FreeLost(&'a InUse),
    /// A block was freed whose allocation is not in the recording; the stack that freed it.
    FreeUnknown(Option<u32>),
}

/// A part of a recording: a process, from when it was recorded until it was not.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Whose recording it is.
    pub session: Session,
    /// The latest list of modules; stacks are numbered within the part.
    pub modules: Vec<RecordedModule>,
    /// The latest summary.
    pub summary: Summary,
    /// Stacks, and threads, of the parts before it.
    pub first_stack: u32,
    /// Threads of the parts before it.
    pub first_thread: u32,
}

/// What a whole recording says besides its events.
///
/// Stacks and threads of all parts are numbered one after the other; [`UNKNOWN`](super::call_paths::UNKNOWN) is one for all.
#[derive(Debug, Default)]
pub struct Replay {
    /// Nodes of the call tree.
    pub nodes: Vec<Node>,
    /// Stacks.
    pub paths: Vec<Path>,
    /// Its parts; there is one at least.
    pub parts: Vec<Part>,
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
    /// Goes through all events up to a time, in microseconds since the start. `each` is told of every allocation and free,
    /// with the state after it, and says whether to go on.
    pub fn run(
        reader: &mut RecordingReader,
        until_us: u64,
        mut each: impl FnMut(&State, Happening<'_>) -> bool,
    ) -> Result<Replay, RecordingError> {
        reader.rewind()?;
        let mut replay = Replay {
            nodes: vec![Node { parent: 0, address: 0 }],
            paths: vec![Path { node: 0, flags: 0 }],
            parts: vec![Part { session: reader.session().clone(), ..Part::default() }],
            ..Replay::default()
        };
        let mut goes_on = true;
        let mut first_node = 0;
        while let Some(block) = reader.next_block()? {
            let at = replay.parts.len() - 1;
            let part = &mut replay.parts[at];
            match block {
                Block::Part(session) => {
                    goes_on &= session.begins_us < until_us;
                    first_node = replay.nodes.len() as u32 - 1;
                    let named = part.first_thread + part.summary.threads.len() as u32;
                    let first_thread = replay.state.threads.max(named).min(MOST_THREADS);
                    let first_stack = replay.paths.len() as u32 - 1;
                    replay.parts.push(Part { session: *session, first_stack, first_thread, ..Part::default() });
                    if goes_on {
                        replay.addresses.clear();
                        replay.state.begin_part(at + 1, &replay.parts[at + 1]);
                    }
                }
                Block::Stacks { nodes, paths } => {
                    let moved = |node: u32| if node == 0 { 0 } else { node + first_node };
                    let nodes = nodes.into_iter().map(|node| Node { parent: moved(node.parent), ..node });
                    replay.nodes.extend(nodes);
                    replay.paths.extend(paths.into_iter().map(|path| Path { node: moved(path.node), ..path }));
                }
                // Modules and the last summary hold for everything before them, too.
                Block::Modules(modules) => part.modules = modules,
                Block::Summary(summary) => part.summary = *summary,
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

    /// What was lost in all parts, and their threads.
    pub fn summary(&self) -> Summary {
        let mut all = Summary::default();
        for part in &self.parts {
            all.join(&part.summary, part.first_thread as usize);
        }
        all.threads.truncate(MOST_THREADS as usize);
        all
    }

    /// The part in which the replay ended.
    pub fn last(&self) -> &Part {
        &self.parts[self.state.part]
    }
}

impl State {
    /// Nothing of another part is in use in this one.
    fn begin_part(&mut self, number: usize, part: &Part) {
        *self = State {
            part: number,
            time_us: self.time_us.max(part.session.begins_us),
            events: self.events,
            thread: part.first_thread,
            threads: part.first_thread,
            first_thread: part.first_thread,
            first_stack: part.first_stack,
            ..State::default()
        };
    }

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
        let mut free_stacks = columns.free_stacks.iter();
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
                    let thread = threads.next().copied().unwrap_or(0);
                    self.thread = self.first_thread.saturating_add(thread).min(MOST_THREADS);
                    self.threads = self.threads.max(self.thread + 1);
                    continue;
                }
                op::ALLOC | op::ALLOC_UNFOLLOWED => {
                    let slot = self.thread as usize;
                    if self.orders.len() <= slot {
                        self.orders.resize(slot + 1, 0);
                    }
                    let block = InUse {
                        size: sizes.next().copied().unwrap_or(0),
                        stack: stacks.next().map_or(0, |&stack| self.stack(stack)),
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
                    let by = if op == op::FREE { free_stacks.next().map(|&stack| self.stack(stack)) } else { None };
                    match self.remove(number) {
                        Some(block) if op == op::FREE => each(self, Happening::Free(&block, by)),
                        Some(block) => each(self, Happening::FreeLost(&block)),
                        None => true,
                    }
                }
                _ => {
                    self.events += 1;
                    let by = free_stacks.next().map(|&stack| self.stack(stack));
                    each(self, Happening::FreeUnknown(by))
                }
            };
            if !go_on {
                return Some(false);
            }
        }
        (self.blocks.len() <= MAX_BLOCKS).then_some(true)
    }

    /// The number of a stack of this part among those of all parts.
    fn stack(&self, stack: u32) -> u32 {
        if stack == UNKNOWN { UNKNOWN } else { stack + self.first_stack }
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
