#!/usr/bin/env bash
# Formatting, clippy, and cargo-deny: licences, duplicates, sources and known vulnerabilities of what is depended on.
. "$(dirname "$0")/common.sh"

need_build_tools
cargo fmt --all --check
cargo clippy --workspace --all-targets -- -D warnings
if ! cargo deny --version >/dev/null 2>&1; then
    echo "NOT CHECKED: licences, duplicates and sources of dependencies (deny.toml): cargo-deny is not installed." >&2
    echo "Install it with: cargo install --locked cargo-deny" >&2
    exit 0
fi
cargo deny check licenses bans sources
# The list of known vulnerabilities comes over the network, which a machine may not have.
if cargo deny fetch db >/dev/null 2>&1; then
    cargo deny check --disable-fetch advisories
else
    echo "NOT CHECKED: known vulnerabilities, because their list can't be fetched here (cargo deny fetch db says why)." >&2
fi
