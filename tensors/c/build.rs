//! Link options of libpoolscope_tensors.so, and which commit it is built from.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpoolscope_tensors.so");
    // What the library says of itself. Where nobody names a commit, it says so.
    let commit = std::env::var("POOLSCOPE_COMMIT").ok().filter(|commit| !commit.is_empty());
    println!("cargo:rustc-env=POOLSCOPE_BUILT_FROM={}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo:rerun-if-env-changed=POOLSCOPE_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
}
