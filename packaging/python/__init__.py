"""poolscope, installed by pip: where its libraries are.

The command `poolscope` lies beside the interpreter. `import poolscope_gpu` is PyTorch's and CuPy's allocator on the
device pool.
"""

import pathlib
import sys

__version__ = "@VERSION@"


def library(name="libpoolscope.so"):
    """The path of a library of this installation: libpoolscope.so, or libpoolscope_gpu.so."""
    # pip puts the data of a wheel below the prefix that the package itself lies in.
    here = pathlib.Path(__file__).resolve()
    for prefix in [*here.parents, pathlib.Path(sys.prefix)]:
        found = prefix / "lib" / "poolscope" / name
        if found.is_file():
            return str(found)
    raise FileNotFoundError(f"{name} is not below lib/poolscope of any folder above {here}")
