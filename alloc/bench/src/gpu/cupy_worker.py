"""CuPy's pool as a contestant: asked for rows on standard input, it answers with lines of JSON, as worker.rs does."""
import gzip
import json
import os
import sys
import time

clock = time.perf_counter_ns


def say(answer):
    print(json.dumps(answer), flush=True)


try:
    import cupy
    cupy.cuda.Device(int(sys.argv[1])).use()
    cupy.cuda.runtime.free(0)
except Exception as error:
    say({"absent": f"CuPy can't be used: {error}"})
    sys.exit(0)


def random(seed):
    state = (seed * 0x9e3779b97f4a7c15 & (1 << 64) - 1) | 1
    while True:
        state ^= state << 13 & (1 << 64) - 1
        state ^= state >> 7
        state ^= state << 17 & (1 << 64) - 1
        yield state >> 11


def wide_size(numbers):
    return int(1024 * 4096 ** (next(numbers) % (1 << 20) / (1 << 20)))


def median(figures):
    return sorted(figures)[len(figures) // 2]


def pair(pool, size):
    def run(span):
        start, pairs = clock(), 0
        while clock() - start < span:
            for _ in range(64):
                block = pool.malloc(size)
                del block
            pairs += 64
        return (clock() - start) / pairs
    run(10_000_000)
    return {"ns": run(30_000_000)}


def doublings(number):
    doubling = 256 << number % 12
    return doubling + (number >> 8) % (doubling + 1)


def threads(pool, size):
    numbers = random(1)
    sizes = [size(next(numbers)) for _ in range(4096)]
    live = [pool.malloc(size) for size in sizes[:64]]
    start, pairs = clock(), 0
    while clock() - start < 100_000_000:
        for _ in range(64):
            live[pairs % 64] = None
            live[pairs % 64] = pool.malloc(sizes[pairs % 4096])
            pairs += 1
    return {"mpairs": pairs / (clock() - start) * 1000}


def read(path):
    opener = gzip.open if path.endswith(".gz") else open
    operations, peak, now, live = [], 0, 0, {}
    with opener(path, "rt") as lines:
        for line in lines:
            fields = line.split()
            if fields and fields[0] == "+":
                operations.append((fields[1], int(fields[2])))
                live[fields[1]] = int(fields[2])
                now += int(fields[2])
                peak = max(peak, now)
            elif fields and fields[0] == "-":
                operations.append((fields[1], -1))
                now -= live.pop(fields[1])
    operations.extend((name, -1) for name in list(live))
    return operations, peak


def trace(pool, path):
    operations, peak = read(path)
    times = []
    for _ in range(8):
        blocks = {}
        start = clock()
        for name, size in operations:
            if size < 0:
                del blocks[name]
            else:
                blocks[name] = pool.malloc(size)
        times.append((clock() - start) / len(operations))
    held = pool.total_bytes()
    return {"cold_ns": times[0], "warm_ns": median(times[4:]), "peak_live": float(peak),
            "peak_reserved": float(held), "fragmentation": 1 - peak / held}


def phases(pool):
    numbers = random(7)
    sizes = [wide_size(numbers) for _ in range(100)]
    survivors, figures = [], {}

    def measure(name):
        times = []
        for _ in range(21):
            start = clock()
            blocks = [pool.malloc(size) for size in sizes]
            times.append((clock() - start) / len(sizes))
            del blocks
        figures[name + "_ns"] = median(times)

    def churn(rounds):
        for _ in range(rounds):
            blocks = [(pool.malloc(size), size) for size in (wide_size(numbers) for _ in range(100))]
            while len(blocks) > 40:
                at = next(numbers) % len(blocks)
                blocks[at] = blocks[-1]
                blocks.pop()
            survivors.extend(blocks)

    measure("first")
    measure("baseline")
    churn(50)
    measure("after_50")
    churn(100)
    measure("after_150")
    held = pool.total_bytes()
    figures["peak_reserved"] = float(held)
    figures["fragmentation"] = 1 - (sum(size for _, size in survivors) + sum(sizes)) / held
    return figures


traces = {os.path.basename(path).removesuffix(".gz").removesuffix(".trace"): path for path in sys.argv[2:]}
units = {"K": 1 << 10, "M": 1 << 20}
say({"ready": cupy.__version__})
processors = os.sched_getaffinity(0)
for line in sys.stdin:
    row, _, processor = line.strip().partition("\t")
    kind, _, what = row.partition("/")
    pool = cupy.cuda.MemoryPool()
    os.sched_setaffinity(0, {int(processor)} if processor else processors)
    try:
        if kind == "pair":
            answer = pair(pool, int(what.rstrip("KM")) * units.get(what[-1], 1))
        elif kind == "threads":
            answer = threads(pool, lambda number: 256 + number % ((1 << 20) - 255))
        elif kind == "threads-doublings":
            answer = threads(pool, doublings)
        elif kind == "trace":
            answer = trace(pool, traces[what])
        else:
            answer = phases(pool)
        say({"figures": answer})
    except Exception as error:
        say({"failed": str(error)})
    pool.free_all_blocks()
    del pool
