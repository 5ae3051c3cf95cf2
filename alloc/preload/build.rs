//! Link options of libpoolscope.so.

fn main() {
    // The initial image of the TLS word needs no lazy binding, and the library must never be unloaded: threads and
    // signal handlers may be in it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpoolscope.so");
    println!("cargo:rerun-if-changed=build.rs");
}
