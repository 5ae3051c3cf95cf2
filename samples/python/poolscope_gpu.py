"""poolscope's device pool from Python: where the library is, PyTorch's allocator on it, and the pool's counters.

The library is found in the package that pip installs, beside the built programs (target/release), in the dynamic linker's folders, or where
POOLSCOPE_GPU_LIB says.
"""

import ctypes
import json
import os
import pathlib


def library_path():
    """The library's file."""
    named = os.environ.get("POOLSCOPE_GPU_LIB")
    if named:
        return named
    try:
        # The package that pip installs knows where its own libraries are.
        import poolscope

        return poolscope.library("libpoolscope_gpu.so")
    except (ImportError, AttributeError, FileNotFoundError):
        pass
    root = pathlib.Path(__file__).resolve().parents[2]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    built = target / "release" / "libpoolscope_gpu.so"
    return str(built) if built.exists() else "libpoolscope_gpu.so"


def load():
    """The library, with the types of what is called here."""
    library = ctypes.CDLL(library_path())
    library.poolscope_gpu_error.restype = ctypes.c_char_p
    library.poolscope_gpu_stats_json.restype = ctypes.c_size_t
    library.poolscope_gpu_stats_json.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
    library.poolscope_gpu_configure.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p]
    for name in ("poolscope_gpu_trim", "poolscope_gpu_release_all"):
        getattr(library, name).restype = ctypes.c_size_t
    library.poolscope_gpu_alloc.restype = ctypes.c_void_p
    library.poolscope_gpu_alloc.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p]
    library.poolscope_gpu_free.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    return library


def refusal(library):
    """The words of the last refusal."""
    words = library.poolscope_gpu_error()
    return words.decode() if words else "no reason given"


def stats(library, device=0):
    """The pool's counters."""
    length = library.poolscope_gpu_stats_json(device, None, 0)
    if length == 0:
        raise RuntimeError(refusal(library))
    text = ctypes.create_string_buffer(length + 4096)
    library.poolscope_gpu_stats_json(device, text, len(text))
    return json.loads(text.value)


def torch_allocator():
    """A CUDAPluggableAllocator on the pool, with every hook that this PyTorch has."""
    import torch

    path = library_path()
    allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "poolscope_torch_alloc", "poolscope_torch_free")
    library = ctypes.CDLL(path)
    hooks = {
        "set_init_fn": "poolscope_torch_init",
        "set_reset_fn": "poolscope_torch_reset",
        "set_memory_fraction_fn": "poolscope_torch_memory_fraction",
        "set_base_alloc_fn": "poolscope_torch_base_alloc",
        "set_record_stream_fn": "poolscope_torch_record_stream",
        "set_begin_allocate_to_pool": "poolscope_torch_begin_pool",
        "set_end_allocate_to_pool_fn": "poolscope_torch_end_pool",
        "set_release_pool": "poolscope_torch_release_pool",
    }
    for hook, function in hooks.items():
        take = getattr(allocator.allocator(), hook, None)
        if take is not None:
            take(ctypes.cast(getattr(library, function), ctypes.c_void_p).value)
    return allocator


def print_stats(library, device=0):
    """A few lines for a person."""
    now = stats(library, device)
    mib = 1 / (1 << 20)
    print(f"pool: in use {now['current_usage'] * mib:.1f} MiB, peak {now['peak_usage'] * mib:.1f} MiB, "
          f"held {now['held'] * mib:.1f} MiB, peak held {now['peak_held'] * mib:.1f} MiB")
    print(f"pool: {now['allocation_count']} allocations, {now['cache_hits']} from memory that it had, "
          f"{now['driver_calls']} calls to the driver")
