# What a newcomer calls. The work is in scripts/; each of them says what it does.
#
# CARGO_TARGET_DIR is honoured everywhere.

.POSIX:

help: ## say what the targets do
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

demo: ## a leaking server on the pool, and the dashboard on it (ONCE=1: one frame as text, no terminal needed)
	@ONCE='$(ONCE)' scripts/demo.sh

build: ## the command, the library and the sample programs, optimised
	@scripts/build.sh

test: ## install what the tests need, build, run every test
	@scripts/test.sh

bench: ## the pool beside its peers, in one go
	@scripts/bench.sh

lint: ## formatting, clippy and, if it is installed, cargo-deny
	@scripts/lint.sh

clean: ## remove what was built
	cargo clean

.PHONY: help demo build test bench lint clean
