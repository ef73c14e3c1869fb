.PHONY: help demo test mpi

help:
	@echo 'make demo   one step over recorded gradients: unscale, check, norm, clip, compared with the CPU reference'
	@echo 'make test   the whole test suite on every adapter of this machine'
	@echo 'make mpi    one step over gradients on 1, 2, 3, 4 and 7 ranks of an MPI program, compared with one process'
	@echo 'All need Rust (https://rustup.rs). On Debian and Ubuntu they install a software Vulkan driver if there is none,'
	@echo 'and make mpi installs Open MPI and libclang.'

demo:
	@scripts/run.sh cargo run --release --example clip

# One test at a time: wgpu's GL backend waits 6 s for its lock, and a software driver can compile for longer.
test:
	@scripts/run.sh cargo test --all-features --no-fail-fast -- --test-threads=1

mpi:
	@scripts/run.sh scripts/mpi.sh
