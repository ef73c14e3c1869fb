#!/bin/sh
# Tests the MPI example and runs it with several numbers of ranks; on Debian and Ubuntu it installs Open MPI where that is
# missing. Exits with 1 if a check fails for any number. Started by scripts/run.sh.
set -eu
cd "$(dirname "$0")/.."

# Open MPI, and libclang, with which the crate mpi reads Open MPI's headers.
PACKAGES="libopenmpi-dev openmpi-bin libclang-dev"

say() { echo "MPI: $*" >&2; }

any_exists() {
    for file in "$@"; do
        [ ! -e "$file" ] || return 0
    done
    return 1
}

has_libclang() {
    [ -n "${LIBCLANG_PATH:-}" ] || any_exists /usr/lib/llvm-*/lib/libclang*.so* /usr/lib/*/libclang*.so* \
        /usr/lib/libclang*.so* /usr/lib64/libclang*.so* /usr/local/lib/libclang* /opt/homebrew/opt/llvm/lib/libclang* \
        /Library/Developer/CommandLineTools/usr/lib/libclang*
}

ready() { command -v mpicc >/dev/null && command -v mpirun >/dev/null && has_libclang; }

if ! ready; then
    if ! command -v apt-get >/dev/null; then
        say "this needs mpicc, mpirun and libclang. Install Open MPI and clang" \
            "(Fedora: openmpi-devel clang-devel, Arch: openmpi clang, Homebrew: open-mpi llvm)."
        exit 1
    fi
    sudo=
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            say "installing Open MPI takes root. Run as root: apt-get install $PACKAGES"
            exit 1
        fi
        sudo="sudo "
    fi
    apt() { ${sudo}env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" </dev/null >&2; }
    say "installing what is missing: ${sudo}apt-get install $PACKAGES"
    # Without package lists, or with outdated ones, the first try fails.
    # shellcheck disable=SC2086
    (any_exists /var/lib/apt/lists/*_Packages* && apt install -y --no-install-recommends $PACKAGES) ||
        (apt update && apt install -y --no-install-recommends $PACKAGES) || {
        say "they could not be installed"
        exit 1
    }
fi

launch=mpirun
case $(mpirun --version 2>/dev/null) in
*"Open MPI"*)
    # More ranks than cores are fine here.
    launch="$launch --oversubscribe"
    [ "$(id -u)" != 0 ] || launch="$launch --allow-run-as-root"
    # All ranks are on this machine: no network and no remote shell is looked for. Containers forbid reading another
    # process's memory, which Open MPI reports at length before it does without.
    export OMPI_MCA_plm="${OMPI_MCA_plm:-isolated}" OMPI_MCA_btl="${OMPI_MCA_btl:-self,vader}"
    export OMPI_MCA_btl_vader_single_copy_mechanism="${OMPI_MCA_btl_vader_single_copy_mechanism:-none}"
    ;;
esac
# A software GPU takes every core for each rank, and then they wait for one another.
export LP_NUM_THREADS="${LP_NUM_THREADS:-1}"

run() {
    ranks=$1
    shift
    echo "== mpirun -n $ranks${*:+ ... $*}"
    cargo run --quiet --profile quick -p gradclip-mpi-example --config "target.'cfg(all())'.runner = '$launch -n $ranks'" -- "$@"
}

cargo test --profile quick -p gradclip-mpi-example
status=0
for ranks in 1 2 3 4 7; do
    run "$ranks" || status=1
done
# The ranks on different adapters, where there are several.
run 4 --adapter all || status=1
[ "$status" = 0 ] || say "a check failed"
exit "$status"
