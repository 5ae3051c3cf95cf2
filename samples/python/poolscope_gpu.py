"""poolscope's device pool from Python: where the library is, PyTorch's allocator on it, and the pool's counters.

The library is found in the package that pip installs, beside the built programs (target/release), in the dynamic linker's folders, or where
POOLSCOPE_GPU_LIB says.
"""

import collections
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
    library.poolscope_gpu_reset_peaks.argtypes = [ctypes.c_int]
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


def use_in_torch():
    """Gives PyTorch all its device memory from the pool. Has to come before its first allocation.

    What torch.cuda says of memory (memory_allocated, max_memory_allocated, memory_reserved, memory_stats, memory_summary,
    reset_peak_memory_stats and so on) are the pool's counters then. PyTorch itself refuses these for every allocator but its own.
    """
    import torch

    torch.cuda.memory.change_current_allocator(torch_allocator())
    figures = TorchFigures(load())
    torch._C._cuda_memoryStats = figures.of
    torch._C._cuda_resetPeakMemoryStats = figures.reset_peaks
    torch._C._cuda_resetAccumulatedMemoryStats = figures.reset_totals


class TorchFigures:
    """The pool's counters by the names that PyTorch has for its own allocator's.

    Bytes are those of the blocks that were handed out. Small and large ones are not told apart, and the most that there were is known of bytes
    alone: of blocks and granules it is what there is.
    """

    TOTALS = (
        "total_allocated", "total_freed", "allocation_count", "free_count", "granules_created", "granules_released",
        "ladder_refused", "ladder_climbed",
    )

    def __init__(self, library):
        self.library = library
        # Of each device, what was counted before its totals were reset.
        self.before = {}

    def of(self, device):
        now, before = self.counters(device), self.before.get(device, collections.Counter())
        since = {name: now[name] - before[name] for name in self.TOTALS}
        granule = 2 << 20
        blocks = now["allocation_count"] - now["free_count"]
        granules = now["granules_created"] - now["granules_released"]
        of_bytes = _figure(now["current_usage"], now["peak_usage"], since["total_allocated"], since["total_freed"])
        of_blocks = _figure(blocks, blocks, since["allocation_count"], since["free_count"])
        of_held = _figure(now["held"], now["peak_held"], since["granules_created"] * granule, since["granules_released"] * granule)
        of_granules = _figure(granules, granules, since["granules_created"], since["granules_released"])
        of_pieces = _figure(now["fragmentation_bytes"], now["fragmentation_bytes"])
        figures = {
            "allocation": of_blocks, "active": of_blocks, "segment": of_granules, "inactive_split": _figure(),
            "allocated_bytes": of_bytes, "active_bytes": of_bytes, "requested_bytes": of_bytes,
            "reserved_bytes": of_held, "inactive_split_bytes": of_pieces,
        }
        return {
            **{name: {"all": figure, "small_pool": _figure(), "large_pool": _figure()} for name, figure in figures.items()},
            "oversize_allocations": _figure(), "oversize_segments": _figure(),
            "num_ooms": since["ladder_refused"], "num_alloc_retries": since["ladder_climbed"], "num_sync_all_streams": 0,
            "num_device_alloc": since["granules_created"], "num_device_free": since["granules_released"], "max_split_size": -1,
        }

    def reset_peaks(self, device):
        if self.is_used(device):
            self.library.poolscope_gpu_reset_peaks(device)

    def reset_totals(self, device):
        self.before[device] = self.counters(device)

    def counters(self, device):
        return collections.Counter(stats(self.library, device) if self.is_used(device) else {})

    def is_used(self, device):
        """To ask the pool of a device would begin with it."""
        import torch

        return torch._C._cuda_hasPrimaryContext(device)


def _figure(current=0, peak=0, allocated=0, freed=0):
    return {"current": current, "peak": peak, "allocated": allocated, "freed": freed}


def print_stats(library, device=0):
    """A few lines for a person."""
    now = stats(library, device)
    mib = 1 / (1 << 20)
    print(f"pool: in use {now['current_usage'] * mib:.1f} MiB, peak {now['peak_usage'] * mib:.1f} MiB, "
          f"held {now['held'] * mib:.1f} MiB, peak held {now['peak_held'] * mib:.1f} MiB")
    print(f"pool: {now['allocation_count']} allocations, {now['cache_hits']} from memory that it had, "
          f"{now['driver_calls']} calls to the driver")
