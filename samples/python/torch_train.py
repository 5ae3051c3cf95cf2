"""A real training run, with PyTorch's own allocator or on poolscope's pool.

    python3 samples/python/torch_train.py native
    python3 samples/python/torch_train.py poolscope
    python3 samples/python/torch_train.py both 200  # each in a process of its own, step by step in turns, and the comparison

A GPT of 12 layers, sequences whose length changes with each step, AdamW; the same seed, so that the losses are the same. 60 steps if
no number is given, of which the first 10 don't count.
"""

import json
import os
import statistics
import subprocess
import sys
import time

WARM = 10


def steps(count):
    """Trains, and yields each step's seconds and loss."""
    import torch

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(False)

    width, heads, layers, words, batch = 768, 12, 12, 32_000, 8
    block = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
    model = torch.nn.Sequential(
        torch.nn.Embedding(words, width), torch.nn.TransformerEncoder(block, layers, enable_nested_tensor=False),
        torch.nn.LayerNorm(width), torch.nn.Linear(width, words)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    random = torch.Generator().manual_seed(2)
    for _ in range(count):
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
        yield time.perf_counter() - from_, loss.item()


def train(kind, count, in_turns):
    """Trains to the end. In turns, each step is begun by a line on standard input and answered by one on standard output."""
    import torch

    library = None
    if kind == "poolscope":
        import poolscope_gpu

        poolscope_gpu.use_in_torch()
        library = poolscope_gpu.load()
    times, losses = [], []
    training = steps(count)
    while True:
        if in_turns:
            sys.stdin.readline()
        step = next(training, None)
        if step is None:
            break
        times.append(step[0])
        losses.append(step[1])
        if in_turns:
            print(step[0], flush=True)
    if library is None:
        reserved = torch.cuda.max_memory_reserved()
    else:
        reserved = poolscope_gpu.stats(library)["peak_held"]
        print(json.dumps(poolscope_gpu.stats(library)), file=sys.stderr)
    times = times[WARM:]
    return {"kind": kind, "step_ms": statistics.median(times) * 1e3, "steps_ms": sum(times) * 1e3,
            "peak_reserved_mib": reserved / (1 << 20), "loss": losses[-1], "losses": sum(losses)}


def both(count):
    # The same two processors for both, which take turns: one for each program's thread, one for that of the backward pass.
    processors = set(sorted(os.sched_getaffinity(0))[-2:])
    start = lambda name: subprocess.Popen(
        [sys.executable, __file__, name, str(count), "in-turns"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, processors))
    runs = {name: start(name) for name in ("native", "poolscope")}

    def ask(run):
        run.stdin.write("go\n")
        run.stdin.flush()
        return run.stdout.readline()

    times = {name: [] for name in runs}
    for step in range(count):
        # The other one begins each time.
        for name in sorted(runs, reverse=step % 2 == 0):
            times[name].append(float(ask(runs[name])))
    results = {name: json.loads(ask(run)) for name, run in runs.items()}
    for name, run in runs.items():
        print(results[name], flush=True)
        if run.wait() != 0:
            sys.exit(f"{name} has failed: {run.returncode}")
    ratios = [ours / native for ours, native in zip(times["poolscope"][WARM:], times["native"][WARM:])]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"step time, poolscope to native, of {len(ratios)} pairs of steps: median {middle:.4f}, quartiles {low:.4f} and {high:.4f}")
    for key in ("step_ms", "steps_ms", "peak_reserved_mib", "loss"):
        ours, native = results["poolscope"][key], results["native"][key]
        print(f"{key}: native {native:.4f}, poolscope {ours:.4f}, ratio {ours / native:.4f}")


def main():
    kind = sys.argv[1] if len(sys.argv) > 1 else "both"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    if kind in ("native", "poolscope"):
        print(json.dumps(train(kind, count, "in-turns" in sys.argv)))
    elif kind == "both":
        both(count)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
