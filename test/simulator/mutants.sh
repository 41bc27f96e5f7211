#!/usr/bin/env bash
# mutants.sh [-n SEEDS] [NAME...]: breaks the relay on purpose, in a copy of it, and fails unless the simulator notices.
# Each file in mutants/ is a patch with one broken rule; NAME is one without its ending. All of them without a NAME. A
# line "Kind: " says with which kind of broker it shows, else Kafka's.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
seeds=500000
if [ "${1:-}" = -n ]; then
  seeds=$2
  shift 2
fi
names=("$@")
if [ ${#names[@]} = 0 ]; then
  for patch in "$here"/mutants/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
(cd "$root" && tar cf - --exclude ./.git --exclude ./bin --exclude ./.cache .) | tar xf - -C "$copy"
cd "$copy"
missed=()
for name in "${names[@]}"; do
  patch --quiet --posix --fuzz=0 -p1 <"$here/mutants/$name.patch" || { echo "$name: its patch fits no more"; exit 1; }
  kind=$(sed -n 's/^Kind: //p' "$here/mutants/$name.patch")
  if ! go build ./relay ./sink/...; then
    echo "$name: does not compile"
    exit 1
  fi
  if said=$(go test ./test/simulator -count=1 -run EveryRunKeeps -timeout 20m -args -seeds "$seeds" -kinds "${kind:-kafka}" 2>&1); then
    missed+=("$name")
    echo "$name: NOT NOTICED in $seeds seeds"
  else
    how=$(grep -m1 -E '^ +simulator_test.go:.*seed [0-9]+: |^panic: ' <<<"${said#*simulator_test.go}" || true)
    echo "$name: noticed:${how:- $(grep -m1 -E 'seed [0-9]+ failed' <<<"$said")}"
  fi
  patch --quiet --posix -R -p1 <"$here/mutants/$name.patch"
done
[ ${#missed[@]} = 0 ] || { echo "not noticed: ${missed[*]}"; exit 1; }
