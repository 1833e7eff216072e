# SPDX-License-Identifier: Apache-2.0
# Sourced by what runs in a Debian of its own: a root made by debootstrap, with this machine's way to its archives.
# shellcheck shell=bash

# Archives of a release that this machine uses, one a line: URI, suite. Another release than the machine's own is taken
# from the same place.
archives() {
  local release=$1
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v release="$release" '$3 == "main" && $2 ~ "^" release "(-updates|-security)?$" { print $1, $2 }' | sort -u
}
mirror_of() {
  local own
  own=$(archives "$1" | awk -v release="$1" '$2 == release { print $1; exit }')
  [ -n "$own" ] || own=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk '$3 == "main" && $2 !~ /-/ { print $1; exit }')
  echo "$own"
}

# make_root RELEASE FOLDER [PACKAGE,...]: a minimal root of this release of Debian's in the folder.
make_root() {
  local release=$1 folder=$2 packages=${3:-} mirror file name
  [ "$(id -u)" = 0 ] || die "needs root, to make a root of its own"
  command -v debootstrap >/dev/null || die "needs debootstrap (scripts/install-deps optional)"
  mirror=$(mirror_of "$release")
  [ -n "$mirror" ] || die "this machine's apt has no source of $release main to make a root from"
  debootstrap --variant=minbase ${packages:+--include="$packages"} "$release" "$folder" "$mirror" >"$folder.log" 2>&1 ||
    { tail -n 20 "$folder.log" >&2; rm -f "$folder.log"; die "debootstrap failed"; }
  rm -f "$folder.log"
  # The machine's way to its archives: sources, proxies and certificates.
  { archives "$release"; echo "$mirror $release"; } | sort -u |
    while read -r uri suite; do echo "deb $uri $suite main"; done >"$folder/etc/apt/sources.list"
  apt-config dump | grep -E '^Acquire::(http|https|Retries)\b.* "..*";$' >"$folder/etc/apt/apt.conf.d/90machine" || true
  while read -r file; do
    if [ -f "$file" ]; then install -D -m 644 "$file" "$folder$file"; fi
  done < <(grep -oE '"/[^"]+"' "$folder/etc/apt/apt.conf.d/90machine" | tr -d '"')
  cp -L /etc/resolv.conf "$folder/etc/resolv.conf" 2>/dev/null || true
  cp /etc/hosts "$folder/etc/hosts"
}

# inside FOLDER COMMAND...: runs it in the root, in process and mount namespaces of its own, with a fresh environment.
inside() {
  local folder=$1 name
  shift
  local variables=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
                   TERM="${TERM:-dumb}" DEBIAN_FRONTEND=noninteractive)
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
    [ -z "${!name:-}" ] || variables+=("$name=${!name}")
  done
  unshare --mount --pid --fork --kill-child --propagation private bash -euc '
    fresh=$1; shift
    mount --bind "$fresh" "$fresh"   # network namespaces are made by programs that want / to be a mount
    mount -t proc proc "$fresh/proc"
    mount -t sysfs sys "$fresh/sys"
    mount --rbind /dev "$fresh/dev"
    mount -t tmpfs tmpfs "$fresh/dev/shm"
    mount -t tmpfs tmpfs "$fresh/run"
    exec chroot "$fresh" "$@"' bash "$folder" env -i "${variables[@]}" "$@"
}
