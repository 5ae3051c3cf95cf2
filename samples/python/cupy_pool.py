"""CuPy with its device memory from poolscope's pool.

    python3 samples/python/cupy_pool.py
"""

import ctypes

import cupy

import poolscope_gpu


def by_c_functions(library):
    """Without Python in between, for one stream: 0 is CuPy's own."""
    address = lambda function: ctypes.cast(function, ctypes.c_void_p).value
    allocator = cupy.cuda.memory.CFunctionAllocator(
        0, address(library.poolscope_cupy_malloc), address(library.poolscope_cupy_free), library)

    def malloc(size):
        memory = allocator.malloc(size)
        # CuPy takes what a C function returns, null included.
        if size and not memory.ptr:
            raise MemoryError(poolscope_gpu.refusal(library))
        return memory

    return malloc


def by_current_stream(library):
    """For whatever stream is current when an array is made and when it goes."""

    def malloc(size, device):
        stream = cupy.cuda.get_current_stream().ptr
        block = library.poolscope_gpu_alloc(device, size, stream)
        if not block:
            raise MemoryError(poolscope_gpu.refusal(library))
        return block

    def free(block, device):
        if library.poolscope_gpu_free(device, block, cupy.cuda.get_current_stream().ptr) != 0:
            print(poolscope_gpu.refusal(library))

    return cupy.cuda.memory.PythonFunctionAllocator(malloc, free).malloc


def work():
    a = cupy.arange(1 << 20, dtype=cupy.float64)
    for _ in range(20):
        b = a * 2 + 1
    return float(b.sum())


def main():
    library = poolscope_gpu.load()
    want = float((1 << 20) * ((1 << 20) - 1) + (1 << 20))
    for make in (by_c_functions, by_current_stream):
        cupy.cuda.set_allocator(make(library))
        assert work() == want
        with cupy.cuda.Stream(non_blocking=True) if make is by_current_stream else cupy.cuda.Stream.null:
            assert work() == want
        try:
            cupy.empty(1 << 50, dtype=cupy.uint8)
            raise SystemExit("a block of a pebibyte was given out")
        except MemoryError as error:
            print("refused:", str(error).splitlines()[0])
    poolscope_gpu.print_stats(library)
    print("ok")


if __name__ == "__main__":
    main()
