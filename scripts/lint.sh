#!/usr/bin/env bash
# Formatting and clippy; cargo-deny too if it is installed.
. "$(dirname "$0")/common.sh"

need_build_tools
cargo fmt --all --check
cargo clippy --workspace --all-targets -- -D warnings
if cargo deny --version >/dev/null 2>&1; then
    cargo deny check
else
    echo "cargo-deny is not installed: deny.toml was not checked (cargo install cargo-deny)"
fi
