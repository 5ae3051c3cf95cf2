#!/usr/bin/env bash
# Builds the command, the library to preload and the sample programs.
. "$(dirname "$0")/common.sh"

build_release
echo "Built in $target_dir/release: poolscope, libpoolscope.so and the samples."
