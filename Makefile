.PHONY: help demo test burn mpi

help:
	@echo 'make demo   one step over recorded gradients: unscale, check, norm, clip, compared with the CPU reference'
	@echo 'make test   the whole test suite on every adapter of this machine'
	@echo "make burn   gradients of the Burn framework, clipped in Burn's own buffers: an example, and its tests"
	@echo 'make mpi    one step over gradients on 1, 2, 3, 4 and 7 ranks of an MPI program, compared with one process'
	@echo 'All need Rust (https://rustup.rs), make burn 1.95 or later. On Debian and Ubuntu they install a software Vulkan'
	@echo 'driver if there is none, and make mpi installs Open MPI and libclang.'

demo:
	@scripts/run.sh cargo run --release --example clip

# One test at a time: wgpu's GL backend waits 6 s for its lock, and a software driver can compile for longer.
test:
	@scripts/run.sh cargo test --all-features --no-fail-fast -- --test-threads=1

mpi:
	@scripts/run.sh scripts/mpi.sh

# Fusion changes the type behind every tensor of Burn's, so it takes a second build of most of Burn.
BURN = --profile quick -p gradclip-burn-example
burn:
	@scripts/run.sh cargo test $(BURN) -- --test-threads=1
	@scripts/run.sh cargo run $(BURN)
	@scripts/run.sh cargo test $(BURN) --features fusion -- --test-threads=1
	@scripts/run.sh cargo run $(BURN) --features fusion
