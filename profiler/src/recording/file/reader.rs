//! Reads a recording, block by block: everything in the file is checked here.
//!
//! A block whose checksum does not fit ends the reading: what comes before it is whole, and how much was left out is
//! said ([`Tail`]). A recorder that was killed leaves such a file.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::model::functions::Function;
use crate::model::memory::Place;
use crate::recording::events::call_paths::{MAX_NODES, MAX_STACKS, Node, Path as CallPath, StackCounts};
use crate::recording::events::functions::{MAX_FUNCTIONS, MAX_WORDS};
use crate::recording::events::place;
use crate::recording::events::place::MAX_PLACES;
use crate::recording::events::session::{RecordedModule, Session, Summary};
use crate::recording::file::format::{
    BLOCK_EVENTS, BLOCK_FUNCTIONS, BLOCK_HEADER_LEN, BlockHeader, Damaged, EventColumns, FILE_HEADER_LEN, FOOTER_LEN,
    Kind, MAX_BLOCK, MAX_PARTS, OLDEST_VERSION, Unpacker, VERSION, op, parse_footer, read_file_header,
};

/// JSON of a block is no longer.
const MAX_JSON: usize = 32 << 20;

/// Why a recording can't be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file can't be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It is another kind of file.
    #[error("{} is no recording: `poolscope record` makes one", path.display())]
    NotARecording {
        /// The file.
        path: PathBuf,
    },
    /// It is of another version.
    #[error(
        "{} is a recording of version {found}, this poolscope reads versions {OLDEST_VERSION} to {VERSION}",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A block has a fitting checksum and makes no sense, or the first one is missing.
    #[error("damaged recording {}, at byte {offset}: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        why: String,
    },
}

/// How the file ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tail {
    /// Its recorder finished it.
    #[default]
    Finished,
    /// It ends after a whole block, without an index: its recorder was killed, or is still at work.
    Unfinished,
    /// What follows some byte can't be read.
    Lost {
        /// Where it begins.
        offset: u64,
        /// Bytes from there to the end.
        bytes: u64,
        /// What is wrong there.
        why: &'static str,
    },
}

/// A block, unpacked.
#[derive(Debug)]
pub enum Block {
    /// A part begins that was appended.
    Part(Box<Session>),
    /// Events.
    Events(EventColumns),
    /// New nodes and stacks.
    Stacks {
        /// Nodes; parents come before their children.
        nodes: Vec<Node>,
        /// Stacks.
        paths: Vec<CallPath>,
    },
    /// New functions of Python's, which stacks name by their places in the part.
    Functions(Vec<Function>),
    /// Executables and libraries.
    Modules(Vec<RecordedModule>),
    /// Losses and threads.
    Summary(Box<Summary>),
    /// Where blocks lie: addresses and numbers, ascending.
    Addresses {
        /// It goes on where the block before it ended.
        goes_on: bool,
        /// Address and number of each.
        blocks: Vec<(u64, u32)>,
    },
}

/// A place between two blocks of a recording, to go on from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bookmark {
    offset: u64,
    /// Nodes, stacks and parts up to there.
    nodes: usize,
    paths: usize,
    parts: usize,
    /// Nodes and stacks of the parts before this one.
    nodes_before: usize,
    paths_before: usize,
    /// Functions of all parts, and their words.
    functions: usize,
    function_words: usize,
}

impl Bookmark {
    /// Before the first events.
    fn first(offset: u64) -> Bookmark {
        Bookmark {
            offset,
            nodes: 1,
            paths: 1,
            parts: 1,
            nodes_before: 0,
            paths_before: 0,
            functions: 0,
            function_words: 0,
        }
    }
}

/// A recording.
#[derive(Debug)]
pub struct RecordingReader {
    path: PathBuf,
    file: BufReader<File>,
    len: u64,
    session: Session,
    first_block: u64,
    /// Where the next block is.
    at: Bookmark,
    tail: Option<Tail>,
}

impl RecordingReader {
    /// Whether the file begins as a recording does.
    pub fn is_recording(path: &Path) -> bool {
        File::open(path).is_ok_and(|mut file| matches!(read_file_header(&mut file), Ok(Some(_))))
    }

    /// Opens a recording and reads whose it is.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let failed = |source| RecordingError::File { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        let mut file = BufReader::with_capacity(1 << 18, file);
        match read_file_header(&mut file).map_err(failed)? {
            None => return Err(RecordingError::NotARecording { path: path.to_owned() }),
            Some(OLDEST_VERSION..=VERSION) => {}
            Some(found) => return Err(RecordingError::Version { path: path.to_owned(), found }),
        }
        let mut reader = Self {
            path: path.to_owned(),
            file,
            len,
            session: Session::default(),
            first_block: 0,
            at: Bookmark::first(FILE_HEADER_LEN as u64),
            tail: None,
        };
        let Some((header, payload)) = reader.next_raw()? else {
            return Err(reader.damaged("its first block is missing"));
        };
        if header.kind != Kind::Session {
            return Err(reader.damaged("its first block does not say whose recording it is"));
        }
        reader.session = reader.json(&payload)?;
        reader.first_block = reader.at.offset;
        Ok(reader)
    }

    /// Whose recording the first part is.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// There is nothing in it but its header.
    pub fn is_empty(&self) -> bool {
        self.first_block == self.len
    }

    /// How the file ends; known when all blocks were read.
    pub fn tail(&self) -> Tail {
        self.tail.clone().unwrap_or_default()
    }

    pub(crate) fn damaged(&self, why: impl Into<String>) -> RecordingError {
        RecordingError::Damaged { path: self.path.clone(), offset: self.at.offset, why: why.into() }
    }

    fn json<T: serde::de::DeserializeOwned>(&self, payload: &[u8]) -> Result<T, RecordingError> {
        let text = Unpacker(payload).bytes(MAX_JSON).map_err(|Damaged(why)| self.damaged(why))?;
        serde_json::from_slice(&text).map_err(|error| self.damaged(format!("a block can't be read: {error}")))
    }

    /// Goes back to the first block.
    pub fn rewind(&mut self) -> Result<(), RecordingError> {
        self.go_to(Bookmark::first(self.first_block))
    }

    /// Where the next block is.
    pub(crate) fn bookmark(&self) -> Bookmark {
        self.at
    }

    /// Goes on from a place of this recording.
    pub(crate) fn go_to(&mut self, place: Bookmark) -> Result<(), RecordingError> {
        let failed = |source| RecordingError::File { path: self.path.clone(), source };
        self.file.seek(SeekFrom::Start(place.offset)).map_err(failed)?;
        (self.at, self.tail) = (place, None);
        Ok(())
    }

    /// The next block's header and contents; none at the end, of which [`tail`](Self::tail) then tells.
    fn next_raw(&mut self) -> Result<Option<(BlockHeader, Vec<u8>)>, RecordingError> {
        let left = self.len.saturating_sub(self.at.offset);
        let lost = |reader: &mut Self, why| {
            reader.tail = Some(Tail::Lost { offset: reader.at.offset, bytes: left, why });
            Ok(None)
        };
        if left == 0 {
            self.tail = Some(Tail::Unfinished);
            return Ok(None);
        }
        if left < BLOCK_HEADER_LEN as u64 {
            return lost(self, "it ends in the middle of a block");
        }
        let failed = |source| RecordingError::File { path: self.path.clone(), source };
        let mut bytes = [0; BLOCK_HEADER_LEN];
        self.file.read_exact(&mut bytes).map_err(failed)?;
        let header = match BlockHeader::from_bytes(&bytes) {
            Ok(header) => header,
            Err(why) => return lost(self, why),
        };
        if left < BLOCK_HEADER_LEN as u64 + u64::from(header.stored) {
            return lost(self, "it ends in the middle of a block");
        }
        let mut payload = vec![0; header.stored as usize];
        self.file.read_exact(&mut payload).map_err(failed)?;
        if crc32fast::hash(&payload) != header.checksum {
            return lost(self, "a block does not have its checksum");
        }
        self.at.offset += BLOCK_HEADER_LEN as u64 + u64::from(header.stored);
        Ok(Some((header, payload)))
    }

    /// The next block; none at the end.
    pub fn next_block(&mut self) -> Result<Option<Block>, RecordingError> {
        loop {
            let at = self.at.offset;
            let Some((header, payload)) = self.next_raw()? else { return Ok(None) };
            let block = match header.kind {
                Kind::Events => self.events(&payload).map(Block::Events),
                Kind::Stacks => self.stacks(&payload),
                Kind::Functions => self.functions(&payload),
                Kind::Addresses => addresses(&payload),
                Kind::Modules => return self.json(&payload).map(|modules| Some(Block::Modules(modules))),
                Kind::Summary => return self.json(&payload).map(|summary| Some(Block::Summary(summary))),
                Kind::Session => return self.part(&payload).map(|session| Some(Block::Part(Box::new(session)))),
                Kind::Index => {
                    if self.is_footer(at)? {
                        self.tail = Some(Tail::Finished);
                        return Ok(None);
                    }
                    // Its recorder was killed before the footer.
                    continue;
                }
            };
            return block.map(Some).map_err(|Damaged(why)| RecordingError::Damaged {
                path: self.path.clone(),
                offset: at,
                why: why.to_owned(),
            });
        }
    }

    /// Whether the file ends here, with a footer that names the index block at `index`.
    fn is_footer(&mut self, index: u64) -> Result<bool, RecordingError> {
        if self.len - self.at.offset != FOOTER_LEN as u64 {
            return Ok(false);
        }
        let mut bytes = [0; FOOTER_LEN];
        let read = self.file.read_exact(&mut bytes);
        read.map_err(|source| RecordingError::File { path: self.path.clone(), source })?;
        Ok(parse_footer(&bytes) == Some(index))
    }

    fn part(&mut self, payload: &[u8]) -> Result<Session, RecordingError> {
        self.at.parts += 1;
        if self.at.parts > MAX_PARTS {
            return Err(self.damaged("it has more parts than any recording"));
        }
        self.at.nodes_before += self.at.nodes - 1;
        self.at.paths_before += self.at.paths - 1;
        (self.at.nodes, self.at.paths) = (1, 1);
        self.json(payload)
    }

    /// Nodes and stacks of all parts so far.
    fn stacks_so_far(&self) -> (usize, usize) {
        (self.at.nodes_before + self.at.nodes, self.at.paths_before + self.at.paths)
    }

    /// What the stacks of all parts have, of which `index` says where the blocks lie.
    pub(crate) fn count_stacks(&mut self, index: &[(u64, BlockHeader)]) -> Result<StackCounts, RecordingError> {
        self.rewind()?;
        let wanted = |kind| matches!(kind, Kind::Session | Kind::Stacks | Kind::Functions);
        for &(offset, _) in index.iter().skip(1).filter(|(_, header)| wanted(header.kind)) {
            self.file
                .seek(SeekFrom::Start(offset))
                .map_err(|source| RecordingError::File { path: self.path.clone(), source })?;
            self.at.offset = offset;
            if self.next_block()?.is_none() {
                return Err(self.damaged("a block can't be read; nothing is appended, record to another file"));
            }
        }
        let (nodes, paths) = self.stacks_so_far();
        Ok(StackCounts { nodes, paths, functions: self.at.functions, function_words: self.at.function_words })
    }

    fn events(&self, payload: &[u8]) -> Result<EventColumns, Damaged> {
        let mut unpacker = Unpacker(payload);
        let ops = unpacker.bytes(BLOCK_EVENTS)?;
        let count = |wanted: &[u8]| ops.iter().filter(|op| wanted.contains(op)).count();
        let columns = EventColumns {
            sizes: unpacker.numbers(count(&[op::ALLOC, op::ALLOC_UNFOLLOWED]))?,
            stacks: unpacker.numbers32(count(&[op::ALLOC, op::ALLOC_UNFOLLOWED]))?,
            numbers: unpacker.numbers32(count(&[op::FREE, op::FREE_LOST]))?,
            free_stacks: unpacker.numbers32(count(&[op::FREE, op::FREE_UNKNOWN]))?,
            times: unpacker.numbers(count(&[op::TIME]))?,
            threads: unpacker.numbers32(count(&[op::THREAD]))?,
            places: unpacker.numbers_if_any(count(&[op::DEVICE]))?,
            streams: unpacker.numbers_if_any(count(&[op::DEVICE]))?,
            ops,
        };
        let known = |stack: &u32| (*stack as usize) < self.at.paths;
        if !columns.stacks.iter().chain(&columns.free_stacks).all(known) {
            return Err(Damaged("an event has a stack that there is not"));
        }
        if columns.ops.iter().any(|&op| op > op::DEVICE) {
            return Err(Damaged("an event is of an unknown kind"));
        }
        let whole = columns.sizes.len() == columns.stacks.len()
            && columns.sizes.len() == count_of(&columns.ops, &[op::ALLOC, op::ALLOC_UNFOLLOWED])
            && columns.numbers.len() == count_of(&columns.ops, &[op::FREE, op::FREE_LOST])
            && columns.times.len() == count_of(&columns.ops, &[op::TIME])
            && columns.threads.len() == count_of(&columns.ops, &[op::THREAD])
            && columns.places.len() == count_of(&columns.ops, &[op::DEVICE])
            && columns.streams.len() == columns.places.len()
            && columns.places.iter().all(|&place| place::of_number(place).is_some())
            && [0, count_of(&columns.ops, &[op::FREE, op::FREE_UNKNOWN])].contains(&columns.free_stacks.len());
        if whole { Ok(columns) } else { Err(Damaged("a block's columns don't fit together")) }
    }

    fn functions(&mut self, payload: &[u8]) -> Result<Block, Damaged> {
        let mut unpacker = Unpacker(payload);
        let lens = unpacker.numbers(BLOCK_FUNCTIONS)?;
        let words = words(&unpacker.bytes(MAX_BLOCK as usize)?).ok_or(Damaged("a function ends within a word"))?;
        self.at.functions += lens.len();
        self.at.function_words += words.len();
        if self.at.functions > MAX_FUNCTIONS || self.at.function_words > MAX_WORDS {
            return Err(Damaged("there are more functions than a recorder writes"));
        }
        let mut rest = &words[..];
        let functions = lens.into_iter().map(|len| {
            let (function, behind) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            rest = behind;
            Function::of_words(function)
        });
        functions.collect::<Option<_>>().map(Block::Functions).ok_or(Damaged("a function's words are no function's"))
    }

    fn stacks(&mut self, payload: &[u8]) -> Result<Block, Damaged> {
        let mut unpacker = Unpacker(payload);
        let parents = unpacker.numbers32(BLOCK_EVENTS)?;
        let addresses = unpacker.numbers(BLOCK_EVENTS)?;
        let ends = unpacker.numbers32(BLOCK_EVENTS)?;
        let flags = unpacker.numbers(BLOCK_EVENTS)?;
        let mut places = unpacker.numbers_if_any(BLOCK_EVENTS)?;
        if places.is_empty() {
            places.resize(ends.len(), place::number(Place::Host));
        }
        if parents.len() != addresses.len() || ends.len() != flags.len() || ends.len() != places.len() {
            return Err(Damaged("a block's columns don't fit together"));
        }
        let (nodes, paths) = self.stacks_so_far();
        if nodes + parents.len() > MAX_NODES || paths + ends.len() > MAX_STACKS + self.at.parts * MAX_PLACES {
            return Err(Damaged("there are more stacks than a recorder writes"));
        }
        let in_order = |(at, &parent): (usize, &u32)| (parent as usize) < self.at.nodes + at;
        if !parents.iter().enumerate().all(in_order) {
            return Err(Damaged("a stack is its own caller"));
        }
        self.at.nodes += parents.len();
        if !ends.iter().all(|&node| (node as usize) < self.at.nodes) {
            return Err(Damaged("a stack ends in a frame that there is not"));
        }
        self.at.paths += ends.len();
        let nodes = parents.into_iter().zip(addresses).map(|(parent, address)| Node { parent, address }).collect();
        let paths = ends.into_iter().zip(flags).zip(places).map(|((node, flags), place)| {
            let place = place::of_number(place).ok_or(Damaged("a stack is of a memory that there is not"))?;
            Ok(CallPath { node, flags: flags as u16, place })
        });
        Ok(Block::Stacks { nodes, paths: paths.collect::<Result<_, Damaged>>()? })
    }
}

fn words(bytes: &[u8]) -> Option<Vec<u64>> {
    let (words, rest) = bytes.as_chunks();
    rest.is_empty().then(|| words.iter().map(|&word| u64::from_le_bytes(word)).collect())
}

fn count_of(ops: &[u8], wanted: &[u8]) -> usize {
    ops.iter().filter(|op| wanted.contains(op)).count()
}

fn addresses(payload: &[u8]) -> Result<Block, Damaged> {
    let mut unpacker = Unpacker(payload);
    let goes_on = unpacker.numbers(1)?.first().is_some_and(|&word| word != 0);
    let steps = unpacker.numbers(BLOCK_EVENTS)?;
    let numbers = unpacker.numbers32(BLOCK_EVENTS)?;
    if steps.len() != numbers.len() {
        return Err(Damaged("a block's columns don't fit together"));
    }
    let mut at = 0u64;
    let blocks = steps.into_iter().zip(numbers).map(|(step, number)| {
        at = at.wrapping_add(step);
        (at.wrapping_mul(16), number)
    });
    Ok(Block::Addresses { goes_on, blocks: blocks.collect() })
}
