#!/usr/bin/env bash
# Packs what tries named tensors on a machine with a GPU that has neither Cargo nor a network: dist-tensors.sh FOLDER
#
# FOLDER/run runs all of it: the benchmark, and PyTorch on both sides.
. "$(dirname "$0")/common.sh"

folder=${1:?usage: dist-tensors.sh FOLDER}
need_build_tools
cargo build --release --quiet -p poolscope-tui -p poolscope-tensors-c
cargo build --release --quiet -p poolscope-tensors --examples

rm -rf "$folder"
mkdir -p "$folder"
cp "$target_dir/release/poolscope" "$target_dir/release/libpoolscope_tensors.so" \
    "$target_dir/release/examples/tensor_bench" tensors/python/poolscope_tensors.py samples/python/torch_tensors.py "$folder"
find "$folder" -type f ! -name '*.py' -exec strip --strip-debug {} +
cat >"$folder/run" <<'END'
#!/bin/sh
# The benchmark of named tensors, and PyTorch on both sides: run [DEVICE]
set -u
here=$(dirname "$(readlink -f "$0")")
timeout 180 "$here/tensor_bench" --device "${1:-0}"
bench=$?
POOLSCOPE=$here/poolscope POOLSCOPE_TENSORS_LIB=$here/libpoolscope_tensors.so PYTHONPATH=$here \
    timeout 240 python3 "$here/torch_tensors.py"
torch=$?
echo "benchmark: exit $bench; PyTorch: exit $torch"
[ $bench = 0 ] && [ $torch = 0 ]
END
chmod +x "$folder/run"
echo "$folder runs on any machine with a GPU and a glibc at least as new: $folder/run"
