#!/usr/bin/env bash
# usage: test/walk.sh [words]
# Walks through what goes wrong at night, one incident after another, each with real servers where it needs them, and
# says for each whether status, console, alerts and log told it, and for those that are played from end to end after how
# many seconds. Words choose incidents. It takes half an hour.
set -euo pipefail
cd "$(dirname "$0")/.."
export CDC_RELAY_NIGHTLY=1 # some are left to the night

# The incident; who must tell what; the package; the test, which waits for no longer than the text says.
incidents() {
  sed 's/^ *//' <<'ROWS'
    five incidents, everything real, rules as shipped | status, console, log, alerts: each in its time | internal/web | TestWalkThroughIncidents
    the only broker stops in an orderly way | status: the newest connection error | relay | TestStatusShowsTheNewestErrorOfABrokerThatStopped
    the broker stays away | log: a line each minute with the duration | relay | TestLogRepeatsAnOutageEachMinute
    the broker stays away | console (Chromium): not green | internal/web | TestConsoleIsNotGreenWithoutABroker
    Kafka is away, comes back | alerts (Prometheus): broker unreachable, nothing published; both end | test | TestAlertsFireAndClearOnARealPrometheus
    every alert | rules: broker away after 2 min, nothing published after 5; ends with alarms ack (promtool) | test | TestAlertRulesFireAndStaySilent
    a halt, dead letters, lost records | alerts (Prometheus): each, until acknowledged | test | TestAlertsOfHaltsDeathsAndLostRecords
    the relay dies or freezes under an open console | console (Chromium): no answer, after 5 s | internal/web | TestConsoleShowsThatTheRelayDoesNotAnswer
    the relay is frozen | status: frozen, and no advice to start another | cmd/cdc-relay | TestStatusWithoutARelay
    a flood of bad rows | one resume --until-now ends it | relay | TestOneResumeEndsAFloodOfAnyLength
    a flood of bad rows | dlq.breaker.count_invalid: false halts nothing | relay | TestInvalidRowsAloneAreNoFloodWhereTheyDoNotCount
    a flood of bad rows | console (Chromium): by reason, the group at once | internal/web | TestConsoleGroupsDeadLettersByReason
    a flood of bad rows | dlq reasons: by reason | cmd/cdc-relay | TestDeadLettersAreGroupedByReason
    a mistake in many dead letters | dlq edit: all of a filter at once | cmd/cdc-relay | TestManyDeadLettersAreEditedAtOnce
    a right is missing at Kafka, each in turn | check: the right, and a command that grants it | cmd/cdc-relay | TestPastedCommandsOfCheckFixWhatItFound
    rights are taken away at a real Kafka with ACLs | status: the topic and a command | test | TestRightsThatAreTakenAwayParkTheirTopicOnly
    the same, each right in turn, and a topic is missing | check: commands, run as printed by Kafka's own tools | test | TestPrintedCommandsAreThoseOfKafkasTools
    a topic is missing, was deleted, collides | error: a command that fits the cluster | sink/kafka | TestCommandsFitTheCluster
    names with blanks and quotes | commands that a shell takes | sink/kafka | TestCommandsCanBePasted
    a table, publication or role is wrong | check: SQL that fixes it, run as printed | cmd/cdc-relay | TestPastedStatementsOfCheckFixWhatItFound
    the relay halts | SQL that ends the halt, run as printed | relay | TestPastedStatementsOfHaltsEndThem
    NATS lacks a stream, Redis a right | check: a command, run as printed | test/brokers | TestPastedCommandsOfOtherBrokersFixWhatCheckFound
    RabbitMQ lacks a stream or a right | check, status: a command, run as printed | test/logins | TestSecuredRabbitMQ
    every command in a text of the program | is pasted by a test, or names the word to replace | cmd/cdc-relay | TestEveryPrintedCommandIsPasted
    an exchange of RabbitMQ is missing | check: FAIL with init --rabbitmq-topology; status: exchange, no partition | test/brokers | TestCheckAndStatusNameAMissingExchange
    trouble at other brokers | status and log: the broker's words; nothing of parked events with none | sink | TestTroubleIsToldInTheBrokersWords
    message.topic is a column | check: only the topics that rows name | cmd/cdc-relay | TestCheckJudgesTheTopicsThatRowsName
    NULL in the column of a topic | dead letter: names the column | internal/message | TestNullChoosesNoTopic
    the slot was recreated | status: "oldest" is the age of the oldest row | relay | TestOldestPendingIsThatOfTheTableAfterALostSlot
    events are missing in a topic | verify --repair: was missing, repaired, still missing | cmd/cdc-relay/internal/show | TestVerdictOfARepairTellsWhatIsStillMissing
    an event failed five times | view: retry_count 5 | internal/store | TestStatusViewCountsFailedAttempts
    an index spoils HOT, also for mark_set | check: warning with DROP INDEX | cmd/cdc-relay | TestCheckFindsAndRepairs
    a table that another worker publishes from | config init: which rows the first start would publish | cmd/cdc-relay | TestConfigInitWritesAFileThatRelays
    --postgres-allow-second-slot --config x | error: the flag has no value | cmd/internal/cli | TestCommandLineIsReadOrRefused
    degraded, not ready, alarm, halted | one page with a picture; each word leads to it | test | TestFourWordsOfTroubleAreExplained
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
  grep -o 'told: .*' <<<"$said" | sed 's/^told:/              /' || true
  if [ "$verdict" != ok ]; then
    failed=1
    grep -E '^\s+\S+_test.go:|^--- (FAIL|SKIP)|no tests to run' <<<"$said" | head -20 || true
  fi
done < <(incidents)
exit "$failed"
