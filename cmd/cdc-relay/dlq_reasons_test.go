package main

import (
	"fmt"
	"syscall"
	"testing"
)

// Break it catches: a flood whose rows a person sees but cannot act on as a group. Seen to fail with --code left out
// of the filter.
func TestDeadLettersAreGroupedByReason(t *testing.T) {
	t.Parallel()
	s := newServices(t, orderTopic)
	run := func(args ...string) outcome { return cdcRelay(t, s.environ, args...) }
	run("init").want(t, exitDone, nil, nil)
	r := startRelay(t, s.environ)
	s.ready(t)
	run("dlq", "reasons").want(t, exitDone, []string{"no dead letters"}, nil)
	s.pg.Exec(t, fmt.Sprintf(planted, 5)+`; UPDATE outbox_events_dlq SET error_code = 'A_CODE', last_error = 'said'
		WHERE original_id IN ('`+plantedID(1)+`', '`+plantedID(2)+`')`)
	run("dlq", "reasons").want(t, exitDone, []string{"COUNT", "A_CODE", "said"}, nil)
	run("dlq", "reasons", "--code", "A_CODE", "--json").want(t, exitDone, []string{`"count": 2`, `"newest"`}, nil)
	run("dlq", "reasons", "--state", "x").want(t, exitUsage, nil, []string{"open, replayed, discarded"})
	run("parked", "list", "--code", "A_CODE").want(t, exitUsage, nil, []string{"only dead letters have one"})
	run("dlq", "discard", "--code", "A_CODE", "--yes").want(t, exitDone, []string{"2"}, nil)
	run("dlq", "list", "--code", "A_CODE", "--state", "discarded").want(t, exitDone,
		[]string{plantedID(1), plantedID(2), "!" + plantedID(3)}, nil)
	r.stop(t, syscall.SIGTERM)
}
