#!/usr/bin/env bash
# Installs what scripts/dist.sh has built, each package as its users do, and tries it: dist-test.sh [FOLDER [PART...]]
#
# PART is tarball, wheel, crates or deb; without one, it is all of them.
#
# The tarball is unpacked, the wheel goes into a virtual environment, Cargo installs the command from its crate, and the
# Debian packages are installed by dpkg below a folder that has no other packages. What is tried is the same each time: the
# version, a program on the pool by the library of this package, a C program by this package's headers, the manual pages and
# completions.
. "$(dirname "$0")/common.sh"

mkdir -p "$target_dir"
target_dir=$(cd "$target_dir" && pwd)
folder=$(cd "${1:-out/dist}" && pwd)
source=$PWD/samples/csrc/tensors.c
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export POOLSCOPE_DIR=$work/segments
mkdir -m 700 "$POOLSCOPE_DIR"
unset POOLSCOPE_LIB LD_PRELOAD

fail() {
    die "dist-test: $*"
}

# The command says its version and its library, and starts programs on that one.
try_command() {
    local command=$1 library=$2
    # Not through a pipe: grep would close it early.
    "$command" --version >"$work/version"
    grep -q "^library     $library: .*writes segments" "$work/version" || fail "$command: $(cat "$work/version")"
    grep -q '^commit      unknown' "$work/version" && fail "$command does not know its commit"
    "$command" run --headless -- cat /proc/self/maps >"$work/maps"
    grep -qF "$library" "$work/maps" || fail "$command starts programs without $library"
    "$command" check -- true || fail "$command check"
    "$command" help memory >/dev/null
}

# A C program by the headers and the pkg-config file.
try_headers() {
    local pkgconfig=$1 library=$2
    shift 2
    local flags
    flags=$(PKG_CONFIG_PATH=$pkgconfig pkg-config "$@" --cflags --libs poolscope)
    # shellcheck disable=SC2086 # these are words
    cc -O2 -pthread -o "$work/tensors" "$source" $flags -Wl,-rpath,"$library"
    "$work/tensors" "$source" >"$work/out" || fail "tensors: $(cat "$work/out")"
    grep -q '^tensors: poolscope' "$work/out" || fail "tensors: $(cat "$work/out")"
}

try_pages() {
    local share=$1
    [ -n "$(find "$share/man" -name 'poolscope-record.1*')" ] || fail "no manual pages below $share"
    bash -n "$share/bash-completion/completions/poolscope"
}

tarball() {
    # The name says which glibc is needed, and nothing in it asks for a newer one.
    named=$(basename "$folder"/poolscope-*.tar.gz | sed 's/.*-glibc\(.*\)\.tar\.gz/\1/')
    mkdir "$work/tar"
    tar -C "$work/tar" -xzf "$folder"/poolscope-*.tar.gz
    prefix=$(echo "$work"/tar/poolscope-*)
    newest=$(objdump -p "$prefix/bin/poolscope" "$prefix"/lib/*.so | sed -n 's/.*\bGLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -1)
    [ "$newest" = "$named" ] || fail "the tarball's name says glibc $named, and its programs ask for $newest"
    for library in "$prefix"/lib/*.so; do
        strings "$library" >"$work/strings"
        grep -q "^@(#)$(basename "$library") .* commit " "$work/strings" || fail "$(basename "$library") does not say its version"
    done
    try_command "$prefix/bin/poolscope" "$prefix/lib/libpoolscope.so"
    try_headers "$prefix/lib/pkgconfig" "$prefix/lib"
    try_pages "$prefix/share"
}

wheel() {
    local wheel
    wheel=$(echo "$folder"/poolscope-*.whl)
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" --quiet --disable-pip-version-check install --no-index "$wheel"
    try_command "$work/venv/bin/poolscope" "$work/venv/lib/poolscope/libpoolscope.so"
    try_pages "$work/venv/share"
    "$work/venv/bin/python" - <<END
import os, poolscope, poolscope_gpu, poolscope_tensors
assert poolscope.library() == "$work/venv/lib/poolscope/libpoolscope.so", poolscope.library()
assert poolscope_gpu.library_path() == "$work/venv/lib/poolscope/libpoolscope_gpu.so", poolscope_gpu.library_path()
poolscope_gpu.load()
END
    # pytest, where Debian has it, finds the plug-in by its entry point: the test takes more than its limit.
    debian=/usr/lib/python3/dist-packages
    if [ -d $debian/pytest ] && PYTHONPATH=$debian "$work/venv/bin/python" -c "import pytest" 2>/dev/null; then
        cat >"$work/test_limit.py" <<END
import pytest
@pytest.mark.limit_memory("1 MB")
def test_takes_too_much():
    assert len(bytes(5_000_000)) > 0
END
        PYTHONPATH=$debian PYTHONMALLOC=malloc POOLSCOPE_PERIOD=1 "$work/venv/bin/poolscope" run --headless -- \
            "$work/venv/bin/python" -m pytest -q -p no:cacheprovider "$work/test_limit.py" >"$work/pytest" 2>&1 || true
        grep -q "MEMORY PROBLEMS" "$work/pytest" || fail "pytest: $(cat "$work/pytest")"
    else
        echo "Not tried: the plug-in for pytest, because pytest is not here."
    fi
    "$work/venv/bin/pip" --quiet uninstall --yes poolscope
    [ ! -e "$work/venv/bin/poolscope" ] || fail "pip leaves the command behind"
}

crates() {
    if ! cargo metadata --format-version 1 >/dev/null 2>&1; then
        echo "Not tried: crates, because Cargo can't have those that they depend on."
        return
    fi
    # As from a registry, but for where the others of these crates are. It is a build for development: the crates are what is
    # tried, and not the compiler.
    mkdir "$work/crates"
    patches=()
    for crate in "$folder"/*.crate; do
        tar -C "$work/crates" -xzf "$crate"
        name=$(basename "${crate%-*.crate}")
        [ "$name" = poolscope-tui ] || patches+=(--config "patch.crates-io.$name.path='$work/crates/$(basename "${crate%.crate}")'")
    done
    crate=$(echo "$work"/crates/poolscope-tui-*)
    cargo install --quiet --debug --root "$work/cargo" --path "$crate" --target-dir "$target_dir/dist-crates" "${patches[@]}"
    export XDG_CACHE_HOME=$work/cache
    unset XDG_RUNTIME_DIR
    "$work/cargo/bin/poolscope" --version >"$work/version"
    carried=$(sed -n 's/^library     \(.*\.so\): .*writes segments.*/\1/p' "$work/version")
    case $carried in
    "$work/cache/poolscope/"*) ;;
    *) fail "the command that Cargo installs carries no library: $(cat "$work/version")" ;;
    esac
    try_command "$work/cargo/bin/poolscope" "$carried"
}

deb() {
    if ! command -v dpkg >/dev/null; then
        echo "Not tried: Debian packages, because dpkg is not here."
        return
    fi
    # dpkg demands to be root, or to be told that it need not be. The packages of the system are not below the folder, so that
    # only the order among these counts.
    root=$work/root
    mkdir -p "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/info"
    touch "$root/var/lib/dpkg/status" "$root/var/lib/dpkg/available"
    for package in libc6 libgcc-s1; do
        printf 'Package: %s\nStatus: install ok installed\nArchitecture: %s\nVersion: %s\nMaintainer: x\nDescription: x\n\n' \
            "$package" "$(dpkg --print-architecture)" "$(dpkg-query -W -f '${Version}' "$package")" >>"$root/var/lib/dpkg/status"
    done
    dpkg --root="$root" --force-not-root --force-script-chrootless --force-bad-path --log=/dev/null --install "$folder"/*.deb >"$work/dpkg" ||
        fail "dpkg: $(cat "$work/dpkg")"
    libraries=$root/usr/lib/$(cc -print-multiarch)/poolscope
    try_command "$root/usr/bin/poolscope" "$libraries/libpoolscope.so"
    try_headers "$root/usr/lib/$(cc -print-multiarch)/pkgconfig" "$libraries" --define-variable=prefix="$root/usr"
    try_pages "$root/usr/share"
    if command -v lintian >/dev/null; then
        lintian --fail-on error "$folder"/*.deb
    fi
    dpkg --root="$root" --force-not-root --force-script-chrootless --force-bad-path --log=/dev/null --purge libpoolscope-dev poolscope libpoolscope >/dev/null
    left=$(find "$root" -path '*/usr/*poolscope*')
    [ -z "$left" ] || fail "dpkg leaves behind: $left"
}

parts=("${@:2}")
[ ${#parts[@]} -gt 0 ] || parts=(tarball wheel crates deb)
for part in "${parts[@]}"; do
    case $part in
    tarball | wheel | crates | deb) ;;
    *) die "dist-test: $part is none of tarball, wheel, crates, deb." ;;
    esac
    from=$SECONDS
    echo "== $part"
    "$part"
    echo "$part took $((SECONDS - from)) s."
done
echo "What was tried installs, runs and goes."
