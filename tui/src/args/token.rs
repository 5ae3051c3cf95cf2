//! The token of `poolscope serve`, which whoever asks has to send.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::failure::Failure;
use crate::sink;

/// The token in a file, without the white space around it. Says so if other users can read the file, or change it.
pub(crate) fn read(file: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("cannot read the token from {}: {error}", file.display())))?;
    if let Some(mode) = open_to_others(file) {
        let can = if mode & 0o004 == 0 { "change" } else { "read" };
        let file = file.display();
        sink::say(&format!(
            "every user of this machine can {can} the token in {file} (mode {mode:04o}): chmod 600 {file}, and choose another token"
        ));
    }
    match text.trim() {
        "" => Err(Failure::usage("the token is empty: anybody could guess it")),
        token => Ok(token.to_owned()),
    }
}

/// The permissions of a file that others than its owner and group can read or write, and get at.
fn open_to_others(file: &Path) -> Option<u32> {
    let file = file.canonicalize().ok()?;
    let mode = |path: &Path| Some(path.metadata().ok()?.mode() & 0o7777);
    let open = mode(&file)? & 0o006 != 0 && file.metadata().ok()?.is_file();
    let mut folders = file.ancestors().skip(1);
    (open && folders.all(|folder| mode(folder).is_some_and(|mode| mode & 0o001 != 0))).then(|| mode(&file))?
}
