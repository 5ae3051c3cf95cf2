"""Packs an installed tree as a wheel: wheel.py TREE VERSION OUTPUT-FOLDER

The tag is the oldest manylinux that the programs and libraries in it run on, by the newest version of a symbol of glibc
that any of them asks for (PEP 600). Prints the wheel's path.
"""

import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import zipfile

# Libraries that a manylinux wheel may expect on every system (auditwheel's policy).
EVERYWHERE = {"libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libgcc_s.so.1"}
EVERYWHERE |= {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def asked_of_glibc(file):
    """The newest version of glibc that a file asks for; fails if it needs a library that is not everywhere."""
    dump = subprocess.run(["objdump", "-p", file], check=True, capture_output=True, text=True).stdout
    needed = set(re.findall(r"NEEDED +(\S+)", dump))
    if needed - EVERYWHERE:
        sys.exit(f"{file} needs {needed - EVERYWHERE}, which not every system has")
    return max((tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_(\d+(?:\.\d+)+)", dump)), default=(2, 5))


def main():
    tree, version, output = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    here = pathlib.Path(__file__).resolve().parent
    root = here.parent
    binaries = [tree / "bin/poolscope", *sorted((tree / "lib").glob("*.so"))]
    glibc = max(asked_of_glibc(file) for file in binaries)
    tag = f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{platform.machine()}"
    name, data, info = "poolscope", f"poolscope-{version}.data", f"poolscope-{version}.dist-info"

    files = {}
    for source in sorted((here / "python").glob("*.py")):
        files[f"{name}/{source.name}"] = source.read_text().replace("@VERSION@", version).encode()
    files["poolscope_gpu.py"] = (root / "samples/python/poolscope_gpu.py").read_bytes()
    files["poolscope_tensors.py"] = (root / "tensors/python/poolscope_tensors.py").read_bytes()
    # pytest finds the plug-in by its entry point, where there is a pytest.
    files["pytest_poolscope.py"] = (root / "packages/pytest-poolscope/pytest_poolscope.py").read_bytes()
    files[f"{info}/entry_points.txt"] = b"[pytest11]\npoolscope = pytest_poolscope\n"
    files[f"{data}/scripts/poolscope"] = (tree / "bin/poolscope").read_bytes()
    for library in sorted((tree / "lib").glob("*.so")):
        files[f"{data}/data/lib/poolscope/{library.name}"] = library.read_bytes()
    for folder in ["share/man", "share/bash-completion", "share/zsh", "share/fish"]:
        for file in sorted((tree / folder).rglob("*")):
            if file.is_file():
                files[f"{data}/data/{file.relative_to(tree)}"] = file.read_bytes()
    for license in ["LICENSE-MIT", "LICENSE-APACHE"]:
        files[f"{info}/licenses/{license}"] = (root / license).read_bytes()
    readme = (root / "README.md").read_text()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.4\nName: poolscope\nVersion: {version}\n"
        "Summary: A memory allocator that can be watched, and the tools to watch it\n"
        "License-Expression: MIT OR Apache-2.0\nLicense-File: LICENSE-MIT\nLicense-File: LICENSE-APACHE\n"
        "Classifier: Operating System :: POSIX :: Linux\nRequires-Python: >=3.9\n"
        f"Description-Content-Type: text/markdown\n\n{readme}"
    ).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: poolscope\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()

    wheel = output / f"poolscope-{version}-{tag}.whl"
    record = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, date_time=(1980, 1, 1, 0, 0, 0))
            is_program = path.endswith("/scripts/poolscope") or path.endswith(".so")
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(content)}\n")
        record.append(f"{info}/RECORD,,\n")
        packed.writestr(zipfile.ZipInfo(f"{info}/RECORD", date_time=(1980, 1, 1, 0, 0, 0)), "".join(record))
    print(os.fspath(wheel))


main()
