#!/bin/sh
# What CI tries of the packages: makes a deb of the release before and a deb and an rpm of this tree, installs the first on
# this machine, has it deliver, upgrades it under load, removes and purges it; the test is TestPackages… in test/. It needs
# root and Debian, or what is like it, and leaves nothing behind. NFPM and TAGS come from the Makefile; BEFORE names the
# commit to upgrade from: the newest tag, or this tree where there is none.
set -eu
cd "$(dirname "$0")/../.."
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo 'SKIPPED, NOTHING WAS TRIED: the packages are tried by root, where there is apt-get'
  exit 0
fi
if dpkg-query -W cdc-relay >/dev/null 2>&1 || [ -e /etc/cdc-relay ] || getent passwd cdc-relay >/dev/null; then
  echo 'cdc-relay is, or was, installed here (a package, /etc/cdc-relay or the user cdc-relay), and trying would remove it.' \
    'Try on another machine, or purge it first: apt-get purge cdc-relay' >&2
  exit 1
fi
work=$(mktemp -d)
chmod 755 "$work" # apt-get reads as the user _apt
clean() {
  status=$?
  trap - EXIT
  if dpkg-query -W cdc-relay >/dev/null 2>&1; then dpkg --purge cdc-relay >/dev/null 2>&1 || status=1; fi
  rm -rf "$work" /etc/cdc-relay
  exit "$status"
}
trap clean EXIT
trap 'exit 1' INT TERM

before=${BEFORE:-$(git describe --tags --abbrev=0 2>/dev/null || true)}
tree=.
if [ -n "$before" ]; then
  tree=$work/tree
  mkdir "$tree"
  git archive "$before" | tar -x -C "$tree"
fi
echo "upgrade from ${before:-this tree, as there is no release}"
"$tree/deploy/packages/build.sh" 0.1.0 "$work/before"
deploy/packages/build.sh 0.1.1 "$work/after"
go test -race -count=1 -timeout 10m -v -run '^TestPackages' ./test -args -packages "$work"
