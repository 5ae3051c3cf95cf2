//! The machine that the figures come from.

use serde::Serialize;

/// Figures mean nothing without it.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Its name.
    pub processor: String,
    /// That this process may run on.
    pub processors: usize,
    /// Its release.
    pub kernel: String,
    /// Its version.
    pub glibc: String,
    /// The choice in `/sys/kernel/mm/transparent_hugepage/enabled`.
    pub huge_pages: String,
}

impl Machine {
    /// The one that this runs on.
    pub fn this() -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let processor = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name.to_owned()))
            .unwrap_or_else(|| "an unknown processor".to_owned());
        let huge_pages = read("/sys/kernel/mm/transparent_hugepage/enabled");
        let chosen = huge_pages.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Machine {
            processor,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            glibc: glibc_version(),
            huge_pages: chosen.map_or("unknown", |(chosen, _)| chosen).to_owned(),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Machine { processor, processors, kernel, glibc, huge_pages } = self;
        write!(
            f,
            "{processor}, {processors} processors, Linux {kernel}, glibc {glibc}, transparent huge pages: {huge_pages}"
        )
    }
}

/// Of the machine that this runs on.
pub fn glibc_version() -> String {
    // SAFETY: a string without an end in time.
    unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy().into_owned()
}
