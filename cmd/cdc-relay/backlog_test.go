package main

import (
	"context"
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The backlog in a pause is not under-counted: alerts depend on it. Written, but not run, to fail with the WAL of the
// whole session divided by its events: the relay's own is most of it. It runs alone, as the WAL that other tests write
// counts as events, too.
func TestBacklogInAPauseIsNoLessThanTheTruth(t *testing.T) {
	s := newServices(t, orderTopic)
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	r := startRelay(t, s.environ)
	r.awaitStatus(t, `"role": "active"`)
	for i := range 200 { // a transaction each, so that the relay writes much about them
		s.pg.Exec(t, fmt.Sprintf(`INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload)
 VALUES ('order', '%d', 'made', '{}')`, i))
	}
	settled(t, s.pg, "200")
	cdcRelay(t, s.environ, "pause").want(t, exitDone, nil, nil)
	s.pg.Exec(t, events(3000))
	var last int64
	harness.Eventually(t, 20*time.Second, "the backlog counts what waits", func(context.Context) string {
		var st struct {
			Backlog *int64 `json:"backlog"`
		}
		got := cdcRelay(t, nil, "status", "--json", "--http-listen", r.address)
		if err := json.Unmarshal([]byte(got.out), &st); err != nil || st.Backlog == nil {
			return fmt.Sprintf("got %s, %v", got.out, err)
		}
		if last = *st.Backlog; last < 2700 {
			return fmt.Sprintf("got %d, want at least 2700 of 3000", last)
		}
		return ""
	})
	t.Logf("3000 events wait, backlog %d", last)
	if last > 6000 {
		t.Errorf("backlog: got %d, want about 3000", last)
	}
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("got exit code %d after SIGTERM; log:\n%s", code, r.log)
	}
}
