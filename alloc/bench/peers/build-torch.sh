#!/bin/sh
# Compiles torch.cpp beside this file against the machine's PyTorch; does nothing where that is done. TORCH names the package's
# folder if python3 has it not.
set -eu
here=$(dirname "$(readlink -f "$0")")
left_out() {
    echo "PyTorch is left out here: $*"
    exit 1
}
find='import importlib.util; print(importlib.util.find_spec("torch").submodule_search_locations[0])'
torch=${TORCH:-$(python3 -c "$find" 2>/dev/null)} || left_out "python3 has no torch"
version=$(sed -n "s/^__version__ = '\(.*\)'.*/\1/p" "$torch/version.py")
stamp="$here/libtorch_peer.version"
if [ -e "$here/libtorch_peer.so" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$version" ]; then
    exit 0
fi
command -v c++ >/dev/null || left_out "there is no C++ compiler for its interface"
set -- "-I$torch/include" "-I$torch/include/torch/csrc/api/include"
for cuda in "${CUDA_HOME:-/usr/local/cuda}/include" "$torch/../nvidia/cu13/include"; do
    [ ! -e "$cuda/cuda_runtime.h" ] || set -- "$@" "-I$cuda"
done
c++ -std=c++20 -O2 -fPIC -shared -w "$@" -o "$here/libtorch_peer.so" "$here/torch.cpp" \
    -L"$torch/lib" -lc10_cuda -lc10 -Wl,--unresolved-symbols=ignore-in-shared-libs || left_out "its interface does not compile"
echo "$version" > "$stamp"
