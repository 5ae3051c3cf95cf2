"""One model over all devices of this machine, trained on PyTorch's own allocator and on poolscope's pool.

    python3 samples/python/torch_devices.py             # 120 steps
    python3 samples/python/torch_devices.py --steps 300

Each device has a part of the layers, and activations go from one to the next. Each allocator has a process of its own; they take
turns step by step, with the same seed, so that losses have to be equal.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import time

WARM = 20


def train(allocator):
    """Answers a line for each line that comes: what a step took, its loss, and at the end what each device has held."""
    import torch

    if allocator == "poolscope":
        import poolscope_gpu

        poolscope_gpu.use_in_torch()
        library = poolscope_gpu.load()
    torch.manual_seed(7)
    random.seed(7)
    devices = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    width = 1024
    parts = [
        torch.nn.TransformerEncoder(
            torch.nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True), 4, enable_nested_tensor=False
        ).to(device)
        for device in devices
    ]
    optimizers = [torch.optim.AdamW(part.parameters(), 1e-4) for part in parts]
    for line in sys.stdin:
        if line.strip() == "end":
            break
        began = time.perf_counter()
        batch, length = random.choice([2, 4, 8, 16]), random.randrange(64, 513, 8)
        values = torch.randn(batch, length, width, device=devices[0])
        wanted = values.flip(1).to(devices[-1])
        for part, device in zip(parts, devices):
            values = part(values.to(device, non_blocking=True))
        loss = torch.nn.functional.mse_loss(values, wanted)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        loss = loss.item()
        for device in devices:
            torch.cuda.synchronize(device)
        print(json.dumps({"seconds": time.perf_counter() - began, "loss": loss}), flush=True)
    if allocator == "poolscope":
        held = [poolscope_gpu.stats(library, device.index)["peak_held"] for device in devices]
    else:
        held = [torch.cuda.max_memory_reserved(device) for device in devices]
    print(json.dumps({"held": held}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--process", choices=("native", "poolscope"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        return train(options.process)
    if options.steps <= WARM:
        parser.error(f"the first {WARM} steps don't count for time: ask for more")

    names = ("native", "poolscope")
    processes = {
        name: subprocess.Popen([sys.executable, __file__, "--process", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in names
    }

    def ask(name, line):
        process = processes[name]
        process.stdin.write(line + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise SystemExit(f"{name} ended with {process.wait()}")
        return json.loads(answer)

    seconds, losses = {name: [] for name in names}, {name: [] for name in names}
    for step in range(options.steps):
        for name in names if step % 2 == 0 else reversed(names):
            answer = ask(name, "step")
            losses[name].append(answer["loss"])
            if step >= WARM:
                seconds[name].append(answer["seconds"])
    held = {name: ask(name, "end")["held"] for name in names}
    for process in processes.values():
        process.wait()
    ratio = statistics.median(ours / theirs for ours, theirs in zip(seconds["poolscope"], seconds["native"]))
    for number, (theirs, ours) in enumerate(zip(held["native"], held["poolscope"])):
        print(f"device {number}: peak held {theirs >> 20} MiB by PyTorch, {ours >> 20} MiB by the pool")
    print(f"step time: {ratio:.3f} of PyTorch's, the median of {len(seconds['native'])} pairs of steps")
    equal = losses["native"] == losses["poolscope"]
    print(f"losses: {'equal' if equal else 'differ'}, {losses['native'][-1]:.6f} and {losses['poolscope'][-1]:.6f} at the end")
    return None


if __name__ == "__main__":
    main()
