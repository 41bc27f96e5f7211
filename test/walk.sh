#!/usr/bin/env bash
# usage: test/walk.sh [words]
# Walks through what goes wrong at night, one incident after another, each with real servers where it needs them, and
# says for each whether status, console, alerts and log told it. Words choose incidents. It takes some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

# The incident; who must tell what; the package; the test, which waits for no longer than the text says.
incidents() {
  sed 's/^ *//' <<'ROWS'
    the only broker stops in an orderly way | status: the newest connection error | relay | TestStatusShowsTheNewestErrorOfABrokerThatStopped
    the broker stays away | log: a line each minute with the duration | relay | TestLogRepeatsAnOutageEachMinute
    the broker stays away | console (Chromium): not green | internal/web | TestConsoleIsNotGreenWithoutABroker
    the relay dies or freezes under an open console | console (Chromium): no answer, within 5 s | internal/web | TestConsoleShowsThatTheRelayDoesNotAnswer
    the relay is frozen | status: frozen, and no advice to start another | cmd/cdc-relay | TestStatusWithoutARelay
    Kafka is away, comes back | alerts (Prometheus): broker unreachable, nothing published; both end | test | TestAlertsFireAndClearOnARealPrometheus
    a halt, dead letters, lost records | alerts (Prometheus): each, until acknowledged | test | TestAlertsOfHaltsDeathsAndLostRecords
    every alert | rules: after how many minutes, and their ends (promtool) | test | TestAlertRulesFireAndStaySilent
    a flood of bad rows | one resume ends it | relay | TestOneResumeEndsAFloodOfAnyLength
    a flood of bad rows | console (Chromium): by reason | internal/web | TestConsoleGroupsDeadLettersByReason
    a right is missing at Kafka | check: the right, and a command that grants it | cmd/cdc-relay | TestPastedCommandsOfCheckFixWhatItFound
    a topic is missing | error: a command that fits the cluster | sink/kafka | TestCommandsFitTheCluster
    an exchange of RabbitMQ is missing | check and status: it, and what creates it | test/brokers | TestCheckAndStatusNameAMissingExchange
    trouble at other brokers | status and log: in the broker's words | sink | TestTroubleIsToldInTheBrokersWords
    NULL in the column of a topic | dead letter: names the column | internal/message | TestNullChoosesNoTopic
    events are missing in a topic | verify --repair: was missing, repaired, still missing | cmd/cdc-relay/internal/show | TestVerdictOfARepairTellsWhatIsStillMissing
ROWS
}

failed=0 chosen="${*:-}"
while IFS='|' read -r incident told package name; do
  package=$(xargs <<<"$package") name=$(xargs <<<"$name") told=$(sed 's/^ *//; s/ *$//' <<<"$told")
  if [ -n "$chosen" ] && ! grep -qi -- "$chosen" <<<"$incident $told"; then continue; fi
  began=$SECONDS verdict=ok
  said=$(go test -count=1 -timeout 30m -v -run "^$name\$" "./$package" 2>&1) || verdict=FAILED
  # A test that does not exist, or is left out for what the machine lacks, has shown nothing.
  grep -q "^--- PASS: $name" <<<"$said" || { [ "$verdict" = FAILED ] || verdict=NOT\ SHOWN; }
  printf '%-9s %4d s  %s: %s\n' "$verdict" "$((SECONDS - began))" "${incident% }" "$told"
  if [ "$verdict" != ok ]; then
    failed=1
    grep -E '^\s+\S+_test.go:|^--- (FAIL|SKIP)|no tests to run' <<<"$said" | head -20 || true
  fi
done < <(incidents)
exit "$failed"
