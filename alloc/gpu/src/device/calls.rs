//! The calls that a pool makes to a driver: one table. From it come [`Call`], the methods of [`Device`] and those of
//! [`Driver`](super::Driver), and the devices that hand calls on to others.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::{DeviceError, Fault, Properties, Result, Slab, Stream};

/// Hands the table to a macro: for each call its documentation, its name here, that of the driver's function, the
/// method of [`Device`](crate::Device), what it takes and what it answers.
///
/// Every device has the calls of `memory` and `streams`. Those of `optional` are refused where a device has no such
/// thing: virtual memory ([`Properties::virtual_memory`](crate::Properties::virtual_memory)) or a pool of the driver's
/// own.
#[macro_export]
#[doc(hidden)]
macro_rules! device_calls {
    ($then:ident) => {
        $then! {
            memory {
                /// What is left of its memory.
                MemoryInfo "cuMemGetInfo" memory_info() -> $crate::MemoryInfo;
                /// Plain memory, aligned to 256 bytes.
                Allocate "cuMemAlloc" allocate(bytes: u64) -> u64;
                /// Frees plain memory. It waits for all work of the device.
                Free "cuMemFree" free(address: u64) -> ();
                /// Memory of the host, locked in place, which the device reads and writes at the same address.
                /// Aligned to 256 bytes.
                AllocateHost "cuMemHostAlloc" allocate_host(bytes: u64) -> u64;
                /// Frees what [`allocate_host`](crate::Device::allocate_host) gave.
                /// It waits for all work of the device.
                FreeHost "cuMemFreeHost" free_host(address: u64) -> ();
            }
            streams {
                /// A number that no other stream of the process has or had; the same for all handles of one stream.
                StreamId "cuStreamGetId" stream_id(stream: $crate::Stream) -> u64;
                /// Whether the stream's work is being captured into a graph.
                Capturing "cuStreamIsCapturing" capturing(stream: $crate::Stream) -> bool;
                /// Makes an event, without timing.
                CreateEvent "cuEventCreate" create_event() -> $crate::Event;
                /// Gives an event back, recorded or not.
                DestroyEvent "cuEventDestroy" destroy_event(event: $crate::Event) -> ();
                /// Puts an event behind all work that the stream has now.
                Record "cuEventRecord" record(event: $crate::Event, stream: $crate::Stream) -> ();
                /// Whether the work before the event's last record is done.
                Query "cuEventQuery" query(event: $crate::Event) -> $crate::Progress;
                /// Waits, on the host, for the work before the event's last record.
                Synchronize "cuEventSynchronize" synchronize(event: $crate::Event) -> ();
                /// Lets the stream's later work wait for the work before the event's last record.
                Wait "cuStreamWaitEvent" wait(stream: $crate::Stream, event: $crate::Event) -> ();
                /// Waits, on the host, for all work of the device.
                SynchronizeAll "cuCtxSynchronize" synchronize_all() -> ();
            }
            optional {
                /// Reserves a range of addresses, a multiple of [`GRANULE`](crate::GRANULE) long and aligned to it,
                /// with nothing behind it.
                Reserve "cuMemAddressReserve" reserve(bytes: u64) -> u64;
                /// Gives a reserved range back, in which nothing is mapped.
                Unreserve "cuMemAddressFree" unreserve(address: u64, bytes: u64) -> ();
                /// Creates physical memory in one piece, a multiple of a granule long and mapped nowhere.
                Create "cuMemCreate" create(bytes: u64) -> $crate::Piece;
                /// Gives up a piece; its memory is free when it is mapped nowhere any more.
                Release "cuMemRelease" release(piece: $crate::Piece) -> ();
                /// Maps a piece at an address in a reserved range, from which on nothing is mapped.
                /// A piece may be mapped at several.
                Map "cuMemMap" map(address: u64, piece: $crate::Piece) -> ();
                /// Takes the mappings of a range away, all of which is mapped, and no piece in part. The caller sees to
                /// it that no work that uses these addresses is still under way.
                Unmap "cuMemUnmap" unmap(address: u64, bytes: u64) -> ();
                /// Makes a mapped range readable and writable, for the device and for those that
                /// [`enable_peer`](crate::Device::enable_peer) let in.
                SetAccess "cuMemSetAccess" set_access(address: u64, bytes: u64) -> ();
                /// A block of the driver's own pool (`cudaMallocAsync`), in the order of a stream.
                AllocateAsync "cuMemAllocAsync" allocate_async(bytes: u64, stream: $crate::Stream) -> u64;
                /// Gives a block back to the driver's own pool, in the order of a stream.
                FreeAsync "cuMemFreeAsync" free_async(address: u64, stream: $crate::Stream) -> ();
                /// What the driver's own pool holds.
                AsyncPool "cuMemPoolGetAttribute" async_pool() -> $crate::AsyncPool;
                /// Lets the driver's own pool keep so many bytes when the host waits for a stream (its release
                /// threshold, at first 0).
                KeepAsync "cuMemPoolSetAttribute" keep_async(bytes: u64) -> ();
                /// Gives back what the driver's own pool holds and does not use, down to so many bytes, and begins
                /// [`AsyncPool::peak_reserved`](crate::AsyncPool::peak_reserved) anew.
                TrimAsync "cuMemPoolTrimTo" trim_async(keep: u64) -> ();
            }
        }
    };
}

macro_rules! declare {
    (
        memory { $($(#[$memory_doc:meta])* $memory:ident $memory_function:literal
            $memory_method:ident($($memory_name:ident: $memory_type:ty),*) -> $memory_answer:ty;)* }
        streams { $($(#[$stream_doc:meta])* $stream:ident $stream_function:literal
            $stream_method:ident($($stream_name:ident: $stream_type:ty),*) -> $stream_answer:ty;)* }
        optional { $($(#[$doc:meta])* $optional:ident $function:literal
            $method:ident($($name:ident: $type:ty),*) -> $answer:ty;)* }
        sharing { $($(#[$sharing_doc:meta])* $sharing:ident $sharing_function:literal
            $sharing_method:ident($($sharing_name:ident: $sharing_type:ty),*) -> $sharing_answer:ty;)* }
    ) => {
        /// The calls of the interface, for prices, counters, injected failures and messages.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Call {
            $(#[doc = concat!("[`Device::", stringify!($memory_method), "`].")] $memory,)*
            $(#[doc = concat!("[`Device::", stringify!($stream_method), "`].")] $stream,)*
            $(#[doc = concat!("[`Device::", stringify!($method), "`].")] $optional,)*
            $(#[doc = concat!("[`Sharing::", stringify!($sharing_method), "`].")] $sharing,)*
            /// [`Device::enable_peer`], which alone takes another device and is no row of the table therefore.
            EnablePeer,
        }

        impl Call {
            /// The driver's function.
            pub fn name(self) -> &'static str {
                match self {
                    $(Call::$memory => $memory_function,)*
                    $(Call::$stream => $stream_function,)*
                    $(Call::$optional => $function,)*
                    $(Call::$sharing => $sharing_function,)*
                    Call::EnablePeer => "cuCtxEnablePeerAccess",
                }
            }
        }

        /// A device.
        ///
        /// A call that returns an error has changed nothing.
        pub trait Device: Send + Sync + 'static {
            /// What it is. Not a call to the driver.
            fn properties(&self) -> Properties;

            /// Whether its time passes only where a test says so. A pool on it has no thread of its own:
            /// background work is the test's.
            fn is_simulated(&self) -> bool {
                false
            }

            /// Nanoseconds of a clock that only goes forward. Not a call to the driver.
            fn now(&self) -> u64;

            /// What lies at a stream's handle: the same as long as the stream is there, as a rule, and mostly something
            /// else once it is gone; [`NOTHING`](crate::NOTHING) where nothing can be read. `None` where nothing is known
            /// of that. Not a call to the driver, which ends some processes that ask it for a stream that is gone.
            fn at_handle(&self, stream: $crate::Stream) -> Option<u64> {
                let _ = stream;
                None
            }

            $($(#[$memory_doc])* fn $memory_method(&self, $($memory_name: $memory_type),*) -> Result<$memory_answer>;)*

            $($(#[$stream_doc])* fn $stream_method(&self, $($stream_name: $stream_type),*) -> Result<$stream_answer>;)*

            $(
                $(#[$doc])*
                fn $method(&self, $($name: $type),*) -> Result<$answer> {
                    $(let _ = $name;)*
                    Err(DeviceError { call: Call::$optional, fault: Fault::Unsupported })
                }
            )*

            /// Lets another device read and write this one's memory: plain memory from now on, mapped ranges from their
            /// next [`set_access`](Self::set_access).
            fn enable_peer(&self, peer: &Self) -> Result<()>
            where
                Self: Sized;
        }

        /// A device whose memory other processes can have, too.
        ///
        /// A pool needs none of it. A slab is physical memory that can be exported as a descriptor, which keeps the
        /// memory for as long as anybody has it, whoever created it. Plain memory has a legacy handle instead: 64
        /// bytes, which mean something for as long as the process lives that allocated it.
        pub trait Sharing: Device {
            $(
                $(#[$sharing_doc])*
                fn $sharing_method(&self, $($sharing_name: $sharing_type),*) -> Result<$sharing_answer>;
            )*
        }
    };
}

/// Adds the calls of [`Sharing`] to the table. No other device hands them on.
macro_rules! with_sharing {
    ($($device:tt)*) => {
        declare! {
            $($device)*
            sharing {
                /// Creates physical memory that can be exported, a multiple of [`GRANULE`](crate::GRANULE) long.
                CreateSlab "cuMemCreate" create_slab(bytes: u64) -> Slab;
                /// Gives up a slab; its memory is free when it is mapped nowhere and nobody has a descriptor of it.
                ReleaseSlab "cuMemRelease" release_slab(slab: Slab) -> ();
                /// A descriptor of a slab, for other processes. It takes half a millisecond: once a slab.
                ExportSlab "cuMemExportToShareableHandle" export_slab(slab: Slab) -> OwnedFd;
                /// The slab behind a descriptor.
                ImportSlab "cuMemImportFromShareableHandle" import_slab(descriptor: BorrowedFd<'_>) -> Slab;
                /// Maps a slab of so many bytes at an address of the driver's choice, readable and writable.
                MapSlab "cuMemMap" map_slab(slab: Slab, bytes: u64) -> u64;
                /// Takes such a mapping away. The caller sees to it that no work that uses it is still under way.
                UnmapSlab "cuMemUnmap" unmap_slab(address: u64, bytes: u64) -> ();
                /// The physical memory that is mapped at an address, whoever mapped it, to be given up once more.
                RetainSlab "cuMemRetainAllocationHandle" retain_slab(address: u64) -> Slab;
                /// Where the allocation or mapping starts that an address lies in, and its bytes.
                AddressRange "cuMemGetAddressRange" address_range(address: u64) -> (u64, u64);
                /// The legacy handle of plain memory that starts at this address.
                LegacyHandle "cuIpcGetMemHandle" legacy_handle(address: u64) -> [u8; 64];
                /// Maps what a legacy handle of another process stands for. A process opens a handle once.
                OpenLegacy "cuIpcOpenMemHandle" open_legacy(handle: [u8; 64]) -> u64;
                /// Takes such a mapping away.
                CloseLegacy "cuIpcCloseMemHandle" close_legacy(address: u64) -> ();
                /// Copies bytes of the host to device memory, and waits for it.
                CopyIn "cuMemcpyHtoD" copy_in(address: u64, from: &[u8]) -> ();
                /// Copies device memory to the host, and waits for it.
                CopyOut "cuMemcpyDtoH" copy_out(address: u64, to: &mut [u8]) -> ();
                /// A new stream that has nothing to do with the legacy default stream; it lasts as long as the device.
                PrivateStream "cuStreamCreate" private_stream() -> Stream;
                /// Writes a word of 8 bytes behind all work that the stream has now.
                WriteWord "cuStreamWriteValue64" write_word(stream: Stream, address: u64, value: u64) -> ();
                /// Lets the stream's later work wait until the word has at least this value. The order is invisible to
                /// the driver: the write must be submitted already, or nothing else may wait for this stream.
                WaitWord "cuStreamWaitValue64" wait_word(stream: Stream, address: u64, value: u64) -> ();
            }
        }
    };
}

device_calls!(with_sharing);

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
