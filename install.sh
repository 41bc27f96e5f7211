#!/bin/sh
# Installs the program cdc-relay from an archive of a release, for Linux and macOS: one file, no service. For a service on
# Debian, Ubuntu, Fedora and the like take the deb or the rpm: docs/install.md.
# Its options: sh install.sh --help
#
# The archive's SHA-256 is compared with the release's SHA256SUMS before anything is unpacked. That shows that it arrived
# whole, not who made it: for that, docs/install.md verifies the signature of SHA256SUMS. Nothing else on the machine is
# changed, and when something fails, nothing is.
set -eu

base=https://github.com/cdc-relay/cdc-relay/releases
version=
dir=

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

usage() {
  cat <<'TEXT'
sh install.sh [--version X.Y.Z] [--dir DIRECTORY] [--base ADDRESS]
  --version  default: the latest release
  --dir      default: /usr/local/bin for root, ~/.local/bin for others
  --base     where the releases are, for a mirror of your own that has their paths
TEXT
}

# fetch ADDRESS FILE
fetch() {
  if command -v curl >/dev/null 2>&1; then
    curl --fail --silent --show-error --location --output "$2" "$1"
  elif command -v wget >/dev/null 2>&1; then
    wget --quiet --output-document="$2" "$1"
  else
    fail 'neither curl nor wget is here to download with; nothing was installed'
  fi
}

# digest FILE
digest() {
  if command -v sha256sum >/dev/null 2>&1; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}

platform() {
  system=$(uname -s)
  machine=$(uname -m)
  case $system in
  Linux) os=linux ;;
  Darwin) os=darwin ;;
  *) fail "there is no archive for $system that this script could install; see docs/install.md. Nothing was installed" ;;
  esac
  case $machine in
  x86_64 | amd64) arch=amd64 ;;
  aarch64 | arm64) arch=arm64 ;;
  *) fail "there is no archive for the architecture $machine, only for amd64 and arm64; building from source may work. \
Nothing was installed" ;;
  esac
}

# choose sets archive, version and expected from SHA256SUMS, which has one line for each archive.
choose() {
  if [ -n "$version" ]; then sums=$base/download/v$version/SHA256SUMS; else sums=$base/latest/download/SHA256SUMS; fi
  fetch "$sums" "$work/SHA256SUMS" || fail "$sums cannot be downloaded, so no archive can be verified: \
is ${version:-the release} there? Nothing was installed"
  line=$(grep -E "^[0-9a-f]{64} [ *]cdc-relay_[0-9][^ ]*_${os}_$arch\.tar\.gz\$" "$work/SHA256SUMS") ||
    fail "$sums has no checksum of an archive for $os on $arch; nothing was installed"
  [ "$(printf '%s\n' "$line" | wc -l)" -eq 1 ] || fail "$sums has several archives for $os on $arch; nothing was installed"
  expected=${line%% *}
  archive=${line#*cdc-relay_}
  found=${archive%"_${os}_$arch.tar.gz"}
  archive=cdc-relay_$archive
  [ -z "$version" ] || [ "$version" = "$found" ] || fail "$sums is of $found, not of $version; nothing was installed"
  version=$found
}

main() {
  while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --version | --dir | --base) [ -n "${2-}" ] || fail "$1 needs a value" ;;
    *) fail "$1 is not known; known are --version, --dir and --base" ;;
    esac
    case $1 in
    --version) version=${2#v} ;;
    --dir) dir=$2 ;;
    --base) base=${2%/} ;;
    esac
    shift 2
  done
  if [ -z "$dir" ]; then
    if [ "$(id -u)" -eq 0 ]; then dir=/usr/local/bin; else dir=${HOME:?is not set; give --dir}/.local/bin; fi
  fi

  platform
  command -v sha256sum >/dev/null 2>&1 || command -v shasum >/dev/null 2>&1 ||
    fail 'neither sha256sum nor shasum is here, so no archive can be verified; nothing was installed'
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  trap 'exit 1' HUP INT TERM
  choose
  fetch "$base/download/v$version/$archive" "$work/$archive" ||
    fail "$base/download/v$version/$archive cannot be downloaded; nothing was installed"
  actual=$(digest "$work/$archive")
  [ "$actual" = "$expected" ] || fail "$archive is not what the release lists: its SHA-256 is $actual, and should be $expected. \
It was damaged or changed on the way. Nothing was unpacked or installed"

  tar -xzf "$work/$archive" -C "$work"
  program=$work/${archive%.tar.gz}/cdc-relay
  [ -f "$program" ] || fail "$archive has no ${archive%.tar.gz}/cdc-relay; nothing was installed"
  if ! mkdir -p "$dir" 2>/dev/null || [ ! -w "$dir" ]; then
    fail "$dir cannot be written to: choose another directory with --dir, or run this as root. Nothing was installed"
  fi
  # Beside the old one, then in its place at once: one that runs goes on undisturbed.
  next=$dir/.cdc-relay.$$
  trap 'rm -rf "$work" "$next"' EXIT
  cp "$program" "$next"
  chmod 755 "$next"
  mv -f "$next" "$dir/cdc-relay"

  echo "cdc-relay $version for $os on $arch is in $dir/cdc-relay; SHA-256 of $archive verified."
  case :$PATH: in
  *":$dir:"*) ;;
  *) echo "$dir is not in PATH." ;;
  esac
  echo 'Next: cdc-relay --help; the docs begin at https://github.com/cdc-relay/cdc-relay/blob/main/docs/install.md'
}

# Last, so that a script that arrived only in part does nothing.
main "$@"
