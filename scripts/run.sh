#!/bin/sh
# Runs a cargo command on a machine made ready for it: Rust is there, and a Vulkan driver if one can be had.
set -eu

# Where rustup puts it, before the shell's profile knows.
command -v cargo >/dev/null || PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"
if ! command -v cargo >/dev/null; then
    echo "cargo is missing: install Rust 1.87 or later from https://rustup.rs, then run this again" >&2
    exit 1
fi

"$(dirname "$0")/driver.sh"

# Without it, Wayland's library complains for every GL adapter that is looked for.
if [ -z "${XDG_RUNTIME_DIR:-}" ]; then
    XDG_RUNTIME_DIR=$(mktemp -d)
    export XDG_RUNTIME_DIR
    trap 'rm -rf "$XDG_RUNTIME_DIR"' EXIT
fi
"$@"
