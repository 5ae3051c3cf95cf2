//! What may be a tensor's name.

use super::{Code, Refusal};

/// Bytes of a name at most.
const NAME_LIMIT: usize = 512;

/// A name has 1 to [`NAME_LIMIT`] bytes of text, and no control characters.
pub fn check_name(name: &str) -> Result<(), Refusal> {
    if name.is_empty() {
        return Err(Refusal::new(Code::BadName, "the name is empty".into()));
    }
    check_prefix(name)
}

/// The beginning of a name, which may be empty.
pub fn check_prefix(name: &str) -> Result<(), Refusal> {
    if name.len() > NAME_LIMIT {
        let words = format!("the name has {} bytes: at most {NAME_LIMIT} are possible", name.len());
        return Err(Refusal::new(Code::BadName, words));
    }
    if name.chars().any(char::is_control) {
        return Err(Refusal::new(Code::BadName, format!("the name {name:?} has control characters")));
    }
    Ok(())
}
