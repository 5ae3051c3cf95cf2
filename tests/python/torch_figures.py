# What PyTorch is told of memory, with as much of PyTorch as that takes: the functions that torch.cuda asks.
import sys
import types

torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(memory=types.SimpleNamespace(
    change_current_allocator=lambda allocator: None,
    CUDAPluggableAllocator=lambda *names: types.SimpleNamespace(allocator=lambda: None),
))
torch._C = types.SimpleNamespace(_cuda_hasPrimaryContext=lambda device: device == 0)
sys.modules["torch"] = torch

import poolscope_gpu

poolscope_gpu.use_in_torch()
library = poolscope_gpu.load()
MIB = 1 << 20


def figures(device=0):
    return torch._C._cuda_memoryStats(device)


def of_all(name, what):
    return figures()[name]["all"][what]


blocks = [library.poolscope_gpu_alloc(0, 10 * MIB, None) for _ in range(5)]
assert of_all("allocated_bytes", "current") == of_all("allocated_bytes", "peak") == 50 * MIB, figures()
assert of_all("allocation", "current") == 5 and of_all("reserved_bytes", "current") >= 50 * MIB, figures()
for block in blocks[1:]:
    library.poolscope_gpu_free(0, block, None)
assert of_all("allocated_bytes", "current") == 10 * MIB and of_all("allocated_bytes", "peak") == 50 * MIB, figures()
assert of_all("allocated_bytes", "allocated") == 50 * MIB and of_all("allocated_bytes", "freed") == 40 * MIB, figures()

torch._C._cuda_resetPeakMemoryStats(0)
assert of_all("allocated_bytes", "peak") == 10 * MIB and of_all("allocated_bytes", "freed") == 40 * MIB, figures()
torch._C._cuda_resetAccumulatedMemoryStats(0)
assert of_all("allocated_bytes", "freed") == of_all("allocation", "allocated") == 0, figures()
assert of_all("allocated_bytes", "current") == 10 * MIB and of_all("allocation", "current") == 1, figures()
library.poolscope_gpu_free(0, blocks[0], None)
assert of_all("allocated_bytes", "freed") == 10 * MIB and of_all("allocation", "freed") == 1, figures()

assert not library.poolscope_gpu_alloc(0, 1 << 50, None) and figures()["num_ooms"] == 1, figures()
# A device that nobody uses is left alone, and has the same figures.
unused = figures(1)
assert unused.keys() == figures().keys() and unused["reserved_bytes"]["all"]["peak"] == 0, unused
torch._C._cuda_resetPeakMemoryStats(1)
print("ok")
