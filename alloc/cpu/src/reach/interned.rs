//! Strings that CPython keeps for good.
//!
//! From version 3.12 on, many strings that are interned are immortal (PEP 683), and when the interpreter ends it forgets
//! where they are. No program can free them: a hundred are left of one that imports a module or two, and tens of
//! thousands of one that imports PyTorch. They are known by what all objects begin with: the number of references, whose
//! lower half is negative in an immortal one, and the type.

/// Words of an object that are looked at: its references, and its type.
pub const WORDS: usize = 2;

/// Whether a block that begins with these words is an immortal string.
pub fn is_immortal([references, kind]: [usize; WORDS], string_type: usize) -> bool {
    kind == string_type && (references as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immortal_strings_are_known_by_their_references_and_their_type() {
        // As 3.12 and 3.13 have them, and 3.14.
        for references in [0xffff_ffff, 0xc000_0000, 0xc000_0007, 0x1_c000_0000] {
            assert!(is_immortal([references, 0x5000], 0x5000), "{references:#x}");
            assert!(!is_immortal([references, 0x5001], 0x5000));
        }
        // One that somebody forgot to give back.
        for references in [1, 2, 0x7fff_ffff] {
            assert!(!is_immortal([references, 0x5000], 0x5000), "{references:#x}");
        }
    }
}
