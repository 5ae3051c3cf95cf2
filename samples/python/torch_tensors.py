"""Named tensors with PyTorch on both sides, on a machine with a GPU: each line says what holds, and what it took.

It starts an owner (`poolscope tensors serve --device 0`), makes a model of named tensors with PyTorch, reads it in other
processes, in eight at once, and in another pid namespace, kills the owner, and reads on; then it kills ten owners and readers in turn,
and looks for memory that is left at the end. Beside it: the same tensors by torch.multiprocessing.

    POOLSCOPE=target/release/poolscope PYTHONPATH=tensors/python python3 samples/python/torch_tensors.py
"""

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

COMMAND = os.environ.get("POOLSCOPE", "poolscope")
TENSORS, SIDE = 1000, 1024  # 1,000 tensors of 1,024 x 2,048 float32: 8 GiB less a little

failed = 0


def check(holds, words):
    global failed
    failed += not holds
    print(f"{'ok  ' if holds else 'FAIL'}  {words}", flush=True)


def milliseconds(work):
    start = time.perf_counter()
    result = work()
    return (time.perf_counter() - start) * 1e3, result


def serve():
    owner = subprocess.Popen([COMMAND, "tensors", "serve", "--device", "0", "--linger", "60"], stderr=subprocess.PIPE,
                             text=True)
    line = owner.stderr.readline()
    if "serving tensors" not in line:
        raise SystemExit(f"the owner did not start: {line}{owner.stderr.read()}")
    return owner


def reader():
    """In a process of its own: the model, its sums, and how long it took."""
    import torch

    import poolscope_tensors

    torch.cuda.init()
    torch.zeros(1, device="cuda").item()
    store = poolscope_tensors.default()
    first = poolscope_tensors.get("marker")  # the context and the library are there
    cold, weights = milliseconds(lambda: store.tensors("model/"))
    made, model = milliseconds(lambda: {tensor.name: tensor.torch() for tensor in weights})
    total = sum(float(tensor[0, 0]) for tensor in model.values())
    again = statistics.median(milliseconds(lambda: store.tensor("model/0000"))[0] for _ in range(200))
    print(json.dumps({"first": float(first[0]), "cold_ms": cold, "torch_ms": made, "count": len(model), "total": total,
                      "get_us": again * 1e3, "memory": torch.cuda.memory_allocated()}), flush=True)
    sys.stdin.readline()
    print(json.dumps({"later": float(poolscope_tensors.get("marker")[0]), "kept": float(model["model/0003"][0, 0])}))


def start_reader(prefix=()):
    return subprocess.Popen([*prefix, sys.executable, __file__, "reader"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            text=True)


def read_in(prefix, words, child=None, marked=7.0):
    child = child or start_reader(prefix)
    line = child.stdout.readline()
    if not line:
        check(False, f"a reader {words} ended")
        return None, None
    said = json.loads(line)
    expected = sum(range(TENSORS))
    check(said["count"] == TENSORS and said["total"] == expected and said["first"] == marked, f"a reader {words} sees the model")
    check(said["memory"] < 1 << 20, f"  and has no copy of it: PyTorch allocated {said['memory']} bytes")
    print(f"      get_many, cold: {said['cold_ms']:.1f} ms; as torch tensors: {said['torch_ms']:.1f} ms more; "
          f"a get of a known slab: {said['get_us']:.0f} us", flush=True)
    return child, said


def finish(child):
    out, _ = child.communicate("\n")
    return json.loads(out)


def of_multiprocessing(queue, go):
    import torch

    torch.zeros(1, device="cuda").item()
    go.put("ready")
    start = time.perf_counter()
    tensors = queue.get()
    torch.cuda.synchronize()
    go.put((time.perf_counter() - start) * 1e3)
    go.put(len(tensors))
    del tensors


def main():
    import torch

    import poolscope_tensors

    folder = tempfile.mkdtemp(prefix="poolscope-tensors-")
    os.environ["POOLSCOPE_TENSORS"] = str(pathlib.Path(folder) / "own" / "tensors.sock")
    torch.full((1,), 7.0, device="cuda").item()
    free_before = torch.cuda.mem_get_info()[0]
    owner = serve()
    store = poolscope_tensors.default()
    marker = store.create("marker", "f32", [4])
    marker.torch().fill_(7)
    torch.cuda.synchronize()
    marker.commit()
    took, _ = milliseconds(lambda: make(store, torch))
    check(True, f"{TENSORS} tensors were made and written in {took:.0f} ms")

    child, _ = read_in([], "in another process")
    eight = [start_reader() for _ in range(8)]
    for number, one in enumerate(eight):
        read_in([], f"of eight at once, number {number}", one)
    for one in eight:
        finish(one)

    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL).returncode == 0:
        apart, _ = read_in(unshare, "in another pid namespace")
        if apart:
            finish(apart)
    else:
        print("skip  another pid namespace: unshare is not allowed here")

    owner.send_signal(signal.SIGKILL)
    owner.wait()
    marker.torch().fill_(8)
    torch.cuda.synchronize()
    owner = serve()
    if child:
        later = finish(child)
        check(later == {"later": 8.0, "kept": 3.0}, f"the reader goes on after the owner was killed and followed: {later}")
    child, said = read_in([], "that came after it", marked=8.0)
    if child:
        finish(child)

    for number in range(10):
        victim = start_reader()
        victim.stdout.readline()
        for one in (victim, owner):
            one.send_signal(signal.SIGKILL)
            one.wait()
        owner = serve()
    check(float(poolscope_tensors.get("marker")[0]) == 8.0, "ten owners and ten readers were killed, and the names are there")

    plain = torch.full((1024, 1024), 5.0, device="cuda")
    poolscope_tensors.publish("published", plain)
    code = "import poolscope_tensors as t; print(float(t.get('published')[3, 4]))"
    found = os.pathsep.join(path for path in sys.path if path)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": found})
    check(out.stdout.strip() == "5.0", f"memory of PyTorch's own allocator is published: {out.stdout}{out.stderr[-300:]}")
    poolscope_tensors.delete("published")

    cai = store.tensor("marker").__cuda_array_interface__
    check(cai["typestr"] == "<f4" and cai["shape"] == (4,), "__cuda_array_interface__ says what it is")
    try:
        import cupy

        check(float(cupy.asarray(store.tensor("marker"))[0]) == 8.0, "CuPy reads it")
    except ImportError:
        print("skip  CuPy is not installed")

    context = torch.multiprocessing.get_context("spawn")
    queue, go = context.Queue(), context.Queue()
    other = context.Process(target=of_multiprocessing, args=(queue, go))
    other.start()
    go.get()
    tensors = [torch.full((SIDE, 2 * SIDE), 1.0, device="cuda") for _ in range(TENSORS)]
    torch.cuda.synchronize()
    queue.put(tensors)
    peer = go.get()
    go.get()
    other.join()
    if said:
        print(f"      torch.multiprocessing, the same tensors: {peer:.1f} ms; named tensors took "
              f"{(said['cold_ms'] + said['torch_ms']) / peer:.3f} of it")
    del tensors, plain, marker, store

    owner.send_signal(signal.SIGINT)
    check(owner.wait() == 0, "the owner ended")
    torch.cuda.empty_cache()
    left = free_before - torch.cuda.mem_get_info()[0]
    # What libraries of this process have loaded since is a part of it.
    check(left < 256 << 20, f"{TENSORS * SIDE * SIDE * 8 >> 20} MiB of tensors are free again: {left >> 20} MiB less is free than at first")
    return failed


def make(store, torch):
    created = []
    for n in range(TENSORS):
        tensor = store.create(f"model/{n:04}", "f32", [SIDE, 2 * SIDE])
        tensor.torch().fill_(n)
        created.append(tensor)
    torch.cuda.synchronize()
    for tensor in created:
        tensor.commit()


if __name__ == "__main__":
    if sys.argv[1:] == ["reader"]:
        reader()
    else:
        sys.exit(main())
