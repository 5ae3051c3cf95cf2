"""A real training run, with PyTorch's own allocator or on poolscope's pool.

    python3 samples/python/torch_train.py native
    python3 samples/python/torch_train.py poolscope
    python3 samples/python/torch_train.py both      # each in a process of its own, and the comparison

A GPT of 12 layers, sequences whose length changes with each step, AdamW; the same seed, so that the losses are the same.
"""

import json
import statistics
import subprocess
import sys
import time

STEPS, WARM = 60, 10


def train(kind):
    import torch

    library = None
    if kind == "poolscope":
        import poolscope_gpu

        torch.cuda.memory.change_current_allocator(poolscope_gpu.torch_allocator())
        library = poolscope_gpu.load()
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(False)

    width, heads, layers, words, batch = 768, 12, 12, 32_000, 8
    block = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
    model = torch.nn.Sequential(
        torch.nn.Embedding(words, width), torch.nn.TransformerEncoder(block, layers, enable_nested_tensor=False),
        torch.nn.LayerNorm(width), torch.nn.Linear(width, words)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    random = torch.Generator().manual_seed(2)
    times, losses = [], []
    for step in range(STEPS):
        length = int(torch.randint(128, 1024, (1,), generator=random))
        text = torch.randint(words, (batch, length + 1), generator=random).cuda()
        torch.cuda.synchronize()
        from_ = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = model(text[:, :-1])
            loss = torch.nn.functional.cross_entropy(out.flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if step >= WARM:
            times.append(time.perf_counter() - from_)
        losses.append(loss.item())
    if library is None:
        reserved = torch.cuda.max_memory_reserved()
    else:
        reserved = poolscope_gpu.stats(library)["peak_held"]
        print(json.dumps(poolscope_gpu.stats(library)), file=sys.stderr)
    return {"kind": kind, "step_ms": statistics.median(times) * 1e3, "steps_ms": sum(times) * 1e3,
            "peak_reserved_mib": reserved / (1 << 20), "loss": losses[-1], "losses": sum(losses)}


def main():
    kind = sys.argv[1] if len(sys.argv) > 1 else "both"
    if kind in ("native", "poolscope"):
        print(json.dumps(train(kind)))
        return
    runs = {"native": [], "poolscope": []}
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 2):
        for name in runs:
            done = subprocess.run([sys.executable, __file__, name], stdout=subprocess.PIPE, text=True, check=True)
            runs[name].append(json.loads(done.stdout.splitlines()[-1]))
            print(runs[name][-1], flush=True)
    of = lambda name, key: statistics.median(run[key] for run in runs[name])
    for key in ("step_ms", "steps_ms", "peak_reserved_mib", "loss"):
        ours, native = of("poolscope", key), of("native", key)
        print(f"{key}: native {native:.4f}, poolscope {ours:.4f}, ratio {ours / native:.4f}")


if __name__ == "__main__":
    main()
