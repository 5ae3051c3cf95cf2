//! Link options of libpoolscope_gpu.so.

fn main() {
    // Threads have caches in it, and frameworks keep pointers to its functions: it must never be unloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpoolscope_gpu.so");
    println!("cargo:rerun-if-changed=build.rs");
}
