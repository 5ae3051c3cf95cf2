//! Text of another program that is safe to show.

/// Text from the watched program made safe to draw: control characters become `·`.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '·' } else { c }).collect()
}

/// A path without its folders.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
