#!/usr/bin/env bash
# Every test: the unit tests of all members, then the end-to-end tests on the optimised build. Says how long each took.
. "$(dirname "$0")/common.sh"

started=$SECONDS
summary=()
report() {
    printf '\n'
    [ ${#summary[@]} = 0 ] || printf '%s\n' "${summary[@]}"
    printf '%5d s  in all\n' $((SECONDS - started))
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
part "build of the tests" cargo test --workspace --no-run
# Both kinds run, whatever the first finds.
failed=0
part "unit tests" cargo test --workspace --exclude poolscope-e2e --no-fail-fast || failed=1
part "end-to-end tests" cargo test -p poolscope-e2e --no-fail-fast || failed=1
exit $failed
