//! What runs when the library is loaded and when the process ends without exit handlers.

use core::ffi::c_int;

use poolscope_cpu as pool;

use crate::{cpp, interpreters, lsan};

/// Starts the pool at load, so that the process can be seen before it samples anything.
extern "C" fn load() {
    // SAFETY: the block was just allocated, and nobody has it.
    unsafe { pool::free(pool::malloc(1)) };
    lsan::begin();
    cpp::begin();
    interpreters::begin();
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

/// `_exit` (POSIX): runs no destructors, so the segment is finished here.
#[unsafe(no_mangle)]
pub extern "C" fn _exit(status: c_int) -> ! {
    end(status)
}

/// `_Exit` (C): the same.
#[unsafe(no_mangle)]
pub extern "C" fn _Exit(status: c_int) -> ! {
    end(status)
}

/// What both do: a program that has one of them itself may end by the other one. Not inlined: of two equal functions the
/// compiler makes one that calls the other by its exported name.
#[inline(never)]
fn end(status: c_int) -> ! {
    pool::finish();
    loop {
        // SAFETY: ends the process.
        unsafe { pool::system_call(libc::SYS_exit_group, [status as usize]) };
    }
}
