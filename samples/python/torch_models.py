"""Real models on PyTorch's own allocator and on poolscope's pool, step by step in turns, and a table of what each needs.

    python3 samples/python/torch_models.py                       # all models whose packages are there, 250 steps each
    python3 samples/python/torch_models.py experts generate --steps 100
    python3 samples/python/torch_models.py gpt --on native,expandable,poolscope

Each allocator has a process of its own for each model. They take turns step by step, on the same two processors, with the same seed:
losses have to be equal. "unused" is the part of the peak held that the model never asked for, by what PyTorch's own allocator counted.
The first 20 steps don't count for time. Losses of gpt, gnn, generate and paged may differ a little from one process to the next, also on
one allocator: some of their kernels add up in no fixed order.
"""

import argparse
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import time

WARM = 20
ALLOCATORS = ("native", "expandable", "poolscope")
MIB = 1 << 20


def gpt(torch, dev):
    """A decoder whose batch and length change with each step."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=8, n_embd=768, n_head=12)).to(dev)
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        batch, length = random.choice([2, 4, 8]), random.randrange(64, 1025, 8)
        text = torch.randint(0, 50257, (batch, length), device=dev)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(text, labels=text).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss


def resnet(torch, dev):
    """Vision training with torchvision; batch and resolution change."""
    import torchvision

    model = torchvision.models.resnet50().to(dev)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    while True:
        side = random.choice([160, 192, 224, 256, 320])
        images = torch.randn(random.randrange(4, 65), 3, side, side, device=dev)
        kinds = torch.randint(0, 1000, (images.shape[0],), device=dev)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), kinds)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss


def gnn(torch, dev):
    """Graphs of very different sizes, with PyTorch Geometric."""
    from torch_geometric.nn import GCNConv

    layers = [GCNConv(64, 256).to(dev), GCNConv(256, 256).to(dev), GCNConv(256, 16).to(dev)]
    optimizer = torch.optim.Adam([weight for layer in layers for weight in layer.parameters()])
    while True:
        nodes = int(10 ** random.uniform(2.5, 5))
        edges = torch.randint(0, nodes, (2, nodes * random.randrange(2, 12)), device=dev)
        values = torch.randn(nodes, 64, device=dev)
        for at, layer in enumerate(layers):
            values = layer(values, edges)
            values = torch.relu(values) if at < 2 else values
        loss = values.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss


def experts(torch, dev):
    """Four experts on four streams, inputs copied on a fifth, and record_stream."""
    def expert():
        return torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024)).to(dev)

    all_experts = [expert() for _ in range(4)]
    optimizer = torch.optim.AdamW([weight for one in all_experts for weight in one.parameters()])
    streams, copies = [torch.cuda.Stream() for _ in all_experts], torch.cuda.Stream()
    main = torch.cuda.current_stream()
    while True:
        rows = int(10 ** random.uniform(2.5, 4.6))
        with torch.cuda.stream(copies):
            inputs = torch.randn(rows, 1024).pin_memory().to(dev, non_blocking=True)
        main.wait_stream(copies)
        inputs.record_stream(main)
        routes, outputs = torch.randint(0, 4, (rows,), device=dev), []
        for at, (one, stream) in enumerate(zip(all_experts, streams)):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                part = inputs[routes == at]
                inputs.record_stream(stream)
                routes.record_stream(stream)
                output = one(part)
                output.record_stream(main)
                outputs.append(output)
        for stream in streams:
            main.wait_stream(stream)
        loss = sum(output.square().mean() for output in outputs if len(output))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss


def serving(torch, dev):
    """A small encoder behind a server: short requests, results kept for a while."""
    from transformers import BertConfig, BertModel

    config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536)
    model, kept = BertModel(config).to(dev).half().eval(), []
    while True:
        with torch.no_grad():
            text = torch.randint(0, 30000, (random.choice([1, 1, 1, 2, 4, 8]), random.randrange(4, 384)), device=dev)
            kept.append(model(text).last_hidden_state[:, 0])
            if len(kept) > random.randrange(20, 200):
                kept = kept[len(kept) // 2:]
        yield kept[-1].float().mean()


def generate(torch, dev):
    """transformers' generate, prompts of all lengths."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=12, n_embd=768, n_head=12)).to(dev).bfloat16().eval()
    while True:
        prompt = torch.randint(0, 50257, (random.randrange(1, 9), random.randrange(8, 320)), device=dev)
        with torch.no_grad():
            said = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, do_sample=False,
                                  pad_token_id=50256)
        yield said.float().mean()


def graphs(torch, dev):
    """A step of inference that is captured once (torch.cuda.graph), and replayed four times a step, 1,000 times in 250 steps."""
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.GELU()) for _ in range(16)]).to(dev)
    inputs = torch.randn(512, 2048, device=dev)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            model(inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        outputs = model(inputs)
    while True:
        for _ in range(4):
            inputs.copy_(torch.randn(512, 2048, device=dev))
            graph.replay()
        yield outputs.mean()


def paged(torch, dev):
    """Serving as vLLM does it: pages of keys and values taken once, requests that join and leave the batch at each step, prompts in
    chunks, and graphs of one pool that decode."""
    layers, heads, wide, page, pages, longest, words = 8, 12, 64, 16, 4096, 512, 32000
    width, half = heads * wide, {"device": dev, "dtype": torch.bfloat16}

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.wide = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))

    model = torch.nn.ModuleList(Layer() for _ in range(layers)).to(**half).eval()
    embedding = torch.nn.Embedding(words, width).to(**half)
    cache = torch.zeros(layers, 2, pages * page, heads, wide, **half)

    def forward(tokens, slots, table, ends):
        """The last logits of each row: of (rows, new) tokens, their slots, (rows, all) slots to look at, and how many of them count."""
        rows, new = tokens.shape
        states = embedding(tokens)
        places = torch.arange(table.shape[1], device=dev)
        mask = places < (ends[:, None] - new + 1 + torch.arange(new, device=dev))[:, :, None]
        for at, layer in enumerate(model):
            query, key, value = layer.qkv(layer.first(states)).view(rows, new, 3, heads, wide).unbind(2)
            cache[at, 0].index_copy_(0, slots.flatten(), key.flatten(0, 1))
            cache[at, 1].index_copy_(0, slots.flatten(), value.flatten(0, 1))
            keys, values = cache[at, 0][table].transpose(1, 2), cache[at, 1][table].transpose(1, 2)
            seen = torch.nn.functional.scaled_dot_product_attention(query.transpose(1, 2), keys, values, mask[:, None])
            states = states + layer.out(seen.transpose(1, 2).flatten(2))
            states = states + layer.wide(layer.second(states))
        return (states[:, -1] @ embedding.weight.T).float()

    def slots_of(request):
        return (request["pages"][:, None] * page + torch.arange(page)).flatten()

    pool, graphs = torch.cuda.graph_pool_handle(), {}

    def decode(tokens, slots, table, ends):
        """A step of decoding by the graph for so many rows, which is captured when it is needed first."""
        rows = tokens.shape[0]
        if rows not in graphs:
            inputs = [torch.zeros_like(one) for one in (tokens, slots, table, ends)]
            inputs[1] += (pages - 1) * page
            inputs[3] += 1
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                forward(*inputs)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                logits = forward(*inputs)
            graphs[rows] = graph, inputs, logits
        graph, inputs, logits = graphs[rows]
        for one, other in zip(inputs, (tokens, slots, table, ends)):
            one.copy_(other)
        graph.replay()
        return logits

    # The last page takes what rows without a request write.
    free, running = list(range(pages - 1)), []
    with torch.no_grad():
        while True:
            while len(running) < 32 and random.random() < 0.4:
                prompt, more = random.randrange(8, 384), random.randrange(4, 96)
                need = -(-(prompt + more) // page)
                if len(free) < need:
                    break
                running.append({"pages": torch.tensor([free.pop() for _ in range(need)]), "prompt": prompt, "done": 0,
                                "end": prompt + more, "last": random.randrange(words)})
            total = torch.zeros((), device=dev)
            for request in [one for one in running if one["done"] < one["prompt"]][:2]:
                new = min(128, request["prompt"] - request["done"])
                request["done"] += new
                slots = slots_of(request)[:request["done"]].to(dev)
                logits = forward(torch.randint(0, words, (1, new), device=dev), slots[None, -new:], slots[None],
                                 torch.tensor([request["done"]], device=dev))
                request["last"] = int(logits.argmax())
                total += logits.mean()
            batch = [one for one in running if one["prompt"] <= one["done"]]
            if batch:
                rows = 1 << (len(batch) - 1).bit_length()
                tokens, ends = torch.zeros(rows, 1, dtype=torch.long), torch.ones(rows, dtype=torch.long)
                table = torch.full((rows, longest), (pages - 1) * page)
                slots = torch.full((rows, 1), (pages - 1) * page)
                for at, request in enumerate(batch):
                    request["done"] += 1
                    all_slots = slots_of(request)[:request["done"]]
                    tokens[at], ends[at], slots[at] = request["last"], request["done"], all_slots[-1]
                    table[at, :request["done"]] = all_slots
                logits = decode(*(one.to(dev) for one in (tokens, slots, table, ends)))[:len(batch)]
                likely, of = logits.softmax(-1).sort(descending=True)
                likely[likely.cumsum(-1) - likely > 0.9] = 0
                said = of.gather(1, torch.multinomial(likely, 1))[:, 0].tolist()
                for request, word in zip(batch, said):
                    request["last"] = word
                total += logits.mean()
                for request in batch:
                    if request["done"] >= request["end"]:
                        free.extend(request["pages"].tolist())
                running = [one for one in running if one["done"] < one["end"]]
            yield total


MODELS = {of.__name__: of for of in (gpt, resnet, gnn, experts, serving, generate, graphs, paged)}
# What a model takes beside PyTorch.
PACKAGES = {"gpt": "transformers", "resnet": "torchvision", "gnn": "torch_geometric", "serving": "transformers",
            "generate": "transformers"}


def missing(model):
    """The package that a model lacks here."""
    needed = ("torch", PACKAGES.get(model, "torch"))
    return next((name for name in needed if importlib.util.find_spec(name) is None), None)


def run(model, allocator, count):
    """Runs a model; each step is begun by a line on standard input and answered by one on standard output."""
    import torch

    library = None
    if allocator == "poolscope":
        import poolscope_gpu

        poolscope_gpu.use_in_torch()
        library = poolscope_gpu.load()
    torch.manual_seed(1)
    random.seed(1)
    steps, losses = MODELS[model](torch, "cuda"), []
    for _ in range(count):
        if not sys.stdin.readline():
            return
        begun = time.perf_counter()
        loss = next(steps)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begun
        losses.append(loss.item())
        print(json.dumps(seconds), flush=True)
    if library is None:
        stats = torch.cuda.memory_stats()
        held, asked = stats["reserved_bytes.all.peak"], stats["requested_bytes.all.peak"]
    else:
        held, asked = poolscope_gpu.stats(library)["peak_held"], None
    sys.stdin.readline()
    print(json.dumps({"held": held, "asked": asked, "losses": losses}), flush=True)


def start(model, allocator, count, processors):
    environment = dict(os.environ)
    if allocator == "expandable":
        # The variable's old and new name.
        environment["PYTORCH_CUDA_ALLOC_CONF"] = environment["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    command = [sys.executable, __file__, "--run", allocator, "--steps", str(count), model]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
                            preexec_fn=lambda: os.sched_setaffinity(0, processors))


class Failed(Exception):
    pass


def ask(process, allocator):
    """Has a process do its next step, or say what it came to."""
    try:
        process.stdin.write("go\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())
    except (OSError, ValueError):
        process.kill()
        raise Failed(f"{allocator} ended: {process.wait()}") from None


def compare(model, allocators, count):
    """The table's lines for a model."""
    processors = set(sorted(os.sched_getaffinity(0))[-2:])
    runs = {allocator: start(model, allocator, count, processors) for allocator in allocators}
    times = {allocator: [] for allocator in runs}
    try:
        for step in range(count):
            # Another one begins each time.
            turn = allocators[step % len(allocators):] + allocators[:step % len(allocators)]
            for allocator in turn:
                times[allocator].append(ask(runs[allocator], allocator))
        results = {allocator: ask(process, allocator) for allocator, process in runs.items()}
    finally:
        for process in runs.values():
            process.stdin.close()
            process.wait()
    base = results[allocators[0]]
    for allocator, result in results.items():
        pairs = [one / other for one, other in zip(times[allocator][WARM:], times[allocators[0]][WARM:])]
        unused = 1 - base["asked"] / result["held"] if base["asked"] else float("nan")
        equal = "equal" if result["losses"] == base["losses"] else f"differ, last {result['losses'][-1]:.6g}"
        yield (model, allocator, f"{result['held'] / MIB:.0f}", f"{unused:.1%}",
               f"{statistics.median(times[allocator][WARM:]) * 1e3:.2f}", f"{statistics.median(pairs):.3f}", equal)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all if none is given")
    parser.add_argument("--steps", type=int, default=250, help=f"steps of each, more than {WARM}; 250 if not given")
    parser.add_argument("--on", default="native,poolscope", metavar="LIST", help=f"of {', '.join(ALLOCATORS)}")
    parser.add_argument("--run", choices=ALLOCATORS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [name for name in options.models if name not in MODELS]
    unknown += [name for name in options.on.split(",") if name not in ALLOCATORS]
    if unknown:
        parser.error(f"no {unknown[0]}: there are the models {', '.join(MODELS)}, and the allocators {', '.join(ALLOCATORS)}")
    if options.steps <= WARM:
        parser.error(f"--steps {options.steps}: the first {WARM} steps don't count; ask for more")
    if options.run:
        run(options.models[0], options.run, options.steps)
        return
    line = "{:<10} {:<11} {:>15} {:>8} {:>9} {:>14}  {}".format
    print(line("model", "allocator", "peak held, MiB", "unused", "step, ms", "to the first", "losses"), flush=True)
    failed = False
    for model in options.models or MODELS:
        if lacks := missing(model):
            failed |= bool(options.models) or lacks == "torch"
            print(f"{model}: left out, there is no Python package {lacks}", flush=True)
            continue
        try:
            for cells in compare(model, options.on.split(","), options.steps):
                print(line(*cells), flush=True)
        except Failed as failure:
            failed = True
            print(f"{model}: {failure}; what it said is above", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
