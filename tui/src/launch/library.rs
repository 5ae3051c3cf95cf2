//! Where libpoolscope.so is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::launch::embedded;

/// The file.
pub(crate) const NAME: &str = "libpoolscope.so";
/// The variable that names it.
pub(crate) const VARIABLE: &str = "POOLSCOPE_LIB";

#[cfg(target_arch = "x86_64")]
const SYSTEM_FOLDERS: [&str; 6] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/local/lib", "/usr/lib64", "/usr/lib", "/lib/x86_64-linux-gnu", "/lib"];
#[cfg(target_arch = "aarch64")]
const SYSTEM_FOLDERS: [&str; 6] =
    ["/usr/lib/aarch64-linux-gnu", "/usr/local/lib", "/usr/lib64", "/usr/lib", "/lib/aarch64-linux-gnu", "/lib"];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/lib", "/usr/lib", "/lib"];

/// Where the library lies below the prefix that the command is installed in.
#[cfg(target_arch = "x86_64")]
const INSTALLED_FOLDERS: [&str; 3] = ["lib", "lib/poolscope", "lib/x86_64-linux-gnu/poolscope"];
#[cfg(target_arch = "aarch64")]
const INSTALLED_FOLDERS: [&str; 3] = ["lib", "lib/poolscope", "lib/aarch64-linux-gnu/poolscope"];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const INSTALLED_FOLDERS: [&str; 2] = ["lib", "lib/poolscope"];

/// Finds the library: by `POOLSCOPE_LIB` and then nowhere else, else beside the executable (where cargo builds both),
/// else in `lib` beside the executable's folder (where `make install` puts it) or in a folder of its own there (where
/// packages do), else the one that the command carries, else in the system's folders.
pub(crate) fn find() -> Result<PathBuf, Failure> {
    let executable = std::env::current_exe().and_then(|p| p.canonicalize()).ok();
    let beside = executable.as_deref().and_then(Path::parent);
    let found = find_in(std::env::var_os(VARIABLE), beside, embedded::unpack, &SYSTEM_FOLDERS)?;
    let found = found.canonicalize().unwrap_or(found);
    // ld.so(8) separates the items of LD_PRELOAD by blanks and colons, and knows no way to quote them.
    if found.as_os_str().as_encoded_bytes().iter().any(|b| matches!(b, b' ' | b':' | b'\t' | b'\n')) {
        return Err(Failure::usage(format!(
            "{} cannot be preloaded: LD_PRELOAD takes no path with a blank or a colon; move it, or name a copy by \
             {VARIABLE}",
            found.display()
        )));
    }
    Ok(found)
}

fn find_in(
    named: Option<OsString>,
    beside: Option<&Path>,
    carried: impl FnOnce() -> Option<Result<PathBuf, Failure>>,
    system: &[&str],
) -> Result<PathBuf, Failure> {
    if let Some(named) = named.filter(|n| !n.is_empty()) {
        let path = PathBuf::from(named);
        if path.is_file() {
            return Ok(path);
        }
        return Err(Failure::usage(format!("{VARIABLE} names {}, which is no file", path.display())));
    }
    let prefix = beside.and_then(Path::parent);
    let installed = INSTALLED_FOLDERS.iter().filter_map(|folder| Some(prefix?.join(folder)));
    let own: Vec<PathBuf> = beside.map(Path::to_path_buf).into_iter().chain(installed).map(|p| p.join(NAME)).collect();
    if let Some(found) = own.iter().find(|p| p.is_file()) {
        return Ok(found.clone());
    }
    // It is of one build with the command, which what lies in the system's folders may not be.
    if let Some(carried) = carried() {
        return carried;
    }
    let places: Vec<PathBuf> =
        own.into_iter().chain(system.iter().map(|folder| Path::new(folder).join(NAME))).collect();
    if let Some(found) = places.iter().find(|p| p.is_file()) {
        return Ok(found.clone());
    }
    let mut message = format!("{NAME} was not found. Looked for:\n");
    for place in &places {
        message += &format!("  {}\n", place.display());
    }
    message += &format!("Put it beside the poolscope executable, or name it: {VARIABLE}=/path/to/{NAME}");
    Err(Failure::usage(message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// What a command says that carries no library.
    fn none() -> Option<Result<PathBuf, Failure>> {
        None
    }

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("poolscope-library-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_missing_library_is_an_error_that_names_every_place() {
        let folder = Folder::new("missing");
        let failure = find_in(None, Some(&folder.0), none, &["/nonexistent/lib", "/nonexistent/lib64"]).unwrap_err();
        assert_eq!(failure.code, 2);
        for place in
            [folder.0.to_str().unwrap(), "/nonexistent/lib/libpoolscope.so", "/nonexistent/lib64/libpoolscope.so"]
        {
            assert!(failure.message.contains(place), "{}", failure.message);
        }
        assert!(failure.message.contains(VARIABLE));
    }

    #[test]
    fn the_variable_wins_and_must_be_right() {
        let folder = Folder::new("variable");
        let beside = folder.0.join(NAME);
        let other = folder.0.join("other.so");
        fs::write(&beside, "").unwrap();
        let failure = find_in(Some(other.clone().into()), Some(&folder.0), none, &[]).unwrap_err();
        assert!(failure.message.contains("other.so"));
        fs::write(&other, "").unwrap();
        assert_eq!(find_in(Some(other.clone().into()), Some(&folder.0), none, &[]).unwrap(), other);
        assert_eq!(find_in(Some("".into()), Some(&folder.0), none, &[]).unwrap(), beside);
    }

    #[test]
    fn beside_the_executable_comes_before_the_system() {
        let (near, far) = (Folder::new("near"), Folder::new("far"));
        fs::write(far.0.join(NAME), "").unwrap();
        let system = [far.0.to_str().unwrap()];
        assert_eq!(find_in(None, Some(&near.0), none, &system).unwrap(), far.0.join(NAME));
        fs::write(near.0.join(NAME), "").unwrap();
        assert_eq!(find_in(None, Some(&near.0), none, &system).unwrap(), near.0.join(NAME));
    }

    #[test]
    fn an_installed_command_takes_the_library_of_its_own_prefix() {
        let (prefix, far) = (Folder::new("prefix"), Folder::new("system"));
        let (bin, lib) = (prefix.0.join("bin"), prefix.0.join("lib"));
        fs::create_dir_all(&lib).unwrap();
        fs::write(far.0.join(NAME), "").unwrap();
        fs::write(lib.join(NAME), "").unwrap();
        assert_eq!(find_in(None, Some(&bin), none, &[far.0.to_str().unwrap()]).unwrap(), lib.join(NAME));
    }

    #[test]
    fn the_library_that_the_command_carries_comes_before_the_systems() {
        let (near, far) = (Folder::new("carrier"), Folder::new("old"));
        fs::write(far.0.join(NAME), "").unwrap();
        let system = [far.0.to_str().unwrap()];
        let carried = || Some(Ok(PathBuf::from("/carried")));
        assert_eq!(find_in(None, Some(&near.0), carried, &system).unwrap(), Path::new("/carried"));
        fs::write(near.0.join(NAME), "").unwrap();
        assert_eq!(find_in(None, Some(&near.0), carried, &system).unwrap(), near.0.join(NAME));
    }
}
