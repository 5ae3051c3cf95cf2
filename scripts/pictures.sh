#!/usr/bin/env bash
# Makes the pictures of the dashboard for the documentation, docs/pictures/VIEW.svg: of the demo as it is, by the keys that
# a user would press. It takes tmux, and a built release.
. "$(dirname "$0")/common.sh"

# The sessions run in folders of their own, so paths are absolute.
poolscope=$(realpath "${POOLSCOPE:-$target_dir/release/poolscope}")
server=$(realpath "${SERVER:-$target_dir/release/kv-server}")
training=$(realpath "${TRAINING:-$target_dir/release/gpu-training}")
to=$PWD/docs/pictures
work=$(mktemp -d)
socket=poolscope-pictures-$$
tmux_here() { tmux -L "$socket" -u -f /dev/null "$@"; }
clean_up() {
    tmux_here kill-server 2>/dev/null || true
    kill "${leaky:-}" "${user:-}" "${owner:-}" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
mkdir -p "$to"

# start SESSION COMMAND...: the dashboard in a terminal of its own, in a folder of its own.
start() {
    local session=$1
    shift
    mkdir -p "$work/$session"
    LANG=C.UTF-8 COLORTERM=truecolor tmux_here new-session -d -s "$session" -x 132 -y 38 -c "$work/$session" \
        env -u NO_COLOR -u LC_ALL TERM=xterm-256color "$@"
}

# picture SESSION VIEW KEY...: presses the keys, and has the screen written as a picture.
picture() {
    local session=$1 view=$2 key
    shift 2
    for key in "$@" e i Escape; do
        tmux_here send-keys -t "$session" "$key"
        sleep 0.3
    done
    for _ in $(seq 50); do
        local made=("$work/$session"/poolscope-*-"$view".svg)
        if [ -s "${made[0]}" ]; then
            mv "${made[0]}" "$to/$view.svg"
            return
        fi
        sleep 0.1
    done
    tmux_here capture-pane -p -t "$session" >&2
    die "There is no picture of the view $view."
}

start server "$poolscope" run --period 64K -- "$server" --clients 8 --seconds 900
# A program that loses blocks and goes on, with every allocation recorded.
gcc -O1 -g -fno-builtin -pthread -Ialloc/preload/include -o "$work/leaky" tests/csrc/asked.c
# Its input is open as long as the script runs: a process that kept it open would keep the script's output open, too.
mkfifo "$work/asked"
POOLSCOPE_PERIOD=1 LD_PRELOAD=$target_dir/release/libpoolscope.so "$work/leaky" <"$work/asked" >/dev/null &
leaky=$!
exec 3>"$work/asked"
printf 'lose 40\nchain\nhold 9\n' >&3
sleep 1
start leaks "$poolscope" top "$leaky"
start devices "$poolscope" run --period 64K -- "$training" --devices 2 --steps 100000 --leak 100000
# An owner of named tensors, and a program that uses some. One of them has lost its name.
mkdir -m 700 "$work/own"
"$poolscope" run --headless -- "$poolscope" tensors serve --device sim --linger 1 --socket "$work/own/tensors.sock" &
owner=$!
POOLSCOPE_TENSORS=$work/own/tensors.sock POOLSCOPE_TENSORS_LIB=$target_dir/release/libpoolscope_tensors.so \
    PYTHONPATH=tensors/python python3 -B - <<'END' &
import time, poolscope_tensors as tensors
held = []
for layer, width in [("embed", 32000), ("layers.0/wq", 4096), ("layers.0/wk", 1024), ("layers.0/wv", 1024), ("norm", 1)]:
    new = tensors.default().create("llama/" + layer, "bf16", [width, 4096])
    held += [new.commit()] if layer != "norm" else [new]
tensors.delete("llama/layers.0/wv")
del held[1], new
time.sleep(100)
END
user=$!
sleep 1
start tensors "$poolscope" top "$owner"
sleep "${SECONDS_BEFORE:-25}"
picture server overview 1
picture server classes 2
picture server sites 3
picture server flame 4 c Down Down Down
picture server threads 5
picture server counters 7
picture server findings 8
picture server output 0
tmux_here send-keys -t leaks 9 l
sleep 3
picture leaks leaks 9
picture devices gpu 6 m l l
picture tensors tensors T Down
# Where the sources lie says nothing. A text that gets shorter is not stretched.
sources=${server%/target/*}
sed -i -E "\#$sources/#s# textLength=\"[0-9.]+\"##; s#$sources/##g; \
    /[.]cargo/s# textLength=\"[0-9.]+\"##; s#/[^ ]*/[.]cargo/registry/src/[^/]*/##g" "$to"/*.svg
echo "Wrote $to/*.svg."
