//! The functions of `poolscope_gpu.h`, which says what they do.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use poolscope_alloc::data_ptr::{DataPtr, RawDataPtr};
use poolscope_alloc::gpu;
use poolscope_gpu::hooks::{self, Event};
use poolscope_gpu::{Missed, Stream};
use poolscope_wire::{build_note, kind};

use crate::devices::{Opened, count, device, known};
use crate::refusal::{self, Refusal, status, value};

fn stream(handle: *mut c_void) -> Stream {
    Stream(handle as u64)
}

/// Does something with a device.
fn with<T>(ordinal: c_int, work: impl FnOnce(&Opened) -> Result<T, Refusal>) -> Result<T, Refusal> {
    work(device(ordinal)?)
}

/// What the file says of itself to those that look into it without running it.
static NOTE: [u8; build_note::LEN] = build_note::note(
    "libpoolscope_gpu.so",
    env!("CARGO_PKG_VERSION"),
    build_note::commit(option_env!("POOLSCOPE_COMMIT")),
);

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_build() -> *const c_char {
    NOTE[build_note::TEXT..].as_ptr().cast()
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
    let Some(it) = known(ordinal) else { return allocate_first(ordinal, size, on) };
    match it.pool.allocate_quickly(size as u64, stream(on)) {
        Ok(address) => address as *mut c_void,
        Err(missed) => allocate_slowly(it, size, on, missed),
    }
}

/// Allocates what the calling thread does not have at hand. A function of its own: the other one needs no frame then.
#[cold]
#[inline(never)]
fn allocate_slowly(it: &Opened, size: usize, on: *mut c_void, missed: Missed) -> *mut c_void {
    let address = it.pool.allocate_after(missed, size as u64, stream(on)).map_err(Refusal::from);
    value(address).map_or(ptr::null_mut(), |address| address as *mut c_void)
}

/// Allocates on a device that is used for the first time, or refuses.
#[cold]
#[inline(never)]
fn allocate_first(ordinal: c_int, size: usize, on: *mut c_void) -> *mut c_void {
    let address = with(ordinal, |it| Ok(it.pool.allocate(size as u64, stream(on))?));
    value(address).map_or(ptr::null_mut(), |address| address as *mut c_void)
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_free(ordinal: c_int, block: *mut c_void, on: *mut c_void) -> c_int {
    match known(ordinal) {
        Some(it) if it.pool.free_quickly(block as u64, stream(on)) => 0,
        _ => free_slowly(ordinal, block, on),
    }
}

/// Frees what the calling thread can't take by itself. A function of its own, as above.
#[cold]
#[inline(never)]
fn free_slowly(ordinal: c_int, block: *mut c_void, on: *mut c_void) -> c_int {
    if block.is_null() {
        return 0;
    }
    status(with(ordinal, |it| Ok(it.pool.free_after(block as u64, stream(on))?)))
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

/// Makes a buffer in `*out`, which is empty where that is refused.
///
/// # Safety
/// `out` can be written.
unsafe fn buffer(made: Result<DataPtr, Refusal>, out: *mut RawDataPtr) -> c_int {
    let made = value(made);
    let status = if made.is_some() { 0 } else { -1 };
    // SAFETY: the caller's promise.
    unsafe { out.write(made.unwrap_or_default().into_raw_parts()) };
    status
}

/// # Safety
/// `out` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn poolscope_gpu_data_ptr_alloc(
    ordinal: c_int,
    size: usize,
    on: *mut c_void,
    out: *mut RawDataPtr,
) -> c_int {
    let made = device(ordinal).and_then(|it| Ok(gpu::buffer(&it.pool, size, stream(on))?));
    // SAFETY: the caller's promise.
    unsafe { buffer(made, out) }
}

/// # Safety
/// `out` can be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn poolscope_gpu_pinned_data_ptr_alloc(
    ordinal: c_int,
    size: usize,
    on: *mut c_void,
    out: *mut RawDataPtr,
) -> c_int {
    let made = device(ordinal).and_then(|it| Ok(gpu::buffer(it.pool.pinned_memory()?, size, stream(on))?));
    // SAFETY: the caller's promise.
    unsafe { buffer(made, out) }
}

/// `poolscope_gpu_event`.
#[repr(C)]
struct EventOfC {
    moment: u32,
    device: c_int,
    is_pinned: c_int,
    block: *mut c_void,
    size: usize,
    stream: *mut c_void,
}

/// A context of C's, which goes from thread to thread with its hook.
struct Context(*mut c_void);

// SAFETY: the caller of `poolscope_gpu_add_hook` lets its hook be called with it on any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_add_hook(hook: Option<extern "C" fn(&EventOfC, *mut c_void)>, context: *mut c_void) -> u64 {
    let Some(hook) = value(hook.ok_or_else(|| Refusal::new("a hook needs a function"))) else { return 0 };
    let context = Context(context);
    let call = move |event: &Event| {
        let Context(context) = &context;
        let event = EventOfC {
            moment: event.moment as u32,
            device: event.device as c_int,
            is_pinned: c_int::from(event.kind == kind::PINNED),
            block: event.address as *mut c_void,
            size: event.size as usize,
            stream: event.stream.0 as *mut c_void,
        };
        hook(&event, *context);
    };
    let hook = ManuallyDrop::new(hooks::add(call));
    hook.number()
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_remove_hook(hook: u64) -> c_int {
    let gone = || Refusal::new(format!("there is no hook {hook}"));
    status(hooks::remove(hook).then_some(()).ok_or_else(gone))
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_begin_capture(ordinal: c_int, on: *mut c_void, graph: u64) -> c_int {
    status(with(ordinal, |it| Ok(it.graphs.begin_on(&it.pool, (u64::MAX, graph), stream(on))?)))
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_end_capture(ordinal: c_int, graph: u64) -> c_int {
    status(with(ordinal, |it| Ok(it.graphs.end(&it.pool, (u64::MAX, graph))?)))
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_end_graph(ordinal: c_int, graph: u64, on: *mut c_void) -> c_int {
    status(with(ordinal, |it| Ok(it.graphs.release(&it.pool, (u64::MAX, graph), stream(on))?)))
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

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_maintain(ordinal: c_int) -> c_int {
    status(with(ordinal, |it| {
        it.pool.maintain();
        Ok(())
    }))
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_enable_peer(memory_of: c_int, for_device: c_int) -> c_int {
    status(with(memory_of, |it| Ok(it.pool.enable_peer(device(for_device)?.pool.device())?)))
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_pinned_alloc(ordinal: c_int, size: usize, on: *mut c_void) -> *mut c_void {
    let address = with(ordinal, |it| Ok(it.pool.pinned_memory()?.allocate(size as u64, stream(on))?));
    value(address).map_or(ptr::null_mut(), |address| address as *mut c_void)
}

#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_pinned_free(ordinal: c_int, block: *mut c_void, on: *mut c_void) -> c_int {
    if block.is_null() {
        return 0;
    }
    status(with(ordinal, |it| Ok(it.pool.pinned_memory()?.free(block as u64, stream(on))?)))
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
/// `setting` is a text that ends with a zero byte. `text` is null or has room for `room` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn poolscope_gpu_get(
    ordinal: c_int,
    setting: *const c_char,
    text: *mut c_char,
    room: usize,
) -> usize {
    // SAFETY: the caller's promise.
    let setting = unsafe { CStr::from_ptr(setting) }.to_string_lossy();
    let shown = with(ordinal, |it| it.pool.config().get(&setting).map_err(Refusal::new));
    // SAFETY: the caller's promise.
    value(shown).map_or(0, |shown| unsafe { write(&shown, text, room) })
}

/// # Safety
/// `text` is null or has room for `room` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn poolscope_gpu_stats_json(ordinal: c_int, text: *mut c_char, room: usize) -> usize {
    let json = with(ordinal, |it| Ok(it.pool.stats().to_json()));
    // SAFETY: the caller's promise.
    value(json).map_or(0, |json| unsafe { write(&json, text, room) })
}

/// Writes what fits of a text and a zero byte, and returns the length of all of it.
///
/// # Safety
/// `to` is null or has room for `room` bytes.
unsafe fn write(text: &str, to: *mut c_char, room: usize) -> usize {
    if !to.is_null() && room > 0 {
        let copied = text.len().min(room - 1);
        // SAFETY: `copied` is less than `room`.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr().cast(), to, copied);
            *to.add(copied) = 0;
        }
    }
    text.len()
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

/// Has `peak_usage` and `peak_held` begin anew with what there is.
#[unsafe(no_mangle)]
extern "C" fn poolscope_gpu_reset_peaks(ordinal: c_int) -> c_int {
    status(with(ordinal, |it| {
        it.pool.reset_peaks();
        Ok(())
    }))
}
