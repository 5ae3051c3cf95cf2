//! The library that the command carries, for those who installed nothing else.
//!
//! It is written to a folder of the user's own, under its build id, where the next command finds it. `LD_PRELOAD` takes
//! no path that has a blank or a colon, and the dynamic linker maps no library of a file system that is mounted
//! `noexec`: such folders are passed over, and named if none is left.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;

use crate::failure::Failure;
use crate::launch::library::{NAME, VARIABLE};

/// A library.
pub(crate) struct Carried {
    build_id: &'static str,
    bytes: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// The file of the library that the command carries, written if it is not there. `None` if it carries none.
pub(crate) fn unpack() -> Option<Result<PathBuf, Failure>> {
    LIBRARY.map(|library| library.unpack_into(&folders()))
}

/// Where a user has files of their own, in the order in which they are tried.
fn folders() -> Vec<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = named("HOME").filter(|home| home.is_dir()).map(|home| home.join(".cache"));
    let uid = rustix::process::geteuid().as_raw();
    let mut folders: Vec<PathBuf> = [named("XDG_RUNTIME_DIR"), named("XDG_CACHE_HOME").or(home)]
        .into_iter()
        .flatten()
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("poolscope"))
        .collect();
    folders.push(std::env::temp_dir().join(format!("poolscope-{uid}")));
    folders
}

impl Carried {
    fn unpack_into(&self, folders: &[PathBuf]) -> Result<PathBuf, Failure> {
        let mut refused = String::new();
        for folder in folders {
            match self.place(folder) {
                Ok(path) => return Ok(path),
                Err(why) => refused += &format!("\n  {}: {why}", folder.display()),
            }
        }
        Err(Failure::usage(format!(
            "{NAME}, which this command carries, can't be put where programs could load it:{refused}\nName a folder by \
             XDG_CACHE_HOME, or the library's own file by {VARIABLE}"
        )))
    }

    /// Puts the library below a folder, if it is not there yet; or says why not.
    fn place(&self, folder: &Path) -> Result<PathBuf, String> {
        if folder.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'\t' | b'\n')) {
            return Err("LD_PRELOAD takes no path with a blank or a colon".to_owned());
        }
        let own = folder.join(self.build_id);
        DirBuilder::new().recursive(true).mode(0o700).create(&own).map_err(|error| error.to_string())?;
        for place in [folder, &own] {
            // Not through a link: another user may have made the folder in /tmp.
            let metadata = fs::symlink_metadata(place).map_err(|error| error.to_string())?;
            if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
                return Err(format!("{} is not a folder of yours", place.display()));
            }
            if metadata.mode() & 0o022 != 0 {
                return Err(format!("others may write to {}", place.display()));
            }
        }
        let mounted = rustix::fs::statvfs(&own).map_err(|error| error.to_string())?;
        if mounted.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err("its file system is mounted noexec, and libraries can't be loaded from there".to_owned());
        }
        let path = own.join(NAME);
        if fs::read(&path).is_ok_and(|there| there == self.bytes) {
            return Ok(path);
        }
        self.write(&path).map_err(|error| error.to_string())?;
        // What was written is what will be loaded.
        match fs::read(&path) {
            Ok(there) if there == self.bytes => Ok(path),
            Ok(_) => Err("what was written is not what can be read".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Other commands may do the same at the same time: the file appears under its name when it is whole.
    fn write(&self, path: &Path) -> io::Result<()> {
        let unfinished = path.with_extension(format!("{}.tmp", std::process::id()));
        let written =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished).and_then(
                |mut file| {
                    file.write_all(self.bytes)?;
                    file.set_permissions(fs::Permissions::from_mode(0o500))?;
                    fs::rename(&unfinished, path)
                },
            );
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Carried = Carried { build_id: "0123abcd", bytes: b"a library" };

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("poolscope-embedded-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_library_lies_under_its_build_id_and_is_mended_if_it_was_changed() {
        let folder = Folder::new("mended");
        let path = SOME.unpack_into(std::slice::from_ref(&folder.0)).unwrap();
        assert_eq!(path, folder.0.join("0123abcd/libpoolscope.so"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o500);
        let inode = fs::metadata(&path).unwrap().ino();
        SOME.unpack_into(std::slice::from_ref(&folder.0)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode, "it was written again");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(&path, "another").unwrap();
        SOME.unpack_into(std::slice::from_ref(&folder.0)).unwrap();
        assert_eq!(fs::read(&path).unwrap(), SOME.bytes);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "something else is left");
    }

    #[test]
    fn folders_that_will_not_do_are_passed_over_and_named() {
        let (blank, open, good) = (Folder::new("a blank"), Folder::new("open"), Folder::new("good"));
        fs::set_permissions(&open.0, fs::Permissions::from_mode(0o777)).unwrap();
        // /proc is mounted noexec, and nothing can be written there.
        let bad = [blank.0.clone(), open.0.clone(), PathBuf::from("/proc/poolscope")];
        let failure = SOME.unpack_into(&bad).unwrap_err();
        assert_eq!(failure.code, 2);
        for words in ["a blank or a colon", "others may write", "/proc/poolscope", VARIABLE] {
            assert!(failure.message.contains(words), "{words}: {}", failure.message);
        }
        let all: Vec<PathBuf> = bad.into_iter().chain([good.0.clone()]).collect();
        assert!(SOME.unpack_into(&all).unwrap().starts_with(&good.0));
    }

    /// /dev/shm is a file system that containers mount noexec.
    #[test]
    fn a_file_system_without_execution_is_said_to_be_one() {
        let noexec = ["/dev/shm", "/run", "/sys/fs/cgroup", "/dev/mqueue"].into_iter().find(|place| {
            let is_noexec = rustix::fs::statvfs(*place).is_ok_and(|it| it.f_flag.contains(StatVfsMountFlags::NOEXEC));
            let own = Path::new(place).join(format!("poolscope-noexec-{}", std::process::id()));
            is_noexec && fs::create_dir(&own).is_ok_and(|()| fs::remove_dir(&own).is_ok())
        });
        // Where every file system may be executed from, there is nothing to refuse.
        let Some(place) = noexec else { return };
        let folder = Path::new(place).join(format!("poolscope-noexec-{}", std::process::id()));
        let failure = SOME.unpack_into(std::slice::from_ref(&folder)).unwrap_err();
        let _ = fs::remove_dir_all(&folder);
        assert!(failure.message.contains("noexec"), "{}", failure.message);
    }
}
