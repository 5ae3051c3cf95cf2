#!/bin/sh
# Starts what is packed in this folder, on a machine with a GPU.
set -eu
here=$(dirname "$(readlink -f "$0")")
usage() {
    cat <<'TEXT'
usage: run WHAT [ARGUMENTS]

  bench    the pool beside its peers (bench-gpu; --help)
  sim      the placement policies on the simulated device (no card is needed)
  trace    a trace of your own on the policies: run trace FILE [--policy a,b]
  whatif   what would suit a trace of your own: run whatif FILE
  check    the tests of the device
  pairs    what recording costs: run pairs cuda 1 2 4 8 16 (numbers of threads)
  tensors  what named tensors cost, also through Redis; then PyTorch on both sides: run python torch_tensors.py
  all      check, bench, tensors and the samples in Python, one after the other; what they write lies in ./out
  python   a sample: run python torch_train.py
TEXT
}
what=${1:-}
[ $# = 0 ] || shift
case $what in
    bench)
        "$here/peers/build-torch.sh" || true
        exec "$here/bin/bench-gpu" --peers "$here/peers" "$@"
        ;;
    sim) exec "$here/bin/bench-gpu" --device sim "$@" ;;
    trace)
        file=${1:?run trace FILE}
        shift
        exec "$here/bin/poolscope" bench gpu --device 0 --trace "$file" "$@"
        ;;
    whatif) exec "$here/bin/poolscope" whatif "$@" ;;
    check)
        [ -x "$here/bin/gpu_check" ] || { echo "gpu_check is not packed" >&2; exit 2; }
        exec "$here/bin/gpu_check" "$@"
        ;;
    pairs) exec "$here/bin/gpu_pairs" "$@" ;;
    python)
        script=${1:?run python SCRIPT}
        shift
        POOLSCOPE=$here/bin/poolscope POOLSCOPE_TENSORS_LIB=$here/lib/libpoolscope_tensors.so \
            POOLSCOPE_GPU_LIB=$here/lib/libpoolscope_gpu.so exec python3 "$here/python/$script" "$@"
        ;;
    tensors)
        if [ ! -x "$here/redis/redis-server" ]; then exec "$here/bin/tensor_bench" --device 0 "$@"; fi
        folder=$(mktemp -d)
        LD_LIBRARY_PATH="$here/redis" "$here/redis/redis-server" --port 0 --save "" --unixsocket "$folder/redis.sock" >"$folder/redis.log" &
        redis=$!
        trap 'kill $redis; rm -r "$folder"' EXIT
        sleep 1
        "$here/bin/tensor_bench" --device 0 --redis "redis+unix://$folder/redis.sock" "$@"
        ;;
    all)
        failed=0
        "$here/run" check || failed=1
        "$here/run" bench "$@" || failed=1
        "$here/run" tensors || failed=1
        for script in "$here"/python/torch_*.py "$here"/python/cupy_*.py; do
            "$here/run" python "$(basename "$script")" || failed=1
        done
        exit $failed
        ;;
    help | --help | -h) usage ;;
    *)
        usage >&2
        exit 2
        ;;
esac
