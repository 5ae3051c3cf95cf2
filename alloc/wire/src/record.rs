//! The macro that declares a record once: its offsets, its Rust type, how it is read and how it is written.

/// A field that has a fixed little-endian form.
pub(crate) trait Field: Copy {
    fn get(bytes: &[u8]) -> Self;
    fn put(self, bytes: &mut [u8]);
}

macro_rules! int_field {
    ($($t:ty),*) => { $(impl Field for $t {
        fn get(bytes: &[u8]) -> Self {
            let mut raw = [0; size_of::<$t>()];
            raw.copy_from_slice(&bytes[..size_of::<$t>()]);
            <$t>::from_le_bytes(raw)
        }
        fn put(self, bytes: &mut [u8]) {
            bytes[..size_of::<$t>()].copy_from_slice(&self.to_le_bytes());
        }
    })* };
}
int_field!(u8, u16, u32, u64);

impl<T: Field, const N: usize> Field for [T; N] {
    fn get(bytes: &[u8]) -> Self {
        core::array::from_fn(|i| T::get(&bytes[i * size_of::<T>()..]))
    }
    fn put(self, bytes: &mut [u8]) {
        for (i, item) in self.into_iter().enumerate() {
            item.put(&mut bytes[i * size_of::<T>()..]);
        }
    }
}

/// Declares a record of `size` bytes whose fields lie at the stated offsets; the compiler checks both.
macro_rules! record {
    (
        $(#[$meta:meta])*
        pub struct $name:ident: $size:literal {
            $( $(#[$fmeta:meta])* $offset:literal $field:ident: $ty:ty, )*
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $(
                #[doc = concat!("Offset ", stringify!($offset), ".")]
                $(#[$fmeta])*
                pub $field: $ty,
            )*
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $( assert!(core::mem::offset_of!($name, $field) == $offset); )*
        };

        impl $name {
            /// Length of the record in bytes.
            pub const LEN: usize = $size;

            /// All bytes zero.
            pub const ZERO: Self = Self { $( $field: <$ty as crate::record::Zero>::ZERO, )* };

            /// Reads the record from the start of `bytes`; `None` if they are too few.
            pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
                if bytes.len() < $size {
                    return None;
                }
                Some(Self { $( $field: <$ty as crate::record::Field>::get(&bytes[$offset..]), )* })
            }

            /// The record as it lies in the segment.
            pub fn to_bytes(self) -> [u8; $size] {
                let mut bytes = [0; $size];
                $( crate::record::Field::put(self.$field, &mut bytes[$offset..]); )*
                bytes
            }
        }

        impl crate::record::Zero for $name {
            const ZERO: Self = <$name>::ZERO;
        }

        impl crate::record::Field for $name {
            fn get(bytes: &[u8]) -> Self {
                Self { $( $field: <$ty as crate::record::Field>::get(&bytes[$offset..]), )* }
            }
            fn put(self, bytes: &mut [u8]) {
                bytes[..$size].copy_from_slice(&self.to_bytes());
            }
        }
    };
}
pub(crate) use record;

/// The value whose bytes are all zero, as a freshly allocated part of the file reads.
pub(crate) trait Zero {
    const ZERO: Self;
}
macro_rules! zero_int {
    ($($t:ty),*) => { $(impl Zero for $t { const ZERO: Self = 0; })* };
}
zero_int!(u8, u16, u32, u64);
impl<T: Zero, const N: usize> Zero for [T; N] {
    const ZERO: Self = [T::ZERO; N];
}
