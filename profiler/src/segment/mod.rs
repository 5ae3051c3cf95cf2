//! From segment files to the model: which segments there are, and what they say. Everything is checked on the way.

pub mod ask;
pub mod bell;
pub mod discovery;
mod file;
pub mod folders;
mod outline;
mod patience;
mod read_error;
pub mod reader;
mod stack_words;
