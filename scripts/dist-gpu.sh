#!/usr/bin/env bash
# Packs what runs on a machine with a GPU that has neither Cargo nor a network: dist-gpu.sh FOLDER
#
# Benchmarks, tests of the device, the plug-in with its samples in Python, the recorded traces, the peers, and named tensors with a
# Redis if there is one here. FOLDER/run says how each is started.
. "$(dirname "$0")/common.sh"

folder=${1:?usage: dist-gpu.sh FOLDER}
need_build_tools
cargo build --release --quiet -p poolscope-bench -p poolscope-plugin -p poolscope-tui -p poolscope-gpu -p poolscope-tensors-c --bins --lib
cargo build --release --quiet -p poolscope-gpu -p poolscope-replay -p poolscope-tensors --examples
cargo build --release --quiet -p poolscope-alloc --features gpu --example gpu_pairs

rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/lib" "$folder/traces" "$folder/python" "$folder/peers"
release=$target_dir/release
for program in bench-gpu poolscope examples/gpu_check examples/speed examples/gpu_pairs examples/tensor_bench; do
    [ ! -x "$release/$program" ] || cp "$release/$program" "$folder/bin"
done
cp "$release/libpoolscope_gpu.so" "$release/libpoolscope_tensors.so" alloc/plugin/include/poolscope_gpu.h \
    alloc/preload/include/poolscope_data_ptr.h "$folder/lib"
cp alloc/replay/traces/*.trace.gz "$folder/traces"
cp samples/python/*.py tensors/python/*.py "$folder/python"
# The machine there may have no Redis, nor the libraries of this one; those of the C library it has.
if redis=$(command -v redis-server); then
    mkdir "$folder/redis"
    cp "$(readlink -f "$redis")" "$folder/redis/redis-server"
    ldd "$redis" | awk '$3 ~ "^/" && $1 !~ "^lib(c|m|gcc_s|stdc\\+\\+)\\.so" {print $3}' | xargs -r cp -Lt "$folder/redis"
fi
scripts/gpu-peers.sh "$folder/peers"
find "$folder/bin" "$folder/lib" "$folder/peers" -type f \( -name '*.so' -o -perm -u+x ! -name '*.sh' \) \
    -exec strip --strip-debug {} +
cp scripts/dist-gpu-run.sh "$folder/run"
chmod +x "$folder/run"

size=$(du -sm "$folder" | cut -f1)
[ "$size" -le 64 ] || die "$folder has $size MiB: it must not be over 64."
echo "$folder ($size MiB) runs on any machine with a glibc at least as new; $folder/run says how."
