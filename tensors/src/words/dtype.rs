//! The types of elements: one table. From it come the names of the protocol, of safetensors' files and of DLPack.

use super::{Code, Refusal};

/// A type of elements.
#[derive(Debug, PartialEq, Eq)]
pub struct Dtype {
    /// As requests and hashes have it.
    pub name: &'static str,
    /// Bytes of an element.
    pub bytes: u64,
    /// As files of safetensors have it.
    pub safetensors: &'static str,
    /// DLPack's code and bits of a type.
    pub dlpack: (u8, u8),
    /// As `__cuda_array_interface__` has it; empty where that has no such type.
    pub typestr: &'static str,
}

const fn row(
    name: &'static str,
    bytes: u64,
    safetensors: &'static str,
    dlpack: (u8, u8),
    typestr: &'static str,
) -> Dtype {
    Dtype { name, bytes, safetensors, dlpack, typestr }
}

/// All of them.
pub const DTYPES: &[Dtype] = &[
    row("bool", 1, "BOOL", (6, 8), "|b1"),
    row("u8", 1, "U8", (1, 8), "|u1"),
    row("i8", 1, "I8", (0, 8), "|i1"),
    row("u16", 2, "U16", (1, 16), "<u2"),
    row("i16", 2, "I16", (0, 16), "<i2"),
    row("u32", 4, "U32", (1, 32), "<u4"),
    row("i32", 4, "I32", (0, 32), "<i4"),
    row("u64", 8, "U64", (1, 64), "<u8"),
    row("i64", 8, "I64", (0, 64), "<i8"),
    row("f8_e4m3", 1, "F8_E4M3", (10, 8), ""),
    row("f8_e5m2", 1, "F8_E5M2", (12, 8), ""),
    row("f16", 2, "F16", (2, 16), "<f2"),
    row("bf16", 2, "BF16", (4, 16), ""),
    row("f32", 4, "F32", (2, 32), "<f4"),
    row("f64", 8, "F64", (2, 64), "<f8"),
    row("c64", 8, "C64", (5, 64), "<c8"),
];

impl Dtype {
    /// The one with this name.
    pub fn named(name: &str) -> Result<&'static Dtype, Refusal> {
        DTYPES.iter().find(|dtype| dtype.name == name).ok_or_else(|| {
            let names: Vec<&str> = DTYPES.iter().map(|dtype| dtype.name).collect();
            let shown: String = name.chars().take(40).collect();
            Refusal::new(Code::BadDtype, format!("dtype {shown:?} is none: it takes {}", names.join(", ")))
        })
    }
}
