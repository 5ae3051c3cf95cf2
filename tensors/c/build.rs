//! Link options of libpoolscope_tensors.so.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpoolscope_tensors.so");
    println!("cargo:rerun-if-changed=build.rs");
}
