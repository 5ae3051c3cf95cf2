//! What a machine's driver lets the pool do, down to none: each time a message, and never the end of the program.
//!
//! A process loads one driver, so each case is a process of its own: this test again, with a library in its path that a
//! test has compiled. On a machine with a driver the libraries come before it.

use std::path::PathBuf;
use std::process::Command;

use poolscope_gpu::Cuda;

/// What is in every driver that the pool runs on.
const FUNCTIONS: &[&str] = &[
    "cuDriverGetVersion",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
    "cuDeviceCanAccessPeer",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxSynchronize",
    "cuCtxEnablePeerAccess",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuStreamWaitEvent",
    "cuStreamIsCapturing",
    "cuThreadExchangeStreamCaptureMode",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuDeviceGet",
];

/// A library with these functions, all of which return `code`, and two that say what is asked of them.
fn library(name: &str, functions: &[&str], init: u32, devices: u32, code: u32) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("poolscope-driver-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut text = format!("unsigned cuInit(unsigned flags) {{ return {init}; }}\n");
    text += &format!("unsigned cuDeviceGetCount(int *count) {{ *count = {devices}; return 0; }}\n");
    functions.iter().for_each(|function| text += &format!("unsigned {function}() {{ return {code}; }}\n"));
    std::fs::write(folder.join("driver.c"), text).unwrap();
    for file in ["libcuda.so", "libcuda.so.1"] {
        let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
        compiler.args(["-w", "-shared", "-fPIC", "-o", file, "driver.c"]).current_dir(&folder);
        assert!(compiler.status().unwrap().success());
    }
    folder
}

/// What the child prints with a folder in its library path.
fn found_with(folder: &PathBuf) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "child_that_opens_device_3", "--ignored", "--nocapture"]).env("LD_LIBRARY_PATH", folder);
    let output = child.output().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    printed
}

#[test]
#[ignore = "run by the other tests, with a driver of theirs"]
fn child_that_opens_device_3() {
    match Cuda::open(3) {
        Ok(cuda) => println!("opened: {:?}", cuda.about()),
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
fn without_a_driver_the_message_says_what_to_do() {
    match Cuda::devices() {
        Ok(devices) => println!("this machine has {}", devices.len()),
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("libcuda.so") || text.contains("device"), "{text}");
        }
    }
}

#[test]
fn the_linkers_stub_is_called_what_it_is() {
    let printed = found_with(&library("stub", FUNCTIONS, 34, 0, 34));
    assert!(printed.contains("refused: libcuda.so is the stub") && printed.contains("LD_LIBRARY_PATH"), "{printed}");
}

#[test]
fn an_old_driver_is_refused_with_the_function_that_it_lacks() {
    let without: Vec<_> = FUNCTIONS.iter().copied().filter(|name| *name != "cuStreamIsCapturing").collect();
    let printed = found_with(&library("old", &without, 0, 1, 0));
    assert!(printed.contains("refused: the CUDA driver is too old: it has no cuStreamIsCapturing"), "{printed}");
}

#[test]
fn a_driver_without_devices_says_so() {
    let printed = found_with(&library("none", FUNCTIONS, 100, 0, 0));
    assert!(printed.contains("refused: the CUDA driver sees no device"), "{printed}");
    let printed = found_with(&library("zero", FUNCTIONS, 0, 0, 0));
    assert!(printed.contains("refused: the CUDA driver sees no device"), "{printed}");
}

#[test]
fn a_device_that_is_not_there_is_named_with_how_many_are() {
    let printed = found_with(&library("two", FUNCTIONS, 0, 2, 0));
    assert!(printed.contains("refused: no device 3: the CUDA driver sees 2"), "{printed}");
}

#[test]
fn an_error_that_nobody_has_heard_of_is_given_by_its_number() {
    let printed = found_with(&library("new", FUNCTIONS, 31_337, 1, 0));
    assert!(printed.contains("refused: the CUDA driver does not start: error 31337"), "{printed}");
    let printed = found_with(&library("sick", FUNCTIONS, 0, 4, 999));
    assert!(printed.contains("device 3: cuDeviceGet failed with error 999 (CUDA_ERROR_UNKNOWN)"), "{printed}");
}

#[test]
fn a_driver_without_virtual_memory_gives_a_device_without_it() {
    let printed = found_with(&library("plain", FUNCTIONS, 0, 4, 0));
    assert!(printed.contains("opened:") && printed.contains("virtual_memory: false"), "{printed}");
}
