#!/bin/sh
# Sees to it that Linux has a Vulkan driver. On Debian and Ubuntu it installs a software one where there is none;
# elsewhere it says what is missing. Never fails: the command that follows may do with GL, or with the CPU.
set -eu

PACKAGE=mesa-vulkan-drivers

say() { echo "vulkan driver: $*" >&2; }

# macOS has Metal and Windows DX12.
[ "$(uname -s)" = Linux ] || exit 0

any_exists() {
    for file in "$@"; do
        [ ! -e "$file" ] || return 0
    done
    return 1
}

has_loader() {
    PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1' ||
        any_exists /usr/lib/libvulkan.so.1 /usr/lib64/libvulkan.so.1 /usr/local/lib/libvulkan.so.1 \
            "/usr/lib/$(uname -m)-linux-gnu/libvulkan.so.1" /run/opengl-driver/lib/libvulkan.so.1
}

# The folders that the Vulkan loader searches.
has_driver() {
    if [ -n "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ]; then
        return 0
    fi
    any_exists /usr/share/vulkan/icd.d/*.json /usr/local/share/vulkan/icd.d/*.json \
        /etc/vulkan/icd.d/*.json /usr/local/etc/vulkan/icd.d/*.json \
        /run/opengl-driver/share/vulkan/icd.d/*.json "${XDG_DATA_HOME:-${HOME:-}/.local/share}"/vulkan/icd.d/*.json
}

if has_loader && has_driver; then
    exit 0
fi

if ! command -v apt-get >/dev/null; then
    say "none found. Install your GPU's, or Mesa's software driver lavapipe" \
        "(Fedora: mesa-vulkan-drivers, Arch: vulkan-swrast, Alpine: mesa-vulkan-swrast)."
    exit 0
fi

sudo=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        say "none found, and installing one takes root. Run as root: apt-get install $PACKAGE"
        exit 0
    fi
    sudo="sudo "
fi

apt() { ${sudo}env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" </dev/null >&2; }
install() { apt install -y --no-install-recommends "$PACKAGE"; }

say "none found, so installing Mesa's software one: ${sudo}apt-get install $PACKAGE"
# Without package lists, or with outdated ones, the first try fails.
if any_exists /var/lib/apt/lists/*_Packages* && install; then
    exit 0
fi
if apt update && install; then
    exit 0
fi
say "$PACKAGE could not be installed. Going on without it; to install it yourself: apt-get install $PACKAGE"
