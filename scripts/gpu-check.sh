#!/usr/bin/env bash
# The checks of the device pool on a real card: exit code 0 if all is well, 1 if something is not, 3 without a device.
#
# scripts/gpu-check.sh [options of gpu_check]    runs them here
# scripts/gpu-check.sh --pack FOLDER             packs them for a machine with a card and without Cargo: FOLDER/gpu_check there
. "$(dirname "$0")/common.sh"

need_build_tools
cargo build --release --quiet -p poolscope-gpu -p poolscope-replay --example gpu_check --example speed
built="$target_dir/release/examples"
if [ "${1:-}" = --pack ]; then
    [ $# = 2 ] || die "--pack takes a folder."
    mkdir -p "$2"
    for program in gpu_check speed; do
        cp "$built/$program" "$2/"
        strip "$2/$program"
    done
    echo "packed into $2: gpu_check, speed"
    exit
fi
exec "$built/gpu_check" "$@"
