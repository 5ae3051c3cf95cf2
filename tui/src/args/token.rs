//! The token of `poolscope serve`, which whoever asks has to send.

use std::path::Path;

use crate::failure::Failure;

/// The token in a file, without the white space around it.
pub(crate) fn read(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("cannot read the token from {}: {error}", file.display())))?;
    match text.trim() {
        "" => Err(Failure::usage("the token is empty: anybody could guess it")),
        token => Ok(token.to_owned()),
    }
}
