package main

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/internal/web/consumers"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// held gives a consumer, billing, an inbox with n parked events of three keys, and as many dead letters of ten. Their
// texts would do something to a terminal.
const held = `SELECT inbox.inbox_park('billing', '00000000-0000-7000-8000-' || lpad(i::text, 12, '0'),
		'outbox.event.order', 0, i, convert_to(CASE WHEN i <= %[1]d THEN 'p' || i %% 3 ELSE 'd' || i %% 10 END, 'UTF8'),
		convert_to('{"n": ' || i || '}', 'UTF8'), '{"tenant": "a"}', 'made', E'said \x1b[31mred',
		next_at => now() + interval '1 hour'),
	CASE WHEN i > %[1]d THEN inbox.inbox_failed('billing', '00000000-0000-7000-8000-' || lpad(i::text, 12, '0'),
		E'said \x1b[31mno') END
	FROM generate_series(1, 2 * %[1]d) i`

// Breaks it catches: a command that does more or less than was chosen, or does not say what; a discard that no one
// confirmed; an id that is passed over in silence; the console's address of the database not taken; escape sequences of
// an event on a terminal. Seen to fail with the state not looked at, with ids that do not apply left out of the exit
// code, and with the confirmation left out.
func TestHeldEventsByCommand(t *testing.T) {
	t.Parallel()
	relays, billing := harness.Postgres(t), harness.Postgres(t)
	environ := []string{"CDC_RELAY_POSTGRES_URL=" + relays.URL, "CDC_RELAY_INBOX_URL=" + billing.URL,
		"CDC_RELAY_INBOX_SCHEMA=inbox"}
	run := func(args ...string) outcome { return cdcRelay(t, environ, append([]string{"inbox"}, args...)...) }
	run("list").want(t, exitFailed, nil, []string{"no inbox", "cdc-relay init --inbox"})
	cdcRelay(t, environ, "init", "--inbox", "inbox", "--postgres-url", billing.URL).want(t, exitDone, nil, nil)
	run("list").want(t, exitDone, []string{"the inbox has no consumer yet"}, nil)
	billing.Exec(t, fmt.Sprintf(held, 60))

	run("list").want(t, exitDone, []string{"CONSUMER", "billing", "60", "!\x1b"}, nil)
	run("list", plantedID(1)).want(t, exitUsage, nil, []string{"--consumer"})
	run("list", "--consumer", "shipping").want(t, exitFailed, nil, []string{"no such consumer", "billing"})
	run("list", "--consumer", "billing", "--limit", "2").want(t, exitDone, []string{"exhausted", "made", "more: --after ",
		"!\x1b"}, nil)
	run("list", "--consumer", "billing", "--state", "parked").want(t, exitDone, []string{"p0", "p1", "p2", "20", "in 59m"},
		nil)
	run("list", "--consumer", "billing", "--state", "replayed").want(t, exitDone, []string{"no event is replayed"}, nil)
	o := run("list", "--consumer", "billing", "--json", "--all", "--limit", "1000", "--key", "d7")
	var page store.Page[consumers.Event]
	if err := json.Unmarshal([]byte(o.out), &page); err != nil || len(page.Items) != 6 {
		t.Errorf("events of a key: got %d, %v, want 6; %s", len(page.Items), err, o.errors)
	}
	run("show", plantedID(61)).want(t, exitUsage, nil, []string{"--consumer"})
	run("show", plantedID(61), "--consumer", "billing").want(t, exitDone, []string{"state        dead",
		`payload      {"n": 61}`, "exhausted", `"tenant"`, "!\x1b"}, nil)
	run("show", plantedID(4), "--consumer", "billing", "--json").want(t, exitDone,
		[]string{`"state": "parked"`, `"payload_encoding": "json"`}, nil)
	run("show", plantedID(777), "--consumer", "billing").want(t, exitFailed, nil, []string{"no parked event"})

	run("replay", "--consumer", "billing").want(t, exitUsage, nil, []string{"nothing is chosen", "--all"})
	run("discard", "--consumer", "billing", "--all").want(t, exitUsage, nil, []string{"--yes"})
	if got := states(t, billing); got != "0 0 0 60" {
		t.Errorf("done, replayed, discarded, parked so far: got %s, want nothing changed", got)
	}
	run("replay", "--consumer", "billing", plantedID(61), plantedID(62), "--who", "ann", "--note", "fixed").want(t,
		exitDone, []string{"replay: 2 of 2 events replayed"}, nil)
	run("replay", "--consumer", "billing", plantedID(63), plantedID(61), plantedID(777)).want(t, exitFailed,
		[]string{"replay: 1 of 1 events replayed"}, []string{plantedID(61) + " is parked", plantedID(777) + " is neither"})
	run("replay", "--consumer", "billing", plantedID(64), "--type", "other").want(t, exitFailed, nil,
		[]string{plantedID(64) + " does not match the other flags"})
	run("discard", "--consumer", "billing", "--key", "d7", "--yes", "--who", "ann").want(t, exitDone,
		[]string{"discard: 6 of 6 events discarded"}, nil)
	run("list", "--consumer", "billing", "--state", "discarded").want(t, exitDone, []string{plantedID(67),
		"discarded by ann"}, nil)
	run("replay", "--consumer", "billing", "--state", "parked", "--key", "p1").want(t, exitDone,
		[]string{"replay: 1 of 1 events replayed"}, nil)
	run("discard", "--consumer", "billing", "--state", "parked", plantedID(1), "--yes", "--json").want(t, exitDone,
		[]string{`"done": 1`}, nil)
	if got := states(t, billing); got != "0 3 7 62" {
		t.Errorf("done, replayed, discarded, parked: got %s, want 0 3 7 62", got)
	}
}

// states counts the events per state.
func states(t *testing.T, pg *harness.PG) string {
	t.Helper()
	return pg.Query(t, `SELECT (SELECT count(*) FROM inbox.inbox_event WHERE state = 0) || ' ' ||
		count(*) FILTER (WHERE replayed_at IS NOT NULL) || ' ' || count(*) FILTER (WHERE discarded_at IS NOT NULL) || ' ' ||
		(SELECT count(*) FROM inbox.inbox_parked) FROM inbox.inbox_dead`)
}
