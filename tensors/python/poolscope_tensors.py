"""Named tensors: one name, one piece of device memory, in every process of the machine.

    import poolscope_tensors
    wq = poolscope_tensors.get("llama/wq")              # a torch tensor, without a copy
    with poolscope_tensors.model("llama") as weights:   # a dictionary of them
        network.load_state_dict(weights, assign=True)
    poolscope_tensors.publish("kv/0", tensor)

Without PyTorch, `get` gives a Tensor, which others take by DLPack (`numpy.from_dlpack` for a simulated device) or by
`__cuda_array_interface__` (CuPy). The owner is `poolscope tensors serve`; its socket is that of POOLSCOPE_TENSORS, or
the usual one. The library is found beside the built programs (target/release), in the dynamic linker's folders, or where
POOLSCOPE_TENSORS_LIB says.
"""

import contextlib
import ctypes
import json
import os
import pathlib

__all__ = ["Refused", "Store", "Tensor", "default", "delete", "get", "get_many", "model", "publish"]


class Refused(RuntimeError):
    """What was refused; `code` is for programs."""

    def __init__(self, code, words):
        super().__init__(words)
        self.code = code


def _load():
    named = os.environ.get("POOLSCOPE_TENSORS_LIB")
    try:
        # The package that pip installs knows where its own libraries are.
        import poolscope

        named = named or poolscope.library("libpoolscope_tensors.so")
    except (ImportError, AttributeError, FileNotFoundError):
        pass
    root = pathlib.Path(__file__).resolve().parents[2]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    built = target / "release" / "libpoolscope_tensors.so"
    library = ctypes.CDLL(named or (str(built) if built.exists() else "libpoolscope_tensors.so"))
    text, store, tensor, size = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
    shape = ctypes.POINTER(ctypes.c_uint64)
    for name, result, arguments in (
        ("tensors_error", text, []),
        ("tensors_error_code", text, []),
        ("tensors_open", store, [text]),
        ("tensors_open_within", store, [text, ctypes.c_double]),
        ("tensors_close", None, [store]),
        ("tensors_get", tensor, [store, text, text]),
        ("tensors_get_on", tensor, [store, text, text, ctypes.c_uint64]),
        ("tensors_get_many", ctypes.POINTER(tensor), [store, text, ctypes.POINTER(size)]),
        ("tensors_create", tensor, [store, text, text, shape, size, ctypes.c_uint32, text]),
        ("tensors_commit", ctypes.c_int, [store, tensor]),
        ("tensors_publish", ctypes.c_int,
         [store, text, text, shape, size, ctypes.c_uint32, text, ctypes.c_uint64, text]),
        ("tensors_request", ctypes.c_void_p, [store, text]),
        ("tensors_free", None, [ctypes.c_void_p]),
        ("tensors_gpu_uuid", ctypes.c_void_p, [ctypes.c_uint32]),
        ("tensors_ordinal", ctypes.c_int, [text]),
        ("tensor_address", ctypes.c_uint64, [tensor]),
        ("tensor_bytes", ctypes.c_uint64, [tensor]),
        ("tensor_entry", text, [tensor]),
        ("tensor_read", ctypes.c_int, [tensor, ctypes.c_uint64, ctypes.c_void_p, size]),
        ("tensor_write", ctypes.c_int, [tensor, ctypes.c_uint64, ctypes.c_void_p, size]),
        ("tensor_record_stream", ctypes.c_int, [tensor, ctypes.c_uint64]),
        ("tensor_commit_on", ctypes.c_int, [tensor, ctypes.c_uint64]),
        ("tensor_release", None, [tensor]),
    ):
        function = getattr(library, "poolscope_" + name)
        function.restype, function.argtypes = result, arguments
    return library


_library = _load()


def _refused():
    words, code = _library.poolscope_tensors_error(), _library.poolscope_tensors_error_code()
    return Refused((code or b"").decode(), (words or b"no reason given").decode())


def _text(pointer):
    if not pointer:
        raise _refused()
    try:
        return ctypes.string_at(pointer).decode()
    finally:
        _library.poolscope_tensors_free(pointer)


# DLPack (dlpack.h, version 1.1): the structures that other libraries read.


class _DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _DLDevice), ("ndim", ctypes.c_int32), ("dtype", _DLDataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _DLManagedTensor(ctypes.Structure):
    _fields_ = [("dl_tensor", _DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", _Deleter)]


class _DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p),
                ("deleter", _Deleter), ("flags", ctypes.c_uint64), ("dl_tensor", _DLTensor)]


_CPU, _CUDA = 1, 2
_READ_ONLY = 1

# Of each type of elements: DLPack's code and bits, and __cuda_array_interface__'s name.
_DTYPES = {
    "bool": (6, 8, "|b1"), "u8": (1, 8, "|u1"), "i8": (0, 8, "|i1"), "u16": (1, 16, "<u2"), "i16": (0, 16, "<i2"),
    "u32": (1, 32, "<u4"), "i32": (0, 32, "<i4"), "u64": (1, 64, "<u8"), "i64": (0, 64, "<i8"),
    "f16": (2, 16, "<f2"), "bf16": (4, 16, None), "f32": (2, 32, "<f4"), "f64": (2, 64, "<f8"),
    "c64": (5, 64, "<c8"), "f8_e4m3": (10, 8, None), "f8_e5m2": (12, 8, None),
}

# What is exported, with all that it points to, until the last reader says that it has no use for it any more.
_exported = {}


@_Deleter
def _delete(address):
    _exported.pop(address, None)


_python = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_python.PyCapsule_IsValid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_NAMES = (b"dltensor_versioned", b"dltensor")


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _capsule_end(capsule):
    # One that a reader has taken has another name, and the reader calls the deleter.
    for name in _NAMES:
        if _python.PyCapsule_IsValid(capsule, name):
            _exported.pop(_python.PyCapsule_GetPointer(capsule, name), None)


def _name(name):
    """A name, or the beginning of one, for the library. To C a text ends at the first NUL: it would be another name."""
    if "\0" in name:
        raise Refused("bad_name", f"the name {name!r} has control characters")
    return name.encode()


def _stream(stream):
    """A stream's handle: of a number, or of PyTorch's and CuPy's streams."""
    return int(getattr(stream, "cuda_stream", getattr(stream, "ptr", stream)))


class Tensor:
    """A tensor of the store. Its memory may be used for as long as it, or what was made of it, exists."""

    def __init__(self, store, handle, read_only=False):
        self._store, self._handle, self._read_only = store, handle, read_only
        self.entry = json.loads(_library.poolscope_tensor_entry(handle))
        self.address = _library.poolscope_tensor_address(handle)
        self.name, self.dtype = self.entry["name"], self.entry["dtype"]
        self.shape, self.nbytes = tuple(self.entry["shape"]), self.entry["bytes"]
        self.meta = self.entry["meta"]

    def __del__(self):
        if getattr(self, "_handle", None):
            _library.poolscope_tensor_release(self._handle)
            self._handle = None

    def __repr__(self):
        return f"Tensor({self.name!r}, {self.dtype}, {list(self.shape)}, on {self.entry['gpu_uuid']})"

    @property
    def is_on_host(self):
        """Whether its memory is the host's: that of a simulated device is."""
        return self.entry["gpu_uuid"].startswith("GPU-simulated")

    def commit(self, stream=None):
        """Finishes a tensor that was created: others get it from now on. With a stream that still writes it they wait
        for the work that the stream has now."""
        if stream is None:
            code = _library.poolscope_tensors_commit(self._store._handle, self._handle)
        else:
            code = _library.poolscope_tensor_commit_on(self._handle, _stream(stream))
        if code != 0:
            raise _refused()
        return self

    def record_stream(self, stream):
        """Says that work of a stream uses it: its memory is not used again before that work is done."""
        if _library.poolscope_tensor_record_stream(self._handle, _stream(stream)) != 0:
            raise _refused()

    def read(self):
        """A copy of its bytes."""
        to = ctypes.create_string_buffer(self.nbytes)
        if _library.poolscope_tensor_read(self._handle, 0, to, self.nbytes) != 0:
            raise _refused()
        return to.raw

    def write(self, data, offset=0):
        """Copies bytes into it."""
        data = bytes(data)
        if _library.poolscope_tensor_write(self._handle, offset, data, len(data)) != 0:
            raise _refused()

    def _ordinal(self):
        ordinal = _library.poolscope_tensors_ordinal(self.entry["gpu_uuid"].encode())
        if ordinal < 0:
            raise _refused()
        return ordinal

    def __dlpack_device__(self):
        return (_CPU, 0) if self.is_on_host else (_CUDA, self._ordinal())

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule for another library, versioned if that takes such. What was committed is written: no stream has to
        wait."""
        return self._capsule(self.dtype, max_version, dl_device, copy)

    def _capsule(self, dtype, max_version=None, dl_device=None, copy=None):
        if copy:
            raise BufferError("a copy was asked for: these tensors are shared")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"{self.name} is on device {self.__dlpack_device__()}, not {tuple(dl_device)}")
        rank = len(self.shape)
        shape = (ctypes.c_int64 * max(rank, 1))(*self.shape)
        strides = (ctypes.c_int64 * max(rank, 1))(*self.entry["strides"])
        code, bits, _ = _DTYPES[dtype]
        described = _DLTensor(self.address, _DLDevice(*self.__dlpack_device__()), rank, _DLDataType(code, bits, 1),
                              shape, strides, 0)
        if max_version is not None and max_version[0] >= 1:
            flags = _READ_ONLY if self._read_only else 0
            managed, name = _DLManagedTensorVersioned(1, 1, None, _delete, flags, described), _NAMES[0]
        elif self._read_only:
            raise BufferError("the reader is too old to know of memory that is read only")
        else:
            managed, name = _DLManagedTensor(described, None, _delete), _NAMES[1]
        address = ctypes.addressof(managed)
        _exported[address] = (managed, shape, strides, self)
        return _python.PyCapsule_New(address, name, ctypes.cast(_capsule_end, ctypes.c_void_p))

    @property
    def __cuda_array_interface__(self):
        typestr = _DTYPES[self.dtype][2]
        if self.is_on_host or typestr is None:
            raise AttributeError("__cuda_array_interface__")
        return {"version": 3, "shape": self.shape, "typestr": typestr, "data": (self.address, self._read_only),
                "strides": None, "stream": None}

    def torch(self):
        """The same memory as a torch tensor."""
        import torch

        if not self.dtype.startswith("f8"):
            return torch.from_dlpack(self)
        # Not every PyTorch takes these types by DLPack; each takes bytes.
        kind = {"f8_e4m3": torch.float8_e4m3fn, "f8_e5m2": torch.float8_e5m2}[self.dtype]
        return torch.from_dlpack(self._capsule("u8", None)).view(kind)


def _best(tensor):
    try:
        import torch  # noqa: F401
    except ImportError:
        return tensor
    return tensor.torch()


class Store:
    """A connection to an owner. It waits for the owner, and for a stream that still writes a tensor, for so many seconds
    at most."""

    def __init__(self, socket=None, patience=10):
        self._handle = _library.poolscope_tensors_open_within(None if socket is None else os.fsencode(socket), patience)
        if not self._handle:
            raise _refused()

    def __del__(self):
        if getattr(self, "_handle", None):
            _library.poolscope_tensors_close(self._handle)
            self._handle = None

    def tensor(self, name, expect=None, read_only=False, stream=None):
        """A tensor by name, as a Tensor. What is still being written is waited for: by the stream, or by the host."""
        expect = None if expect is None else json.dumps(expect).encode()
        if stream is None:
            handle = _library.poolscope_tensors_get(self._handle, _name(name), expect)
        else:
            handle = _library.poolscope_tensors_get_on(self._handle, _name(name), expect, _stream(stream))
        if not handle:
            raise _refused()
        return Tensor(self, handle, read_only)

    def get(self, name, expect=None):
        """A tensor by name: a torch tensor where PyTorch is, else a Tensor."""
        return _best(self.tensor(name, expect))

    def tensors(self, prefix=""):
        """All tensors whose names begin so, as Tensors: one question, and one import for each piece of memory."""
        count = ctypes.c_size_t()
        array = _library.poolscope_tensors_get_many(self._handle, _name(prefix), ctypes.byref(count))
        if not array:
            raise _refused()
        try:
            return [Tensor(self, array[at]) for at in range(count.value)]
        finally:
            _library.poolscope_tensors_free(ctypes.cast(array, ctypes.c_void_p))

    def get_many(self, prefix=""):
        """The same as a dictionary by name, of torch tensors where PyTorch is."""
        return {tensor.name: _best(tensor) for tensor in self.tensors(prefix)}

    @contextlib.contextmanager
    def model(self, name):
        """The tensors below `name/` by the rest of their names, for as long as the block lasts."""
        prefix = name + "/"
        weights = {whole[len(prefix):]: tensor for whole, tensor in self.get_many(prefix).items()}
        if not weights:
            raise Refused("no_such_name", f"there are no tensors below {prefix!r}")
        try:
            yield weights
        finally:
            weights.clear()

    def create(self, name, dtype, shape, device=0, meta=None):
        """A new Tensor, which others get once it is committed."""
        numbers = (ctypes.c_uint64 * max(len(shape), 1))(*shape)
        meta = None if meta is None else json.dumps(meta).encode()
        handle = _library.poolscope_tensors_create(self._handle, _name(name), dtype.encode(), numbers, len(shape),
                                                   device, meta)
        if not handle:
            raise _refused()
        return Tensor(self, handle)

    def publish(self, name, tensor, device=0, meta=None):
        """Gives a name to a tensor's memory, whoever allocated it. Memory of cudaMalloc, as PyTorch has it by default,
        goes with this process; what is published is kept alive here until `delete`."""
        if isinstance(tensor, Tensor):
            dtype, shape, address, uuid = tensor.dtype, tensor.shape, tensor.address, tensor.entry["gpu_uuid"]
        else:
            import torch

            if not tensor.is_contiguous():
                raise Refused("bad_field", f"{name}: the tensor is not contiguous: publish(name, tensor.contiguous())")
            if not tensor.is_cuda:
                raise Refused("not_shared", f"{name}: the tensor is on {tensor.device}, and not on a GPU")
            dtype = {torch.bool: "bool", torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32",
                     torch.int64: "i64", torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32",
                     torch.float64: "f64", torch.complex64: "c64", torch.float8_e4m3fn: "f8_e4m3",
                     torch.float8_e5m2: "f8_e5m2"}[tensor.dtype]
            shape, address = tuple(tensor.shape), tensor.data_ptr()
            uuid = _text(_library.poolscope_tensors_gpu_uuid(tensor.device.index))
            # Readers must see what was written before.
            torch.cuda.current_stream(tensor.device).synchronize()
        numbers = (ctypes.c_uint64 * max(len(shape), 1))(*shape)
        meta = None if meta is None else json.dumps(meta).encode()
        code = _library.poolscope_tensors_publish(self._handle, _name(name), dtype.encode(), numbers, len(shape),
                                                  device, uuid.encode(), address, meta)
        if code != 0:
            raise _refused()
        _published[name] = tensor

    def request(self, **fields):
        """Any request of the protocol, and its reply."""
        return json.loads(_text(_library.poolscope_tensors_request(self._handle, json.dumps(fields).encode())))

    def delete(self, name):
        """Takes a name away; the memory stays for as long as somebody holds it."""
        reply = self.request(op="delete", name=name, all=True)
        _published.pop(name, None)
        return reply


_published = {}
_default = None


def default():
    """The store that the functions of this module use: opened by the first of them, and again after a fork."""
    global _default
    if _default is None or _default[0] != os.getpid():
        _default = (os.getpid(), Store())
    return _default[1]


def get(name, expect=None):
    """A tensor by name: a torch tensor where PyTorch is, else a Tensor."""
    return default().get(name, expect)


def get_many(prefix=""):
    """All tensors whose names begin so, by name."""
    return default().get_many(prefix)


def model(name):
    """The tensors below `name/`, for as long as the block lasts."""
    return default().model(name)


def publish(name, tensor, device=0, meta=None):
    """Gives a name to a tensor's memory."""
    default().publish(name, tensor, device, meta)


def delete(name):
    """Takes a name away."""
    return default().delete(name)
