//! Messages without allocation, and the end of a process whose memory is already corrupt.

use core::ffi::c_int;

/// A line under construction on the stack; what doesn't fit is cut.
pub struct Message {
    bytes: [u8; 512],
    len: usize,
}

impl Message {
    /// Starts a line.
    pub fn new(text: &str) -> Self {
        Message { bytes: [0; 512], len: 0 }.text("poolscope: ").text(text)
    }

    /// Adds text.
    pub fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    /// Adds bytes as they are.
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.push(bytes);
        self
    }

    /// Adds a path, the middle of a long one left out: what comes behind it has room.
    #[cold]
    #[inline(never)]
    pub fn path(self, path: &[u8]) -> Self {
        const SHOWN: usize = 256;
        match (path.get(..SHOWN / 2), path.len().checked_sub(SHOWN).filter(|&left| left > 0)) {
            (Some(first), Some(left_out)) => self.bytes(first).text("...").bytes(&path[left_out + SHOWN / 2..]),
            _ => self.bytes(path),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
    }

    /// Adds a decimal number.
    pub fn number(self, value: u64) -> Self {
        self.bytes(decimal(value, &mut [0; 20]))
    }

    /// Adds an error of a file that was to be written, by its number and in words.
    #[cold]
    #[inline(never)]
    pub fn error(self, error: c_int) -> Self {
        let words = match error {
            libc::ENOENT => "there is no such folder",
            libc::ENOTDIR => "a part of the path is no folder",
            libc::EISDIR => "it is a folder",
            libc::EACCES | libc::EPERM => "it is not allowed",
            libc::ENOSPC | libc::EDQUOT => "there is no room",
            libc::EROFS => "it can only be read there",
            libc::EFBIG => "the file would be larger than the limit of file size allows",
            libc::EMFILE | libc::ENFILE => "too many files are open",
            libc::ENAMETOOLONG => "the path is too long",
            libc::EEXIST => "there are files of all its names",
            libc::ELOOP => "it is a link",
            libc::ENODATA => "the process has no segment",
            _ => "the kernel refused",
        };
        self.text("error ").number(error as u64).text(": ").text(words)
    }

    /// Adds an address.
    pub fn address(self, value: usize) -> Self {
        let mut digits = [0u8; 16];
        for (i, digit) in digits.iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(value >> (60 - 4 * i)) & 15];
        }
        let start = digits.iter().position(|&d| d != b'0').unwrap_or(15);
        self.text("0x").bytes(&digits[start..])
    }

    /// Writes the line to standard error, with errno kept.
    pub fn print(mut self) {
        let at = self.len.min(self.bytes.len() - 1);
        self.bytes[at] = b'\n';
        // A failed write is nothing to act on here.
        crate::kernel::os::keep_errno(|| crate::kernel::os::write(2, self.bytes.get(..=at).unwrap_or_default()));
    }

    /// Writes the line and aborts: memory is corrupt, going on would spread it.
    pub fn abort(self) -> ! {
        self.print();
        // SAFETY: abort takes nothing and does not return.
        unsafe { libc::abort() }
    }
}

/// What doesn't fit is cut, which is no error.
impl core::fmt::Write for Message {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// Standard error for long texts: written in pieces, without allocation, with errno kept.
pub struct StandardError {
    bytes: [u8; 1024],
    len: usize,
}

impl StandardError {
    /// Nothing written yet.
    pub const fn new() -> Self {
        StandardError { bytes: [0; 1024], len: 0 }
    }

    fn flush(&mut self) {
        let mut rest = &self.bytes[..self.len];
        crate::kernel::os::keep_errno(|| {
            while !rest.is_empty() {
                // A failed write is nothing to act on here.
                let written = crate::kernel::os::write(2, rest);
                if written <= 0 {
                    break;
                }
                rest = rest.get(written as usize..).unwrap_or_default();
            }
        });
        self.len = 0;
    }
}

impl Default for StandardError {
    fn default() -> Self {
        StandardError::new()
    }
}

impl core::fmt::Write for StandardError {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for &byte in text.as_bytes() {
            if self.len == self.bytes.len() {
                self.flush();
            }
            self.bytes[self.len] = byte;
            self.len += 1;
        }
        Ok(())
    }
}

impl Drop for StandardError {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The decimal digits of a number, which are the end of `digits`.
pub fn decimal(mut value: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            return &digits[first..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_leaves_room_for_what_comes_behind_it() {
        for len in [1, 255, 256, 257, 1000, 4096] {
            let mut path = std::vec![b'/'; len];
            path[len - 1] = b'e';
            let message = Message::new("to ").path(&path).text(": why");
            let shown = std::str::from_utf8(&message.bytes[..message.len]).expect("text");
            assert!(shown.ends_with("e: why") && shown.len() < 300, "{shown}");
            assert_eq!(shown.contains("..."), len > 256, "{len}");
        }
    }
}
