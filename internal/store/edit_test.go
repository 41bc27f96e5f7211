package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/outbox"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Breaks it catches: an edit that is not what is sent; one that no one can trace, or take back; a change without its
// replay, or a replay without its change. Seen to fail with the replay asked for in a transaction of its own that
// fails, with the former payload not kept, and with the headers left as they were.
func TestAnEditedDeadLetterIsReplayedAsItWasEdited(t *testing.T) {
	for _, payloadType := range []string{"jsonb", "bytea", "text"} {
		t.Run(payloadType, func(t *testing.T) {
			pg := harness.Postgres(t)
			pg.Exec(t, `CREATE TABLE outbox_events (id uuid PRIMARY KEY, aggregate_type text, aggregate_id text,
 event_type text, payload `+payloadType+`, headers jsonb, created_at timestamptz, published_at timestamptz)`)
			s := owner(t, pg, usual(t, pg))
			bury(t, s, deadAt(7, "k"))
			id, err := s.EditDead(t.Context(), store.Edit{ID: uuid(7), Payload: []byte(`{"n": 70}`),
				Headers: []byte(`{"h": "w"}`), Who: "ann", Note: "n was 7", Replay: true})
			must(t, "edit", err)
			r, err := s.NextRequest(t.Context())
			must(t, "look for requests", err)
			if r == nil || r.ID != id || r.Kind != store.RequestReplay || r.Who != "ann" || r.Note != "n was 7" {
				t.Fatalf("request: got %+v, want number %d of ann", r, id)
			}
			replayAll(t, s, r, 10)
			rows, err := laneRows(t, s, 10)
			must(t, "read the lane", err)
			if len(rows) != 1 || string(rows[0].Event.Payload) != `{"n": 70}` ||
				string(rows[0].Event.Headers) != `{"h": "w"}` {
				t.Errorf("parked: got %+v, want the edited payload and headers", rows)
			}
			d, err := s.DeadLetter(t.Context(), uuid(7))
			must(t, "show", err)
			if len(d.Edits) != 1 || string(d.Edits[0].Payload) != `{"n": 7}` || string(d.Edits[0].Headers) != `{"h": "v"}` ||
				d.Edits[0].Who != "ann" || d.Edits[0].Note != "n was 7" || time.Since(d.Edits[0].At) > time.Hour ||
				d.EditedAt == nil || d.EditedBy == nil || *d.EditedBy != "ann" {
				t.Errorf("dead letter: got %+v, want one edit with what was there before", d)
			}
			shown, err := json.Marshal(d)
			must(t, "show as JSON", err)
			if !strings.Contains(string(shown), `"former_payload":{"n":7}`) ||
				!strings.Contains(string(shown), `"edited_by":"ann"`) {
				t.Errorf("JSON: got %s, want the former payload", shown)
			}
			must(t, "settle", s.SettleRetried(t.Context(), published(8, uuid)[7:]))
			if found, err := s.Locate(t.Context(), []string{uuid(7)}, nil); err != nil ||
				!strings.Contains(found[0].Says, "was edited by ann") {
				t.Errorf("find: got %+v, %v; want that it was edited", found, err)
			}
		})
	}
}

// Breaks it catches: an edit of what is on its way, over or gone; one that overwrites another that its author has not
// seen; one that the table refuses, and half of it is done. Seen to fail with each of the looks left out, and with
// headers that are no object of strings taken.
func TestAnEditThatCannotBeIsRefusedWhole(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	bury(t, s, deadAt(1, "k"), deadAt(2, "k"), deadAt(3, "k"), deadAt(4, "k"))
	replayAll(t, s, ask(t, s, store.RequestReplay, store.Filter{IDs: []string{uuid(2), uuid(4)}}, "ann", ""), 10)
	must(t, "settle", s.SettleRetried(t.Context(), published(5, uuid)[4:]))
	r := ask(t, s, store.RequestDiscard, store.Filter{IDs: []string{uuid(3)}}, "ann", "")
	must(t, "start", s.StartRequest(t.Context(), r))
	_, err := s.DiscardDead(t.Context(), r, store.DeadCursor{}, 10)
	must(t, "discard", err)
	must(t, "finish", s.FinishRequest(t.Context(), r.ID, ""))
	good := store.Edit{ID: uuid(1), Payload: []byte(`{}`), Who: "bob", Replay: true}
	for name, row := range map[string]struct {
		change func(*store.Edit)
		want   error
	}{
		"being replayed": {func(e *store.Edit) { e.ID = uuid(2) }, store.ErrCannot},
		"discarded":      {func(e *store.Edit) { e.ID = uuid(3) }, store.ErrCannot},
		"published":      {func(e *store.Edit) { e.ID = uuid(4) }, store.ErrCannot},
		"unknown":        {func(e *store.Edit) { e.ID = uuid(5) }, store.ErrNoDeadLetter},
		"no id":          {func(e *store.Edit) { e.ID = "x" }, store.ErrNoDeadLetter},
		"seen another":   {func(e *store.Edit) { e.Seen = 1 }, store.ErrCannot},
		"no JSON":        {func(e *store.Edit) { e.Payload = []byte(`{`) }, store.ErrEdit},
		"no UTF-8":       {func(e *store.Edit) { e.Payload = []byte("\"\xff\"") }, store.ErrEdit},
		"a number":       {func(e *store.Edit) { e.Headers = []byte(`{"h": 1}`) }, store.ErrEdit},
		"a list":         {func(e *store.Edit) { e.Headers = []byte(`[]`) }, store.ErrEdit},
		"null":           {func(e *store.Edit) { e.Headers = []byte(`null`) }, store.ErrEdit},
		"two":            {func(e *store.Edit) { e.Headers = []byte(`{} {}`) }, store.ErrEdit},
	} {
		e := good
		row.change(&e)
		if _, err := s.EditDead(t.Context(), e); !errors.Is(err, row.want) {
			t.Errorf("%s: got %v, want %v", name, err, row.want)
		}
	}
	if got := pg.Query(t, `SELECT (SELECT count(*) FROM cdc_relay_edit) || ' ' || (SELECT count(*) FROM cdc_relay_request)
 || ' ' || (SELECT count(*) FROM outbox_events_dlq WHERE edited_at IS NOT NULL OR payload = '{}')`); got != "0 2 0" {
		t.Errorf("edits, requests and changed dead letters: got %s, want 0 2 0", got)
	}
	_, err = s.EditDead(t.Context(), good)
	must(t, "edit", err)
}

// Break caught: an edit of a dead letter that is resolved, replayed or edited while the edit looks at it. Seen to fail
// without FOR UPDATE, and with the lock taken by the statement that looks, which does not see what it has waited for.
func TestAnEditWaitsForWhoResolvesTheDeadLetter(t *testing.T) {
	for what, statement := range map[string]string{
		"discarded": `UPDATE outbox_events_dlq SET discarded_at = now()`,
		"replayed": `SELECT FROM outbox_events_dlq FOR UPDATE; INSERT INTO cdc_relay_parked (source, event_id, topic, epoch,
 from_stream, position_order, position_index, error_class) SELECT source, original_id, topic, 1, true, 1, 1, 'transient'
 FROM outbox_events_dlq`,
		"edited": `SELECT FROM outbox_events_dlq FOR UPDATE; INSERT INTO cdc_relay_edit (source, event_id, who)
 SELECT source, original_id, 'ann' FROM outbox_events_dlq`,
	} {
		t.Run(what, func(t *testing.T) { editWaits(t, what, statement) })
	}
}

func editWaits(t *testing.T, what, statement string) {
	t.Helper()
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	bury(t, s, deadAt(1, "k"))
	other := pg.Connect(t)
	exec(t, other, `BEGIN; `+statement)
	edited := make(chan error, 1)
	go func() {
		_, err := s.EditDead(t.Context(), store.Edit{ID: uuid(1), Payload: []byte(`{}`), Who: "bob"})
		edited <- err
	}()
	harness.Eventually(t, waitLong, "the edit waits", func(context.Context) string {
		return pg.Query(t, `SELECT CASE WHEN count(*) = 0 THEN 'not yet' END FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	})
	exec(t, other, `COMMIT`)
	if err := <-edited; !errors.Is(err, store.ErrCannot) {
		t.Errorf("edit of what was %s meanwhile: got %v, want ErrCannot", what, err)
	}
}

// Break caught: an edit that waits for the holder of another dead letter, or of another slot's with that id. Seen to
// fail with more locked than the one.
func TestAnEditWaitsForNoOtherDeadLetter(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	bury(t, s, deadAt(1, "k"), deadAt(2, "k"))
	pg.Exec(t, neighbourDead)
	exec(t, pg.Connect(t), `BEGIN; SELECT FROM outbox_events_dlq WHERE source = 91 OR original_id = '`+uuid(2)+`'
FOR UPDATE`)
	_, err := s.EditDead(t.Context(), store.Edit{ID: uuid(1), Payload: []byte(`{}`), Who: "bob"})
	must(t, "edit", err)
}

// A dead letter has headers where its outbox has none. Break it catches: the edited ones lost when a topic has lost the
// event and it is published again. Seen to fail with the headers taken from the row, which has none.
func TestEditedHeadersOutliveAnOutboxWithoutHeaders(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	c.Columns.Headers = ""
	s := owner(t, pg, c)
	insertEvents(t, pg, 1, 2)
	bury(t, s, deadAt(1, "k"))
	_, err := s.EditDead(t.Context(), store.Edit{ID: uuid(1), Payload: []byte(`{}`), Headers: []byte(`{"tenant": "a"}`)})
	must(t, "edit", err)
	replayAll(t, s, ask(t, s, store.RequestReplay, store.Filter{IDs: []string{uuid(1)}}, "ann", ""), 10)
	must(t, "settle", s.SettleRetried(t.Context(), published(3, uuid)[1:]))
	r := ask(t, s, store.RequestRepublish, store.Filter{IDs: []string{uuid(1), uuid(2)}}, "ann", "")
	rows, err := s.RepublishRows(t.Context(), r, 10)
	must(t, "rows to republish", err)
	if len(rows) != 2 || string(rows[0].Event.Headers) != `{"tenant": "a"}` || rows[1].Event.Headers != nil {
		t.Errorf("to republish: got %+v, want the edited headers of the first", rows)
	}
}

// Breaks it catches: an edit that verify takes for other bytes, or that is undone when a topic has lost the event;
// former payloads that stay when their dead letter goes. Seen to fail with the row's own payload in both places, and
// with edits left when dead letters are pruned.
func TestWhatWasEditedStaysTheTruthAboutTheEvent(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	insertEvents(t, pg, 1, 2)
	bury(t, s, deadAt(1, "k"))
	_, err := s.EditDead(t.Context(), store.Edit{ID: uuid(1), Payload: []byte(`{"new": 1}`), Who: "ann"})
	must(t, "edit", err)
	replayAll(t, s, ask(t, s, store.RequestReplay, store.Filter{IDs: []string{uuid(1)}}, "ann", ""), 10)
	must(t, "settle", s.SettleRetried(t.Context(), published(3, uuid)[1:]))
	audited := map[string]string{}
	must(t, "audit", s.AuditRows(t.Context(), store.AuditRange{}, nil, func(r *store.AuditRow) error {
		audited[r.ID] = string(r.Payload)
		return nil
	}))
	if audited[uuid(1)] != `{"new": 1}` || audited[uuid(2)] != `{}` {
		t.Errorf("audited: got %v, want the edited payload of the first", audited)
	}
	r := ask(t, s, store.RequestRepublish, store.Filter{IDs: []string{uuid(1), uuid(2)}}, "ann", "")
	rows, err := s.RepublishRows(t.Context(), r, 10)
	must(t, "rows to republish", err)
	if len(rows) != 2 || string(rows[0].Event.Payload) != `{"new": 1}` || string(rows[1].Event.Payload) != `{}` {
		t.Errorf("to republish: got %+v, want the edited payload of the first", rows)
	}
	must(t, "save progress", s.SaveProgress(t.Context(), 1<<62))
	pg.Exec(t, `UPDATE outbox_events_dlq SET replayed_at = replayed_at - interval '1 minute'`)
	if n, _, err := s.PruneDead(t.Context(), time.Second, 10); err != nil || n != 1 {
		t.Fatalf("prune: got %d, %v; want the dead letter", n, err)
	}
	if n := pg.Query(t, `SELECT count(*) FROM cdc_relay_edit`); n != "0" {
		t.Errorf("edits of dead letters that are gone: got %s, want 0", n)
	}
}

// Break caught: a payload shown as JSON whose bytes are no UTF-8, so that it is shown, and edited, as another. Seen to
// fail with the syntax alone looked at.
func TestPayloadIsShownAsWhatItsBytesAre(t *testing.T) {
	for payload, want := range map[string]string{
		`{"n": 1}`: "json", `"é"`: "json", "\"\xff\"": "base64", "é": "text", "\xff": "base64", "": "text",
	} {
		if _, got := store.ShownPayload([]byte(payload)); got != want {
			t.Errorf("payload %q: got shown as %s, want %s", payload, got, want)
		}
	}
	if shown, got := store.ShownPayload(nil); shown != nil || got != "null" {
		t.Errorf("no payload: got %v as %s, want null", shown, got)
	}
}

// Break caught: an edit of many that leaves some out, or takes some twice; one that is stopped half way, and begun
// again, and asks for replays of what is on its way, or keeps a former payload that was not there before; one payload
// that cannot be changed, and stops the others; what died later, taken along.
func TestAnEditOfAllIsDoneInPortions(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	letters := make([]store.Dead, 7)
	for i := range letters {
		letters[i] = deadAt(i+1, "k")
	}
	letters[2].Event.Payload = []byte(`[1]`)
	letters[4].Event.Headers = []byte(`{"h": "w", "n": 3}`)
	bury(t, s, letters...)
	n, at, err := s.CountUntil(t.Context(), store.RequestDiscard, store.Filter{All: true})
	if err != nil || n != 7 {
		t.Fatalf("count: got %d, %v, want 7", n, err)
	}
	bury(t, s, deadAt(8, "k"))
	e := store.EditAll{Filter: store.Filter{All: true, Until: &at}, Who: "ann", Note: "typo", Replay: true,
		Patch: store.Patch{Payload: []byte(`{"m": {"x": 1}}`), Headers: []byte(`{"h": "w"}`)}}
	var asked []int64
	run := func(from store.DeadCursor, portions int) (at store.DeadCursor, edited int, refused []store.NotPatched) {
		for ; portions > 0; portions-- {
			step, err := s.EditAll(t.Context(), e, from, 3)
			must(t, "edit", err)
			if step.Seen == 0 {
				break
			}
			from, edited, refused = step.Next, edited+step.Edited, append(refused, step.Refused...)
			if step.Request > 0 {
				asked = append(asked, step.Request)
			}
		}
		return from, edited, refused
	}
	if _, edited, refused := run(store.DeadCursor{}, 1); edited != 2 || len(refused) != 1 || refused[0].ID != uuid(3) ||
		!strings.Contains(refused[0].Why, "not a JSON object") {
		t.Errorf("first portion: got %d edited, refused %v; want 2 and the list", edited, refused)
	}
	r, err := s.NextRequest(t.Context())
	must(t, "look for requests", err)
	replayAll(t, s, r, 10)
	if _, edited, refused := run(store.DeadCursor{}, 100); edited != 3 || len(refused) != 2 {
		t.Errorf("begun again: got %d edited, refused %v; want 3, and a list and a header that is no text", edited, refused)
	}
	if _, edited, _ := run(store.DeadCursor{}, 100); edited != 0 {
		t.Errorf("once more: got %d edited, want none", edited)
	}
	const want = `{"m": {"x": 1}, "n": %d}`
	got := pg.Query(t, `SELECT string_agg(d.payload::text || ' ' || (d.headers ->> 'h') || ' ' ||
 coalesce(d.edited_by, '-') || ' ' ||
 (SELECT count(*) FROM cdc_relay_edit e WHERE e.event_id = d.original_id), E'\n' ORDER BY d.original_id)
 FROM outbox_events_dlq d`)
	var lines []string
	for i := range 8 {
		line := fmt.Sprintf(want, i+1) + " w ann 1"
		switch i + 1 {
		case 3:
			line = "[1] v - 0"
		case 5:
			line = `{"n": 5} w - 0`
		case 8:
			line = `{"n": 8} v - 0`
		}
		lines = append(lines, line)
	}
	if all := strings.Join(lines, "\n"); got != all {
		t.Errorf("got\n%s\nwant\n%s", got, all)
	}
	ids := pg.Query(t, `SELECT string_agg(filter ->> 'ids', ' ' ORDER BY id) FROM cdc_relay_request`)
	if len(asked) != 3 || strings.Count(ids, "0000-7000") != 5 {
		t.Errorf("replays: got %d, of %s; want each edited event once", len(asked), ids)
	}
	for _, wrong := range []store.EditAll{{Patch: e.Patch}, {Filter: e.Filter}} {
		if _, err := s.EditAll(t.Context(), wrong, store.DeadCursor{}, 3); !errors.Is(err, store.ErrEdit) &&
			!errors.Is(err, store.ErrFilter) {
			t.Errorf("%+v: got %v, want a refusal", wrong, err)
		}
	}
}

// The payload of an event that is too large stays in the outbox. Break caught: an edit of its headers, of one or of
// all, that makes a tombstone of it.
func TestAnEditOfHeadersKeepsAPayloadThatIsInTheOutbox(t *testing.T) {
	pg := harness.Postgres(t)
	s := owner(t, pg, usual(t, pg))
	letter := deadAt(1, "k")
	letter.Code, letter.Event.Payload = outbox.EventTooLarge, nil
	bury(t, s, letter)
	e := store.Edit{ID: uuid(1), Headers: []byte(`{"h": "w"}`), Who: "ann"}
	if _, err := s.EditDead(t.Context(), e); !errors.Is(err, store.ErrEdit) ||
		!strings.Contains(err.Error(), "in the outbox only") {
		t.Errorf("headers of one: got %v, want a refusal", err)
	}
	step, err := s.EditAll(t.Context(), store.EditAll{Filter: store.Filter{All: true}, Who: "ann",
		Patch: store.Patch{Headers: []byte(`{"h": "w"}`)}}, store.DeadCursor{}, 10)
	if err != nil || step.Edited != 0 || len(step.Refused) != 1 {
		t.Errorf("headers of all: got %+v, %v, want one refused", step, err)
	}
	e.Payload = []byte(`{"small": true}`)
	if _, err := s.EditDead(t.Context(), e); err != nil {
		t.Errorf("another payload: %v", err)
	}
}
