#!/usr/bin/env bash
# Every test: the unit tests of all members and the end-to-end tests on the optimised build. Says how long each part took.
# What each test program wrote lies in `test-output` in the target folder.
. "$(dirname "$0")/common.sh"

started=$SECONDS
# What the end-to-end tests could not look at on this machine, a line each.
skipped="$target_dir/e2e-skipped"
rm -f "$skipped"
summary=()
report() {
    printf '\n'
    [ ${#summary[@]} = 0 ] || printf '%s\n' "${summary[@]}"
    printf '%5d s  in all\n' $((SECONDS - started))
    [ ! -s "$skipped" ] || { printf 'skipped:\n'; cat "$skipped"; }
}
trap report EXIT

part() {
    local name=$1 from=$SECONDS result=ok
    shift
    printf '\n== %s\n' "$name"
    "$@" </dev/null || result=FAILED
    summary+=("$(printf '%5d s  %-6s  %s' $((SECONDS - from)) "$result" "$name")")
    [ "$result" = ok ]
}

need_build_tools
part "tools" scripts/install-test-tools.sh
part "optimised build" build_release

# One build for all of them: `cargo test -p ONE` would choose other features of dependencies, and build those again.
tests=(--workspace --features poolscope-tui/test-panic)
programs="$target_dir/test-programs.json"
build_tests() {
    cargo test "${tests[@]}" --no-run --message-format=json-render-diagnostics >"$programs"
}
part "build of the tests" build_tests

# The examples in the documentation are compiled beside the programs: Cargo takes one crate after the other.
run_tests() {
    local result=0 examples="$target_dir/test-output/examples.txt"
    mkdir -p "$target_dir/test-output"
    timeout --kill-after=10 900 cargo test --doc "${tests[@]}" >"$examples" 2>&1 &
    "$target_dir/debug/run-tests" "$target_dir/test-output" <"$programs" || result=1
    wait $! || { result=1 && cat "$examples" && echo "FAILED: cargo test --doc"; }
    return $result
}
part "tests" run_tests
