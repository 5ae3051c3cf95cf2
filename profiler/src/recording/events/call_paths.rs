//! The stacks of a recording: paths in one tree of return addresses, from the outermost function inwards.
//!
//! Stacks share their outer frames, so that a new one is mostly a node or two, here and in the file.

use std::collections::HashMap;

use crate::model::memory::Place;
use crate::recording::events::functions::Functions;

/// Most nodes of a file.
pub const MAX_NODES: usize = 32 << 20;
/// Most stacks of a file.
pub const MAX_STACKS: usize = MAX_NODES / 2;
/// Nodes for which there is room wherever there is any. A program that imports PyTorch has more.
const LEAST_NODES: usize = 2 << 20;
/// What a node takes, with its share of the stacks; twice as much while the tables grow.
const NODE_BYTES: u64 = 64;

/// The stack that is not known: it has no frames.
pub const UNKNOWN: u32 = 0;

/// A node: the frame that called it, and the return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Index of the outer frame's node; 0 is the root.
    pub parent: u32,
    /// The return address.
    pub address: u64,
}

/// A stack: its innermost node and what is to be said of it. One that allocates host memory and a device's is two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Index of the innermost frame's node; 0 for a stack without frames.
    pub node: u32,
    /// Bits of [`poolscope_wire::stack_flags`].
    pub flags: u16,
    /// Which memory it allocates.
    pub place: Place,
}

impl Path {
    /// That of [`UNKNOWN`].
    pub const NONE: Path = Path { node: 0, flags: 0, place: Place::Host };
}

/// What the stacks of a file have.
#[derive(Clone, Copy, Debug, Default)]
pub struct StackCounts {
    /// Nodes of the call trees.
    pub nodes: usize,
    /// Stacks.
    pub paths: usize,
    /// Functions of Python's.
    pub functions: usize,
    /// Their words.
    pub function_words: usize,
}

/// All stacks so far.
#[derive(Debug)]
pub struct CallPaths {
    nodes: Vec<Node>,
    /// Open addressing by parent and address: node indices, 0 where free.
    index: Vec<u32>,
    paths: Vec<Path>,
    path_index: HashMap<Path, u32>,
    most_nodes: usize,
    most_paths: usize,
    /// Python's functions that stacks name.
    pub functions: Functions,
    /// Stacks that found no room.
    pub refused: u64,
}

impl Default for CallPaths {
    fn default() -> Self {
        Self::beside(&StackCounts::default(), u64::MAX)
    }
}

impl CallPaths {
    /// None yet, beside those that are in the file already, to take `room` bytes of memory or, where that is little, what
    /// two million nodes take.
    pub fn beside(before: &StackCounts, room: u64) -> Self {
        let most = usize::try_from(room / NODE_BYTES).unwrap_or(usize::MAX).clamp(LEAST_NODES, MAX_NODES);
        Self {
            nodes: vec![Node { parent: 0, address: 0 }],
            index: vec![0; 1 << 12],
            paths: vec![Path::NONE],
            path_index: HashMap::new(),
            most_nodes: most.min(MAX_NODES.saturating_sub(before.nodes)),
            most_paths: (most / 2).min(MAX_STACKS.saturating_sub(before.paths)),
            functions: Functions::beside(before.functions, before.function_words),
            refused: 0,
        }
    }

    /// Nodes, the root included.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Stacks; the first one is [`UNKNOWN`].
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// The number of a stack whose calls name functions as the program has numbered them; `read` gives their words.
    pub fn intern_from(&mut self, frames: &[u64], flags: u16, read: impl FnMut(u32) -> Option<Vec<u64>>) -> u32 {
        let mut functions = std::mem::take(&mut self.functions);
        let number = self.intern(functions.in_part(frames, read), flags);
        self.functions = functions;
        number
    }

    /// The number of a stack, added if it is new; [`UNKNOWN`] if there is no room.
    pub fn intern(&mut self, frames: &[u64], flags: u16) -> u32 {
        let mut node = 0;
        for &address in frames.iter().rev() {
            match self.child(node, address) {
                Some(child) => node = child,
                None => {
                    self.refused += 1;
                    return UNKNOWN;
                }
            }
        }
        match self.number(Path { node, flags, place: Place::Host }) {
            Some(number) => number,
            None => {
                self.refused += 1;
                UNKNOWN
            }
        }
    }

    /// The number of a stack, as that of a stack that allocates a device's memory. Each memory has an unknown stack of
    /// its own, for which there is always room.
    pub fn on_device(&mut self, stack: u32, place: Place) -> u32 {
        let path = self.paths.get(stack as usize).copied().unwrap_or(Path::NONE);
        if let Some(number) = self.number(Path { place, ..path }) {
            return number;
        }
        self.refused += 1;
        self.number(Path { place, ..Path::NONE }).unwrap_or(UNKNOWN)
    }

    /// The number of a path, added if it is new and there is room.
    fn number(&mut self, path: Path) -> Option<u32> {
        if let Some(&known) = self.path_index.get(&path) {
            return Some(known);
        }
        let is_last_resort = path == Path { place: path.place, ..Path::NONE };
        if path == Path::NONE {
            return Some(UNKNOWN);
        }
        if self.paths.len() >= self.most_paths && !is_last_resort {
            return None;
        }
        let number = self.paths.len() as u32;
        self.paths.push(path);
        self.path_index.insert(path, number);
        Some(number)
    }

    fn hash(&self, parent: u32, address: u64) -> usize {
        let mixed = (address ^ u64::from(parent).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> (64 - self.index.len().trailing_zeros())) as usize
    }

    fn child(&mut self, parent: u32, address: u64) -> Option<u32> {
        let mask = self.index.len() - 1;
        let mut at = self.hash(parent, address);
        loop {
            match self.index[at] {
                0 => break,
                node if self.nodes[node as usize] == (Node { parent, address }) => return Some(node),
                _ => at = (at + 1) & mask,
            }
        }
        if self.nodes.len() >= self.most_nodes {
            return None;
        }
        let node = self.nodes.len() as u32;
        self.nodes.push(Node { parent, address });
        self.index[at] = node;
        if self.nodes.len() * 2 > self.index.len() {
            self.grow();
        }
        Some(node)
    }

    fn grow(&mut self) {
        self.index = vec![0; self.index.len() * 2];
        let mask = self.index.len() - 1;
        for node in 1..self.nodes.len() {
            let Node { parent, address } = self.nodes[node];
            let mut at = self.hash(parent, address);
            while self.index[at] != 0 {
                at = (at + 1) & mask;
            }
            self.index[at] = node as u32;
        }
    }
}

/// The return addresses of the path that ends at `node`, innermost first.
pub fn frames(nodes: &[Node], node: u32) -> Vec<u64> {
    let mut frames = Vec::new();
    let mut at = node;
    // A node's parent has a smaller index: that is checked where nodes are read, and holds where they are made.
    while at != 0 {
        let Some(node) = nodes.get(at as usize) else { break };
        frames.push(node.address);
        if node.parent >= at {
            break;
        }
        at = node.parent;
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_have_one_number_and_share_their_outer_frames() {
        let mut paths = CallPaths::default();
        let one = paths.intern(&[3, 2, 1], 0);
        let two = paths.intern(&[4, 2, 1], 0);
        assert_eq!((one, two, paths.intern(&[3, 2, 1], 0)), (1, 2, 1));
        assert_eq!(paths.intern(&[3, 2, 1], 1), 3, "a stack that was cut is another one");
        let device = Place::Device(3);
        assert_eq!(
            (paths.on_device(two, device), paths.on_device(two, device)),
            (4, 4),
            "and one of a device's memory"
        );
        assert_eq!(paths.on_device(UNKNOWN, device), 5);
        assert_eq!(paths.nodes().len(), 1 + 4);
        assert_eq!(frames(paths.nodes(), paths.paths()[two as usize].node), [4, 2, 1]);
        assert!(frames(paths.nodes(), paths.paths()[UNKNOWN as usize].node).is_empty());
    }

    #[test]
    fn it_grows_and_finds_what_it_has() {
        let mut paths = CallPaths::default();
        let numbers: Vec<u32> = (0..20_000u64).map(|n| paths.intern(&[n, n % 7, 1], 0)).collect();
        assert!((0..20_000u64).all(|n| paths.intern(&[n, n % 7, 1], 0) == numbers[n as usize]));
    }

    #[test]
    fn there_is_room_for_more_where_there_is_more_memory() {
        let most = |room: u64| {
            let paths = CallPaths::beside(&StackCounts::default(), room);
            (paths.most_nodes, paths.most_paths)
        };
        assert_eq!(most(0), (LEAST_NODES, LEAST_NODES / 2));
        assert_eq!(most(512 << 20), (8 << 20, 4 << 20));
        assert_eq!(most(u64::MAX), (MAX_NODES, MAX_STACKS));
        let full = CallPaths::beside(
            &StackCounts { nodes: MAX_NODES - 10, paths: MAX_STACKS, ..StackCounts::default() },
            u64::MAX,
        );
        assert_eq!((full.most_nodes, full.most_paths), (10, 0));
        let mut paths = CallPaths { most_nodes: 4, ..CallPaths::default() };
        assert!(paths.intern(&[3, 2, 1], 0) != UNKNOWN && paths.intern(&[4, 2, 1], 0) == UNKNOWN);
        assert_eq!(paths.refused, 1);
    }

    /// What the bound is reckoned with.
    #[test]
    fn a_node_takes_no_more_than_is_reckoned() {
        let nodes = size_of::<Node>() as u64;
        // Twice its place in each table, right after these have grown; and a stack for every second node.
        let path = (size_of::<Path>() + size_of::<(Path, u32)>() * 2) as u64;
        assert!(2 * nodes + 16 + path / 2 <= 2 * NODE_BYTES, "{nodes}, {path}");
    }
}
