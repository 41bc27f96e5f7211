package main

import (
	"syscall"
	"testing"
)

// A table is emptied and filled with the same ids again while no relay runs. Break it catches: a row that was never
// sent called published, because the topic and the journal have its id of another event; once it is sent, two events of
// one id called a duplicate and a difference.
func TestVerifyTellsEventsOfOneIDApart(t *testing.T) {
	t.Parallel()
	s := newServices(t, orderTopic)
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	const fill = `INSERT INTO outbox_events (id, aggregate_type, aggregate_id, event_type, payload)
 SELECT ('00000000-0000-7000-8000-' || lpad(i::text, 12, '0'))::uuid, 'order', (i % 5)::text, 'x', `
	r := startRelay(t, s.environ)
	s.pg.Exec(t, fill+`'{"generation": 1}' FROM generate_series(1, 20) i`)
	settled(t, s.pg, "20")
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Fatalf("got exit code %d, want 0; log:\n%s", code, r.log)
	}
	s.pg.Exec(t, `TRUNCATE outbox_events`)
	s.pg.Exec(t, fill+`'{"generation": 2}' FROM generate_series(1, 20) i`)
	o := cdcRelay(t, s.environ, "verify", "--json", "--wait=0s")
	if v := verdictOf(t, o); o.code != exitFailed || v.Missing != 20 || v.Pending != 20 || v.Others != 20 ||
		v.Different+v.Duplicated+v.Lost != 0 {
		t.Errorf("before they are sent: got exit code %d and %+v, want 20 pending, and 20 records of no row", o.code, v)
	}
	r = startRelay(t, s.environ)
	o = cdcRelay(t, s.environ, "verify", "--json", "--wait=2m")
	if v := verdictOf(t, o); o.code != exitDone || v.Expected != 20 || v.Records != 40 || v.Others != 20 ||
		v.Missing+v.Different+v.Duplicated+v.OutOfOrder+v.Misplaced != 0 {
		t.Errorf("after they were sent: got exit code %d and %+v, want 20 expected, and 20 records of no row", o.code, v)
	}
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Fatalf("got exit code %d, want 0; log:\n%s", code, r.log)
	}
}
