package main

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/store"
)

// Three dead letters are replayed: one can be published, one has headers that are none and dies again, one waits
// for a topic that is not there. Breaks it catches: success told of a replay whose events died again; a reason that
// is not told, or is that of the death before; a wait that has no end; a command of scripts that waits all the
// same. Seen to fail with the outcomes not looked at ("3 of 3 dead letters done", exit code 0), and with the reason
// of the death before taken for one that is parked.
func TestReplayTellsWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	s := newServices(t, orderTopic)
	run := func(args ...string) outcome { return cdcRelay(t, s.environ, args...) }
	run("init").want(t, exitDone, nil, nil)
	startRelay(t, s.environ)
	s.ready(t)
	s.pg.Exec(t, fmt.Sprintf(planted, 3))
	s.pg.Exec(t, `UPDATE outbox_events_dlq SET headers = '[]' WHERE original_id = '`+plantedID(2)+`'`)
	s.pg.Exec(t, `UPDATE outbox_events_dlq SET topic = 'outbox.event.absent' WHERE original_id = '`+plantedID(3)+`'`)
	run("dlq", "replay", "--all", "--wait", "3s").want(t, exitFailed, []string{
		"replay: 1 of 3 dead letters published, 1 parked, 1 died again",
		"died again  1  outbox.event.order", "parked      1  outbox.event.absent  not tried yet", "!PLANTED", "!said",
		"cdc-relay dlq list", "cdc-relay parked list",
	}, nil)
	o := run("dlq", "replay", plantedID(2), "--json")
	o.want(t, exitFailed, nil, nil)
	var r store.Request
	if err := json.Unmarshal([]byte(o.out), &r); err != nil {
		t.Fatalf("%v in %s", err, o.out)
	}
	if len(r.Outcomes) != 1 || r.Outcomes[0].State != store.OutcomeDied || r.Outcomes[0].Events != 1 ||
		r.Outcomes[0].Reason == "" {
		t.Errorf("outcomes: got %+v, want one that died again, with its reason", r.Outcomes)
	}
	run("dlq", "replay", plantedID(2), "--no-wait").want(t, exitDone, []string{"queued as request"}, nil)
	run("dlq", "replay", plantedID(2), "--wait", "0s").want(t, exitUsage, nil, []string{"--wait: found 0s"})
}
