#!/usr/bin/env bash
# Counts what allocators catch of small programs with one fault of memory each (tests/csrc/security.cpp): a table in
# Markdown, a row for each kind. With arguments NAME=LIBRARY, those beside the pool and glibc; with --cases, a line for
# each program.
. "$(dirname "$0")/common.sh"

library="${POOLSCOPE_LIB:-$target_dir/release/libpoolscope.so}"
names=(poolscope hardened glibc)
preloads=("$library" "$library" "")
cases=
for argument in "$@"; do
    if [ "$argument" = --cases ]; then cases=1; continue; fi
    names+=("${argument%%=*}")
    preloads+=("${argument#*=}")
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
g++ -std=c++17 -O1 -w -fno-builtin -fsized-deallocation -o "$work/security" tests/csrc/security.cpp

# caught NUMBER KIND SIZE: whether the allocator catches it.
caught() {
    local hardened=0 out status=0
    [ "${names[$1]}" = hardened ] && hardened=1
    out=$(ulimit -c 0; LD_PRELOAD="${preloads[$1]}" POOLSCOPE_HARDENED=$hardened \
        timeout 20 "$work/security" "$2" "$3" 2>/dev/null) || status=$?
    [ "$status" -ge 128 ] || [ "$out" = held ]
}

declare -A count programs
order=()
while read -r kind size; do
    [ -n "${programs[$kind]:-}" ] || order+=("$kind")
    programs[$kind]=$((${programs[$kind]:-0} + 1))
    for number in "${!names[@]}"; do
        if caught "$number" "$kind" "$size" 2>/dev/null; then
            count[$number/$kind]=$((${count[$number/$kind]:-0} + 1))
            count[$number]=$((${count[$number]:-0} + 1))
        elif [ -n "$cases" ]; then
            echo "${names[$number]} misses $kind $size"
        fi
    done
done < <("$work/security")

header="| programs | of |" rule="|---|---:|"
for name in "${names[@]}"; do header+=" $name |"; rule+="---:|"; done
echo "$header"; echo "$rule"
all=0
for kind in "${order[@]}"; do
    line="| $kind | ${programs[$kind]} |"
    all=$((all + programs[$kind]))
    for number in "${!names[@]}"; do line+=" ${count[$number/$kind]:-0} |"; done
    echo "$line"
done
line="| all | $all |"
for number in "${!names[@]}"; do line+=" ${count[$number]:-0} |"; done
echo "$line"
