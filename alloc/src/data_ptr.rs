//! An owned buffer, as inference engines pass tensors about: a pointer, a length, and a deleter with its context.
//!
//! A [`DataPtr`] owns memory wherever it came from: the host pool, a Rust value, a C library, a device. Dropping it
//! calls the deleter, once. Its layout is that of `poolscope_data_ptr` in `poolscope.h`: [`DataPtr::into_raw_parts`]
//! hands it to C, [`DataPtr::from_raw_parts`] takes one from there.
//!
//! ```
//! use poolscope_alloc::DataPtr;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut tensor = DataPtr::host(1024 * size_of::<f32>(), 64)?;
//! // SAFETY: every byte is written before it is read.
//! let values = unsafe {
//!     tensor.as_mut_ptr().write_bytes(0, tensor.len());
//!     tensor.as_mut_slice::<f32>()?
//! };
//! values[7] = 0.5;
//!
//! // Memory that a Rust value owns: freed with it.
//! let bias = DataPtr::from_owner(vec![0.1_f32; 16]);
//! assert_eq!(bias.len(), 64);
//! # Ok(())
//! # }
//! ```

use std::ffi::c_void;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

pub use poolscope_cpu::data_ptr::{Deleter, RawDataPtr};
use poolscope_cpu::data_ptr::{HostError, device_kind};

/// Where a buffer's memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// Memory of the host.
    Host,
    /// Memory of a CUDA device, by the driver's number.
    Cuda(i32),
    /// A device that only the buffer's maker knows, by the numbers in `poolscope_data_ptr`.
    Other {
        /// Kind of device.
        kind: i32,
        /// Which one of that kind.
        index: i32,
    },
}

impl Device {
    fn from_raw(kind: i32, index: i32) -> Device {
        match kind {
            device_kind::HOST => Device::Host,
            device_kind::CUDA => Device::Cuda(index),
            _ => Device::Other { kind, index },
        }
    }

    fn to_raw(self) -> (i32, i32) {
        match self {
            Device::Host => (device_kind::HOST, 0),
            Device::Cuda(index) => (device_kind::CUDA, index),
            Device::Other { kind, index } => (kind, index),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Host => f.write_str("the host"),
            Device::Cuda(index) => write!(f, "CUDA device {index}"),
            Device::Other { kind, index } => write!(f, "device {index} of kind {kind}"),
        }
    }
}

/// The host pool could not make a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError {
    length: usize,
    align: usize,
    reason: HostError,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AllocError { length, align, .. } = self;
        write!(f, "cannot allocate {length} bytes at a multiple of {align} from the host pool: ")?;
        f.write_str(match self.reason {
            HostError::Alignment => "an alignment is a power of two",
            HostError::NoMemory => "out of memory",
        })
    }
}

impl std::error::Error for AllocError {}

/// A buffer cannot be seen as a slice of the type that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewError {
    /// The memory is not the host's.
    Device(Device),
    /// The first byte is not aligned for the type.
    Alignment {
        /// Address of the first byte.
        address: usize,
        /// What it has to be a multiple of.
        align: usize,
    },
    /// The length is not a whole number of elements.
    Length {
        /// Bytes in the buffer.
        length: usize,
        /// Bytes of an element.
        element: usize,
    },
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ViewError::Device(device) => {
                write!(f, "memory of {device} cannot be read from the host: copy it to the host first")
            }
            ViewError::Alignment { address, align } => {
                write!(f, "the buffer at {address:#x} is not aligned to {align} bytes, which the type needs")
            }
            ViewError::Length { length, element } => {
                write!(f, "{length} bytes are not a whole number of elements of {element} bytes")
            }
        }
    }
}

impl std::error::Error for ViewError {}

/// An owned buffer with its deleter. It may be moved to, and read from, any thread.
#[repr(transparent)]
pub struct DataPtr(RawDataPtr);

// SAFETY: the constructors demand memory and a deleter that any thread may use,
// and `&DataPtr` gives nothing that writes.
unsafe impl Send for DataPtr {}
// SAFETY: as above.
unsafe impl Sync for DataPtr {}

impl DataPtr {
    /// `length` bytes of the host pool at a multiple of `align`, a power of two. Their contents are whatever was there.
    /// A buffer of no bytes takes no memory; its pointer is null.
    pub fn host(length: usize, align: usize) -> Result<DataPtr, AllocError> {
        RawDataPtr::host(length, align).map(DataPtr).map_err(|reason| AllocError { length, align, reason })
    }

    /// Memory that a Rust value owns: the buffer is the value's elements, and the value is dropped with it.
    pub fn from_owner<T, O>(owner: O) -> DataPtr
    where
        O: AsMut<[T]> + Send + 'static,
    {
        let owner = Box::into_raw(Box::new(owner));
        // SAFETY: the value was just made, and nobody else has it.
        let elements = unsafe { (*owner).as_mut() };
        DataPtr(RawDataPtr {
            data: elements.as_mut_ptr().cast(),
            length: size_of_val(elements),
            context: owner.cast(),
            deleter: Some(drop_owner::<O>),
            ..RawDataPtr::EMPTY
        })
    }

    /// Memory from elsewhere, with the closure that gives it back.
    ///
    /// A panic in the closure ends there, because callers in C could not let it pass: the panic hook reports it, and
    /// what the closure had not given back leaks.
    ///
    /// # Safety
    /// `data` points to `length` bytes of `device` (or `length` is 0) that any thread may use and nobody else uses
    /// until the closure runs. Memory of the host is no larger than `isize::MAX`.
    pub unsafe fn from_foreign<F>(data: *mut u8, length: usize, device: Device, deleter: F) -> DataPtr
    where
        F: FnOnce() + Send + 'static,
    {
        let (device_kind, device_index) = device.to_raw();
        DataPtr(RawDataPtr {
            data,
            length,
            context: Box::into_raw(Box::new(deleter)).cast(),
            deleter: Some(call_closure::<F>),
            device_kind,
            device_index,
        })
    }

    /// Takes a buffer over, such as one that was made in C.
    ///
    /// # Safety
    /// The caller owns the buffer. Until its deleter runs, any thread may use its memory, and nobody else does. Any
    /// thread may call the deleter with the context, and it does not unwind.
    /// Memory of the host is no larger than `isize::MAX`.
    pub unsafe fn from_raw_parts(raw: RawDataPtr) -> DataPtr {
        DataPtr(raw)
    }

    /// Hands the buffer to somebody else, such as C: who gets the parts calls the deleter with the context, once.
    #[must_use = "the buffer leaks unless somebody calls its deleter"]
    pub fn into_raw_parts(mut self) -> RawDataPtr {
        self.0.take()
    }

    /// Gives up the ownership and returns the context alone, for a caller who knows what the deleter would have done
    /// and does that in its place. The deleter is not called.
    #[must_use = "the buffer leaks unless somebody does what its deleter would have done"]
    pub fn release_context(self) -> *mut c_void {
        self.into_raw_parts().context
    }

    /// The first byte. Null, or any other address, if there are no bytes.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.data
    }

    /// The first byte, to write to.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.data
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.length
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.length == 0
    }

    /// Where the memory lies.
    pub fn device(&self) -> Device {
        Device::from_raw(self.0.device_kind, self.0.device_index)
    }

    /// What the deleter gets.
    pub fn context(&self) -> *mut c_void {
        self.0.context
    }

    /// What gives the buffer back; none for memory that somebody else owns.
    pub fn deleter(&self) -> Option<Deleter> {
        self.0.deleter
    }

    /// The elements in host memory.
    ///
    /// # Safety
    /// Every element holds a valid value of `T`: written bytes, in a pattern that `T` has. [`std::mem::MaybeUninit`] is
    /// always valid.
    pub unsafe fn as_slice<T: Copy>(&self) -> Result<&[T], ViewError> {
        let (first, count) = self.view()?;
        // SAFETY: so many aligned elements, this buffer's as long as it is borrowed;
        // their values by the caller's promise.
        Ok(unsafe { slice::from_raw_parts(first, count) })
    }

    /// The elements in host memory, to write to.
    ///
    /// # Safety
    /// As for [`DataPtr::as_slice`]. What is written must be valid for the buffer's owner, too,
    /// if that is a Rust value.
    pub unsafe fn as_mut_slice<T: Copy>(&mut self) -> Result<&mut [T], ViewError> {
        let (first, count) = self.view()?;
        // SAFETY: as in `as_slice`, and borrowed by nobody else.
        Ok(unsafe { slice::from_raw_parts_mut(first, count) })
    }

    /// First element and number of elements of the buffer as a slice of `T`.
    fn view<T>(&self) -> Result<(*mut T, usize), ViewError> {
        const { assert!(size_of::<T>() > 0, "a buffer has no elements of a type without bytes") };
        let device = self.device();
        if device != Device::Host {
            return Err(ViewError::Device(device));
        }
        if self.is_empty() {
            return Ok((std::ptr::without_provenance_mut(align_of::<T>()), 0));
        }
        let first = self.0.data.cast::<T>();
        if !first.is_aligned() {
            return Err(ViewError::Alignment { address: first.addr(), align: align_of::<T>() });
        }
        if !self.len().is_multiple_of(size_of::<T>()) {
            return Err(ViewError::Length { length: self.len(), element: size_of::<T>() });
        }
        Ok((first, self.len() / size_of::<T>()))
    }
}

impl Default for DataPtr {
    /// The empty buffer.
    fn default() -> Self {
        DataPtr(RawDataPtr::EMPTY)
    }
}

impl Drop for DataPtr {
    fn drop(&mut self) {
        // SAFETY: this buffer is owned, and it is not there any more.
        unsafe { self.0.take().delete() }
    }
}

impl fmt::Debug for DataPtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("DataPtr");
        debug.field("data", &self.0.data).field("length", &self.0.length).field("device", &self.device());
        debug.field("context", &self.0.context).finish_non_exhaustive()
    }
}

unsafe extern "C" fn drop_owner<O>(owner: *mut c_void) {
    // SAFETY: the context of `from_owner`, and its only use.
    let owner = unsafe { Box::from_raw(owner.cast::<O>()) };
    contain(|| drop(owner));
}

unsafe extern "C" fn call_closure<F: FnOnce()>(closure: *mut c_void) {
    // SAFETY: the context of `from_foreign`, and its only use.
    let closure = unsafe { Box::from_raw(closure.cast::<F>()) };
    contain(closure);
}

/// Runs a deleter of Rust so that no panic leaves it: the caller may be C.
fn contain(deleter: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(deleter)) {
        // Its destructor could panic again.
        std::mem::forget(payload);
    }
}
