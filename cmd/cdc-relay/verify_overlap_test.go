package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/doctor/verify/audit"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Two people verify a topic that lost its events, and both repair it: the one is done before the other says yes. Breaks
// it catches: the events published by both; a second repair that does not say why it published none. Seen to fail with
// requests that do not say when their audit began.
func TestRepairsThatOverlapPublishOnce(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	cluster, topic, s, r := published20(t, "i")
	makeAnew(t, cluster, topic, 3)

	cfg, err := config.Load(config.Input{Environ: s.environ})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), relay.StoreConfig(cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	follow := func(ctx context.Context, id int64) (done *store.Request, err error) {
		harness.Eventually(t, time.Minute, "the request is done", func(context.Context) string {
			if done, err = st.Request(ctx, id); err == nil && done.FinishedAt == nil {
				return "it is under way"
			}
			return ""
		})
		return done, err
	}
	options := audit.Options{Temp: t.TempDir()}
	options.Repair = func(*audit.Verdict) (*audit.Repair, error) {
		o := cdcRelay(t, s.environ, "verify", "--json", "--wait=0s", "--repair", "--yes")
		if v := verdictOf(t, o); o.code != exitDone || v.Repaired == nil || *v.Repaired != 20 {
			t.Errorf("the first: got exit code %d and %+v, errors %s; want all 20 repaired", o.code, v, o.errors)
		}
		return &audit.Repair{Who: "second", Follow: follow}, nil
	}
	v, err := audit.Run(t.Context(), cfg, st, options)
	if err != nil || v.Lost != 20 || v.Repaired == nil || *v.Repaired != 0 ||
		!strings.Contains(fmt.Sprint(v.Notes), "20 events of request 2 were not published again") {
		t.Errorf("the second: got %+v and %v, want 20 lost, none repaired, and why", v, err)
	}
	settled(t, s.pg, "20")
	o := cdcRelay(t, s.environ, "verify", "--json", "--wait=0s")
	if v := verdictOf(t, o); o.code != exitDone || v.Missing+v.Duplicated != 0 {
		t.Errorf("after both: got exit code %d and %+v, want nothing missing or twice", o.code, v)
	}
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("got exit code %d, want 0; log:\n%s", code, r.log)
	}
}
