"""PyTorch with all its device memory from poolscope's pool.

    python3 samples/python/torch_pluggable.py
"""

import torch

import poolscope_gpu


def main():
    # Before PyTorch's first allocation: it does not change allocators later.
    poolscope_gpu.use_in_torch()
    library = poolscope_gpu.load()

    a = torch.randn(2048, 2048, device="cuda")
    b = a @ a
    expected = (a.double() @ a.double()).float()
    torch.testing.assert_close(b, expected, rtol=1e-2, atol=1e-1)

    # A tensor that another stream still reads when it is freed.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total = b.sum()
    b.record_stream(side)
    want = expected.sum()
    del b
    torch.full((2048, 2048), float("nan"), device="cuda")
    torch.cuda.synchronize()
    torch.testing.assert_close(total, want, rtol=1e-2, atol=1e2)

    # A graph has memory of its own.
    static = torch.zeros(1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = (static + 1).mul(2)
    for value in (1.0, 5.0):
        static.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert out[0].item() == (value + 1) * 2, out[0].item()
    del graph, out

    # What PyTorch says of memory is what the pool counts.
    before = torch.cuda.memory_allocated()
    kept = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() - before == 64 << 20, torch.cuda.memory_allocated() - before
    del kept
    assert torch.cuda.memory_allocated() == before and torch.cuda.max_memory_allocated() >= before + (64 << 20)
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() < before + (64 << 20), torch.cuda.max_memory_allocated() - before
    assert torch.cuda.max_memory_reserved() >= torch.cuda.memory_reserved() >= before
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocated_bytes.all.allocated"] == 0
    print(torch.cuda.memory_summary(abbreviated=True))

    # More than there is: PyTorch's exception with the pool's words, and everything goes on.
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        raise SystemExit("a block of a pebibyte was given out")
    except torch.cuda.OutOfMemoryError as error:
        assert str(error).startswith("CUDA out of memory."), error
        print("refused:", str(error).splitlines()[0])
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    torch.ones(16, device="cuda").sum().item()
    torch.cuda.empty_cache()
    poolscope_gpu.print_stats(library)
    print("ok")


if __name__ == "__main__":
    main()
