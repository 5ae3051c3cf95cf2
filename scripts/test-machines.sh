#!/usr/bin/env bash
# What tests on this machine's processor and C library can't see: test-machines.sh [aarch64] [static] [glibc] [musl] [quick]
#
#   aarch64  every crate is compiled for AArch64 with warnings denied; the tests of the wire format, of captures and of the
#            pool run in an emulator (qemu-user)
#   static   the command is built with musl, and reads a process that runs on the library
#   glibc    end-to-end tests on the C libraries of Debian 13 and Ubuntu 24.04, each in a folder with that system
#
#   musl     a static Rust program with the pool in it is built with musl, and read
#
#   quick    what of aarch64 takes a minute or two: the crates that programs link are compiled, and the tests of the wire
#            format and of captures run; and musl. What can't be had for it is named, and no failure
#
# Without a name the first four, from x86-64. `glibc` runs what `make test` has built. What is downloaded comes from Debian and
# Ubuntu, and lies with what is built in `machines` in the target folder.
. "$(dirname "$0")/common.sh"

need_build_tools
[ "$(uname -m)" = x86_64 ] || die "test-machines: this is for x86-64."
mkdir -p "$target_dir/machines"
folder=$(cd "$target_dir/machines" && pwd)
target_dir=$(cd "$target_dir" && pwd)
# Those of .cargo/config.toml, which the variable takes the place of.
flags="-C force-unwind-tables=yes"

need() {
    look_for
    [ ${#packages[@]} = 0 ] || install_packages "${packages[@]}" || die "Install the packages yourself: ${packages[*]}"
}

# Another system's files below FOLDER/NAME: unpack NAME OPTION...
unpack() {
    local name=$1
    shift
    [ ! -e "$folder/$name" ] || return 0
    rm -rf "$folder/$name.part"
    mmdebstrap --quiet "$@" "$folder/$name.part" >"$folder/$name.log" 2>&1 || return 1
    mv "$folder/$name.part" "$folder/$name"
}

# Whether the compiler has the standard library of a target, or can have it by rustup.
has_target() {
    local library
    library=$(rustc --print target-libdir --target "$1")
    compgen -G "$library/libstd-*.rlib" >/dev/null && return
    command -v rustup >/dev/null && timeout 120 rustup target add "$1" && compgen -G "$library/libstd-*.rlib" >/dev/null
}

# Debian's compiler for its browsers, which is a new one on an old system, as `$folder/rustc`. It comes with the standard
# library for AArch64, and with the sources of it.
debians_compiler() {
    need <<<"mmdebstrap mmdebstrap"
    unpack rust --architectures=amd64,arm64 --variant=extract \
        --include=rustc-web,libstd-rust-web-dev:arm64,rust-web-src bookworm ||
        die "test-machines: no compiler for other machines: $(tail -n 3 "$folder/rust.log")"
    local root=$folder/rust/usr
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$root/lib/x86_64-linux-gnu" "$root/bin/rustc" >"$folder/rustc"
    chmod +x "$folder/rustc"
    export RUSTC=$folder/rustc
}

for_aarch64=aarch64-unknown-linux-gnu

# What both parts for AArch64 need of Debian.
emulator() {
    need <<END
aarch64-linux-gnu-gcc                       gcc-aarch64-linux-gnu
/usr/aarch64-linux-gnu/lib/libc.so          libc6-dev-arm64-cross
qemu-aarch64                                qemu-user
END
}

# Has Cargo build for AArch64 and run in the emulator, with warnings denied; leaves in `to` where it builds.
to_aarch64() {
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    # Tests that compile C do so for the emulated machine. One at a time: a program that is forked while another emulated
    # thread has one of the emulator's locks waits for it for ever.
    local settings="CC=aarch64-linux-gnu-gcc RUST_TEST_THREADS=1"
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="env $settings qemu-aarch64 -L /usr/aarch64-linux-gnu"
    export RUSTFLAGS="$flags -D warnings"
    to=(--target $for_aarch64 --target-dir "$folder/target")
}

aarch64() (
    emulator
    has_target $for_aarch64 || debians_compiler
    to_aarch64
    cargo check --workspace "${to[@]}"
    cargo test -p poolscope-wire -p poolscope-capture "${to[@]}"
    # Models of lock-free structures go through all orders that the language's memory model allows, on whatever processor,
    # and take hours here. qemu 7.2 does not know MAP_FIXED_NOREPLACE, on which the test of moves that fail is built, and
    # its /proc/self/stat is shorter than the kernel's.
    without=(hardened::later hooks::place serve::mappings layout::mailbox layout::inbox sync::word sync::spin_lock
        threads::detour segment::sequence tracer::ring tracer::handshake
        no_byte_is_lost_whichever_call_fails_in_whichever_way this_process_has_not_ended)
    skipped=()
    for name in "${without[@]}"; do
        skipped+=(--skip "$name")
    done
    cargo test -p poolscope-cpu "${to[@]}" -- "${skipped[@]}"
)

quick() {
    quick_aarch64
    musl
}

quick_aarch64() (
    if ! (emulator) >"$folder/emulator.log" 2>&1; then
        echo "Not tried: AArch64, because its compiler and emulator can't be had: $(tail -n 1 "$folder/emulator.log")"
        exit 0
    fi
    if ! has_target $for_aarch64 2>"$folder/rustup.log"; then
        echo "Not tried: AArch64, because its standard library can't be had: $(tail -n 1 "$folder/rustup.log")"
        exit 0
    fi
    to_aarch64
    linked=(wire capture cpu gpu alloc preload plugin)
    cargo check "${linked[@]/#/-ppoolscope-}" "${to[@]}"
    cargo test -p poolscope-wire -p poolscope-capture "${to[@]}"
)

musl() (
    target=x86_64-unknown-linux-musl
    if ! has_target $target 2>"$folder/rustup.log"; then
        echo "Not tried: a static program, because its standard library can't be had: $(tail -n 1 "$folder/rustup.log")"
        exit 0
    fi
    export RUSTFLAGS="$flags -D warnings"
    cargo build -p poolscope-samples --bin global-allocator --target $target --target-dir "$folder/target"
    program=$folder/target/$target/debug/global-allocator
    ! readelf -lW "$program" | grep -q INTERP || die "test-machines: the program for musl is not static."
    command=$target_dir/release/poolscope
    [ -e "$command" ] || build_release
    work=$(mktemp -d)
    mkdir -m 700 "$work/segments"
    mkfifo "$work/input"
    trap 'rm -rf "$work"' EXIT
    export POOLSCOPE_DIR=$work/segments
    POOLSCOPE_PERIOD=1 "$program" <"$work/input" >"$work/said" &
    exec 3>"$work/input"
    for _ in $(seq 300); do
        ! grep -q "words kept" "$work/said" || break
        sleep 0.1
    done
    "$command" convert $! "$work/heap.collapsed"
    grep -q "index_words" "$work/heap.collapsed" || die "test-machines: no stack of the static program names index_words."
    exec 3>&-
    wait $!
    "$command" check -- "$program" </dev/null >"$work/checked" 2>&1 || die "test-machines: $(cat "$work/checked")"
    grep -q "^No leaks" "$work/checked" || die "test-machines: $(cat "$work/checked")"
)

static() (
    target=x86_64-unknown-linux-musl
    need <<END
musl-gcc                                    musl-tools
/usr/lib/llvm-14/lib/libunwind.a            libunwind-14-dev
END
    with=()
    export RUSTFLAGS=$flags
    if ! has_target $target; then
        debians_compiler
        # The standard library is built from its sources, on an unwinder that was built on glibc's headers: these make
        # one function of another.
        cat >"$folder/checked.c" <<'END'
#include <stdarg.h>
#include <stdio.h>
int __fprintf_chk(FILE *file, int flag, const char *format, ...) {
    va_list arguments;
    (void)flag;
    va_start(arguments, format);
    int written = vfprintf(file, format, arguments);
    va_end(arguments);
    return written;
}
END
        mkdir -p "$folder/musl"
        cp /usr/lib/llvm-14/lib/libunwind.a "$folder/musl"
        musl-gcc -O2 -c -o "$folder/checked.o" "$folder/checked.c"
        ar r "$folder/musl/libunwind.a" "$folder/checked.o"
        export RUSTC_BOOTSTRAP=1 CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER=musl-gcc
        RUSTFLAGS="$flags -C link-self-contained=no -C target-feature=+crt-static -L native=$folder/musl"
        with=(-Zbuild-std=std,panic_unwind -Zbuild-std-features=system-llvm-libunwind)
    fi
    # musl's compiler links no program that is static and may lie anywhere.
    POOLSCOPE_COMMIT=$(commit) cargo rustc -p poolscope-tui --bin poolscope "${with[@]}" --target $target \
        --target-dir "$folder/target" -- -C relocation-model=static
    command=$folder/target/$target/debug/poolscope
    ! readelf -lW "$command" | grep -q INTERP || die "test-machines: the command for musl is not static."
    built=$target_dir/release
    [ -e "$built/libpoolscope.so" ] || build_release
    work=$(mktemp -d)
    mkdir -m 700 "$work/segments"
    export POOLSCOPE_DIR=$work/segments
    POOLSCOPE_PERIOD=1 LD_PRELOAD=$built/libpoolscope.so sleep 60 &
    read=$!
    trap 'kill $read; rm -rf "$work"' EXIT
    for _ in $(seq 100); do
        [ -z "$(ls -A "$work/segments")" ] || break
        sleep 0.1
    done
    "$command" --version
    "$command" list | grep -q "^ *$read .*sleep 60" || die "test-machines: the static command does not see $read."
    "$command" stats $read >/dev/null
    "$command" convert $read "$work/heap.collapsed"
    grep -q "main" "$work/heap.collapsed" || die "test-machines: the static command names no function of $read."
    "$command" flamegraph $read -o "$work/heap.svg"
)

# In a namespace of its own, so that what is mounted is gone with it: inside ROOT PROGRAM [ARGUMENT...]
inside() {
    local root=$1
    shift
    # shellcheck disable=SC2016 # these are the inner shell's
    unshare --mount sh -eu -c '
        root=$1 target=$2
        shift 2
        # The root has to be a mount: namespaces are made in it, too.
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        mount --bind /dev "$root/dev"
        mount -t tmpfs tmpfs "$root/dev/shm"
        for shared in "$PWD" "$target"; do
            mkdir -p "$root$shared"
            mount --bind "$shared" "$root$shared"
        done
        cd tests
        exec chroot "$root" sh -c '\''cd "$1" && shift && exec "$@"'\'' sh "$PWD" "$@"
    ' sh "$root" "$target_dir" "$@"
}

glibc() (
    if [ "$(id -u)" != 0 ]; then
        echo "Not tried: other C libraries, because only root may change what the root of a file system is."
        exit 0
    fi
    suites=(conformance c_api settings small_stacks copies segment_trouble hardened)
    programs=$target_dir/test-programs.json
    [ -e "$programs" ] || die "test-machines: $programs is missing; run make test first."
    need <<<"mmdebstrap mmdebstrap"
    include=--include=gcc,g++,libc6-dev,pkgconf,binutils,python3,perl,sqlite3,procps,util-linux,mount,valgrind
    unpack trixie --variant=apt "$include,ubuntu-keyring" trixie ||
        die "test-machines: no Debian 13: $(tail -n 3 "$folder/trixie.log")"
    keys=$folder/trixie/usr/share/keyrings/ubuntu-archive-keyring.gpg
    unpack noble --variant=apt --keyring="$keys" "$include" noble ||
        echo "Not tried: Ubuntu 24.04: $(tail -n 1 "$folder/noble.log")"
    export CARGO_MANIFEST_DIR=$PWD/tests
    unset POOLSCOPE_DIR
    failed=()
    for system in trixie noble; do
        [ -e "$folder/$system" ] || continue
        echo "== $(chroot "$folder/$system" ldd --version | head -n 1)"
        for suite in "${suites[@]}"; do
            program=$(sed -n "/\/tests\/Cargo.toml\"/s/.*\"executable\":\"\([^\"]*\/$suite-[0-9a-f]*\)\".*/\1/p" "$programs" | tail -n 1)
            [ -n "$program" ] || die "test-machines: make test has built no $suite."
            if ! inside "$folder/$system" "$program" >"$folder/$system-$suite.txt" 2>&1; then
                cat "$folder/$system-$suite.txt"
                failed+=("$suite on $system")
            fi
            echo "$suite: $(grep '^test result' "$folder/$system-$suite.txt")"
        done
    done
    [ ${#failed[@]} = 0 ] || die "test-machines: these fail: ${failed[*]}"
)

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(aarch64 static glibc musl)
for part in "${parts[@]}"; do
    case $part in
    aarch64 | static | glibc | musl | quick) ;;
    *) die "test-machines: $part is none of aarch64, static, glibc, musl, quick." ;;
    esac
    from=$SECONDS
    printf '\n== %s\n' "$part"
    "$part"
    echo "$part took $((SECONDS - from)) s."
done
