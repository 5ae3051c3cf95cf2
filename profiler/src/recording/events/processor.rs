//! What the processor can do that safe code can't say: nothing else in this crate is unsafe.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "the instructions' functions are unsafe, of which one takes a pointer")
)]

/// Has a value brought into the processor's caches, because it is about to be looked at. Nothing waits for it.
#[inline(always)]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which is harmless for any address; every x86-64 processor knows it.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// A bit for each word that is equal to `word`, without a branch: the first word's is the lowest.
#[inline(always)]
pub(crate) fn equal(words: &[u32; 8], word: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has these instructions (SSE2), and they take no pointers.
    unsafe {
        use core::arch::x86_64::{
            _mm_cmpeq_epi32, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32, _mm_setr_epi32,
        };
        let [a, b, c, d, e, f, g, h] = words.map(u32::cast_signed);
        let word = _mm_set1_epi32(word.cast_signed());
        let first = _mm_cmpeq_epi32(_mm_setr_epi32(a, b, c, d), word);
        let last = _mm_cmpeq_epi32(_mm_setr_epi32(e, f, g, h), word);
        // A byte for each: of the sixteen, the second eight are the first eight once more.
        let halves = _mm_packs_epi32(first, last);
        _mm_movemask_epi8(_mm_packs_epi16(halves, halves)).cast_unsigned() & 0xff
    }
    #[cfg(not(target_arch = "x86_64"))]
    words.iter().enumerate().fold(0, |bits, (at, &known)| bits | u32::from(known == word) << at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_words_have_a_bit_each() {
        let words = [1, u32::MAX, 0, 1 << 31, 1 << 16, 0x8000_8000, 1, 7];
        assert_eq!(equal(&words, 1), 0b100_0001);
        assert_eq!(equal(&words, u32::MAX), 0b10);
        assert_eq!(equal(&words, 1 << 31), 0b1000);
        assert_eq!(equal(&words, 0x8000), 0);
        assert_eq!(equal(&words, 7), 0x80);
    }
}
