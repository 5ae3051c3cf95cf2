#!/usr/bin/env bash
# Starts the sample server on the pool and opens the dashboard on it. With ONCE=1 there is no terminal: one frame is
# printed as text once the server's leak shows in it, the server is stopped, and the script ends with 0.
. "$(dirname "$0")/common.sh"

poolscope="$target_dir/release/poolscope"
server="$target_dir/release/kv-server"

# What happens goes to standard error, as Cargo's own words do: standard output is the frame's.
if [ ! -x "$poolscope" ] || [ ! -x "$server" ]; then
    echo "poolscope has to be built first. Cargo fetches what it depends on, and says what it compiles." >&2
    echo "That is $(crates_of_release) crates, optimised: some four minutes on two processors, once." >&2
fi
build_release

if [ -z "${ONCE:-}" ]; then
    echo "This server leaks on purpose: see what has a ▲ in the list of call sites, and press Enter there." >&2
    exec "$poolscope" run --period 64K -- "$server" --clients 8 --seconds 0
fi

echo "Starting the sample server, which leaks on purpose; that shows after a few seconds." >&2
log=$(mktemp)
"$poolscope" run --headless --period 64K -- "$server" --clients 8 --seconds 60 >"$log" 2>&1 </dev/null &
run=$!
pid=
clean_up() {
    # The server by the id that it printed itself; `poolscope run` ends with it.
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    wait "$run" 2>/dev/null || true
    rm -f "$log" "$log.error"
}
trap clean_up EXIT

for _ in $(seq 150); do
    kill -0 "$run" 2>/dev/null || { cat "$log" >&2; die "The server ended before it was ready."; }
    pid=$(sed -n 's/^kv-server: pid \([0-9]*\),.*/\1/p' "$log")
    # Growth that is none by chance, and the leak's function: from here on the frame has something to show.
    if [ -n "$pid" ] && frame=$("$poolscope" top "$pid" --once 2>"$log.error") &&
        grep -q "/min ▲" <<<"$frame" && grep -q remember_watch <<<"$frame"; then
        printf '%s\n' "$frame"
        exit 0
    fi
    sleep 0.2
done
cat "$log" "$log.error" >&2 || true
die "The server's leak did not show within 30 seconds."
