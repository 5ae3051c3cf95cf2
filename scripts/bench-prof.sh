#!/usr/bin/env bash
# What profilers cost the programs that they look at: ours beside its peers, in one go. Installs the Debian packages that are
# missing and a memray of its own, builds, and measures; --help says what the arguments are. Takes about six minutes, in which the
# machine should have nothing else to do.
. "$(dirname "$0")/common.sh"

# A file and the package that brings it.
libraries=/usr/lib/$(uname -m)-linux-gnu
install_for_benchmark <<END
$libraries/libjemalloc.so.2     libjemalloc2
$libraries/libtcmalloc.so.4     libgoogle-perftools4
/usr/bin/heaptrack              heaptrack
/usr/bin/valgrind               valgrind
/usr/bin/sqlite3                sqlite3
/usr/bin/python3                python3
/usr/bin/g++                    g++
END

need_build_tools
# The same Python as the program's, so that only the profiler differs.
memray=$target_dir/bench-prof-memray
if ! "$memray/bin/python" -c 'import memray' 2>/dev/null; then
    echo "Installing memray in $memray"
    { /usr/bin/python3 -m venv "$memray" || python3 -m venv "$memray"; } >/dev/null 2>&1 &&
        "$memray/bin/python" -m pip install --quiet memray ||
        echo "memray could not be installed, and is left out"
fi
cargo build --release --quiet -p poolscope-tui -p poolscope-preload -p poolscope-bench
export BENCH_PROF_MEMRAY=$memray/bin/python
exec "$target_dir/release/bench-prof" "$@"
