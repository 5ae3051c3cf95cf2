# Allocates in calls of many kinds. For each block it prints the bytes, and the calls as Python itself has them: names
# and lines, innermost first.
import functools
import re
import sys
import sysconfig
import threading

KEPT = []
NEXT = 100_000
# What the block of a bytearray has beside its bytes: from 3.15 on it is that of an object of bytes.
BESIDE = 33 if sys.version_info >= (3, 15) else 1
take = bytearray
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    # Python's own allocator has its objects: a block of C's.
    import ctypes

    BESIDE, take = 0, ctypes.CDLL(None).malloc
    take.restype, take.argtypes = ctypes.c_void_p, [ctypes.c_size_t]


def note():
    """The next size, printed with the calls of the caller."""
    global NEXT
    NEXT += 1000
    frame, calls = sys._getframe(1), []
    while frame:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        calls.append(f"{name}:{frame.f_lineno}")
        frame = frame.f_back
    print(NEXT + BESIDE, ";".join(calls), flush=True)
    return NEXT


def plain():
    KEPT.append(take(note()))


class Cache:
    KEPT.append(take(note()))

    def __init__(self):
        self.first = take(note())

    def insert(self):
        self.second = take(note())

    @property
    def held(self):
        KEPT.append(take(note()))
        return 1

    @functools.lru_cache(None)
    def remembered(self):
        return take(note())


def generator():
    yield take(note())


def deep(left):
    if left:
        return deep(left - 1)
    KEPT.append(take(note()))


def naïve_größe():
    KEPT.append(take(note()))


def long_function(which):
    a = b = c = d = e = f = g = h = i = j = 1
    if which == 0:
        pass
    elif which == 1:
        a += b * c - (d + e) * f
        b = [a, b, c, {"x": (d, e, f)}, g or h and i]
        KEPT.append(take(note()))
    else:
        for k in range(which):
            try:
                if k == which - 1:
                    KEPT.append(take(note()))
            finally:
                a += 1
    return a, b, c, d, e, f, g, h, i, j


plain()
cache = Cache()
cache.insert()
KEPT.append(cache.held)
KEPT.append(cache.remembered())
KEPT.extend(generator())
KEPT.append([take(note()) for _ in range(1)])
KEPT.append((lambda: take(note()))())
KEPT.append(sorted([1], key=lambda n: KEPT.append(take(note())) or n))
KEPT.append(re.sub("x", lambda match: str(KEPT.append(take(note()))), "x"))
deep(15)
deep(300)
naïve_größe()
long_function(1)
long_function(5)
exec(compile("def made():\n    KEPT.append(take(note()))\nmade()", "<made>", "exec"))
thread = threading.Thread(target=plain)
thread.start()
thread.join()
print("ready", flush=True)
sys.stdin.readline()
