//! What threads write often lies apart from what others only read: a write takes the line from all who read it.

use core::ops::Deref;

/// A value in lines of the processor's caches that nothing else lies in: two, as processors fetch them in pairs.
#[repr(align(128))]
pub struct Apart<T>(pub T);

impl<T> Deref for Apart<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}
