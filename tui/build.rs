//! What the command is built from, and the library that it carries.
//!
//! The commit is named by `POOLSCOPE_COMMIT`, or by what `cargo package` leaves in a package. It is not asked of git,
//! so that a commit is no reason to build anew.
//!
//! `cargo install` installs no libraries. So the command can carry libpoolscope.so: the one that `POOLSCOPE_EMBED`
//! names, the one in the package's folder `embedded`, or, with the feature `embed`, the one of the checkout that this
//! package lies in, which is built here.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    commit();
    embed();
}

fn commit() {
    println!("cargo:rerun-if-env-changed=POOLSCOPE_COMMIT");
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join(".cargo_vcs_info.json");
    // What is not there is not watched: cargo would build anew each time.
    let packaged = fs::read_to_string(package).ok();
    // {"git": {"sha1": "0123..."}}: forty digits behind the name.
    let packaged = packaged.as_deref().and_then(|text| text.split_once("\"sha1\":")).and_then(|(_, rest)| {
        let rest = rest.trim_start().strip_prefix('"')?;
        rest.get(..12).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    });
    let named = env::var("POOLSCOPE_COMMIT").ok().filter(|name| !name.is_empty());
    if let Some(commit) = named.as_deref().or(packaged) {
        println!("cargo:rustc-env=POOLSCOPE_COMMIT={commit}");
    }
}

fn embed() {
    println!("cargo:rerun-if-env-changed=POOLSCOPE_EMBED");
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("embedded/libpoolscope.so");
    let named = env::var_os("POOLSCOPE_EMBED").filter(|name| !name.is_empty()).map(PathBuf::from);
    let built = || env::var_os("CARGO_FEATURE_EMBED").map(|_| build_library());
    let library = named.or_else(|| package.exists().then_some(package)).or_else(built);
    let source = match &library {
        None => "pub(crate) const LIBRARY: Option<Carried> = None;\n".to_owned(),
        Some(path) => {
            println!("cargo:rerun-if-changed={}", path.display());
            let bytes = fs::read(path).unwrap_or_else(|error| panic!("{} can't be read: {error}", path.display()));
            let id = build_id(&bytes).unwrap_or_else(|| panic!("{} has no build id", path.display()));
            let path = path.canonicalize().expect("it was just read");
            format!(
                "pub(crate) const LIBRARY: Option<Carried> =\n    \
                 Some(Carried {{ build_id: {id:?}, bytes: include_bytes!({path:?}) }});\n"
            )
        }
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names it"));
    fs::write(out.join("embedded.rs"), source).expect("the build's own folder can be written");
}

/// The library of this checkout, in a folder of its own: cargo holds a lock on the usual one.
fn build_library() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../alloc/preload/Cargo.toml");
    assert!(manifest.exists(), "the feature `embed` is for a checkout: this package has no library beside it");
    let target = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names it")).join("library");
    let cargo = env::var_os("CARGO").expect("cargo names itself");
    let built = Command::new(cargo)
        .args(["build", "--release", "--config", "profile.release.strip=\"debuginfo\"", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(&target)
        // Flags and wrappers of the build that this one is a part of.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status();
    assert!(built.is_ok_and(|status| status.success()), "libpoolscope.so can't be built");
    target.join("release/libpoolscope.so")
}

/// The GNU build id in hexadecimal digits: a note of 20 bytes and of the type 3, which `GNU` owns.
fn build_id(bytes: &[u8]) -> Option<String> {
    const NOTE: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";
    let at = bytes.windows(NOTE.len()).position(|window| window == NOTE)? + NOTE.len();
    Some(bytes.get(at..at + 20)?.iter().map(|byte| format!("{byte:02x}")).collect())
}
