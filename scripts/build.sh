#!/usr/bin/env bash
# Builds the command, the library to preload, that of the device pool, and the sample programs.
. "$(dirname "$0")/common.sh"

build_release
echo "Built in $target_dir/release: poolscope, libpoolscope.so, libpoolscope_gpu.so, libpoolscope_tensors.so and the samples."
