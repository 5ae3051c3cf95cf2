//! Goes through a recording's events in order, with the blocks that are in use at each moment.

pub mod analysis;
mod cautions;
mod collector;
pub mod device_trace;
pub(crate) mod figures;
pub mod film;
mod process_snapshot;
mod sparse_pages;

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::functions::{Function, Functions};
use crate::model::memory::Place;
use crate::recording::events::call_paths::{Node, Path, UNKNOWN};
use crate::recording::events::functions;
use crate::recording::events::live_table::MAX_BLOCKS;
use crate::recording::events::place;
use crate::recording::events::place::MAX_PLACES;
use crate::recording::events::session::{RecordedModule, Session, Summary};
use crate::recording::file::format::{EventColumns, op};
use crate::recording::file::reader::{Block, RecordingError, RecordingReader, Tail};
use crate::recording::replay::figures::{Count, grown};

/// A block that is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Bytes asked for.
    pub size: u64,
    /// Its stack.
    pub stack: u32,
    /// The thread that allocated it, as an index into the threads of [`Replay::summary`];
    /// `u32::MAX` in a number that nobody has.
    pub thread: u32,
    /// When, microseconds since the start.
    pub time_us: u64,
    /// The allocating thread's allocations of the same memory before it.
    pub order: u64,
}

const NOBODY: u32 = u32::MAX;
/// Threads that are told apart, in all parts; those that come later are one.
pub const MOST_THREADS: u32 = 1 << 16;

/// What the events up to some moment come to.
#[derive(Clone, Debug)]
pub struct State {
    /// By number; those with [`NOBODY`]'s thread are not in use.
    blocks: Vec<InUse>,
    given_back: Vec<u32>,
    /// Time, microseconds since the start.
    pub time_us: u64,
    /// Events so far.
    pub events: u64,
    /// The memories that there were events of, in the order in which they came, with what is in use of each. The first
    /// is the host's.
    pub memories: Vec<(Place, Count)>,
    /// The memory of the latest event, as an index into [`memories`](Self::memories).
    pub memory: usize,
    /// Handle of the stream of the latest event, if that is of a device's memory.
    pub stream: Option<u64>,
    /// The number of the latest event's block, which is its own while it is in use; `None` of one that is not followed.
    pub number: Option<u32>,
    /// The thread of the latest event.
    pub thread: u32,
    /// Allocations of each thread, by memory.
    orders: Vec<Vec<u64>>,
    /// The part of the latest event, as an index into [`Replay::parts`].
    pub part: usize,
    /// Threads and stacks of the parts before this one.
    first_thread: u32,
    first_stack: u32,
    /// Threads of all parts so far.
    threads: u32,
}

impl Default for State {
    fn default() -> State {
        State {
            blocks: Vec::new(),
            given_back: Vec::new(),
            time_us: 0,
            events: 0,
            memories: vec![(Place::Host, Count::default())],
            memory: 0,
            stream: None,
            number: None,
            thread: 0,
            orders: Vec::new(),
            part: 0,
            first_thread: 0,
            first_stack: 0,
            threads: 0,
        }
    }
}

impl State {
    /// Bytes that it takes.
    fn bytes(&self) -> usize {
        let orders: usize = self.orders.iter().map(|orders| size_of_val(&orders[..])).sum();
        size_of_val(&self.blocks[..]) + size_of_val(&self.given_back[..]) + orders
    }

    /// What is in use of the memory of the latest event.
    pub fn count(&self) -> Count {
        self.memories[self.memory].1
    }

    /// The blocks in use, with their numbers.
    pub fn in_use(&self) -> impl Iterator<Item = (u32, &InUse)> {
        self.blocks.iter().enumerate().filter(|(_, block)| block.thread != NOBODY).map(|(n, block)| (n as u32, block))
    }

    /// The block with a number.
    pub fn block(&self, number: u32) -> Option<&InUse> {
        self.blocks.get(number as usize).filter(|block| block.thread != NOBODY)
    }

    /// Allocations of a thread so far, of the memory of the latest event.
    pub fn order(&self, thread: u32) -> u64 {
        self.orders.get(self.memory).and_then(|orders| orders.get(thread as usize)).copied().unwrap_or(0)
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
/// Stacks and threads of all parts are numbered one after the other; [`UNKNOWN`]
/// is one for all.
#[derive(Debug, Default)]
pub struct Replay {
    /// Nodes of the call tree.
    pub nodes: Vec<Node>,
    /// Stacks.
    pub paths: Vec<Path>,
    /// Python's functions, which nodes name.
    pub functions: Functions,
    /// Its parts; there is one at least.
    pub parts: Vec<Part>,
    /// Where blocks lay when that was last written down before the end of the replay,
    /// and how many events came before it.
    pub addresses: Vec<(u64, u32)>,
    /// Events before `addresses` were written down.
    pub addresses_at: u64,
    /// How the file ends.
    pub tail: Tail,
    /// The state at the end of the replay.
    pub state: State,
}

impl Replay {
    /// Goes through all events up to a time, in microseconds since the start. `each` is told of every allocation and
    /// free, with the state after it, and says whether to go on.
    pub fn run(
        reader: &mut RecordingReader,
        until_us: u64,
        mut each: impl FnMut(&State, Happening<'_>) -> bool,
    ) -> Result<Replay, RecordingError> {
        reader.rewind()?;
        let mut replay = Replay {
            nodes: vec![Node { parent: 0, address: 0 }],
            paths: vec![Path::NONE],
            parts: vec![Part { session: reader.session().clone(), ..Part::default() }],
            ..Replay::default()
        };
        let mut goes_on = true;
        let mut first_node = 0;
        // Functions of the part, by their numbers in the whole recording: parts of one program have most in common.
        let mut of_part: Vec<u32> = Vec::new();
        let mut known: HashMap<Arc<Function>, u32> = HashMap::new();
        while let Some(block) = reader.next_block()? {
            let at = replay.parts.len() - 1;
            let part = &mut replay.parts[at];
            match block {
                Block::Part(session) => {
                    goes_on &= session.begins_us < until_us;
                    first_node = replay.nodes.len() as u32 - 1;
                    of_part.clear();
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
                    let nodes = nodes.into_iter().map(|node| Node {
                        parent: moved(node.parent),
                        address: functions::in_all(node.address, &of_part),
                    });
                    replay.nodes.extend(nodes);
                    replay.paths.extend(paths.into_iter().map(|path| Path { node: moved(path.node), ..path }));
                }
                Block::Functions(new) => {
                    for function in new.into_iter().map(Arc::new) {
                        let new = known.len() as u32;
                        let number = *known.entry(Arc::clone(&function)).or_insert(new);
                        if number == new {
                            replay.functions.insert(number, function);
                        }
                        of_part.push(number);
                    }
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
                Block::Events(columns) if goes_on => {
                    match replay.state.apply(&columns, &replay.paths, until_us, &mut each) {
                        Some(go_on) => goes_on = go_on,
                        None => return Err(reader.damaged("more blocks are in use than a recorder follows")),
                    }
                }
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
            memories: self.memories.iter().map(|&(place, _)| (place, Count::default())).collect(),
            ..State::default()
        };
    }

    /// Applies a block of events; false if it was to stop, none if there are more blocks than any recording has.
    fn apply(
        &mut self,
        columns: &EventColumns,
        paths: &[Path],
        until_us: u64,
        mut each: impl FnMut(&State, Happening<'_>) -> bool,
    ) -> Option<bool> {
        let (mut sizes, mut stacks) = (columns.sizes.iter(), columns.stacks.iter());
        let (mut numbers, mut times, mut threads) =
            (columns.numbers.iter(), columns.times.iter(), columns.threads.iter());
        let mut free_stacks = columns.free_stacks.iter();
        let mut lanes = columns.places.iter().zip(&columns.streams);
        // Where the event that follows happens, if that is not in the host's memory.
        let mut lane = None;
        for &op in &columns.ops {
            match op {
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
                op::DEVICE => {
                    lane = lanes.next().and_then(|(&place, &stream)| Some((place::of_number(place)?, stream)));
                    continue;
                }
                _ => {}
            }
            let here = lane.take();
            self.stream = here.map(|(_, stream)| stream);
            self.number = None;
            let go_on = match op {
                op::ALLOC | op::ALLOC_UNFOLLOWED => {
                    let stack = stacks.next().map_or(0, |&stack| self.stack(stack));
                    self.enter(place_of(paths, stack));
                    let order = grown(grown(&mut self.orders, self.memory), self.thread as usize);
                    let block = InUse {
                        size: sizes.next().copied().unwrap_or(0),
                        stack,
                        thread: self.thread,
                        time_us: self.time_us,
                        order: *order,
                    };
                    *order += 1;
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
                    match self.remove(number, paths) {
                        Some(block) if op == op::FREE => each(self, Happening::Free(&block, by)),
                        Some(block) => each(self, Happening::FreeLost(&block)),
                        None => true,
                    }
                }
                _ => {
                    self.events += 1;
                    self.enter(here.map_or(Place::Host, |(place, _)| place));
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

    /// What happens now is of this memory.
    fn enter(&mut self, place: Place) {
        if self.memories[self.memory].0 == place {
            return;
        }
        self.memory = self.memories.iter().position(|&(known, _)| known == place).unwrap_or_else(|| {
            // More than a recorder tells apart are one.
            if self.memories.len() <= MAX_PLACES {
                self.memories.push((place, Count::default()));
            }
            self.memories.len() - 1
        });
    }

    fn insert(&mut self, block: InUse) {
        self.memories[self.memory].1.add(block.size);
        let number = self.given_back.pop().unwrap_or_else(|| {
            self.blocks.push(block);
            self.blocks.len() as u32 - 1
        });
        self.blocks[number as usize] = block;
        self.number = Some(number);
    }

    fn remove(&mut self, number: u32, paths: &[Path]) -> Option<InUse> {
        let place = self.blocks.get_mut(number as usize).filter(|block| block.thread != NOBODY)?;
        let block = std::mem::replace(place, InUse { thread: NOBODY, ..InUse::default() });
        self.given_back.push(number);
        self.number = Some(number);
        self.enter(place_of(paths, block.stack));
        self.memories[self.memory].1.take(block.size);
        Some(block)
    }
}

/// Which memory a stack's blocks are of.
pub fn place_of(paths: &[Path], stack: u32) -> Place {
    paths.get(stack as usize).map_or(Place::Host, |path| path.place)
}
