#!/usr/bin/env bash
# The pool beside its peers, in one go. Installs the peers' Debian packages if they are missing. Takes a few minutes; the
# machine should have nothing else to do. Arguments: the number of rounds (7).
. "$(dirname "$0")/common.sh"

packages=()
libraries=/usr/lib/x86_64-linux-gnu
[ -e $libraries/libjemalloc.so.2 ] || packages+=(libjemalloc2)
[ -e $libraries/libtcmalloc_minimal.so.4 ] || packages+=(libtcmalloc-minimal4)
[ -e $libraries/libmimalloc.so.2.0 ] || packages+=(libmimalloc2.0)
[ -x /usr/bin/python3 ] || packages+=(python3)
if [ ${#packages[@]} -gt 0 ]; then
    as_root=()
    [ "$(id -u)" = 0 ] || as_root=(sudo)
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${packages[@]}" ||
        die "The peers could not be installed: ${packages[*]}"
fi

build_release --quiet
cargo build --release --quiet -p poolscope-bench
echo "$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-), $(nproc) processors, $(uname -sr)"
exec "$target_dir/release/compare" "$@"
