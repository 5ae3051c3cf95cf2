//! Users by name.

use std::ffi::CStr;

use super::printable;

/// The name of a user, or its number where it has none here: a container has users of its own.
pub(crate) fn name(uid: u32) -> String {
    // Names and paths of a user are short; with more, the number does.
    let mut text = [0; 4096];
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut found = std::ptr::null_mut();
    // SAFETY: the entry and the buffer, of that length, are this function's, and so is the pointer.
    let failed = unsafe { libc::getpwuid_r(uid, entry.as_mut_ptr(), text.as_mut_ptr(), text.len(), &raw mut found) };
    if failed != 0 || found.is_null() {
        return uid.to_string();
    }
    // SAFETY: it was found, so the entry is filled in, and its name is a string in the buffer.
    let name = unsafe { CStr::from_ptr((*found).pw_name) };
    printable(&name.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_and_others_numbers() {
        assert_eq!(name(0), "root");
        assert_eq!(name(3_999_999_999), "3999999999");
    }
}
