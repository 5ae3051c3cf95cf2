//! How the elements of a tensor lie: dense, the last dimension first.

use super::{Code, Dtype, Refusal};

/// The most dimensions.
const RANK_LIMIT: usize = 32;

/// A type, a shape, and the bytes that they take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The type of its elements.
    pub dtype: &'static Dtype,
    /// Elements in each dimension.
    pub shape: Vec<u64>,
    /// Bytes in all.
    pub bytes: u64,
}

impl Layout {
    /// Refuses more dimensions than anybody has, and more bytes than can be counted.
    pub fn new(dtype: &'static Dtype, shape: Vec<u64>) -> Result<Layout, Refusal> {
        if shape.len() > RANK_LIMIT {
            let words = format!("shape has {} dimensions: at most {RANK_LIMIT} are possible", shape.len());
            return Err(Refusal::new(Code::BadShape, words));
        }
        // A dimension of 0 hides an overflow of the others; readers multiply them in another order.
        let product = |bytes: u64, n: &u64| bytes.checked_mul((*n).max(1)).filter(|bytes| *bytes <= i64::MAX as u64);
        if shape.iter().try_fold(dtype.bytes, product).is_none() {
            let words = format!("shape {shape:?} of {} has more bytes than 63 bits can count", dtype.name);
            return Err(Refusal::new(Code::BadShape, words));
        }
        let bytes = shape.iter().product::<u64>() * dtype.bytes;
        Ok(Layout { dtype, shape, bytes })
    }

    /// Elements from one to the next of each dimension.
    pub fn strides(&self) -> Vec<u64> {
        let mut strides = vec![1; self.shape.len()];
        for at in (1..self.shape.len()).rev() {
            strides[at - 1] = strides[at] * self.shape[at].max(1);
        }
        strides
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[u64]) -> Result<Layout, Refusal> {
        Layout::new(Dtype::named("f32").unwrap(), shape.to_vec())
    }

    #[test]
    fn bytes_and_strides_are_those_of_a_dense_tensor() {
        let made = layout(&[2, 3, 4]).unwrap();
        assert_eq!((made.bytes, made.strides()), (96, vec![12, 4, 1]));
        assert_eq!(layout(&[]).unwrap().bytes, 4);
        assert_eq!(layout(&[0, 5]).unwrap().bytes, 0);
    }

    #[test]
    fn shapes_that_overflow_are_refused_also_behind_a_zero() {
        for shape in [&[u64::MAX, 2][..], &[1 << 31, 1 << 31, 2], &[0, u64::MAX, u64::MAX], &[1; 33]] {
            assert_eq!(layout(shape).unwrap_err().code, Code::BadShape, "{shape:?}");
        }
    }
}
