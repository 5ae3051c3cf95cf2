#!/usr/bin/env bash
# Installs the command, the library, the headers and a pkg-config file below PREFIX (/usr/local); with DESTDIR, below that
# folder, for packagers. Installs what `make build` has built, so that root needs no cargo; builds it if it is missing.
. "$(dirname "$0")/common.sh"

prefix=${PREFIX:-/usr/local}
case $prefix in
/*) ;;
*) die "PREFIX is $prefix: name the folder by its full path, such as PREFIX=$PWD/$prefix" ;;
esac
root=${DESTDIR:-}$prefix
built=$target_dir/release

if [ ! -x "$built/poolscope" ] || [ ! -e "$built/libpoolscope.so" ] || [ ! -e "$built/libpoolscope_gpu.so" ] ||
    [ ! -e "$built/libpoolscope_tensors.so" ]; then
    build_release
fi
version=$(sed -n 's/^#define POOLSCOPE_VERSION "\(.*\)"$/\1/p' alloc/preload/include/poolscope.h)

install -d "$root/bin" "$root/lib/pkgconfig" "$root/include"
install -m 755 "$built/poolscope" "$root/bin/poolscope"
install -m 755 "$built/libpoolscope.so" "$root/lib/libpoolscope.so"
install -m 755 "$built/libpoolscope_gpu.so" "$root/lib/libpoolscope_gpu.so"
install -m 755 "$built/libpoolscope_tensors.so" "$root/lib/libpoolscope_tensors.so"
install -m 644 alloc/plugin/include/poolscope_gpu.h tensors/c/include/poolscope_tensors.h "$root/include"
install -m 644 alloc/preload/include/poolscope.h alloc/preload/include/poolscope_data_ptr.h \
    alloc/preload/include/poolscope_heapcheck.h alloc/preload/include/poolscope_memory_resource.hpp "$root/include"
cat >"$root/lib/pkgconfig/poolscope.pc" <<END
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: poolscope
Description: A memory pool that can be watched
Version: $version
Libs: -L\${libdir} -lpoolscope
Cflags: -I\${includedir}
END
echo "Installed below $root: bin/poolscope, lib/libpoolscope.so, lib/libpoolscope_gpu.so, lib/libpoolscope_tensors.so, lib/pkgconfig/poolscope.pc and the headers in include."
