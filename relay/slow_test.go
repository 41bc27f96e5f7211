package relay_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/sink"
	"github.com/cdc-relay/cdc-relay/test/sinktest"
)

// One partition takes seconds for each request and fails none, or its broker does not answer; many more of its events
// than the window holds are committed before those of others. Breaks it catches: a partition that is only slow, or a
// dead broker's, that takes the whole window; events parked because of it that come back in another order, or spend
// attempts. Seen to fail with a partition whose share of the window is full left to its patience.
func TestPartitionInTroubleDoesNotTakeTheWindow(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]sinktest.Plan{
		"Slow": {Delay: 5 * time.Second},
		"DeadBroker": {Outcome: sink.Outcome{Verdict: sink.NotWritten, Trouble: sink.ClusterTrouble,
			Err: fmt.Errorf("connection refused")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.c.Limits.InFlightEvents = 300
			j := newJudgeful(func([]byte, int) *sink.Reason { return nil })
			j.SetLeader("outbox.event.order", 2, 1) // the others are led by another broker
			var ill atomic.Bool
			ill.Store(true)
			j.Answer = func(a sinktest.Attempt) sinktest.Plan {
				if ill.Load() && a.Batch.Partition == 2 {
					return plan
				}
				return sinktest.Plan{}
			}
			var sick, well []string
			for i := 0; len(sick) < 4 || len(well) < 4; i++ {
				key := fmt.Sprintf("k%d", i)
				if j.Partition(&sink.Record{Key: []byte(key)}, 4) == 2 {
					sick = append(sick, key)
				} else {
					well = append(well, key)
				}
			}
			r, stop := b.startWith(j)
			b.waitRole(r, relay.RoleActive)
			b.commitTo(append(well[:4:4], sick[0]), 1, 200)
			b.pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
				SELECT 'order', (ARRAY['%s', '%s', '%s', '%s'])[1 + i %% 4], 'made', jsonb_build_object('n', i)
					FROM generate_series(201, 2200) i`,
				sick[0], sick[1], sick[2], sick[3])) // by 300 in 5 s it would take 33 s
			b.commitTo(well, 2201, 2300)
			b.waitQuery("events of the others", "SELECT count(*) FROM cdc_relay_journal WHERE partition <> 2", "260")
			b.wantNoGuilt()
			ill.Store(false)
			b.commitTo(sick, 2301, 2320)
			b.waitRecorded(2320)
			b.waitNoneHeld(r)
			b.wantNoGuilt()
			mustStop(t, stop)
			j.wantInOrder(t, 2320)
		})
	}
}

// A driver waits for a proof of the lease of after what it has learned. Breaks it catches: one that comes with the next
// look at the slot only, which may be seconds later. Seen to fail with no one listening to what is wanted.
func TestProofThatIsWantedComesAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	j := newJudgeful(func([]byte, int) *sink.Reason { return nil })
	var learned time.Time
	var waited []time.Duration // the engine sends one batch at a time: the broker has one partition
	j.SetTopic("outbox.event.order", 1)
	j.Answer = func(a sinktest.Attempt) sinktest.Plan {
		if a.Number == 1 {
			learned = time.Now()
			return sinktest.Plan{Outcome: sink.Outcome{Verdict: sink.NotWritten, Prove: learned}}
		}
		waited = append(waited, time.Since(learned))
		return sinktest.Plan{}
	}
	r, stop := b.startWith(j)
	b.waitRole(r, relay.RoleActive)
	for n := range 5 {
		b.commitTo([]string{"k"}, n+1, n+1)
		b.waitRecorded(n + 1)
	}
	mustStop(t, stop)
	if least := slices.Min(waited); len(waited) != 5 || least > 200*time.Millisecond {
		t.Errorf("waited %v for proofs, want a few milliseconds", waited)
	}
}
