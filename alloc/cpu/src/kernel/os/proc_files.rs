//! Files and folders of `/proc`, without an allocation.

use core::ffi::CStr;

use super::{close, keep_errno, open, read_whole_file};
use crate::kernel::system_call::system_call;

/// Bytes of a line that are passed on.
pub const LINE: usize = 128;

/// Calls `f` with each line of a file, or with its first bytes ([`LINE`]). False if it can't be read.
pub fn for_each_line(path: &CStr, mut f: impl FnMut(&[u8])) -> bool {
    let (mut line, mut len) = ([0u8; LINE], 0);
    read_whole_file(path, |part| {
        for &byte in part {
            if byte == b'\n' {
                f(&line[..len]);
                len = 0;
            } else if let Some(place) = line.get_mut(len) {
                *place = byte;
                len += 1;
            }
        }
    })
}

/// The number that the digits of a text are.
pub fn number_of(text: &[u8]) -> u32 {
    let digits = text.iter().filter(|byte| byte.is_ascii_digit());
    digits.fold(0, |number: u32, digit| number.wrapping_mul(10).wrapping_add(u32::from(digit - b'0')))
}

/// Calls `f` with each name in a folder that is a number. False if the kernel does not list them.
pub fn for_each_number(folder: &CStr, mut f: impl FnMut(u32)) -> bool {
    /// Where an entry (`struct linux_dirent64`) has its length and its name.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut buffer = [0u8; 4096];
    keep_errno(|| {
        // SAFETY: the path ends with zero.
        let fd = unsafe { open(folder.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0) };
        if fd < 0 {
            return false;
        }
        let end = loop {
            // SAFETY: the kernel writes at most as many bytes as there are.
            let read = unsafe { system_call!(libc::SYS_getdents64, fd, buffer.as_mut_ptr(), buffer.len()) };
            if read <= 0 {
                break read;
            }
            let mut at = 0;
            while at + NAME < read as usize {
                let len = usize::from(u16::from_le_bytes([buffer[at + LENGTH], buffer[at + LENGTH + 1]]));
                let name = &buffer[at + NAME..];
                let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
                if digits > 0 {
                    f(number_of(&name[..digits]));
                }
                at += len.max(NAME);
            }
        };
        // SAFETY: the descriptor is this function's.
        unsafe { close(fd) };
        end == 0
    })
}

/// Whether what a descriptor stands for has no type of a file's, as the kernel's own objects have none: instances of
/// epoll, timers, counters of events. False if that is not known.
pub fn is_object_of_the_kernel(descriptor: u32) -> bool {
    // SAFETY: zeroes are numbers.
    let mut about: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes what it knows of the descriptor.
    let known = keep_errno(|| unsafe { system_call!(libc::SYS_fstat, descriptor, &raw mut about) == 0 });
    known && about.st_mode & libc::S_IFMT == 0
}

/// A path that has a number in it, with the zero at its end. Empty where it has no room.
pub fn path_with<'a>(before: &[u8], number: u32, behind: &[u8], buffer: &'a mut [u8; 64]) -> &'a CStr {
    let mut digits = [0u8; 10];
    let mut first = digits.len();
    let mut rest = number;
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let parts: [&[u8]; 4] = [before, &digits[first..], behind, b"\0"];
    let mut places = buffer.iter_mut();
    for &byte in parts.into_iter().flatten() {
        let Some(place) = places.next() else { return c"" };
        *place = byte;
    }
    CStr::from_bytes_until_nul(buffer).unwrap_or(c"")
}

#[cfg(test)]
mod tests {
    use libc::eventfd;

    use super::*;

    #[test]
    fn lines_are_passed_on_and_long_ones_are_cut() {
        let long = "x".repeat(3 * LINE);
        let name = std::env::temp_dir().join(format!("poolscope-lines-{}", std::process::id()));
        std::fs::write(&name, format!("first\n\n{long}\nlast\n")).expect("a file");
        let path = std::ffi::CString::new(name.to_str().expect("a name")).expect("a path");
        let mut lines = Vec::new();
        assert!(for_each_line(&path, |line| lines.push(String::from_utf8_lossy(line).into_owned())));
        std::fs::remove_file(&name).expect("the file");
        assert_eq!(lines, ["first", "", &long[..LINE], "last"]);
        assert!(!for_each_line(c"/dev/null/nowhere", |_| ()));
    }

    #[test]
    fn numbers_in_a_folder_are_listed() {
        let mut found = Vec::new();
        assert!(for_each_number(c"/proc/self/task", |tid| found.push(tid)));
        assert!(found.contains(&crate::kernel::os::thread_id()));
        assert!(!for_each_number(c"/dev/null/nowhere", |_| ()));
    }

    #[test]
    fn objects_of_the_kernel_are_told_from_files() {
        let pipe = std::io::pipe().expect("a pipe").0;
        // SAFETY: makes a descriptor.
        let event = unsafe { eventfd(0, libc::EFD_CLOEXEC) };
        assert!(is_object_of_the_kernel(event as u32));
        assert!(!is_object_of_the_kernel(std::os::fd::AsRawFd::as_raw_fd(&pipe) as u32));
        // SAFETY: it is this function's.
        unsafe { close(event) };
        assert!(!is_object_of_the_kernel(u32::MAX));
    }

    #[test]
    fn a_number_is_put_into_a_path() {
        let mut buffer = [0u8; 64];
        assert_eq!(path_with(b"/proc/", 4_294_967_295, b"/stat", &mut buffer), c"/proc/4294967295/stat");
        assert_eq!(path_with(b"/a/", 0, b"", &mut buffer), c"/a/0");
        assert_eq!(path_with(&[b'a'; 60], 12_345, b"", &mut buffer), c"");
    }
}
