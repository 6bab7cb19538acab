#!/bin/sh
# tests/in_debian13.sh [FOLDER [COMMAND...]]: runs .ci/run, or COMMAND, in a Debian 13 of its own.
#
# Needs root, debootstrap and git. FOLDER becomes the system's root folder; it is kept, and a later
# call uses it again. Without FOLDER a temporary one is made, and removed at the end. The last commit
# of this checkout is cloned into it; changes that are not committed are not tested. Mounts are made in
# a namespace of their own, so they end with the command.
#
# DEBIAN_MIRROR      the address of the packages; debootstrap's default if unset
# DEBIAN_SUITE       trixie if unset
# FIRMWRIGHT_MODELS  a folder, shown there as /models
#
# The machine's resolv.conf, proxy settings, CA certificates and settings of pip hold there, too. Folders
# that pip's settings name are visible at the same place.
set -eu

say() { printf 'in_debian13: %s\n' "$*" >&2; }

die() {
    say "$@"
    exit 1
}

checkout=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." && pwd)

# Everything below runs in namespaces of its own; they take the mounts and left processes with them.
if [ -z "${IN_DEBIAN13_NAMESPACE:-}" ]; then
    [ "$(id -u)" -eq 0 ] || die "needs root, for chroot and mount."
    for tool in debootstrap git unshare; do
        command -v "$tool" >/dev/null 2>&1 || die "needs $tool (apt install debootstrap git util-linux)."
    done
    export IN_DEBIAN13_NAMESPACE=1
    if [ "$#" -gt 0 ]; then
        exec unshare --mount --pid --fork --kill-child -- "$0" "$@"
    fi
    folder=$(mktemp -d "${TMPDIR:-/tmp}/debian13.XXXXXX")
    trap 'rm -rf --one-file-system "$folder"' EXIT
    trap 'exit 130' INT TERM
    unshare --mount --pid --fork --kill-child -- "$0" "$folder"
    exit
fi

folder=$1
shift
[ "$#" -gt 0 ] || set -- .ci/run
mkdir -p "$folder"
folder=$(readlink -f -- "$folder")

# Another run in the same folder waits until its system is complete.
exec 9<"$folder"
flock 9
if [ ! -e "$folder/etc/debian_version" ] || [ -d "$folder/debootstrap" ]; then
    say "debootstrap ${DEBIAN_SUITE:-trixie} into $folder"
    # shellcheck disable=SC2086
    debootstrap --variant=minbase --include=ca-certificates "${DEBIAN_SUITE:-trixie}" "$folder" \
        ${DEBIAN_MIRROR:-} >&2
fi

# Copies a file of the machine, if there is one, to the same place there.
copy_file() {
    [ -f "$1" ] || return 0
    mkdir -p "$folder$(dirname -- "$1")"
    cp -L -- "$1" "$folder$1"
}

# Shows a folder of the machine there, read only.
show_folder() {
    [ -d "$1" ] || die "$1 is no folder."
    mkdir -p "$folder$2"
    mount --bind "$1" "$folder$2"
    mount -o remount,bind,ro "$folder$2"
}

# The machine's settings of pip, one NAME=VALUE a line; what has priority comes first.
pip_settings() {
    python3 -m pip config list 2>/dev/null |
        sed -n -E "s/^(:env:|global|install)\\.([a-z-]+)='(.*)'\$/\2 \3/p" |
        while read -r name value; do
            name=$(echo "$name" | tr a-z- A-Z_)
            echo "PIP_$name=$(printf %s "$value" | sed 's/\\n/ /g')"
        done
}

# The files and folders that pip's settings name. The pages of a local index link to files beside its
# own folder.
pip_paths() {
    for word in $(pip_settings | cut -d= -f2-); do
        case $word in
        file:///*) dirname -- "${word#file://}" ;;
        /*) echo "$word" ;;
        esac
    done | sort -u
}

copy_file /etc/resolv.conf
copy_file /etc/ssl/certs/ca-certificates.crt

mount --make-rprivate /
mount -t proc proc "$folder/proc"
mount -t sysfs -o ro sysfs "$folder/sys"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$folder/dev/pts"
mkdir -p "$folder/dev/shm"
mount -t tmpfs tmpfs "$folder/dev/shm"
[ -e "$folder/dev/ptmx" ] || ln -s pts/ptmx "$folder/dev/ptmx"
for path in $(pip_paths); do
    if [ -d "$path" ]; then show_folder "$path" "$path"; else copy_file "$path"; fi
done
models=
if [ -n "${FIRMWRIGHT_MODELS:-}" ]; then
    show_folder "$FIRMWRIGHT_MODELS" /models
    models=/models
fi

# A kept clone keeps its environment, so only what changed is set up anew.
name=$(basename -- "$checkout")
clone=$folder/root/$name
commit=$(git -C "$checkout" rev-parse HEAD)
[ -d "$clone" ] || git clone -q --no-local --no-checkout "$checkout" "$clone"
git -C "$clone" fetch -q "$checkout" "$commit"
git -C "$clone" checkout -q --detach --force "$commit"
exec 9<&-
say "commit $commit: $*"

# pip's and the network's settings hold, nothing else of this environment.
set -- "CI=1" "HOME=/root" "LANG=C.UTF-8" "PATH=/usr/sbin:/usr/bin:/sbin:/bin" "TERM=${TERM:-dumb}" \
    ${models:+"FIRMWRIGHT_MODELS=$models"} chroot "$folder" sh -c 'cd "/root/$0" && exec "$@"' "$name" "$@"
while read -r setting; do
    [ -z "$setting" ] || set -- "$setting" "$@"
done <<END
$(env | grep -E '^([a-zA-Z]*_(proxy|PROXY)|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)=')
$(pip_settings)
END
# This shell is the first process of its namespace, so it has to wait.
env -i "$@"
