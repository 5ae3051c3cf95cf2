//! Link options of libpoolscope.so.

use std::env;

fn main() {
    // The initial image of the TLS word needs no lazy binding, and the library must never be unloaded: threads and
    // signal handlers may be in it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpoolscope.so");
    // The capture's fallback calls libgcc's unwinder. From libgcc_s.so.1, that would become a dependency of every
    // program that the library is preloaded into; so the library has a copy of its own, which it does not export:
    // exceptions go through the program's.
    println!("cargo:rustc-cdylib-link-arg=-l:libgcc_eh.a");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,libgcc_eh.a");
    // The libc crate asks for libc.so.6 only where its feature `std` is off, and cargo turns that on when it builds
    // other members with this one. Without it, symbols have no versions: glibc's oldest would be taken.
    println!("cargo:rustc-cdylib-link-arg=-lc");
    // The kernel maps a file by 16 pages around the one that is touched. So each part of the library begins where such a
    // window does, and what lies together comes together (glibc 2.35 and later map it as it is aligned).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,max-page-size=65536");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,separate-loadable-segments");
    // A linker that knows no such scripts (mold) puts the code in an order of its own: the library is resident whole
    // then.
    if !env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("mold")) {
        let folder = env::var("CARGO_MANIFEST_DIR").expect("cargo says where the crate lies");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{folder}/order.ld");
        // By its whole path, so that a folder that was moved with what was built in it is built anew.
        println!("cargo:rerun-if-changed={folder}/order.ld");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
