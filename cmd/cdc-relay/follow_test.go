package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/replication"
)

// A relay has begun what it was asked for and does not come on, as when it is killed in the middle. Break it catches: a
// command that waits for it longer than it was told to. Seen to fail with patience only for what is finished.
func TestCommandLeavesARequestThatDoesNotComeOn(t *testing.T) {
	t.Parallel()
	s := newServices(t, orderTopic)
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	s.pg.Exec(t, fmt.Sprintf(planted, 3))
	s.pg.Exec(t, `CREATE FUNCTION begun() RETURNS trigger LANGUAGE plpgsql AS
 'BEGIN NEW.started_at := now(); NEW.total := 3; RETURN NEW; END';
		CREATE TRIGGER begun BEFORE INSERT ON cdc_relay_request FOR EACH ROW EXECUTE FUNCTION begun()`)
	slot := s.variable("CDC_RELAY_POSTGRES_SLOT")
	stream, err := replication.Open(t.Context(), replication.Config{
		URL: s.pg.URL, Slot: slot, Publication: "cdc_relay", ApplicationName: "test", StatusInterval: time.Second,
		WALSenderTimeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	cdcRelay(t, s.environ, "dlq", "replay", "--all", "--timeout", "2s").want(t, exitDone,
		[]string{"request 1 continues: 0 of 3 dead letters so far"}, nil)
}
