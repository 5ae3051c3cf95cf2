//! Functions of this library in whose place the program has its own.
//!
//! A program may replace some of C++'s operators, and is promised that the others call those: `operator delete(p,
//! size)` is `operator delete(p)` by default (C++17, new.delete). The runtime's own do so through the dynamic linker.
//! Those of this library are found before the runtime's, and so must do it, too; `reallocarray` and C23's sized frees
//! likewise.
//!
//! The dynamic linker has written where each name leads before any constructor runs. What lies outside of this
//! library's code is somebody else's. In a build without `order.ld` a function of the library's own may lie further
//! behind its start than 256 KiB: then it counts as replaced, and is called all the same.

/// Bytes at the library's start within which its functions for programs lie. The library is longer.
#[cfg(target_arch = "x86_64")]
pub const CODE: usize = 256 << 10;

/// Where a function of this library is for the program, and whether that is another one.
macro_rules! resolved {
    ($name:ident) => {{
        #[cfg(target_arch = "x86_64")]
        {
            let (function, begin): (usize, usize);
            // SAFETY: reads a word that is written before any code of the library runs, and never again.
            unsafe {
                core::arch::asm!(
                    ".hidden __ehdr_start",
                    concat!("mov {function}, qword ptr [rip + ", stringify!($name), "@GOTPCREL]"),
                    "lea {begin}, [rip + __ehdr_start]",
                    function = lateout(reg) function,
                    begin = lateout(reg) begin,
                    options(pure, readonly, nostack, preserves_flags)
                )
            };
            (function, function.wrapping_sub(begin) >= $crate::replaced::CODE)
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            // Nothing counts as replaced there yet.
            ($name as *const () as usize, false)
        }
    }};
}

/// Whether the program has its own function in the place of one of these.
macro_rules! is_replaced {
    ($($name:ident),+) => { $($crate::replaced::resolved!($name).1)||+ };
}

/// Calls the function of this name, if the program has its own in the place of it or of one of the others, and returns
/// what it does.
macro_rules! call_replaced {
    ($name:ident($($arg:expr),*) as $kind:ty $(, or $other:ident)?) => {
        let (function, is_replaced) = $crate::replaced::resolved!($name);
        if is_replaced $(|| $crate::replaced::is_replaced!($other))? {
            #[allow(unused_unsafe, reason = "those that allocate are safe to call")]
            // SAFETY: a function of this kind, by its name, which is promised what its caller is.
            return unsafe { core::mem::transmute::<usize, $kind>(function)($($arg),*) };
        }
    };
}

pub(crate) use {call_replaced, is_replaced, resolved};
