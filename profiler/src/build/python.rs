//! Python's functions in native stacks, without the interpreter between them.
//!
//! Stacks that the library captures in a CPython that it knows hold Python's functions where they were called
//! ([`poolscope_wire::script`]), among the interpreter's own (`_PyEval_EvalFrameDefault` and the like), which say
//! little to who wrote the Python. So do those of CPython since 3.12, started with `-X perf` (or
//! `PYTHONPERFSUPPORT=1`): it calls every Python function through a trampoline of its own and names it in the process's
//! perf map. Otherwise a stack that was captured can't be asked later.

use poolscope_wire::script::{Call, Language};

use crate::model::profile::Location;
use crate::model::snapshot::Module;

/// Whether a location is a function of Python's: by its word, or by the perf map, which alone gives a file to code of
/// no module.
pub fn is_python(location: &Location) -> bool {
    if Call::of_word(location.address).is_some_and(|call| call.language == Language::Python) {
        return true;
    }
    let of_python = |file: &str| file.ends_with(".py") || file.starts_with('<');
    location.module.is_none()
        && location.frames.iter().any(|frame| frame.line.is_none() && frame.file.as_deref().is_some_and(of_python))
}

/// Whether a file of Python's comes with the interpreter: `/usr/lib/python3.11/json/decoder.py` does, and so does what is
/// built into it, and what others installed beside it does not.
pub(crate) fn is_library(file: &str) -> bool {
    if file.starts_with("<frozen ") {
        return true;
    }
    let folder = ["/lib/python3", "/lib64/python3"].iter().find_map(|folder| file.split_once(folder));
    let Some((_, behind)) = folder.filter(|_| file.ends_with(".py")) else { return false };
    // `/usr/lib/python3/dist-packages` is Debian's, `/usr/lib/python311.zip` may hold the library.
    let version_end = behind.find('/').unwrap_or(0);
    let is_version = behind[..version_end].starts_with('.') || behind[..version_end].ends_with(".zip");
    is_version && !behind.contains("/site-packages/") && !behind.contains("/dist-packages/")
}

/// Whether a file is the interpreter: `python3.12`, `libpython3.12.so.1.0`, an extension module that comes with it, or
/// what its `ctypes` calls functions by.
pub fn is_interpreter(module: &Module) -> bool {
    if module.path.contains("/lib-dynload/") || module.name().starts_with("libffi.so") {
        return true;
    }
    version_text(module).is_some()
}

/// Whether a file makes objects for functions of Python's, which say more of who wanted them: the interpreter, NumPy,
/// PyTorch, or what runs their loops in several threads.
pub fn works_for_python(module: &Module) -> bool {
    let is_torchs = || {
        let name = module.name();
        ["libtorch", "libc10"].iter().any(|begin| name.starts_with(begin)) || name.starts_with("_C.cpython")
    };
    is_interpreter(module)
        || (module.path.contains("/torch/") && is_torchs())
        || (module.path.contains("/numpy/") && module.name().starts_with("_multiarray_umath."))
        || ["libgomp", "libiomp5", "libomp"].iter().any(|begin| module.name().starts_with(begin))
}

/// The version of an interpreter, as far as its file says: that of `python3.12` is `(3, 12)`.
pub(crate) fn version(module: &Module) -> Option<(u32, u32)> {
    let (major, minor) = version_text(module)?.split_once('.')?;
    Some((major.parse().ok()?, minor.trim_end_matches(['.', 't']).parse().ok()?))
}

/// What is behind `python` in the name of an interpreter's file.
fn version_text(module: &Module) -> Option<&str> {
    let name = module.name().trim_start_matches("lib");
    let version = name.strip_prefix("python")?.trim_end_matches("so").trim_end_matches(".so.1.0");
    // One that was built to be debugged: `python3.11-dbg`, `libpython3.11d.so.1.0`.
    let version = version.trim_end_matches("-dbg").trim_end_matches('d');
    version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b't').then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::testing::module;

    #[test]
    fn arrays_and_tensors_are_made_for_python() {
        let packages = "/usr/lib/python3/dist-packages";
        for (path, expected) in [
            ("torch/lib/libtorch_cpu.so", true),
            ("torch/lib/libc10_cuda.so", true),
            ("torch/_C.cpython-312-x86_64-linux-gnu.so", true),
            ("numpy/_core/_multiarray_umath.cpython-312-x86_64-linux-gnu.so", true),
            ("numpy/linalg/_umath_linalg.cpython-312-x86_64-linux-gnu.so", false),
            ("torch/lib/libgomp-a34b3233.so.1", true),
            ("torchvision/_C.so", false),
            ("mine/libtorch_like.so", false),
        ] {
            assert_eq!(works_for_python(&module(&format!("{packages}/{path}"))), expected, "{path}");
        }
        assert!(works_for_python(&module("/usr/bin/python3.12")));
    }

    #[test]
    fn what_comes_with_python_is_told_from_what_others_installed() {
        for (path, expected) in [
            ("/usr/lib/python3.11/json/decoder.py", true),
            ("/root/.pyenv/versions/3.13.0/lib/python3.13/threading.py", true),
            ("/usr/local/lib/python3.13t/asyncio/runners.py", true),
            ("/usr/lib/python311.zip/json/decoder.py", true),
            ("/usr/lib64/python3.12/json/decoder.py", true),
            ("<frozen importlib._bootstrap>", true),
            ("/usr/lib/python3.11/site-packages/numpy/core/numeric.py", false),
            ("/usr/local/lib/python3.11/dist-packages/yaml/loader.py", false),
            ("/usr/lib/python3/dist-packages/yaml/loader.py", false),
            ("/srv/app/lib/python3000.py", false),
            ("/srv/app/cache.py", false),
            ("<string>", false),
        ] {
            assert_eq!(is_library(path), expected, "{path}");
        }
    }

    #[test]
    fn an_interpreter_says_its_version_by_its_file() {
        for (path, expected) in [
            ("/usr/bin/python3.12", Some((3, 12))),
            ("/usr/lib/libpython3.13t.so.1.0", Some((3, 13))),
            ("/usr/lib/libpython3.so", None),
            ("/usr/bin/python3", None),
            ("/usr/bin/python3.12-config", None),
        ] {
            assert_eq!(version(&module(path)), expected, "{path}");
        }
    }

    #[test]
    fn interpreters_are_known_by_their_files() {
        for (path, expected) in [
            ("/usr/bin/python3.12", true),
            ("/usr/bin/python3", true),
            ("/usr/lib/libpython3.13.so.1.0", true),
            ("/usr/lib/libpython3.13t.so.1.0", true),
            ("/usr/lib/libpython3.so", true),
            ("/usr/bin/python3.11-dbg", true),
            ("/usr/lib/x86_64-linux-gnu/libpython3.11d.so.1.0", true),
            ("/usr/lib/python3.12/lib-dynload/_json.cpython-312-x86_64-linux-gnu.so", true),
            ("/usr/lib/x86_64-linux-gnu/libffi.so.8.1.2", true),
            ("/usr/lib/python3/dist-packages/_numpy.so", false),
            ("/usr/bin/pythonish", false),
            ("/usr/lib/libpythonqt.so", false),
        ] {
            assert_eq!(is_interpreter(&module(path)), expected, "{path}");
        }
    }
}
