//! What the standard library would bring: this library has none where a panic aborts.

use core::alloc::{GlobalAlloc, Layout};

use crate::reserve;

/// What the library's own code allocates (capture, when a module is first seen) comes from the pool as well.
struct Pool;

// SAFETY: the pool's functions have the contract of malloc, aligned as asked.
unsafe impl GlobalAlloc for Pool {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        reserve::prepare();
        let p = poolscope_cpu::malloc_aligned(layout.size(), layout.align());
        if p.is_null() { reserve::alloc(layout.size(), layout.align()) } else { p }
    }

    unsafe fn dealloc(&self, p: *mut u8, _: Layout) {
        if !reserve::free(p) {
            // SAFETY: the caller's promise.
            unsafe { poolscope_cpu::free(p) }
        }
    }
}

#[global_allocator]
static POOL: Pool = Pool;

#[cfg(panic = "abort")]
mod panic {
    use core::panic::PanicInfo;

    #[panic_handler]
    fn panic(info: &PanicInfo<'_>) -> ! {
        let place = info.location();
        poolscope_cpu::Message::new("panic in the allocator at ")
            .text(place.map_or("", |place| place.file()))
            .text(":")
            .number(place.map_or(0, |place| u64::from(place.line())))
            .abort()
    }

    // `core` was compiled with unwinding and names its personality routine; with panic = "abort" nothing ever calls it.
    // Hidden: exported, it would take the place of the real one in programs that load Rust's std dynamically.
    core::arch::global_asm!(".globl rust_eh_personality", ".hidden rust_eh_personality", "rust_eh_personality:", "ret");
}
