//! Text of another program that is safe to show.

/// Text from the watched program made safe to draw: control characters become `·`.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '·' } else { c }).collect()
}

/// A command line as it was called: an empty argument is two quotes, not a gap.
pub(crate) fn called<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    let shown = arguments.into_iter().map(|argument| if argument.is_empty() { "''" } else { argument });
    printable(&shown.collect::<Vec<_>>().join(" "))
}

/// A path without its folders.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_argument_is_seen() {
        assert_eq!(
            called(["redis-server", "--save", "", "--appendonly", "no"]),
            "redis-server --save '' --appendonly no"
        );
        assert_eq!(called(["a\tb", "c"]), "a·b c");
    }
}
