# What a newcomer calls. The work is in scripts/; each of them says what it does.
#
# CARGO_TARGET_DIR is honoured everywhere.

.POSIX:

help: ## say what the targets do
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-22s %s\n", $$1, $$2 }'

demo: ## a leaking server on the pool, and the dashboard on it (ONCE=1: one frame as text, no terminal needed)
	@ONCE='$(ONCE)' scripts/demo.sh

build: ## the command, the library and the sample programs, optimised
	@scripts/build.sh

install: ## command, library and headers below PREFIX (/usr/local), or DESTDIR/PREFIX for packagers
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' scripts/install.sh

dist: ## out/dist: Debian packages, a wheel for pip, a tarball and the crates, installed and tried
	@scripts/dist.sh out/dist
	@scripts/dist-test.sh out/dist

test: ## install what the tests need, build, run every test
	@scripts/test.sh

test-machines: ## on AArch64 (emulated), with musl, on Debian 13 and Ubuntu 24.04; after `make test` (ARGS='aarch64 static glibc musl')
	@scripts/test-machines.sh $(ARGS)

bench-cpu: ## the pool beside its peers: time, memory and instructions, in one go (ARGS='--help')
	@scripts/bench-cpu.sh $(ARGS)

bench-prof: ## what profilers cost: sampling and recording beside their peers, in one go (ARGS='--help')
	@scripts/bench-prof.sh $(ARGS)

bench-heapcheck: ## what a leak check costs beside LeakSanitizer, valgrind and gperftools, in one go (ARGS='--help')
	@scripts/bench-heapcheck.sh $(ARGS)

dist-bench-cpu: ## out/bench-cpu-dist, which runs the benchmark on a machine without Cargo and network
	@scripts/bench-cpu.sh --pack out/bench-cpu-dist

gpu-check: ## the checks of the device pool on this machine's card (ARGS='--help')
	@scripts/gpu-check.sh $(ARGS)

bench-gpu: ## the GPU pool beside cudaMalloc, PyTorch, RMM and CuPy, on a machine with a GPU (ARGS='--help')
	@scripts/bench-gpu.sh $(ARGS)

bench-gpu-sim: ## placement policies on the simulated device: what they hold, calls to the driver; fails if a goal is missed
	@scripts/bench-gpu.sh --device sim --check $(ARGS)

dist-gpu: ## out/gpu-dist: benchmarks, device tests, plug-in and samples for a machine with a GPU and without Cargo and network
	@scripts/dist-gpu.sh out/gpu-dist

dist-tensors: ## out/tensors-dist: named tensors beside the driver and PyTorch, for a machine with a GPU and without Cargo
	@scripts/dist-tensors.sh out/tensors-dist

lint: ## formatting, clippy, and cargo-deny on the dependencies (it says so if that is not installed)
	@scripts/lint.sh

clean: ## remove what was built
	cargo clean

.PHONY: help demo build install dist test test-machines bench-cpu bench-prof bench-heapcheck dist-bench-cpu gpu-check bench-gpu bench-gpu-sim dist-gpu dist-tensors lint clean
