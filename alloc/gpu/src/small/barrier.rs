//! A barrier for all running threads of the process, so that those that run fast need none of their own.

use std::sync::OnceLock;

const QUERY: libc::c_int = 0;
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> libc::c_long {
    // SAFETY: the call takes three numbers and touches no memory of the program.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

/// Lets every thread of the process that runs pass a full barrier (`membarrier(2)`, Linux 4.14).
/// Returns whether the kernel did.
pub fn pass_by_all_threads() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let register = || {
        let known = membarrier(QUERY);
        let wanted = libc::c_long::from(PRIVATE_EXPEDITED | REGISTER_PRIVATE_EXPEDITED);
        known >= 0 && known & wanted == wanted && membarrier(REGISTER_PRIVATE_EXPEDITED) == 0
    };
    *REGISTERED.get_or_init(register) && membarrier(PRIVATE_EXPEDITED) == 0
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_kernel_has_the_barrier() {
        assert!(super::pass_by_all_threads());
    }
}
