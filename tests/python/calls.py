# Allocates in calls of many kinds. For each block it prints the bytes, and the calls as Python itself has them: names
# and lines, innermost first.
import functools
import re
import sys
import threading

KEPT = []
NEXT = 100_000
# What the block of a bytearray has beside its bytes: from 3.15 on it is that of an object of bytes.
BESIDE = 33 if sys.version_info >= (3, 15) else 1


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
    KEPT.append(bytearray(note()))


class Cache:
    KEPT.append(bytearray(note()))

    def __init__(self):
        self.first = bytearray(note())

    def insert(self):
        self.second = bytearray(note())

    @property
    def held(self):
        KEPT.append(bytearray(note()))
        return 1

    @functools.lru_cache(None)
    def remembered(self):
        return bytearray(note())


def generator():
    yield bytearray(note())


def deep(left):
    if left:
        return deep(left - 1)
    KEPT.append(bytearray(note()))


def naïve_größe():
    KEPT.append(bytearray(note()))


def long_function(which):
    a = b = c = d = e = f = g = h = i = j = 1
    if which == 0:
        pass
    elif which == 1:
        a += b * c - (d + e) * f
        b = [a, b, c, {"x": (d, e, f)}, g or h and i]
        KEPT.append(bytearray(note()))
    else:
        for k in range(which):
            try:
                if k == which - 1:
                    KEPT.append(bytearray(note()))
            finally:
                a += 1
    return a, b, c, d, e, f, g, h, i, j


plain()
cache = Cache()
cache.insert()
KEPT.append(cache.held)
KEPT.append(cache.remembered())
KEPT.extend(generator())
KEPT.append([bytearray(note()) for _ in range(1)])
KEPT.append((lambda: bytearray(note()))())
KEPT.append(sorted([1], key=lambda n: KEPT.append(bytearray(note())) or n))
KEPT.append(re.sub("x", lambda match: str(KEPT.append(bytearray(note()))), "x"))
deep(20)
deep(300)
naïve_größe()
long_function(1)
long_function(5)
exec(compile("def made():\n    KEPT.append(bytearray(note()))\nmade()", "<made>", "exec"))
thread = threading.Thread(target=plain)
thread.start()
thread.join()
print("ready", flush=True)
sys.stdin.readline()
