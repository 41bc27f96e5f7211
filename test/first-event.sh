#!/usr/bin/env bash
# usage: test/first-event.sh [seconds]
# Clones this repository, and says how many seconds pass from there to the first event of make demo, with caches of Go
# that are empty: downloads, compiling, Postgres and all. With a number of seconds it fails if it took longer. The CPU
# seconds of compiling tell how much of that is a busy machine's: on two idle cores they take half as long.
set -euo pipefail
cd "$(dirname "$0")/.."
allowed=${1:-}
work=$(mktemp -d)
demo=
cleanup() {
	if [ -n "$demo" ]; then kill -TERM -- "-$demo" 2>/dev/null || true; wait "$demo" 2>/dev/null || true; fi
	chmod -R u+w "$work" && rm -rf "$work"
}
trap cleanup EXIT
git clone --quiet --no-hardlinks . "$work/clone"
export GOMODCACHE="$work/modules" GOCACHE="$work/build" GOFLAGS=-modcacherw
cores=$(nproc)
began=$(date +%s.%N)
set -m # a group of its own, so that it can be ended with what it started
make --silent -C "$work/clone" demo ARGS="--http-listen 127.0.0.1:0" >"$work/out" 2>"$work/errors" &
demo=$!
set +m
until grep -q 'received [1-9]' "$work/out"; do
	kill -0 "$demo" 2>/dev/null || { cat "$work/out" "$work/errors"; echo "the demo ended without an event"; exit 1; }
	sleep 0.1
done
took=$(awk -v began="$began" -v now="$(date +%s.%N)" 'BEGIN {printf "%.0f", now - began}')
ticks=$(awk '{sub(/^.*[)] /, ""); print $14 + $15}' "/proc/$(pgrep -g "$demo" -x go)/stat") # of its children that ended
compiled=$((ticks / $(getconf CLK_TCK)))
modules=$(find "$work/modules/cache/download" -name '*.zip' | wc -l)
echo "$took s to the first event on $cores cores, $compiled CPU s of them compiling, with $modules modules downloaded; load average $(cut -d' ' -f1 /proc/loadavg)"
if [ -n "$allowed" ] && [ "$took" -gt "$allowed" ]; then echo "more than $allowed s"; exit 1; fi
