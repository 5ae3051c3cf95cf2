//! PyTorch: the functions that `CUDAPluggableAllocator` and its hooks take, by the types of PyTorch 2.11's
//! `CUDAPluggableAllocator.h`.
//!
//! PyTorch takes a null block for a good one and goes on. So where there is no memory, `poolscope_torch_alloc` does not
//! return: it throws ([`refuse`]), and Python sees PyTorch's own exception with the pool's words. The exception passes no
//! frame of Rust's.

mod refuse;

use std::ffi::{c_int, c_void};
use std::ptr;

use poolscope_gpu::{Device, Stream};

use crate::devices::{device, device_among_peers, opened};
use crate::refusal::{Refusal, keep, status};

/// `c10::MempoolId_t`, a pair of two numbers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MempoolId {
    capture: u64,
    user: u64,
}

impl MempoolId {
    fn name(self) -> (u64, u64) {
        (self.capture, self.user)
    }
}

/// Allocates. 0 if that is refused; then [`refuse::throw`] says how.
extern "C" fn allocate(size: usize, ordinal: c_int, stream: *mut c_void) -> *mut c_void {
    let allocate = || -> Result<u64, Refusal> {
        let (it, stream) = (device_among_peers(ordinal)?, Stream(stream as u64));
        it.graphs.meet(&it.pool, stream)?;
        Ok(it.pool.allocate(size as u64, stream)?)
    };
    match allocate() {
        Ok(address) => address as *mut c_void,
        Err(refusal) => {
            keep(&refusal);
            refuse::keep(ordinal, &refusal);
            ptr::null_mut()
        }
    }
}

/// The allocation function.
///
/// When the exception is thrown, no frame of this library is on the stack: the last step is a jump.
///
/// # Safety
/// None of its own; PyTorch may call it from any thread.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn poolscope_torch_alloc(size: usize, ordinal: c_int, stream: *mut c_void) -> *mut c_void {
    core::arch::naked_asm!(
        // A frame, and its description: stacks are captured from inside.
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset 6, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register 6",
        "call {allocate}",
        "test rax, rax",
        "jnz 2f",
        "call {throw}",
        "test rax, rax",
        "jz 2f",
        ".cfi_remember_state",
        "pop rbp",
        ".cfi_def_cfa 7, 8",
        "mov rdi, [rax + 8]",
        "mov rsi, [rax + 16]",
        "mov rdx, [rax + 24]",
        "mov rcx, [rax + 32]",
        "jmp [rax]",
        ".cfi_restore_state",
        "2:",
        "pop rbp",
        ".cfi_def_cfa 7, 8",
        "ret",
        ".cfi_endproc",
        allocate = sym allocate,
        throw = sym refuse::throw,
    )
}

/// The same.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn poolscope_torch_alloc(size: usize, ordinal: c_int, stream: *mut c_void) -> *mut c_void {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset 29, -16",
        ".cfi_offset 30, -8",
        "mov x29, sp",
        "bl {allocate}",
        "cbnz x0, 2f",
        "bl {throw}",
        "cbz x0, 2f",
        ".cfi_remember_state",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore 29",
        ".cfi_restore 30",
        "mov x9, x0",
        "ldp x0, x1, [x9, #8]",
        "ldp x2, x3, [x9, #24]",
        "ldr x9, [x9]",
        "br x9",
        ".cfi_restore_state",
        "2:",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore 29",
        ".cfi_restore 30",
        "ret",
        ".cfi_endproc",
        allocate = sym allocate,
        throw = sym refuse::throw,
    )
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_torch_free(block: *mut c_void, _size: usize, ordinal: c_int, stream: *mut c_void) {
    if !block.is_null() {
        let free = || -> Result<(), Refusal> { Ok(device(ordinal)?.pool.free(block as u64, Stream(stream as u64))?) };
        tell(ordinal, free());
    }
}

/// PyTorch's hooks return nothing: what they are refused is printed.
fn tell(ordinal: c_int, result: Result<(), Refusal>) {
    if let Err(refusal) = &result {
        eprintln!("poolscope: device {ordinal}: {refusal}");
    }
    status(result);
}

/// `set_init_fn`. Pools are made when they are first asked for.
#[unsafe(no_mangle)]
extern "C" fn poolscope_torch_init(_devices: c_int) {}

/// `set_reset_fn`, which `torch.cuda.empty_cache()` calls.
#[unsafe(no_mangle)]
extern "C" fn poolscope_torch_reset() {
    opened().for_each(|it| {
        it.pool.trim_cache();
    });
}

/// `set_memory_fraction_fn`.
#[unsafe(no_mangle)]
extern "C" fn poolscope_torch_memory_fraction(fraction: f64, ordinal: c_int) {
    let limit = || -> Result<(), Refusal> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Refusal::new(format!("a memory fraction of {fraction}: it takes a number from 0 to 1")));
        }
        let it = device(ordinal)?;
        let mut config = it.pool.config();
        config.memory_limit =
            if fraction == 1.0 { 0 } else { (it.pool.device().properties().memory as f64 * fraction) as u64 };
        Ok(it.pool.set_config(config)?)
    };
    tell(ordinal, limit());
}

/// `set_base_alloc_fn`: where the block of an address begins, and how long it is.
///
/// # Safety
/// `size` is null or can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn poolscope_torch_base_alloc(address: *mut c_void, size: *mut usize) -> *mut c_void {
    let found = opened().find_map(|it| it.pool.size_of(address as u64));
    if !size.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *size = found.unwrap_or(0) as usize };
    }
    address
}

/// `set_record_stream_fn`. PyTorch does not name the device: addresses are of one device only.
#[unsafe(no_mangle)]
extern "C" fn poolscope_torch_record_stream(block: *mut c_void, stream: *mut c_void) {
    let owner = opened().find(|it| it.pool.size_of(block as u64).is_some());
    if let Some(it) = owner {
        let stream = Stream(stream as u64);
        let record = || it.graphs.meet(&it.pool, stream).and_then(|()| it.pool.record_stream(block as u64, stream));
        tell(-1, record().map_err(Refusal::new));
    }
}

/// `set_begin_allocate_to_pool`. The last argument is a `std::function` by reference, which is left alone.
#[unsafe(no_mangle)]
extern "C" fn poolscope_torch_begin_pool(ordinal: c_int, pool: MempoolId, _filter: *const c_void) {
    let begin = || -> Result<(), Refusal> {
        device(ordinal)?.graphs.begin(pool.name());
        Ok(())
    };
    tell(ordinal, begin());
}

/// `set_end_allocate_to_pool_fn`.
#[unsafe(no_mangle)]
extern "C" fn poolscope_torch_end_pool(ordinal: c_int, pool: MempoolId) {
    let end = || -> Result<(), Refusal> {
        let it = device(ordinal)?;
        Ok(it.graphs.end(&it.pool, pool.name())?)
    };
    tell(ordinal, end());
}

/// `set_release_pool`. PyTorch calls it when the graph is destroyed; what was launched of it may still run, so all work
/// is waited for first.
#[unsafe(no_mangle)]
extern "C" fn poolscope_torch_release_pool(ordinal: c_int, pool: MempoolId) {
    let release = || -> Result<(), Refusal> {
        let it = device(ordinal)?;
        it.pool.synchronize()?;
        Ok(it.graphs.release(&it.pool, pool.name(), Stream::NULL)?)
    };
    tell(ordinal, release());
}
