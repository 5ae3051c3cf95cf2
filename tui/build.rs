//! The commit that the command is built from: named by `POOLSCOPE_COMMIT`, or by what `cargo package` leaves in a
//! package. It is not asked of git, so that a commit is no reason to build anew.

use std::path::Path;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=POOLSCOPE_COMMIT");
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join(".cargo_vcs_info.json");
    println!("cargo:rerun-if-changed={}", package.display());
    let packaged = std::fs::read_to_string(package).ok();
    // {"git": {"sha1": "0123..."}}: forty digits behind the name.
    let packaged = packaged.as_deref().and_then(|text| text.split_once("\"sha1\":")).and_then(|(_, rest)| {
        let rest = rest.trim_start().strip_prefix('"')?;
        rest.get(..12).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    });
    let named = std::env::var("POOLSCOPE_COMMIT").ok().filter(|name| !name.is_empty());
    if let Some(commit) = named.as_deref().or(packaged) {
        println!("cargo:rustc-env=POOLSCOPE_COMMIT={commit}");
    }
}
