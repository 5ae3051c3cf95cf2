//! An owned buffer as it is passed between languages and libraries: a pointer, a length, and how to give it back.
//!
//! The layout is C's (`poolscope_data_ptr` in `poolscope.h`), so that a buffer made in one language can be freed in
//! another. Whoever holds the structure owns the buffer; nothing but the deleter knows where the memory came from.

use core::ffi::c_void;
use core::ptr::null_mut;

/// Gives a buffer back. Called once, with the buffer's context, by whichever thread holds the buffer last. It must not
/// unwind.
pub type Deleter = unsafe extern "C" fn(context: *mut c_void);

/// Values of [`RawDataPtr::device_kind`]. They are those of PyTorch's `DeviceType`.
pub mod device_kind {
    /// Memory of the host.
    pub const HOST: i32 = 0;
    /// Memory of a CUDA device.
    pub const CUDA: i32 = 1;
}

/// The structure `poolscope_data_ptr` of C. All zeros is the empty buffer.
#[repr(C)]
#[derive(Debug)]
pub struct RawDataPtr {
    /// First byte; may be null if `length` is 0.
    pub data: *mut u8,
    /// Bytes.
    pub length: usize,
    /// What the deleter gets.
    pub context: *mut c_void,
    /// Gives the buffer back; none for memory that somebody else owns.
    pub deleter: Option<Deleter>,
    /// Kind of the device that the memory lies on: one of [`device_kind`], or a number that only its makers know.
    pub device_kind: i32,
    /// Which of the devices of that kind; 0 for the host.
    pub device_index: i32,
}

// What `poolscope.h` says. Both sides are compiled apart, so each states the layout.
const _: () = {
    assert!(size_of::<RawDataPtr>() == 4 * size_of::<usize>() + 8);
    assert!(core::mem::offset_of!(RawDataPtr, length) == size_of::<usize>());
    assert!(core::mem::offset_of!(RawDataPtr, context) == 2 * size_of::<usize>());
    assert!(core::mem::offset_of!(RawDataPtr, deleter) == 3 * size_of::<usize>());
    assert!(core::mem::offset_of!(RawDataPtr, device_kind) == 4 * size_of::<usize>());
    assert!(core::mem::offset_of!(RawDataPtr, device_index) == 4 * size_of::<usize>() + 4);
};

/// Why the host pool has no buffer to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostError {
    /// The alignment is not a power of two.
    Alignment,
    /// There is no memory for so many bytes at this alignment.
    NoMemory,
}

impl RawDataPtr {
    /// A buffer of no bytes that nobody has to free: what a moved buffer leaves behind.
    pub const EMPTY: RawDataPtr = RawDataPtr {
        data: null_mut(),
        length: 0,
        context: null_mut(),
        deleter: None,
        device_kind: device_kind::HOST,
        device_index: 0,
    };

    /// `length` bytes of the host pool at a multiple of `align`, a power of two; their contents are whatever was there.
    /// No bytes are [`RawDataPtr::EMPTY`]. errno is kept.
    pub fn host(length: usize, align: usize) -> Result<RawDataPtr, HostError> {
        if !align.is_power_of_two() {
            return Err(HostError::Alignment);
        }
        if length == 0 {
            return Ok(Self::EMPTY);
        }
        let data = crate::kernel::os::keep_errno(|| crate::calls::malloc::malloc_aligned(length, align));
        if data.is_null() {
            return Err(HostError::NoMemory);
        }
        Ok(RawDataPtr { data, length, context: data.cast(), deleter: Some(free_host), ..Self::EMPTY })
    }

    /// Takes the buffer out, and leaves an empty one.
    pub fn take(&mut self) -> RawDataPtr {
        core::mem::replace(self, Self::EMPTY)
    }

    /// Calls the deleter, if there is one.
    ///
    /// # Safety
    /// The caller owns the buffer, and nobody uses it any more.
    pub unsafe fn delete(self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: the buffer's maker promised that the deleter takes this context, once; it is used up here.
            unsafe { deleter(self.context) }
        }
    }
}

/// The deleter of the host pool's buffers.
unsafe extern "C" fn free_host(block: *mut c_void) {
    // SAFETY: the context of a host buffer is its block, and its owner calls this once.
    unsafe { crate::calls::free::free(block.cast()) }
}
