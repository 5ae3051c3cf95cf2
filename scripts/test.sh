#!/usr/bin/env bash
# Every test: the unit tests of all members, then the end-to-end tests on the optimised build. Says how long each took.
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
part "build of the tests" cargo test --workspace --features poolscope-tui/test-panic --no-run
# Both kinds run, whatever the first finds. One that hangs is ended, and the output says which test had been running for long.
failed=0
part "unit tests" timeout --kill-after=10 1800 cargo test --workspace --exclude poolscope-e2e --features poolscope-tui/test-panic --no-fail-fast || failed=1
part "end-to-end tests" timeout --kill-after=10 2400 cargo test -p poolscope-e2e --no-fail-fast || failed=1
exit $failed
