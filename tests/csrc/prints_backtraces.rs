//! A clean program by all that Rust's runtime keeps: streams, threads, and the symbols that a backtrace was printed
//! with. With an argument it forgets a block of so many bytes.
use std::backtrace::Backtrace;

#[inline(never)]
fn forget(bytes: usize) {
    std::mem::forget(std::hint::black_box(vec![1u8; bytes]));
}

fn main() {
    println!("{}", std::thread::current().name().unwrap_or("?"));
    let caught = std::panic::catch_unwind(|| {
        if std::env::args().count() < 9 {
            panic!("as it is meant to");
        }
    });
    let trace = std::thread::spawn(|| Backtrace::force_capture().to_string()).join();
    println!("{} {}", caught.is_err(), trace.is_ok_and(|text| text.contains("main")));
    if let Some(bytes) = std::env::args().nth(1).and_then(|bytes| bytes.parse().ok()) {
        forget(bytes);
    }
}
