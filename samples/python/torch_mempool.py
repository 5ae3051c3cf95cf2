"""One part of a PyTorch program on poolscope's pool: PyTorch's own allocator stays for the rest, and cuts what it gets here.

    python3 samples/python/torch_mempool.py
"""

import torch

import poolscope_gpu


def main():
    allocator = poolscope_gpu.torch_allocator()
    library = poolscope_gpu.load()
    outside = torch.ones(1 << 20, device="cuda")
    pool = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(pool):
        inside = [torch.full((1 << 20,), float(i), device="cuda") for i in range(8)]
    assert sum(t[0].item() for t in inside) == 28.0 and outside.sum().item() == 1 << 20
    in_use = poolscope_gpu.stats(library)["current_usage"]
    assert in_use >= 8 * (4 << 20), in_use
    poolscope_gpu.print_stats(library)
    del inside, pool
    torch.cuda.empty_cache()
    left = poolscope_gpu.stats(library)["current_usage"]
    print(f"after the pool is gone: {left} bytes in use")
    assert left == 0, left
    print("ok")


if __name__ == "__main__":
    main()
