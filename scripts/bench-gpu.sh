#!/usr/bin/env bash
# The GPU pool beside its peers, in one go; --help says what the arguments are. Without a card: --device sim.
. "$(dirname "$0")/common.sh"

need_build_tools
simulated=
for argument; do [ "$argument" != sim ] && [ "$argument" != --device=sim ] || simulated=1; done
if [ -n "$simulated" ]; then
    cargo build --release --quiet -p poolscope-bench
else
    cargo build --release --quiet -p poolscope-bench -p poolscope-plugin
    scripts/gpu-peers.sh "$target_dir/release/peers"
fi
exec "$target_dir/release/bench-gpu" "$@"
