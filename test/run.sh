#!/usr/bin/env bash
# Runs the tests: `test/run.sh quick` those of make test, `test/run.sh rest` those that begin with harness.Full, which
# make test leaves out, and `test/run.sh all` both in one pass, which links each test program and starts its servers
# once. What the machine lacks, and what failed, is printed last.
set -euo pipefail
cd "$(dirname "$0")/.."

# The Makefile sets these.
read -ra modules <<<"${MODULES:?}"
read -ra flags <<<"${TESTFLAGS:?}"
# CI vets everything first, with all of go vet's analyzers; go test would run some of them again.
[ "${CI:-}" != true ] || flags+=(-vet=off)
# It has the machine for itself: its consumers have a limited time to stop, and its alerts are about latency.
alone=test/inbox
# The packages that take longest begin first, so that none of them is left alone at the end.
longest=(./test ./test/brokers ./relay ./cmd/cdc-relay ./internal/store ./test/packages ./sink/kafka)
scratch=$(mktemp -d)
export CDC_RELAY_TEST_MISSING=$scratch/missing CDC_RELAY_TEST_BUILT=$scratch/built GORACE=atexit_sleep_ms=0
mkdir "$CDC_RELAY_TEST_BUILT"
background=() memory=

# in_memory has the servers of the tests keep their data in memory, where there is enough of it: ext4 looks long for a
# place for a new file after many were removed, and each test makes the files of a database and removes them.
in_memory() {
  local gib=12 free room
  [ -z "${CDC_RELAY_TEST_DATA:-}" ] && [ -r /proc/meminfo ] && [ -w /dev/shm ] || return 0
  free=$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo)
  room=$(df --output=avail -B1G /dev/shm | tail -n 1)
  [ "$free" -ge "$gib" ] && [ "$room" -ge "$gib" ] || return 0
  memory=$(mktemp -d /dev/shm/cdc-relay-tests-XXXXXX)
  chmod 711 "$memory" # the user of Postgres passes through
  export CDC_RELAY_TEST_DATA=$memory
}

finish() {
  local group
  for group in ${background[@]+"${background[@]}"}; do kill -INT -- "-$group" 2>/dev/null || true; done
  if [ -s "$CDC_RELAY_TEST_MISSING" ]; then
    echo 'NOT TESTED, because this machine lacks something:'
    sort -u "$CDC_RELAY_TEST_MISSING"
  fi
  [ ! -e "$scratch/failed" ] || echo "TESTS FAILED in: $(sort "$scratch/failed" | paste -sd' ')"
  rm -rf "$scratch" ${memory:+"$memory"}
}
trap finish EXIT

# tests runs go test in a module, with further flags.
tests() {
  local module=$1
  shift
  (cd "$module" && go test -race "${flags[@]}" "$@") || echo "$module" >>"$scratch/failed"
}

# seeds plays the simulator with what the machine has to spare; without the race detector, which would take most of it,
# and with which its longest tests are skipped.
seeds() {
  nice -n 19 go test -count=1 -timeout 90m ./test/simulator "$@" || echo test/simulator >>"$scratch/failed"
}

# beside runs a function beside what follows.
beside() {
  set -m
  "$@" &
  background+=($!)
  set +m
}

# below tests the modules below this one, which mostly wait.
below() {
  local module
  for module in "${modules[@]}"; do [ "$module" = "$alone" ] || tests "$module" -p=1 ./...; done
}

# each runs all packages, and the seeds of the simulator beside what mostly waits.
each() {
  test/needs.sh list
  beside below
  tests . "${longest[@]}" ./...
  beside seeds "$@"
  wait "${background[0]}"
  [ -n "${CDC_RELAY_TEST_QUICK:-}" ] || window
  tests "$alone" ./...
  wait
}

# window measures memory, of which the race detector keeps some itself.
window() { go test -count=1 -run WindowOf32MiB ./sink/kafka || echo sink/kafka >>"$scratch/failed"; }

quick() {
  export CDC_RELAY_TEST_QUICK=1
  each -run 'EveryRun|TheRealOnes' -args -seeds "$QUICK_SEEDS"
}

all() { each -args -seeds "$((QUICK_SEEDS + SEEDS))"; }

# full lists the tests that begin with harness.Full: folder and name.
full() {
  # shellcheck disable=SC2016 # awk's
  git ls-files --cached --others --exclude-standard '*_test.go' | xargs awk '
    /^func Test/ { name = $2; sub(/\(.*/, "", name) }
    /^\tharness\.Full\(t\)$/ { folder = FILENAME; sub("/[^/]*$", "", folder); print folder, name }'
}

# rest_of runs the full tests of a module; the root module is ".", and has what no other has.
rest_of() {
  local module=$1 others='^$' folders names
  [ "$module" != . ] || others="^($(IFS='|' && echo "${modules[*]}"))(/| )"
  awk -v module="$module" -v others="$others" '(module == "." || index($1 "/", module "/") == 1) && $0 !~ others' \
    "$scratch/full" >"$scratch/of"
  [ -s "$scratch/of" ] || return 0
  folders=$(cut -d' ' -f1 "$scratch/of" | sort -u | sed "s,^${module//./\\.}\(/\|$\),./,; t; s,^,./,")
  names=$(cut -d' ' -f2 "$scratch/of" | paste -sd'|')
  # shellcheck disable=SC2086 # one word for each folder
  tests "$module" -run "^($names)\$" $folders
}

rest() {
  full >"$scratch/full"
  beside seeds -run 'EveryRunKeeps|Mutants' -args -seeds "$SEEDS" -from "$((QUICK_SEEDS + 1))"
  rest_of .
  window
  for module in "${modules[@]}"; do rest_of "$module"; done
  wait
}

case ${1:-} in
quick | rest | all)
  in_memory
  "$1"
  ;;
full) full ;;
*)
  echo 'usage: test/run.sh quick|rest|all|full' >&2
  exit 2
  ;;
esac
[ ! -e "$scratch/failed" ]
