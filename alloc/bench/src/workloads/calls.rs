//! The calls that the workloads make, and a pair of empty functions to tell the loops' own instructions from the
//! allocator's.

use std::ffi::c_void;

/// What the kernel brings in at once.
pub const PAGE: usize = 4096;

/// Where the blocks come from.
pub trait Calls {
    /// A block of `size` bytes whose first byte has been written.
    fn allocate(size: usize) -> *mut u8;
    /// A block of `size` bytes, aligned to `align`, whose first byte has been written.
    fn allocate_aligned(align: usize, size: usize) -> *mut u8;
    /// Frees a block of the two above, or null. Every caller passes each block once.
    fn release(block: *mut u8);
}

/// What the compiler can't see through: without it, it may leave out a malloc whose block is freed unread. Unlike
/// `std::hint::black_box`, the value stays in its register.
#[inline(always)]
pub fn opaque<T>(mut value: *mut T) -> *mut T {
    // SAFETY: no instruction is executed.
    unsafe { std::arch::asm!("/* {0} */", inout(reg) value, options(nostack, preserves_flags)) };
    value
}

#[cold]
fn out_of_memory(size: usize) -> ! {
    eprintln!("workloads: no memory for {size} bytes");
    std::process::exit(1);
}

#[inline(always)]
fn written(block: *mut c_void, size: usize) -> *mut u8 {
    let block = opaque(block).cast::<u8>();
    if block.is_null() {
        out_of_memory(size);
    }
    // SAFETY: the block has at least one byte.
    unsafe { block.write(1) };
    block
}

/// The functions that the dynamic linker found.
pub struct Linked;

impl Calls for Linked {
    #[inline(always)]
    fn allocate(size: usize) -> *mut u8 {
        // SAFETY: malloc has no preconditions.
        written(unsafe { libc::malloc(size) }, size)
    }

    #[inline(always)]
    fn allocate_aligned(align: usize, size: usize) -> *mut u8 {
        let mut block = std::ptr::null_mut();
        // SAFETY: `block` may be written.
        if unsafe { libc::posix_memalign(&mut block, align, size) } != 0 {
            out_of_memory(size);
        }
        written(block, size)
    }

    #[inline(always)]
    fn release(block: *mut u8) {
        // SAFETY: a block of the above, once.
        unsafe { libc::free(opaque(block).cast()) };
    }
}

/// Functions that do nothing and are called in the same way. They take [`Empty::PAIR`] instructions, or
/// [`Empty::ALIGNED_PAIR`].
#[cfg(target_arch = "x86_64")]
pub struct Empty;

#[cfg(target_arch = "x86_64")]
mod empty {
    use std::ffi::{c_int, c_void};

    /// The one "block"; only its first byte is written.
    pub static BLOCK: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

    #[unsafe(naked)]
    pub extern "C" fn malloc(_size: usize) -> *mut c_void {
        std::arch::naked_asm!("lea rax, [rip + {block}]", "ret", block = sym BLOCK)
    }

    #[unsafe(naked)]
    pub extern "C" fn posix_memalign(_out: *mut *mut c_void, _align: usize, _size: usize) -> c_int {
        std::arch::naked_asm!("lea rax, [rip + {block}]", "mov [rdi], rax", "xor eax, eax", "ret", block = sym BLOCK)
    }

    #[unsafe(naked)]
    pub extern "C" fn free(_block: *mut c_void) {
        std::arch::naked_asm!("ret")
    }
}

#[cfg(target_arch = "x86_64")]
impl Empty {
    /// Of `malloc` and `free`.
    pub const PAIR: u64 = 3;
    /// Of `posix_memalign` and `free`.
    pub const ALIGNED_PAIR: u64 = 5;
}

#[cfg(target_arch = "x86_64")]
impl Calls for Empty {
    #[inline(always)]
    fn allocate(size: usize) -> *mut u8 {
        written(empty::malloc(size), size)
    }

    #[inline(always)]
    fn allocate_aligned(align: usize, size: usize) -> *mut u8 {
        let mut block = std::ptr::null_mut();
        if empty::posix_memalign(&mut block, align, size) != 0 {
            out_of_memory(size);
        }
        written(block, size)
    }

    #[inline(always)]
    fn release(block: *mut u8) {
        empty::free(opaque(block).cast());
    }
}
