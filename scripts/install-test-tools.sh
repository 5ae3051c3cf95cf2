#!/usr/bin/env bash
# Installs the Debian packages that the tests need and that are not there. Does nothing if all are.
. "$(dirname "$0")/common.sh"

# A command and the package that brings it. Full paths where the distribution's own build is wanted beside another
# one that may come first in PATH.
look_for <<END
go                  golang-go
dot                 graphviz
tmux                tmux
redis-server        redis-server
redis-cli           redis-tools
redis-benchmark     redis-tools
/usr/bin/python3    python3
/usr/bin/git        git
valgrind            valgrind
curl                curl
prometheus          prometheus
promtool            prometheus
stress-ng           stress-ng
gcc                 gcc
gdb                 gdb
g++                 g++
perl                perl
/usr/bin/ruby       ruby
/usr/sbin/nginx     nginx-light
/usr/bin/node       nodejs
/usr/bin/javac      default-jdk-headless
sqlite3             sqlite3
strip               binutils
pkg-config          pkgconf
ldd                 libc-bin
unshare             util-linux
/usr/bin/python3-config                         python3-dev
/usr/lib/python3/dist-packages/pytest           python3-pytest
/usr/lib/python3/dist-packages/xdist            python3-pytest-xdist
/usr/lib/python3/dist-packages/pytest_asyncio   python3-pytest-asyncio
/usr/include/gtest/gtest.h                      libgtest-dev
/usr/include/catch2/catch.hpp                   catch2
/usr/include/doctest/doctest.h                  doctest-dev
faketime            faketime
setpriv             util-linux
man                 man-db
/usr/lib/python3/dist-packages/jsonschema  python3-jsonschema
END
[ ${#missing[@]} -gt 0 ] || exit 0

by_hand="Install the packages yourself, then run make test again: ${packages[*]}"
command -v apt-get >/dev/null || die "The tests need ${missing[*]}, and there is no apt-get here." "$by_hand"
[ "$(id -u)" = 0 ] || command -v sudo >/dev/null ||
    die "The tests need ${missing[*]}; installing them takes root or sudo." "$by_hand"
echo "Installing what the tests need: ${packages[*]}"
install_packages "${packages[@]}" || die "apt-get failed." "$by_hand"

for command in "${missing[@]}"; do
    [ -e "$command" ] || command -v "$command" >/dev/null || die "$command is still missing after the installation." "$by_hand"
done
