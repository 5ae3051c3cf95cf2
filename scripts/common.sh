# Read by the other scripts: where things are, and clear words when something is missing.
# shellcheck shell=bash

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# rustup's folder, in case this shell has not read its profile since the installation.
if ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
    PATH="$HOME/.cargo/bin:$PATH"
fi

# shellcheck disable=SC2034 # used by the scripts that read this one
target_dir="${CARGO_TARGET_DIR:-target}"

die() {
    printf '%s\n' "$@" >&2
    exit 1
}

need_build_tools() {
    command -v cargo >/dev/null || die "cargo is missing: install Rust 1.88 or later (https://rustup.rs), then try again."
    command -v cc >/dev/null || die "A C compiler is missing; Rust needs its linker. On Debian: apt-get install gcc"
}

released=(-p poolscope-tui -p poolscope-preload -p poolscope-plugin -p poolscope-tensors-c -p poolscope-samples)

# The commit that is built, with a plus if there are changes on top of it; nothing outside a repository.
commit() {
    git describe --always --abbrev=12 --exclude='*' --dirty=+ 2>/dev/null || true
}

build_release() {
    need_build_tools
    # For cargo alone: a program on the pool would not know the variable.
    POOLSCOPE_COMMIT=$(commit) cargo build --release "$@" "${released[@]}"
}

# How many crates `build_release` compiles where there is nothing yet.
crates_of_release() {
    need_build_tools
    cargo tree "${released[@]}" --edges normal,build --prefix none --format '{p}' | sed 's/ (\*)$//' | sort -u | wc -l
}

# Reads lines of a command, or a file by its full path, and the Debian package that brings it. Leaves in `missing` what
# is not there, and its packages in `packages`.
look_for() {
    missing=()
    packages=()
    local what package
    while read -r what package; do
        case $what in
        "") continue ;;
        /*) [ -e "$what" ] && continue ;;
        *) command -v "$what" >/dev/null && continue ;;
        esac
        missing+=("$what")
        packages+=("$package")
    done
}

# Installs Debian packages.
install_packages() {
    local as_root=()
    if [ "$(id -u)" != 0 ]; then
        as_root=(sudo)
        # Without a terminal nobody can type a password.
        [ -t 0 ] || as_root=(sudo -n)
    fi
    # dpkg must not start the services (redis) of what it installs.
    "${as_root[@]}" apt-get update -q </dev/null &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
            apt-get install -y -q --no-install-recommends "$@" </dev/null
}

# The same for a benchmark, which can also do without: what is missing is left out of it.
install_for_benchmark() {
    look_for
    [ ${#packages[@]} -gt 0 ] || return 0
    echo "Installing what the benchmark needs: ${packages[*]}"
    install_packages "${packages[@]}" || echo "Not all could be installed; what is missing is left out: ${packages[*]}"
}
