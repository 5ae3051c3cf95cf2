//! Buffers are freed once, by whoever has them last, with whatever their deleters do.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use poolscope_alloc::DataPtr;
use poolscope_alloc::data_ptr::{Device, RawDataPtr, ViewError};

/// A buffer without memory whose deleter counts.
fn counted(freed: &Arc<AtomicUsize>) -> DataPtr {
    let freed = Arc::clone(freed);
    let count = move || {
        freed.fetch_add(1, Ordering::Relaxed);
    };
    // SAFETY: a buffer of no bytes.
    unsafe { DataPtr::from_foreign(std::ptr::null_mut(), 0, Device::Host, count) }
}

#[test]
fn dropping_a_buffer_calls_its_deleter_once() {
    let freed = Arc::new(AtomicUsize::new(0));
    drop(counted(&freed));
    assert_eq!(freed.load(Ordering::Relaxed), 1);
    assert_eq!(Arc::strong_count(&freed), 1, "the closure is dropped with what it holds");

    let mut kept = counted(&freed);
    assert_eq!((kept.len(), freed.load(Ordering::Relaxed)), (0, 1));
    kept = counted(&freed);
    assert_eq!(freed.load(Ordering::Relaxed), 2, "an assignment frees what was there");
    let moved = kept;
    std::thread::spawn(move || drop(moved)).join().expect("another thread may free it");
    assert_eq!(freed.load(Ordering::Relaxed), 3);
}

#[test]
fn parts_carry_the_buffer_and_its_deleter() {
    let freed = Arc::new(AtomicUsize::new(0));
    let raw = counted(&freed).into_raw_parts();
    assert_eq!(freed.load(Ordering::Relaxed), 0);
    // SAFETY: the parts of a buffer that nobody else has.
    drop(unsafe { DataPtr::from_raw_parts(raw) });
    assert_eq!(freed.load(Ordering::Relaxed), 1);
}

#[test]
fn a_released_context_is_the_callers() {
    let tensor = DataPtr::host(1000, 64).expect("there is memory");
    let (data, deleter) = (tensor.as_ptr(), tensor.deleter().expect("pool memory has a deleter"));
    let context = tensor.release_context();
    assert_eq!(context.cast_const(), data.cast(), "a host buffer's context is its block");
    // SAFETY: what dropping the buffer would have done, and it was not dropped.
    unsafe { deleter(context) };
}

#[test]
fn host_buffers_have_every_alignment_and_length() {
    for shift in 0..=21 {
        let align = 1 << shift;
        for length in [1, 17, 4096, 300_000] {
            let mut buffer = DataPtr::host(length, align).expect("there is memory");
            assert_eq!((buffer.len(), buffer.device()), (length, Device::Host));
            assert!(buffer.as_ptr().addr().is_multiple_of(align));
            // SAFETY: so many bytes are the buffer's.
            unsafe { buffer.as_mut_ptr().write_bytes(0xA5, length) };
            // SAFETY: written just now.
            assert!(unsafe { buffer.as_slice::<u8>() }.expect("bytes of the host").iter().all(|byte| *byte == 0xA5));
        }
    }
}

#[test]
fn what_the_pool_cannot_allocate_is_an_error_that_says_why() {
    let error = DataPtr::host(100, 48).expect_err("48 is no power of two").to_string();
    assert!(error.contains("100 bytes") && error.contains("48") && error.contains("power of two"), "{error}");
    let error = DataPtr::host(usize::MAX / 2, 64).expect_err("nobody has so much").to_string();
    assert!(error.contains("out of memory"), "{error}");
    assert!(DataPtr::host(100, 0).is_err());
}

#[test]
fn a_buffer_of_no_bytes_takes_no_memory_and_is_an_empty_slice() {
    for mut empty in [DataPtr::host(0, 1 << 20).expect("nothing is needed"), DataPtr::default()] {
        assert!(empty.is_empty() && empty.as_ptr().is_null() && empty.deleter().is_none());
        // SAFETY: there are no elements.
        assert!(unsafe { empty.as_slice::<u64>() }.expect("no elements").is_empty());
        // SAFETY: as above.
        assert!(unsafe { empty.as_mut_slice::<u64>() }.expect("no elements").is_empty());
    }
}

#[test]
fn views_are_checked_against_the_type() {
    let mut buffer = DataPtr::host(64, 64).expect("there is memory");
    // SAFETY: written first; every pattern is a number.
    unsafe {
        buffer.as_mut_slice::<MaybeUninit<u8>>().expect("bytes of the host").fill(MaybeUninit::new(0));
        buffer.as_mut_slice::<f64>().expect("8 numbers")[3] = 1.5;
        assert_eq!(buffer.as_slice::<f64>().expect("8 numbers"), [0., 0., 0., 1.5, 0., 0., 0., 0.]);
        assert_eq!(buffer.as_slice::<[u8; 3]>(), Err(ViewError::Length { length: 64, element: 3 }));
    }

    let address = buffer.as_mut_ptr();
    // SAFETY: part of the buffer above, which is used no more until this one is gone.
    let odd = unsafe { DataPtr::from_foreign(address.add(1), 8, Device::Host, || {}) };
    let expected = ViewError::Alignment { address: address.addr() + 1, align: 2 };
    // SAFETY: refused before anything is read.
    assert_eq!(unsafe { odd.as_slice::<u16>() }, Err(expected));
    assert!(expected.to_string().contains("aligned to 2"));
}

#[test]
fn memory_of_a_device_is_owned_and_never_read() {
    let freed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&freed);
    let address = std::ptr::without_provenance_mut(0x7f00_0000_0000);
    // SAFETY: nothing of the host reads it, and no such device exists.
    let tensor = unsafe {
        DataPtr::from_foreign(address, 4096, Device::Cuda(1), move || {
            count.fetch_add(1, Ordering::Relaxed);
        })
    };
    // SAFETY: refused before anything is read.
    let error = unsafe { tensor.as_slice::<u8>() }.expect_err("the host cannot read it");
    assert_eq!(error, ViewError::Device(Device::Cuda(1)));
    assert!(error.to_string().contains("CUDA device 1"));
    drop(tensor);
    assert_eq!(freed.load(Ordering::Relaxed), 1);
}

#[test]
fn a_device_of_an_unknown_kind_survives_the_way_through_rust() {
    let raw = RawDataPtr { device_kind: 77, device_index: -3, ..RawDataPtr::EMPTY };
    // SAFETY: no bytes and no deleter.
    let buffer = unsafe { DataPtr::from_raw_parts(raw) };
    assert_eq!(buffer.device(), Device::Other { kind: 77, index: -3 });
    let raw = buffer.into_raw_parts();
    assert_eq!((raw.device_kind, raw.device_index), (77, -3));
}

#[test]
fn values_of_rust_lend_their_elements_and_are_dropped_with_the_buffer() {
    struct Owner(Vec<u32>, Arc<AtomicUsize>);
    impl AsMut<[u32]> for Owner {
        fn as_mut(&mut self) -> &mut [u32] {
            &mut self.0
        }
    }
    impl Drop for Owner {
        fn drop(&mut self) {
            // What was written to the buffer is the owner's.
            self.1.fetch_add(self.0.iter().sum::<u32>() as usize, Ordering::Relaxed);
        }
    }
    let sum = Arc::new(AtomicUsize::new(0));
    let mut buffer = DataPtr::from_owner(Owner(vec![1, 2, 3], Arc::clone(&sum)));
    // SAFETY: the owner's numbers.
    unsafe { buffer.as_mut_slice::<u32>() }.expect("three numbers")[2] = 39;
    assert_eq!((buffer.len(), sum.load(Ordering::Relaxed)), (12, 0));
    drop(buffer);
    assert_eq!(sum.load(Ordering::Relaxed), 42);

    // An owner that holds its elements itself.
    let array = DataPtr::from_owner([1_u8, 2, 3]);
    // SAFETY: the owner's bytes.
    assert_eq!(unsafe { array.as_slice::<u8>() }, Ok(&[1, 2, 3][..]));
}

#[test]
fn a_deleter_may_allocate_and_drop_other_buffers() {
    let freed = Arc::new(AtomicUsize::new(0));
    let mut chain = counted(&freed);
    for depth in 1..100 {
        let (inner, count) = (chain, Arc::clone(&freed));
        // SAFETY: a buffer of no bytes.
        chain = unsafe {
            DataPtr::from_foreign(std::ptr::null_mut(), 0, Device::Host, move || {
                drop(DataPtr::host(depth * 1000, 64).expect("there is memory"));
                drop(inner);
                count.fetch_add(1, Ordering::Relaxed);
            })
        };
    }
    drop(chain);
    assert_eq!(freed.load(Ordering::Relaxed), 100);
}

/// C cannot let a panic pass: one that left the deleter would end the process here,
/// because this caller is `extern "C"`.
#[test]
fn a_panic_in_a_deleter_stops_at_the_border_to_c() {
    extern "C" fn free_as_c_does(raw: RawDataPtr) {
        let deleter = raw.deleter.expect("the buffer has a deleter");
        // SAFETY: the buffer is this function's.
        unsafe { deleter(raw.context) };
    }
    struct Panics(Arc<AtomicUsize>);
    impl Drop for Panics {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic!("from the destructor of an owner");
        }
    }
    impl AsMut<[u8]> for Panics {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut []
        }
    }
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    // SAFETY: a buffer of no bytes.
    let closure = unsafe {
        DataPtr::from_foreign(std::ptr::null_mut(), 0, Device::Host, move || {
            count.fetch_add(1, Ordering::Relaxed);
            // A payload whose own destructor panics, too.
            std::panic::panic_any(Panics(Arc::clone(&count)));
        })
    };
    free_as_c_does(closure.into_raw_parts());
    free_as_c_does(DataPtr::from_owner(Panics(Arc::clone(&ran))).into_raw_parts());
    assert_eq!(ran.load(Ordering::Relaxed), 2, "both deleters ran, and no payload was dropped");
}

#[test]
fn a_deleter_of_c_gets_the_context_and_runs_on_the_thread_that_drops() {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn note(context: *mut c_void) {
        SEEN.fetch_add(context.addr(), Ordering::Relaxed);
    }
    let context = std::ptr::without_provenance_mut(1234);
    let raw = RawDataPtr { context, deleter: Some(note), ..RawDataPtr::EMPTY };
    // SAFETY: no bytes; the deleter takes any context.
    let buffer = unsafe { DataPtr::from_raw_parts(raw) };
    std::thread::spawn(move || drop(buffer)).join().expect("the thread ends well");
    assert_eq!(SEEN.load(Ordering::Relaxed), 1234);
}
