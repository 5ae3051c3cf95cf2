#!/usr/bin/env bash
# What a leak check costs: ours beside LeakSanitizer, valgrind and gperftools, in one run. Installs the Debian packages that are
# missing, builds, and measures on a program of ours (samples/csrc/heapcheck_bench.c):
#
#   scan      a check of BLOCKS blocks (1,000,000) that are all in use: the time that the program waits
#   snapshot  the same, by a copy of the process: the program waits for the copy only
#   fork      what a bare fork of the same process takes
#   stacks    a check that finds STACKS blocks (10,000), each lost on another call stack, and names these
#   armed     the same program where nobody asks: to walk over its blocks, and to make them
#
# The median of ROUNDS (5) rounds, with the least and the most. Usage: bench-heapcheck.sh [--markdown FILE] [BLOCKS [STACKS]]
# With --markdown the tables go into FILE, between <!-- figures --> and <!-- end -->, too.
. "$(dirname "$0")/common.sh"

case ${1:-} in
-h | --help)
    sed -n '2,/^\. /{/^#/{s/^# \{0,1\}//;p}}' scripts/bench-heapcheck.sh
    exit
    ;;
esac
page=
if [ "${1:-}" = --markdown ]; then
    page=${2:?which file?}
    shift 2
fi
libraries=/usr/lib/$(uname -m)-linux-gnu
install_for_benchmark <<END
$libraries/libtcmalloc.so.4     libgoogle-perftools4
$libraries/libjemalloc.so.2     libjemalloc2
$libraries/libmimalloc.so.2.0   libmimalloc2.0
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
# Names that were kept from an earlier run would be found sooner.
export POOLSCOPE_SYMBOL_CACHE=

# The median of the numbers that a command writes in so many rounds, the least and the most.
measure() {
    for _ in $(seq "$rounds"); do "$@"; done | sort -g |
        awk '{ at[NR] = $1 } END { if (NR) print at[int((NR + 1) / 2)], at[1] "-" at[NR] }'
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

row() { printf '| %s | %s | %s | %s |\n' "$1" "${2:--}" "${3:--}" "$4"; }
head_of() { printf '\n%s\n\n| | ms | least and most | x ours |\n|---|---:|---:|---:|\n' "$1"; }
ratio() { echo "$1 $2" | awk '{ if ($1 > 0 && $2 > 0) printf "%.2f", $1 / $2; else print "-" }'; }
# A row of what a command measures, beside a median.
line() {
    local what=$1 ours=$2 got spread
    shift 2
    read -r got spread < <(measure "$@")
    row "$what" "$got" "$spread" "$(ratio "${got:-0}" "${ours:-${got:-0}}")"
    last=$got
}
phase_ms() { sed -n "s/.*$1_ms \([0-9.]*\).*/\1/p"; }
armed() { LD_PRELOAD=$built/libpoolscope.so POOLSCOPE_PERIOD=1 "$scratch/plain" "$blocks" 0 2>/dev/null | phase_ms "$1"; }
on_pool() { LD_PRELOAD=$built/libpoolscope.so "$scratch/plain" "$blocks" 0 2>/dev/null | phase_ms "$1"; }
on_library() { LD_PRELOAD=$libraries/$1 "$scratch/plain" "$blocks" 0 2>/dev/null | phase_ms "$2"; }
without() { "$scratch/plain" "$blocks" 0 2>/dev/null | phase_ms "$1"; }

figures() {
    head_of "$blocks blocks in use, none lost. $rounds rounds; of valgrind and gperftools one."
    line "poolscope, the whole check" "" ours "$blocks" 0
    mine=$last
    line "LeakSanitizer (gcc)" "$mine" lsan "$blocks" 0
    all=$rounds rounds=1
    line "valgrind" "$mine" valgrind_ "$blocks" 0
    line "gperftools, HEAPCHECK=normal" "$mine" gperftools "$blocks" 0
    rounds=$all
    line "poolscope leaks PID, threads wait" "$mine" asked pause "$blocks" 0
    line "of that the scan" "$mine" asked scan "$blocks" 0
    line "poolscope leaks PID --snapshot, threads wait" "$mine" asked pause "$blocks" 0 --snapshot
    line "a fork of as much memory" "$mine" fork_ms "$blocks"

    head_of "$stacks blocks lost on as many stacks, with names."
    line "poolscope leaks PID" "" asked whole 1000 "$stacks"
    mine=$last
    line "LeakSanitizer (gcc)" "$mine" lsan 1000 "$stacks"
    line "valgrind" "$mine" valgrind_ 1000 "$stacks"
    POOLSCOPE_SYMBOL_CACHE=$scratch/names
    asked whole 1000 "$stacks" >/dev/null
    line "poolscope leaks PID, names kept" "$mine" asked whole 1000 "$stacks"
    POOLSCOPE_SYMBOL_CACHE=

    head_of "Armed, and nobody asks. To walk over the blocks five times:"
    line "poolscope, every allocation recorded" "" armed walk
    mine=$last
    line "poolscope, sampling" "$mine" on_pool walk
    # These keep blocks by size classes as well, each size in pages of its own.
    line "jemalloc" "$mine" on_library libjemalloc.so.2 walk
    line "tcmalloc" "$mine" on_library libtcmalloc.so.4 walk
    line "mimalloc" "$mine" on_library libmimalloc.so.2.0 walk
    line "without poolscope" "$mine" without walk
    head_of "To make them:"
    line "poolscope, every allocation recorded" "" armed grow
    mine=$last
    line "poolscope, sampling" "$mine" on_pool grow
    line "without poolscope" "$mine" without grow
}
figures | tee "$scratch/figures"
[ -n "$page" ] || exit 0
awk -v figures="$scratch/figures" '
    /^<!-- figures -->/ { print; while ((getline text < figures) > 0) print text; skip = 1; next }
    /^<!-- end -->/ { skip = 0 }
    !skip' "$page" >"$scratch/page"
cat "$scratch/page" >"$page"
