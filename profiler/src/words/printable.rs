//! Bytes of another process as text that is safe to show: no control character reaches the terminal or an SVG.

/// Turns bytes into text: invalid UTF-8 and control characters become U+FFFD, white space a blank.
pub(crate) fn printable(bytes: &[u8]) -> String {
    printable_str(String::from_utf8_lossy(bytes).into_owned())
}

/// The same for what is text already; gives it back unchanged if it is harmless.
pub(crate) fn printable_str(text: String) -> String {
    if !text.contains(is_harmful) {
        return text;
    }
    text.chars()
        .map(|c| match c {
            '\n' | '\t' | '\r' => ' ',
            c if is_harmful(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Control characters, the marks that reorder text on a screen, and what XML may not hold.
fn is_harmful(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_do_not_survive() {
        assert_eq!(printable(b"a\x1b[31mb\xffc\nd"), "a\u{fffd}[31mb\u{fffd}c d");
        assert_eq!(printable_str("naïve λ".into()), "naïve λ");
    }
}
