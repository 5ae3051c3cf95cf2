#!/usr/bin/env bash
# Fills a folder with the peers of the GPU benchmark: gpu-peers.sh FOLDER
#
# RMM comes as wheels, with its headers; what is compiled with them runs on a machine that has neither. PyTorch is the
# machine's own: build-torch.sh in the folder compiles against it, here if it is here, else where the benchmark runs. What can't be
# had is left out, and the benchmark's tables say so.
. "$(dirname "$0")/common.sh"

folder=${1:?usage: gpu-peers.sh FOLDER}
cache=$target_dir/gpu-peers
mkdir -p "$folder" "$cache/wheels" "$cache/unpacked"
sources=alloc/bench/peers
cp "$sources/peer.h" "$sources/torch.cpp" "$sources/build-torch.sh" "$folder"

# CUDA's headers are those of the major version that RMM's library is for.
wheels="librmm-cu13==26.10.* rapids-logger==0.3.* nvidia-cuda-runtime==13.0.* nvidia-cuda-crt==13.0.*"
fetch() {
    local platforms=() glibc
    for glibc in 2_28 2_27 2_24 2_17; do platforms+=(--platform "manylinux_${glibc}_$(uname -m)"); done
    # shellcheck disable=SC2086 # a list of words
    python3 -m pip download -q --no-deps --only-binary=:all: "${platforms[@]}" --platform "manylinux2014_$(uname -m)" \
        -d "$cache/wheels" $wheels </dev/null && touch "$cache/wheels/complete"
}
rmm() {
    command -v python3 >/dev/null || { echo "there is no python3"; return 1; }
    command -v c++ >/dev/null || { echo "there is no C++ compiler"; return 1; }
    [ -e "$cache/wheels/complete" ] || fetch || { echo "pip can't fetch its wheels"; return 1; }
    local wheel
    for wheel in "$cache"/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" "$cache/unpacked" || { echo "$wheel can't be unpacked"; return 1; }
    done
    local from=$cache/unpacked
    c++ -std=c++20 -O2 -fPIC -shared -w \
        -I"$from/librmm/include" -I"$from/librmm/include/rapids" -I"$from/rapids_logger/include" \
        -I"$from/nvidia/cu13/include" -o "$folder/librmm_peer.so" "$sources/rmm.cpp" \
        -L"$from/librmm/lib64" -lrmm -L"$from/rapids_logger/lib64" -lrapids_logger \
        -L"$from/nvidia/cu13/lib" -lcudart_static -ldl -lrt -lpthread "-Wl,-rpath,\$ORIGIN" ||
        { echo "it does not compile"; return 1; }
    cp "$from/librmm/lib64/librmm.so" "$from/rapids_logger/lib64/librapids_logger.so" "$folder"
}
reason=$(rmm) || echo "RMM is left out: ${reason##*$'\n'}"

"$folder/build-torch.sh" || true
library=$target_dir/release/libpoolscope_gpu.so
[ ! -e "$library" ] || cp "$library" "$folder"
