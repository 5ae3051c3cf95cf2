//! Limits of this process.

use core::sync::atomic::{AtomicUsize, Ordering};

use super::{is_plain, keep_errno, map, unmap};

/// What a plain pool takes for the limit of address space, which it can't ask for.
const PLAIN_ADDRESS_SPACE: usize = 16 << 30;

/// What a plain pool takes for the limit of data, which it can't ask for either ([`try_data_limit`]).
static PLAIN_DATA: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Bytes of address space that this process may have (`RLIMIT_AS`).
pub fn address_space_limit() -> usize {
    if is_plain() { PLAIN_ADDRESS_SPACE } else { limit_of(libc::RLIMIT_AS) }
}

/// Bytes of private writable memory that this process may have (`RLIMIT_DATA`), about: a plain pool has tried.
pub fn data_limit() -> usize {
    if is_plain() { PLAIN_DATA.load(Ordering::Relaxed) } else { limit_of(libc::RLIMIT_DATA) }
}

/// Finds out for a plain pool whether it may have `wanted` bytes: by mapping them, which takes no memory. Where they
/// are refused, half as many are tried, and so on, down to `least`.
pub fn try_data_limit(wanted: usize, least: usize) {
    let is_to_be_had = |bytes: usize| {
        let p = map(bytes);
        if !p.is_null() {
            // SAFETY: it was just mapped, and nobody else knows it.
            unsafe { unmap(p, bytes) };
        }
        !p.is_null()
    };
    if is_to_be_had(wanted) {
        return;
    }
    let mut bytes = wanted / 2;
    while bytes > least && !is_to_be_had(bytes) {
        bytes /= 2;
    }
    PLAIN_DATA.store(bytes, Ordering::Relaxed);
}

/// The number that descriptors of this process stay below (`RLIMIT_NOFILE`).
pub(super) fn open_files_limit() -> usize {
    limit_of(libc::RLIMIT_NOFILE)
}

#[cfg(target_env = "gnu")]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
type Resource = libc::c_int;

fn limit_of(resource: Resource) -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the limit.
    match keep_errno(|| unsafe { libc::getrlimit(resource, &raw mut limit) }) {
        0 => usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX),
        _ => usize::MAX,
    }
}
