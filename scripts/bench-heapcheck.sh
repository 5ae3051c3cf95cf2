#!/usr/bin/env bash
# What a leak check costs: ours beside LeakSanitizer, valgrind and gperftools, in one run. Installs the Debian packages that are
# missing, builds, and measures on a program of ours (samples/csrc/heapcheck_bench.c):
#
#   scan      a check of BLOCKS blocks (1,000,000) that are all in use: the time that the program waits
#   snapshot  the same, by a copy of the process: the program waits for the copy only
#   fork      what a bare fork of the same process takes
#   stacks    a check that finds STACKS blocks (10,000), each lost on another call stack, and names these
#
# ROUNDS (5) rounds, of which the fastest counts: others on the machine only add. Usage: bench-heapcheck.sh [BLOCKS [STACKS]]
. "$(dirname "$0")/common.sh"

case ${1:-} in
-h | --help)
    sed -n '2,/^\. /{/^#/{s/^# \{0,1\}//;p}}' scripts/bench-heapcheck.sh
    exit
    ;;
esac
libraries=/usr/lib/$(uname -m)-linux-gnu
install_for_benchmark <<END
$libraries/libtcmalloc.so.4     libgoogle-perftools4
/usr/bin/valgrind               valgrind
/usr/include/valgrind/memcheck.h valgrind
/usr/bin/gcc                    gcc
/usr/bin/python3                python3
END

blocks=${1:-1000000}
stacks=${2:-10000}
rounds=${ROUNDS:-5}
need_build_tools
cargo build --release --quiet -p poolscope-tui -p poolscope-preload
built=$(cd "$target_dir/release" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# LeakSanitizer sees stacks by frame pointers alone.
compile=(gcc -O1 -g -fno-omit-frame-pointer samples/csrc/heapcheck_bench.c)
"${compile[@]}" -o "$scratch/plain"
"${compile[@]}" -fsanitize=leak -o "$scratch/lsan"
export POOLSCOPE_DIR=$scratch/segments

# The least of the numbers that a command writes in so many rounds.
least() {
    for _ in $(seq "$rounds"); do "$@"; done | sort -g | head -n 1
}

check_ms() { sed -n 's/^check_ms \([0-9.]*\) .*/\1/p'; }
ours() { LD_PRELOAD=$built/libpoolscope.so POOLSCOPE_PERIOD=1 "$scratch/plain" "$@" 2>/dev/null | check_ms; }
lsan() { LSAN_OPTIONS=exitcode=0:leak_check_at_exit=0 "$scratch/lsan" "$@" 2>/dev/null | check_ms; }
valgrind_() { valgrind -q --leak-check=full --num-callers=30 "$scratch/plain" "$@" 2>/dev/null | check_ms; }

# The time of a whole run in milliseconds.
whole_ms() {
    local begun ended
    begun=$(date +%s%N)
    "$@" >/dev/null 2>&1 || true
    ended=$(date +%s%N)
    echo "$begun $ended" | awk '{ printf "%.1f\n", ($2 - $1) / 1e6 }'
}
gperftools() {
    local with without
    with=$(whole_ms env LD_PRELOAD="$libraries/libtcmalloc.so.4" HEAPCHECK=normal "$scratch/plain" "$@")
    without=$(whole_ms env LD_PRELOAD="$libraries/libtcmalloc.so.4" "$scratch/plain" "$@")
    # Without the library both are the same, but for noise.
    [ -e "$libraries/libtcmalloc.so.4" ] || return 0
    echo "$with $without" | awk '{ printf "%.1f\n", $1 - $2 }'
}

# What a process says that is asked from outside: pause, scan, and the whole command, in milliseconds.
asked() {
    local field=$1 number=$2 lost=$3
    shift 3
    coproc program { LD_PRELOAD=$built/libpoolscope.so POOLSCOPE_PERIOD=1 exec "$scratch/plain" "$number" "$lost" wait; }
    local pid=$program_PID input=${program[1]} begun ended
    read -r _ <&"${program[0]}"
    begun=$(date +%s%N)
    "$built/poolscope" leaks --json "$@" "$pid" >"$scratch/report" 2>/dev/null || true
    ended=$(date +%s%N)
    case $field in
    whole) echo "$begun $ended" | awk '{ printf "%.1f\n", ($2 - $1) / 1e6 }' ;;
    *) sed -n "s/.*\"${field}_seconds\": \([0-9.e-]*\).*/\1/p" "$scratch/report" | awk '{ printf "%.1f\n", $1 * 1e3 }' ;;
    esac
    exec {input}>&-
    wait "$pid" 2>/dev/null || true
}

# A bare fork of a process of the same size, by Python's clock around it.
fork_ms() {
    python3 - "$1" <<'END'
import os, sys, time
# As many bytes as the blocks and their records take.
memory = bytearray(int(sys.argv[1]) * (144 + 128))
memory[::4096] = bytes(len(memory[::4096]))
begun = time.perf_counter()
child = os.fork()
if child == 0:
    os._exit(0)
print(f"{(time.perf_counter() - begun) * 1e3:.1f}")
os.waitpid(child, 0)
END
}

row() { printf '%-34s %12s %10s\n' "$1" "${2:--}" "$3"; }
ratio() { echo "$1 $2" | awk '{ if ($1 > 0 && $2 > 0) printf "%.2f", $1 / $2; else print "-" }'; }

echo "$blocks blocks in use; the least of $rounds rounds"
row "" "ms" "x ours"
mine=$(least ours "$blocks" 0)
row "poolscope, the whole check" "$mine" 1.00
theirs=$(least lsan "$blocks" 0)
row "LeakSanitizer (gcc)" "$theirs" "$(ratio "$theirs" "$mine")"
rounds=1
theirs=$(least valgrind_ "$blocks" 0)
row "valgrind (one round)" "$theirs" "$(ratio "$theirs" "$mine")"
theirs=$(least gperftools "$blocks" 0)
row "gperftools HEAPCHECK=normal" "$theirs" "$(ratio "$theirs" "$mine")"
rounds=${ROUNDS:-5}
pause=$(least asked pause "$blocks" 0)
row "poolscope, threads wait" "$pause" "$(ratio "$pause" "$mine")"
row "poolscope, of that the scan" "$(least asked scan "$blocks" 0)" ""
pause=$(least asked pause "$blocks" 0 --snapshot)
row "poolscope --snapshot, threads wait" "$pause" "$(ratio "$pause" "$mine")"
row "a fork of as much memory" "$(least fork_ms "$blocks")" ""
echo
echo "$stacks blocks lost on as many stacks, with names"
row "" "ms" "x ours"
mine=$(least asked whole 1000 "$stacks")
row "poolscope leaks PID" "$mine" 1.00
theirs=$(least lsan 1000 "$stacks")
row "LeakSanitizer (gcc)" "$theirs" "$(ratio "$theirs" "$mine")"
theirs=$(least valgrind_ 1000 "$stacks")
row "valgrind" "$theirs" "$(ratio "$theirs" "$mine")"
