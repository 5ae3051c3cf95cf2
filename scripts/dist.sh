#!/usr/bin/env bash
# Builds what people install: dist.sh [FOLDER]
#
# Below FOLDER (out/dist) come Debian packages (poolscope, libpoolscope, libpoolscope-dev), a wheel for pip, the crates, and a
# tarball for any system with a glibc that is new enough. All but the crates hold what `make install` installs, without debug information.
# scripts/dist-test.sh installs each and tries it.
. "$(dirname "$0")/common.sh"

folder=${1:-out/dist}
build_release
command -v objdump >/dev/null || die "objdump is missing. On Debian: apt-get install binutils"
version=$(sed -n 's/^#define POOLSCOPE_VERSION "\(.*\)"$/\1/p' alloc/preload/include/poolscope.h)
machine=$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$folder"
mkdir -p "$folder"

# What is packed, as if its prefix were /usr.
tree=$work/tree/usr
DESTDIR=$work/tree PREFIX=/usr scripts/install.sh >/dev/null
strip --strip-debug "$tree/bin/poolscope" "$tree"/lib/*.so
install -d "$tree/share/doc/poolscope"
install -m 644 LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md "$tree/share/doc/poolscope"

# The newest version of glibc that anything in the tree asks for.
glibc=$(objdump -p "$tree/bin/poolscope" "$tree"/lib/*.so | sed -n 's/.*\bGLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -1)

# A tarball, which runs where it is unpacked: the prefix of its pkg-config files is where those lie.
name=poolscope-$version-linux-$machine-glibc$glibc
cp -a "$tree" "$work/$name"
sed -i 's|^prefix=.*|prefix=${pcfiledir}/../..|' "$work/$name"/lib/pkgconfig/*.pc
tar -C "$work" --owner=0 --group=0 --sort=name -czf "$folder/$name.tar.gz" "$name"

# A wheel.
python3 packaging/wheel.py "$tree" "$version" "$folder" >/dev/null

# Crates, in the order in which each finds those before it. The command's carries the library.
trap 'rm -rf "$work" tui/embedded' EXIT
install -D -m 644 "$tree/lib/libpoolscope.so" tui/embedded/libpoolscope.so
crates=(wire capture cpu gpu replay alloc tensors profiler heapcheck-macros heapcheck tui)
cargo package --quiet --no-verify --allow-dirty --target-dir "$work/crates" "${crates[@]/#/-ppoolscope-}"
rm -r tui/embedded
cp "$work"/crates/package/*.crate "$folder"

# Debian packages, if this is a system that has the tools.
if ! command -v dpkg-deb >/dev/null; then
    echo "No Debian packages: dpkg-deb is not here."
    ls -l "$folder"
    exit 0
fi
architecture=$(dpkg --print-architecture)
triplet=$(cc -print-multiarch)
# Of the libraries' own folder nobody's linker takes one by accident.
libraries=/usr/lib/$triplet/poolscope
deb() {
    local package=$1 depends=$2 description=$3
    local root=$work/deb/$package
    install -d "$root/DEBIAN" "$root/usr/share/doc/$package"
    install -m 644 LICENSE-MIT "$root/usr/share/doc/$package/copyright"
    cat >"$root/DEBIAN/control" <<END
Package: $package
Version: $version
Architecture: $architecture
Maintainer: The poolscope authors <poolscope@localhost>
Section: devel
Priority: optional
Depends: $depends
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Description: $description
END
    (cd "$root" && find usr -type f -exec md5sum {} +) >"$root/DEBIAN/md5sums"
    dpkg-deb --root-owner-group -Zxz --build "$root" "$folder/${package}_${version}_$architecture.deb" >/dev/null
}
glibc_package="libc6 (>= $glibc)"

root=$work/deb/poolscope
install -d "$root/usr/bin"
cp "$tree/bin/poolscope" "$root/usr/bin"
cp -a "$tree/share" "$root/usr/share"
gzip -9n "$root"/usr/share/man/man*/*
deb poolscope "libpoolscope (= $version), libgcc-s1, $glibc_package" "memory allocator that can be watched (command)
 Runs programs on the pool, shows what they hold while they run and after their
 end, checks them for leaks, and records every allocation."

root=$work/deb/libpoolscope
install -d "$root$libraries"
cp "$tree"/lib/*.so "$root$libraries"
deb libpoolscope "libgcc-s1, $glibc_package" "memory allocator that can be watched (libraries)
 The library that is preloaded into programs, and the one for device memory.
 They lie in a folder of their own, where no program finds them by accident."

root=$work/deb/libpoolscope-dev
install -d "$root/usr/include" "$root/usr/lib/$triplet/pkgconfig"
cp "$tree"/include/* "$root/usr/include"
cp "$tree"/lib/pkgconfig/*.pc "$root/usr/lib/$triplet/pkgconfig"
sed -i -e "s|^libdir=.*|libdir=\${prefix}/lib/$triplet/poolscope|" \
    -e 's|^Libs: -L${libdir}|& -Wl,-rpath,${libdir}|' "$root/usr/lib/$triplet/pkgconfig"/*.pc
deb libpoolscope-dev "libpoolscope (= $version)" "memory allocator that can be watched (headers)
 poolscope.h, the pool as a std::pmr::memory_resource, poolscope_gpu.h,
 poolscope_tensors.h, and pkg-config files for the three libraries."

ls -l "$folder"
