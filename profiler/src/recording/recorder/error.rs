//! Why a recording ended early.

use std::io;

use crate::recording::tap::TapError;

/// Why a recording ended early.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The program's side.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The file's side.
    #[error("cannot write the recording: {0}")]
    Write(#[from] io::Error),
    /// There was no event, and nothing was written.
    #[error("nothing was recorded: {ended}, and until then {}", none_came(*.lost))]
    Nothing {
        /// How it ended.
        ended: String,
        /// Events that were lost.
        lost: u64,
    },
}

fn none_came(lost: u64) -> String {
    match lost {
        0 => "no allocation or free of the program came".to_owned(),
        _ => format!("all {lost} events of the program were lost; --lossless or a larger --ring loses less"),
    }
}
