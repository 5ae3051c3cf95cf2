#!/usr/bin/env bash
# Installs the command, the libraries, the headers, pkg-config files, completions, manual pages and the schemas below PREFIX
# (/usr/local); with DESTDIR, below that folder, for packagers. Installs what `make build` has built, so that root needs no cargo; builds it if it is missing.
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
# One file for each library that C programs link.
package_file() {
    local name=$1 description=$2
    cat >"$root/lib/pkgconfig/$name.pc" <<END
prefix=$prefix
libdir=\${prefix}/lib
includedir=\${prefix}/include

Name: $name
Description: $description
Version: $version
Libs: -L\${libdir} -l$name
Cflags: -I\${includedir}
END
}
package_file poolscope "A memory pool that can be watched"
package_file poolscope_gpu "Pools of device memory"
package_file poolscope_tensors "Named tensors in device memory"
# Made by the command itself, of the table that its help is made of.
command=$root/bin/poolscope
install -d "$root/share/bash-completion/completions" "$root/share/zsh/site-functions" "$root/share/fish/vendor_completions.d"
"$command" completions bash >"$root/share/bash-completion/completions/poolscope"
"$command" completions zsh >"$root/share/zsh/site-functions/_poolscope"
"$command" completions fish >"$root/share/fish/vendor_completions.d/poolscope.fish"
for section in 1 7; do
    install -d "$root/share/man/man$section"
done
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
"$command" man "$pages"
install -m 644 "$pages"/*.1 "$root/share/man/man1"
install -m 644 "$pages"/*.7 "$root/share/man/man7"
install -d "$root/share/doc/poolscope/schemas"
install -m 644 docs/schemas/*.json "$root/share/doc/poolscope/schemas"
echo "Installed below $root: bin/poolscope, lib/libpoolscope.so, lib/libpoolscope_gpu.so, lib/libpoolscope_tensors.so, pkg-config files in
lib/pkgconfig, the headers in include, and in share completions, manual pages and the schemas of JSON."
