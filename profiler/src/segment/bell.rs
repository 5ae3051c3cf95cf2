//! A word of a segment that is slept on (futex(2)), by whichever side: the pool's thread sleeps until it is asked for
//! something, a recorder until its program calls.
//!
//! It is read and written by `pread` and `pwrite`, as all of a segment is. It is mapped as well, because the kernel
//! names what is slept on by its address. Only the kernel looks there, so that a file that is cut off is an error and
//! no fault.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use poolscope_wire::Header;
use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;

/// The word.
#[derive(Debug)]
pub struct Bell {
    file: File,
    place: usize,
    /// The address at which the header is mapped.
    page: usize,
}

impl Bell {
    /// The word at this place of a segment's header.
    pub(crate) fn of(segment: &File, place: usize) -> io::Result<Self> {
        assert!(place + 4 <= size_of::<Header>() && place.is_multiple_of(4));
        let file = segment.try_clone()?;
        #[expect(unsafe_code, reason = "the kernel names a word by its address")]
        // SAFETY: a new mapping, which nobody has a reference into.
        let page =
            unsafe { mmap(std::ptr::null_mut(), size_of::<Header>(), ProtFlags::READ, MapFlags::SHARED, &file, 0)? };
        Ok(Self { file, place, page: page.expose_provenance() })
    }

    fn word(&self) -> *const AtomicU32 {
        std::ptr::with_exposed_provenance(self.page + self.place)
    }

    /// What the word says.
    pub fn rung(&self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, self.place as u64)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Raises the word, and wakes who sleeps on it.
    pub fn ring(&self) -> io::Result<()> {
        let rung = self.rung()?.wrapping_add(1);
        self.file.write_all_at(&rung.to_le_bytes(), self.place as u64)?;
        // SAFETY: the word is aligned, and lies in the mapping that this owns. It is an atomic, and only the kernel
        // looks at it.
        #[expect(unsafe_code, reason = "as above")]
        let _ = unsafe { futex::wake(&*self.word(), futex::Flags::empty(), i32::MAX as u32) };
        Ok(())
    }

    /// Sleeps for so long, or until the word is raised, unless it no longer says `rung`.
    pub fn sleep(&self, rung: u32, limit: Duration) -> io::Result<()> {
        let limit = Timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos().into() };
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "as above")]
        let slept = unsafe { futex::wait(&*self.word(), futex::Flags::empty(), rung, Some(&limit)) };
        match slept {
            Ok(()) | Err(Errno::AGAIN | Errno::TIMEDOUT | Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and nobody has a reference into it.
        #[expect(unsafe_code, reason = "as above")]
        let _ = unsafe { munmap(std::ptr::with_exposed_provenance_mut(self.page), size_of::<Header>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(600);
    const PLACE: usize = std::mem::offset_of!(Header, trace_calls);

    fn segment() -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size_of::<Header>() as u64).unwrap();
        file
    }

    #[test]
    fn it_wakes_who_sleeps_by_another_mapping_and_only_until_it_is_raised() {
        let segment = segment();
        let bell = Bell::of(&segment, PLACE).unwrap();
        let begun = Instant::now();
        bell.sleep(0, Duration::from_millis(20)).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(20), "nobody rang");
        let ringer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            Bell::of(&segment, PLACE).unwrap().ring().unwrap();
        });
        bell.sleep(0, LONG).unwrap();
        bell.sleep(0, LONG).unwrap();
        assert!(begun.elapsed() < LONG && bell.rung().unwrap() == 1);
        ringer.join().unwrap();
    }

    #[test]
    fn of_a_file_that_is_cut_off_there_is_an_error_and_no_fault() {
        let segment = segment();
        let bell = Bell::of(&segment, PLACE).unwrap();
        segment.set_len(0).unwrap();
        assert!(bell.rung().is_err() && bell.ring().is_err() && bell.sleep(0, LONG).is_err());
    }
}
