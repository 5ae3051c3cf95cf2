//! Files and folders of `/proc`, without an allocation.

use core::ffi::CStr;

use super::kept::Descriptor;
use super::{is_plain, keep_errno, open_proc};
use crate::kernel::system_call::system_call;

/// Bytes of a line that are passed on.
pub const LINE: usize = 128;

/// Reads the start of a file; the number of bytes read, 0 on any error.
pub fn read_file(path: &CStr, buffer: &mut [u8]) -> usize {
    if is_plain() {
        return 0;
    }
    keep_errno(|| {
        let Some(file) = open_proc(path) else { return 0 };
        let mut len = 0;
        while len < buffer.len() {
            match read(&file, &mut buffer[len..]) {
                Some(more @ 1..) => len += more,
                _ => break,
            }
        }
        len
    })
}

/// Passes a whole file on, part by part. False if it can't be read.
pub fn read_whole_file(path: &CStr, mut f: impl FnMut(&[u8])) -> bool {
    if is_plain() {
        return false;
    }
    let mut buffer = [0u8; 4096];
    keep_errno(|| {
        let Some(file) = open_proc(path) else { return false };
        loop {
            match read(&file, &mut buffer) {
                Some(0) => return true,
                Some(len) => f(buffer.get(..len).unwrap_or_default()),
                None => return false,
            }
        }
    })
}

/// Reads the next bytes of a file, of which there are none at its end. `None` on any error, with errno changed.
fn read(file: &Descriptor, buffer: &mut [u8]) -> Option<usize> {
    // SAFETY: the kernel writes at most as many bytes as there are.
    let read = unsafe { system_call!(libc::SYS_read, file.number(), buffer.as_mut_ptr(), buffer.len()) };
    usize::try_from(read).ok()
}

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

/// Whether none of the process's memory is in swap. False if that is not known.
pub fn is_nothing_swapped() -> bool {
    let mut own = None;
    for_each_line(c"/proc/thread-self/status", |line| {
        if let Some(swapped) = line.strip_prefix(b"VmSwap:") {
            own = Some(number_of(swapped));
        }
    });
    if let Some(own) = own {
        return own == 0;
    }
    // SAFETY: zeroes are numbers.
    let mut all: libc::sysinfo = unsafe { core::mem::zeroed() };
    // SAFETY: the kernel writes what it knows of the machine.
    let known = keep_errno(|| unsafe { system_call!(libc::SYS_sysinfo, &raw mut all) == 0 });
    known && all.totalswap == all.freeswap
}

/// Calls `f` with each name in a folder that is a number. False if the kernel does not list them.
pub fn for_each_number(folder: &CStr, mut f: impl FnMut(u32)) -> bool {
    /// Where an entry (`struct linux_dirent64`) has its length and its name.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let mut buffer = [0u8; 4096];
    keep_errno(|| {
        let Some(folder) = open_proc(folder) else { return false };
        loop {
            let number = folder.number();
            // SAFETY: the kernel writes at most as many bytes as there are.
            let read = unsafe { system_call!(libc::SYS_getdents64, number, buffer.as_mut_ptr(), buffer.len()) };
            if read <= 0 {
                return read == 0;
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
        }
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
        unsafe { libc::close(event) };
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
