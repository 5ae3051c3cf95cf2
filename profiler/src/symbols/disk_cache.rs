//! Names that were found before, in files of the user's: one for each module, named by its build id.
//!
//! To find names takes seconds in a large executable, and a leak check does it after each run of a test. What a file
//! says holds for the very files that it was read from: their numbers, sizes and times are in its head, and so is a
//! checksum of all that follows. A file that is cut off, damaged or of another version is as good as none.
//!
//! Any number of processes may read and write at a time: a file is written under another name and renamed. Of two that
//! write one file the later one wins, and the other one's names are looked up again. The folder holds so many bytes at
//! most; what was used longest ago goes first.

use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;

use crate::model::profile::Frame;

/// What a file begins with: another form of the rest is another number.
const MAGIC: [u8; 8] = *b"pssyms\0\x01";
/// Bytes of a file that are read, and names are kept of a module, at most.
const LARGEST: u64 = 32 << 20;
/// Bytes of all files together.
const ALL: u64 = 256 << 20;
/// A file that is used is marked so at most this often.
const MARK: Duration = Duration::from_secs(24 * 60 * 60);
/// Bytes of the head: [`MAGIC`], the sources, the checksum.
const HEAD: usize = 24;

/// An address and the functions there, innermost first.
pub(super) type Entry = (u64, Arc<[Frame]>);

/// A folder of such files.
#[derive(Clone, Debug)]
pub(super) struct DiskCache(PathBuf);

impl DiskCache {
    /// A folder, which need not be there.
    pub(super) fn new(folder: PathBuf) -> Self {
        DiskCache(folder)
    }

    fn file(&self, build_id: &str) -> PathBuf {
        self.0.join(build_id)
    }

    /// What is known of a module whose names come from `sources`; nothing if the files have changed since.
    pub(super) fn load(&self, build_id: &str, sources: &[PathBuf]) -> Vec<Entry> {
        let read = || -> Option<Vec<Entry>> {
            let file = OpenOptions::new()
                .read(true)
                .custom_flags(OFlags::NOFOLLOW.bits() as i32)
                .open(self.file(build_id))
                .ok()?;
            let metadata = file.metadata().ok()?;
            let is_sound = metadata.is_file() && metadata.len() <= LARGEST && metadata.uid() == own_user();
            if !is_sound {
                return None;
            }
            let mut bytes = Vec::with_capacity(metadata.len() as usize);
            (&file).take(LARGEST).read_to_end(&mut bytes).ok()?;
            let entries = decode(&bytes, stamp(sources)?)?;
            let age = metadata.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
            if age.is_some_and(|age| age > MARK) {
                // Where that can't be said the file goes earlier than it should.
                let _ = file.set_modified(SystemTime::now());
            }
            Some(entries)
        };
        read().unwrap_or_default()
    }

    /// Keeps what is known of a module. A cache that can't be written is no error: names are looked up again.
    pub(super) fn save(&self, build_id: &str, sources: &[PathBuf], entries: &[Entry]) {
        let Some(stamp) = stamp(sources) else { return };
        let bytes = encode(entries, stamp);
        if bytes.len() as u64 <= LARGEST && self.write(build_id, &bytes).is_ok() {
            self.make_room();
        }
    }

    fn write(&self, build_id: &str, bytes: &[u8]) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        // Another user's folder, as under sudo, is left alone.
        if fs::metadata(&self.0)?.uid() != own_user() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let path = self.0.join(format!("{build_id}.{}.{:x}", std::process::id(), now.as_nanos()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let written = file.write_all(bytes).and_then(|()| fs::rename(&path, self.file(build_id)));
        if written.is_err() {
            let _ = fs::remove_file(&path);
        }
        written
    }

    /// Removes files until the rest is small enough, those first that were used longest ago.
    fn make_room(&self) {
        let Ok(entries) = fs::read_dir(&self.0) else { return };
        let facts = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.ok()?;
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries.filter_map(facts).collect();
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, size, path) in files {
            if bytes <= ALL {
                break;
            }
            // Another process may have removed it.
            let _ = fs::remove_file(path);
            bytes -= size;
        }
    }
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Tells the files that names come from, as they are now. `None` if one is not there.
fn stamp(sources: &[PathBuf]) -> Option<u64> {
    // The same for the same words in every run.
    #[allow(deprecated, reason = "a hasher that is the same in every version")]
    let mut hasher = std::hash::SipHasher::new();
    for path in sources {
        let metadata = fs::metadata(path).ok()?;
        (metadata.dev(), metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()).hash(&mut hasher);
    }
    Some(hasher.finish())
}

fn checksum(bytes: &[u8]) -> u64 {
    #[allow(deprecated, reason = "a hasher that is the same in every version")]
    let mut hasher = std::hash::SipHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

const INLINED: u8 = 1;
const HAS_FILE: u8 = 2;
const HAS_LINE: u8 = 4;
const HAS_SYMBOL: u8 = 8;

fn encode(entries: &[Entry], stamp: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(MAGIC);
    bytes.extend(stamp.to_le_bytes());
    bytes.extend([0; 8]);
    for (address, frames) in entries {
        bytes.extend(address.to_le_bytes());
        bytes.extend((frames.len() as u32).to_le_bytes());
        for frame in frames.iter() {
            let Frame { name, symbol, file, line, inlined } = frame;
            let flag = |on: bool, flag: u8| if on { flag } else { 0 };
            bytes.push(
                flag(*inlined, INLINED)
                    | flag(file.is_some(), HAS_FILE)
                    | flag(line.is_some(), HAS_LINE)
                    | flag(symbol.is_some(), HAS_SYMBOL),
            );
            let texts = [Some(name.as_str()), file.as_deref(), symbol.as_deref()];
            for text in texts.into_iter().flatten() {
                bytes.extend((text.len() as u32).to_le_bytes());
                bytes.extend(text.as_bytes());
            }
            line.iter().for_each(|line| bytes.extend(line.to_le_bytes()));
        }
    }
    let sum = checksum(&bytes[HEAD..]);
    bytes[HEAD - 8..HEAD].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// What is left to be read of a file.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn short(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<&'a str> {
        let len = self.short()? as usize;
        std::str::from_utf8(self.take(len)?).ok()
    }
}

/// The entries; `None` if the bytes are not what [`encode`] writes of these sources.
fn decode(bytes: &[u8], stamp: u64) -> Option<Vec<Entry>> {
    let mut rest = Rest(bytes);
    let is_ours = rest.take(MAGIC.len())? == MAGIC && rest.long()? == stamp;
    if !is_ours || rest.long()? != checksum(rest.0) {
        return None;
    }
    let mut entries = Vec::new();
    while !rest.0.is_empty() {
        let address = rest.long()?;
        let mut frames = Vec::new();
        for _ in 0..rest.short()? {
            let flags = rest.take(1)?[0];
            let has = |flag: u8| flags & flag != 0;
            frames.push(Frame {
                name: rest.text()?.to_owned(),
                file: if has(HAS_FILE) { Some(rest.text()?.to_owned()) } else { None },
                symbol: if has(HAS_SYMBOL) { Some(rest.text()?.into()) } else { None },
                line: if has(HAS_LINE) { Some(rest.short()?) } else { None },
                inlined: has(INLINED),
            });
        }
        entries.push((address, frames.into()));
    }
    Some(entries)
}

/// Whether a build id can name a file: no id of real programs is shorter than the hash of one.
pub(super) fn is_name(build_id: &[u8]) -> bool {
    (8..=64).contains(&build_id.len())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn entries() -> Vec<Entry> {
        let plain = Frame { name: "f".into(), ..Frame::default() };
        let full = Frame {
            name: "a::b<T>".into(),
            symbol: Some("_ZN1a1bE".into()),
            file: Some("/src/a.rs".into()),
            line: Some(7),
            inlined: true,
        };
        vec![(0x10, vec![full.clone(), plain.clone()].into()), (0x20, vec![plain].into()), (0x30, Vec::new().into())]
    }

    struct Scratch {
        folder: tempfile::TempDir,
        source: PathBuf,
        cache: DiskCache,
    }

    fn scratch() -> Scratch {
        let folder = tempfile::tempdir().expect("a folder");
        let source = folder.path().join("source");
        fs::write(&source, "symbols").expect("is written");
        let cache = DiskCache::new(folder.path().join("names"));
        Scratch { folder, source, cache }
    }

    #[test]
    fn what_was_kept_is_found_as_long_as_its_sources_are_what_they_were() {
        let Scratch { source, cache, folder: _folder } = scratch();
        let sources = [source.clone()];
        assert_eq!(cache.load("ab12", &sources), []);
        cache.save("ab12", &sources, &entries());
        assert_eq!(cache.load("ab12", &sources), entries());
        assert_eq!(cache.load("ab13", &sources), []);
        assert_eq!(cache.load("ab12", &[source.clone(), source.clone()]), [], "they have another source, too");
        fs::write(&source, "other symbols").expect("is written");
        assert_eq!(cache.load("ab12", &sources), []);
        cache.save("ab12", &sources, &entries()[..1]);
        assert_eq!(cache.load("ab12", &sources), entries()[..1]);
    }

    #[test]
    fn a_file_that_is_cut_off_or_changed_anywhere_is_as_good_as_none() {
        let Scratch { source, cache, folder: _folder } = scratch();
        let sources = [source];
        cache.save("ab12", &sources, &entries());
        let file = cache.file("ab12");
        let whole = fs::read(&file).expect("is there");
        for len in 0..whole.len() {
            fs::write(&file, &whole[..len]).expect("is written");
            assert_eq!(cache.load("ab12", &sources), [], "{len} bytes are left");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x41;
            fs::write(&file, &changed).expect("is written");
            assert_eq!(cache.load("ab12", &sources), [], "byte {at} is another one");
        }
        let mut longer = whole.clone();
        longer.push(0);
        fs::write(&file, longer).expect("is written");
        assert_eq!(cache.load("ab12", &sources), []);
        cache.save("ab12", &sources, &entries());
        assert_eq!(cache.load("ab12", &sources), entries());
    }

    #[test]
    fn processes_that_write_at_once_leave_a_whole_file() {
        let Scratch { source, cache, folder } = scratch();
        let sources = [source];
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        cache.save("ab12", &sources, &entries());
                        assert_eq!(cache.load("ab12", &sources), entries());
                    }
                });
            }
        });
        let files = fs::read_dir(folder.path().join("names")).expect("a folder").count();
        assert_eq!(files, 1, "nothing else is left there");
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let Scratch { source, cache, folder } = scratch();
        let sources = [source];
        let names = folder.path().join("names");
        fs::create_dir(&names).expect("is made");
        // Files of holes: they have a size, and take no room.
        for (name, days) in [("old", 9), ("older", 10), ("new", 1)] {
            let file = File::create(names.join(name)).expect("is made");
            file.set_len(ALL / 2 - 100).expect("has a size");
            file.set_modified(SystemTime::now() - MARK * days).expect("has a time");
        }
        cache.save("ab12", &sources, &entries());
        let is_there = |name: &str| names.join(name).exists();
        assert_eq!(["older", "old", "new", "ab12"].map(is_there), [false, true, true, true]);
    }

    #[test]
    fn a_folder_that_can_not_be_written_is_no_error() {
        let Scratch { source, folder: _folder, .. } = scratch();
        let cache = DiskCache::new(PathBuf::from("/proc/no/such/folder"));
        cache.save("ab12", std::slice::from_ref(&source), &entries());
        assert_eq!(cache.load("ab12", &[source]), []);
    }
}
