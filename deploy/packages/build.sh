#!/bin/sh
# Makes the deb and the rpm for this machine's architecture in seconds, without goreleaser: build.sh VERSION DIRECTORY.
# What is in them is told once, in the section nfpms of .goreleaser.yaml; a few keys have other names there. NFPM and TAGS
# come from the Makefile.
set -eu
version=$1
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")/../.."
arch=$(go env GOARCH)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

CGO_ENABLED=0 go build -trimpath -tags="$TAGS" -ldflags "-s -w -X main.version=$version" -o "$work/cdc-relay" ./cmd/cdc-relay
deploy/packages/completions.sh "$work/cdc-relay"
{
  sed -n '/^nfpms:/,/^[a-z]/p' .goreleaser.yaml | sed -e 1d -e '$d' -e 's/^  - /    /' -e 's/^    //' |
    sed -e '/^id:/d' -e '/^ids:/d' -e '/^formats:/d' -e '/^file_name_template:/d' -e '/^mtime:/d' \
      -e 's/^package_name:/name:/' -e 's/^\( *\)dependencies:/\1depends:/'
  echo "  - {src: $work/cdc-relay, dst: /usr/bin/cdc-relay}" # contents stand last
  printf 'arch: %s\nversion: %s\n' "$arch" "$version"
} >"$work/nfpm.yaml"
for format in deb rpm; do
  go run "$NFPM" package --config "$work/nfpm.yaml" --packager "$format" --target "$out"
done
