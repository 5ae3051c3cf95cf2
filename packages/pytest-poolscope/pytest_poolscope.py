"""Marks for pytest that limit what a test takes and what it leaves, measured by poolscope's pool.

The marks mean what those of pytest-memray mean:

    @pytest.mark.limit_memory("24 MB")     the test has less in use at a time
    @pytest.mark.limit_leaks("1 MB")       each call stack leaves less behind

The window is the test function without its fixtures, also that of an asynchronous test, and a test that fails by itself
is not looked at. A test may have one of the marks. A test that is over its limit is shown as M, MEMORY PROBLEMS. Workers
of pytest-xdist run on the pool as the process does that starts them. Run the tests on the pool, with every allocation
recorded and with Python's own allocator left out:

    PYTHONMALLOC=malloc POOLSCOPE_PERIOD=1 poolscope run --headless -- python3 -m pytest -p pytest_poolscope
"""

import collections
import ctypes
import functools
import gc
import inspect
import re

import pytest

MARKS = ("limit_memory", "limit_leaks")
# Names of a mark's first argument.
LIMITS = {"limit_memory": ("limit", "memory_limit"), "limit_leaks": ("location_limit",)}
UNITS = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB"))}
FRAMES = 32

StackFrame = collections.namedtuple("StackFrame", "function filename lineno")
Stack = collections.namedtuple("Stack", "frames")


class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("allocations", "blocks", "bytes", "peak")]


class Block(ctypes.Structure):
    _fields_ = [
        ("address", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("depth", ctypes.c_uint64),
        ("frames", ctypes.c_uint64 * FRAMES),
    ]


class Function(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char * 256), ("file", ctypes.c_char * 512), ("line", ctypes.c_uint32)]


class Module(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def pool():
    """The pool's functions, if this process is on it."""
    library = ctypes.CDLL(None)
    try:
        library.poolscope_heapcheck_begin.restype = ctypes.c_uint64
        library.poolscope_heapcheck_begin_all.restype = ctypes.c_uint64
        library.poolscope_heapcheck_blocks.restype = ctypes.c_uint64
    except AttributeError:
        return None
    library.dladdr.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    return library


def bytes_of(text):
    """`24 MB` as a number. Units are powers of 1,024, as memray has them."""
    found = re.fullmatch(r"\s*\+?(\d*\.\d+|\d+)\s*([KMGTP]?)I?(B)\s*", str(text).upper())
    if found is None:
        raise ValueError(f"{text!r} is no amount of memory: write a number and one of {', '.join(UNITS)}")
    return float(found[1]) * UNITS[found[2] + found[3]]


def words(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.1f}{unit}"
        size /= 1024
    return None


class Window:
    """What is allocated from its beginning to its end. What it takes itself is there before."""

    def __init__(self, library, current_thread_only):
        begin = library.poolscope_heapcheck_begin if current_thread_only else library.poolscope_heapcheck_begin_all
        self.library = library
        self.scope = ctypes.c_uint64(0)
        self.counts = Counts()
        self.count = functools.partial(library.poolscope_heapcheck_count, self.scope, ctypes.byref(self.counts))
        self.scope.value = begin()
        if self.scope.value == 0:
            raise pytest.UsageError("not every allocation is recorded: set POOLSCOPE_PERIOD=1")

    def end(self, leaks):
        """The most bytes in use at a time, and what is left."""
        counted = self.count()
        scope = self.scope
        left = []
        if leaks:
            gc.collect()
            # What this takes itself comes on top.
            room = self.library.poolscope_heapcheck_blocks(scope, None, ctypes.c_uint64(0)) + 1024
            blocks = (Block * room)()
            found = self.library.poolscope_heapcheck_blocks(scope, blocks, ctypes.c_uint64(room))
            own = ctypes.addressof(blocks)
            left = [block for block in blocks[: min(found, room)] if block.address != own]
        self.library.poolscope_heapcheck_end(scope, None, None)
        if counted != 0:
            raise pytest.UsageError("too many scopes are open, so this one was not counted")
        return self.counts.peak, left

    def frame(self, address):
        function, module = Function(), Module()
        if self.library.poolscope_heapcheck_python(ctypes.c_uint64(address), ctypes.byref(function)) == 0:
            name, file = (text.decode(errors="replace") for text in (function.name, function.file))
            return StackFrame(name, file, function.line)
        if self.library.dladdr(ctypes.c_void_p(address - 1), ctypes.byref(module)) == 0:
            return StackFrame(f"[{address:#x}]", "???", 0)
        file = (module.file or b"???").decode(errors="replace")
        symbol = module.symbol.decode(errors="replace") if module.symbol else f"[+{address - (module.base or 0):#x}]"
        return StackFrame(symbol, file, 0)


def is_python(frame):
    return frame.lineno > 0


def shown(frames):
    """The innermost frames that say who it was: those of Python, if there are any, and what they called first."""
    first = next((at for at, frame in enumerate(frames) if is_python(frame)), None)
    if first is None:
        return frames[:8]
    return frames[: min(first, 1)] + tuple(filter(is_python, frames))[:7]


def said(frame):
    return f"{frame.function} ({frame.filename}" + (f":{frame.lineno})" if is_python(frame) else ")")


def too_much(limit, took):
    return f"Test was limited to {words(limit)} but allocated {words(took)}"


def limit_memory(window, limit, filter_fn):
    peak, _ = window.end(leaks=False)
    return too_much(limit, peak) if peak >= limit else None


def limit_leaks(window, limit, filter_fn):
    _, left = window.end(leaks=True)
    stacks = collections.Counter()
    for block in left:
        stacks[tuple(block.frames[: min(block.depth, FRAMES)])] += block.bytes
    over = []
    for addresses, size in stacks.most_common():
        if size < limit:
            break
        stack = Stack(tuple(window.frame(address) for address in addresses))
        if filter_fn is None or filter_fn(stack):
            over.append((size, stack))
    if not over:
        return None
    lines = [f"Test was allowed to leak {words(limit)} from each call stack, and leaked more:"]
    for size, stack in over:
        lines.append(f"  {words(size)}:")
        lines += [f"    {frame}" for frame in map(said, shown(stack.frames))]
    return "\n".join(lines)


CHECKS = {"limit_memory": limit_memory, "limit_leaks": limit_leaks}


def pytest_configure(config):
    config.addinivalue_line("markers", "limit_memory(amount, current_thread_only=False): bytes in use at a time")
    config.addinivalue_line(
        "markers", "limit_leaks(amount, filter_fn=None, current_thread_only=False): bytes that a call stack leaves"
    )


class Check:
    """What a mark asks for, and the window of the test that has it."""

    def __init__(self, mark):
        options = dict(mark.kwargs)
        given = list(mark.args)
        self.mark = mark.name
        named = [options.pop(name) for name in LIMITS[mark.name] if name in options]
        amounts = named or given[:1]
        if not amounts:
            raise ValueError(f'{mark.name} needs an amount of memory, such as {mark.name}("24 MB")')
        given = given if named else given[1:]
        self.limit = bytes_of(amounts[0])
        self.filter_fn = None
        if mark.name == "limit_leaks":
            self.filter_fn = given.pop(0) if given else options.pop("filter_fn", None)
        self.current_thread_only = given.pop(0) if given else options.pop("current_thread_only", False)
        if options or given:
            raise ValueError(f"{mark.name} has no option {', '.join([*options, *map(repr, given)])}")
        self.library = pool()
        if self.library is None:
            raise pytest.UsageError(
                f"{mark.name} needs the pool: run PYTHONMALLOC=malloc POOLSCOPE_PERIOD=1 poolscope run --headless -- "
                "python3 -m pytest"
            )
        self.failure = None

    def begin(self):
        gc.collect()
        self.window = Window(self.library, self.current_thread_only)

    def end(self, passed):
        """Ends the window. A test that has passed fails here if it is over its limit."""
        if not passed:
            self.window.end(leaks=False)
            return
        self.failure = CHECKS[self.mark](self.window, self.limit, self.filter_fn)
        if self.failure is not None:
            pytest.fail(self.failure, pytrace=False)

    def around(self, function):
        """The test function, with the window around it."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def watched(*args, **kwargs):
                self.begin()
                try:
                    await function(*args, **kwargs)
                except BaseException:
                    self.end(passed=False)
                    raise
                self.end(passed=True)

        else:

            @functools.wraps(function)
            def watched(*args, **kwargs):
                self.begin()
                try:
                    result = function(*args, **kwargs)
                except BaseException:
                    self.end(passed=False)
                    raise
                self.end(passed=True)
                return result

        return watched


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    marks = [mark for mark in pyfuncitem.iter_markers() if mark.name in MARKS]
    if not marks:
        yield
        return
    if len(marks) > 1:
        raise ValueError("a test may have one of the marks " + ", ".join(MARKS))
    check = Check(marks[0])
    function = pyfuncitem.obj
    pyfuncitem.obj = check.around(function)
    yield
    pyfuncitem.obj = function
    pyfuncitem.is_over_its_limit = check.failure is not None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call" and getattr(item, "is_over_its_limit", False):
        outcome.get_result().is_over_its_limit = True


def pytest_report_teststatus(report):
    if report.when == "call" and report.failed and getattr(report, "is_over_its_limit", False):
        return "failed", "M", "MEMORY PROBLEMS"
    return None
