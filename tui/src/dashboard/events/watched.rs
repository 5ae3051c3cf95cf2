//! What a dashboard watches.

use std::path::PathBuf;

use crate::remote::Server;

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// A segment; if its process starts another program, that one's.
    Segment(PathBuf),
    /// A process that has only just been started: its segment may not be there yet.
    Started(u32),
    /// The newest process that is called so; after its end, the next one.
    Named(String),
    /// A process that a server hands out readings of.
    Server(Server),
    /// A recording, at a moment of it.
    Recording(PathBuf),
    /// A profile in a file: one moment, and nothing but call sites.
    Profile(PathBuf),
    /// Nothing yet: it is to be chosen.
    Nothing,
}

impl Watched {
    /// Whether it is a process of this machine.
    pub(crate) fn is_here(&self) -> bool {
        !matches!(self, Watched::Server(_))
    }
}
