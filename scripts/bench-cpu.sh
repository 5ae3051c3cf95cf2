#!/usr/bin/env bash
# The pool beside its peers, in one go. Installs the Debian packages that are missing, builds, and measures; --help says
# what the arguments are. Takes about a quarter of an hour, in which the machine should have nothing else to do.
. "$(dirname "$0")/common.sh"

# A file and the package that brings it.
libraries=/usr/lib/$(uname -m)-linux-gnu
install_for_benchmark <<END
$libraries/libjemalloc.so.2             libjemalloc2
$libraries/libtcmalloc_minimal.so.4     libtcmalloc-minimal4
$libraries/libmimalloc.so.2.0           libmimalloc2.0
$libraries/libtbbmalloc_proxy.so.2      libtbbmalloc2
/usr/bin/g++                            g++
/usr/bin/python3                        python3
/usr/bin/redis-server                   redis-server
/usr/bin/redis-benchmark                redis-tools
/usr/bin/valgrind                       valgrind
END

need_build_tools
cargo build --release --quiet -p poolscope-tui -p poolscope-preload -p poolscope-bench
exec "$target_dir/release/bench-cpu" "$@"
