//! The functions of `poolscope_gpu.h`, which says what they do.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use poolscope_gpu::Stream;

use crate::devices::{Opened, count, device};
use crate::refusal::{self, Refusal, status, value};

fn stream(handle: *mut c_void) -> Stream {
    Stream(handle as u64)
}

/// Does something with a device.
fn with<T>(ordinal: c_int, work: impl FnOnce(&Opened) -> Result<T, Refusal>) -> Result<T, Refusal> {
    work(device(ordinal)?)
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_error() -> *const c_char {
    refusal::last()
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_device_count() -> c_int {
    value(count()).map_or(-1, |count| count as c_int)
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_alloc(ordinal: c_int, size: usize, on: *mut c_void) -> *mut c_void {
    let address = with(ordinal, |it| Ok(it.pool.allocate(size as u64, stream(on))?));
    value(address).map_or(ptr::null_mut(), |address| address as *mut c_void)
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_free(ordinal: c_int, block: *mut c_void, on: *mut c_void) -> c_int {
    if block.is_null() {
        return 0;
    }
    status(with(ordinal, |it| Ok(it.pool.free(block as u64, stream(on))?)))
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_record_stream(ordinal: c_int, block: *mut c_void, on: *mut c_void) -> c_int {
    status(with(ordinal, |it| Ok(it.pool.record_stream(block as u64, stream(on))?)))
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_stream_ends(ordinal: c_int, on: *mut c_void) -> c_int {
    status(with(ordinal, |it| Ok(it.pool.stream_ends(stream(on))?)))
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_size(ordinal: c_int, block: *const c_void) -> usize {
    let size = with(ordinal, |it| {
        let none = || Refusal::new(format!("{block:p} is not the address of a block of this pool"));
        it.pool.size_of(block as u64).ok_or_else(none)
    });
    value(size).unwrap_or(0) as usize
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_begin_capture(ordinal: c_int, on: *mut c_void, graph: u64) -> c_int {
    status(with(ordinal, |it| Ok(it.graphs.begin_on(&*it.pool, (u64::MAX, graph), stream(on))?)))
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_end_capture(ordinal: c_int, graph: u64) -> c_int {
    status(with(ordinal, |it| Ok(it.graphs.end(&*it.pool, (u64::MAX, graph))?)))
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_end_graph(ordinal: c_int, graph: u64, on: *mut c_void) -> c_int {
    status(with(ordinal, |it| Ok(it.graphs.release(&*it.pool, (u64::MAX, graph), stream(on))?)))
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_preallocate(ordinal: c_int, size: usize, blocks: usize, on: *mut c_void) -> c_int {
    status(with(ordinal, |it| Ok(it.pool.preallocate(size as u64, blocks, stream(on))?)))
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_trim(ordinal: c_int) -> usize {
    value(with(ordinal, |it| Ok(it.pool.trim_cache()))).unwrap_or(0) as usize
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_release_all(ordinal: c_int) -> usize {
    value(with(ordinal, |it| Ok(it.pool.release_all()))).unwrap_or(0) as usize
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_defragment(ordinal: c_int) -> c_int {
    status(with(ordinal, |it| {
        it.pool.defragment();
        Ok(())
    }))
}

/// # Safety
/// `setting` and `to` are texts that end with a zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn poolscope_gpu_configure(ordinal: c_int, setting: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let (setting, to) = unsafe { (CStr::from_ptr(setting), CStr::from_ptr(to)) };
    let (setting, to) = (setting.to_string_lossy(), to.to_string_lossy());
    status(with(ordinal, |it| {
        let mut config = it.pool.config();
        config.set(&setting, &to).map_err(Refusal::new)?;
        Ok(it.pool.set_config(config)?)
    }))
}

/// # Safety
/// `text` is null or has room for `room` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn poolscope_gpu_stats_json(ordinal: c_int, text: *mut c_char, room: usize) -> usize {
    let Some(json) = value(with(ordinal, |it| Ok(it.pool.stats().to_json()))) else { return 0 };
    if !text.is_null() && room > 0 {
        let copied = json.len().min(room - 1);
        // SAFETY: `copied` is less than `room`.
        unsafe {
            ptr::copy_nonoverlapping(json.as_ptr().cast(), text, copied);
            *text.add(copied) = 0;
        }
    }
    json.len()
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_print_stats(ordinal: c_int) -> c_int {
    status(with(ordinal, |it| {
        eprint!("{}", it.pool.stats());
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_reset_stats(ordinal: c_int) -> c_int {
    status(with(ordinal, |it| {
        it.pool.reset_stats();
        Ok(())
    }))
}
