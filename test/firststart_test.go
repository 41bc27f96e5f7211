package test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Two relays start at once where none has been, with older rows to publish; the one that publishes them is killed in
// the middle, and the other goes on. Breaks it catches: two that make what is missing at once and stumble; a catch-up
// that begins again, that is taken for finished, or that newer events of the stream overtake. Seen to fail (rows
// missing) with the end of the catch-up committed at its beginning.
func TestTwoFirstStartsAndAKillInTheCatchUp(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	const unrecorded = 20 // few, so that the catch-up takes its time
	s := newScenario(t, harness.Postgres(t), harness.Kafka(t), "limits.max_unrecorded", unrecorded,
		"outbox.catch_up_max", 0)
	s.pg.Exec(t, olderOutbox)
	s.load(t, harness.Workload{Aggregates: 50, Events: harness.Count(t, "catch-up rows"), OnlyKept: true}).Wait(t)
	older := s.number(t, s.pg.Query(t, "SELECT count(*) FROM truth"))
	load := s.load(t, harness.Workload{Aggregates: 50, Seed: 2, Rate: 200, OnlyKept: true})
	first, second := s.relay, s.another(t)
	first.Start(t)
	second.Start(t)
	query := `SELECT count(*) FROM cdc_relay_journal`
	harness.Eventually(t, time.Minute, "one of them catches up", func(ctx context.Context) string {
		if got, err := s.pg.TryQuery(ctx, query); err != nil || got == "0" {
			return "nothing is journaled yet"
		}
		return ""
	})
	owner, other := first, second
	if strings.Contains(second.Log(t), "catching up") {
		owner, other = second, first
	}
	owner.Kill9()
	killed := s.pg.Query(t, query)
	other.WaitReady(t, time.Minute)
	owner.Start(t)
	owner.WaitReady(t, time.Minute)
	load.WaitCommitted(t, 200, settlePatience)
	load.Stop(t)
	s.settled(t)
	report := s.judge(t, unrecorded)
	t.Logf("%d older rows, %d newer; killed when %s were journaled; %d duplicates", older, report.Expected-older, killed,
		report.Duplicates())
}
