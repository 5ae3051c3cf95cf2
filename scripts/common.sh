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

released=(-p poolscope-tui -p poolscope-preload -p poolscope-plugin -p poolscope-samples)

build_release() {
    need_build_tools
    cargo build --release "$@" "${released[@]}"
}

# How many crates `build_release` compiles where there is nothing yet.
crates_of_release() {
    need_build_tools
    cargo tree "${released[@]}" --edges normal,build --prefix none --format '{p}' | sed 's/ (\*)$//' | sort -u | wc -l
}
