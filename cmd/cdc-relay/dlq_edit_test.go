package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-relay/cdc-relay/test/harness"
)

// The relay is killed, a dead letter is edited, and the next relay is killed as soon as it has begun. Breaks it
// catches: an edit that a killed process forgets, or sends twice; one that no one is told of; one that is not made and
// said to be; words instead of JSON where nothing was changed. Seen to fail with the edit not written, with the replay
// not asked for, and with the words whatever was asked for.
func TestEditedDeadLetterIsPublishedAfterKill9(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	s := newServices(t, orderTopic)
	run := func(args ...string) outcome { return cdcRelay(t, s.environ, args...) }
	run("init").want(t, exitDone, nil, nil)
	r := startRelay(t, s.environ)
	s.ready(t)
	s.pg.Exec(t, fmt.Sprintf(planted, 3)+`;
		UPDATE outbox_events_dlq SET headers = '{"tenant": "a"}', payload = '{"amount": -5, "note": "x"}'`)
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	same, fixed, headers := file(`{"note": "x", "amount": -5}`), file(`{"amount": 5}`), file(`{"tenant": "b"}`)
	run("dlq", "edit", plantedID(1)).want(t, exitUsage, nil, []string{"no terminal", "--payload-file"})
	run("dlq", "edit", plantedID(9), "--payload-file", fixed).want(t, exitFailed, nil, []string{"no dead letter"})
	run("dlq", "edit", plantedID(1), "--payload-file", "/no/such").want(t, exitFailed, nil, []string{"/no/such"})
	run("dlq", "edit", plantedID(1), "--payload-file", file("{")).want(t, exitFailed, nil,
		[]string{"cannot be edited like this", "jsonb"})
	run("dlq", "edit", plantedID(1), "--payload-file", same).want(t, exitDone, []string{"nothing was changed"}, nil)
	run("dlq", "edit", plantedID(1), "--payload-file", same, "--json").want(t, exitDone,
		[]string{`"` + plantedID(1) + `"`, "!nothing was changed"}, nil)
	r.stop(t, os.Kill)

	run("dlq", "edit", plantedID(1), "--payload-file", fixed, "--headers-file", headers, "--note", "sign", "--who",
		"ann").want(t, exitDone, []string{"edit: done", "no relay is running"}, nil)
	run("dlq", "edit", plantedID(2), "--tombstone", "--no-replay").want(t, exitDone,
		[]string{"not replayed: cdc-relay dlq replay " + plantedID(2)}, nil)
	r = startRelay(t, s.environ)
	r.stop(t, os.Kill)
	r = startRelay(t, s.environ)
	s.closed(t, 1)
	run("dlq", "edit", plantedID(1), "--payload-file", fixed).want(t, exitFailed, nil, []string{"replayed by ann"})
	run("dlq", "replay", plantedID(2)).want(t, exitDone, []string{"1 of 1 dead letters published"}, nil)
	run("dlq", "show", plantedID(1)).want(t, exitDone, []string{`payload      {"amount": 5}`, "by ann (sign); before that",
		`{"note": "x", "amount": -5}`, `{"tenant": "a"}`}, nil)
	run("find", plantedID(1)).want(t, exitDone, []string{"edited by ann"}, nil)
	run("dlq", "list").want(t, exitDone, []string{plantedID(3), "!" + plantedID(1)}, nil)
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("the relay's exit code: got %d\n%s", code, r.log)
	}
	sent := map[string][]string{}
	harness.Eventually(t, time.Minute, "both are in the topic", func(context.Context) string {
		clear(sent)
		harness.Consume(t, s.broker.Addresses(), []string{"outbox.event.order"}, func(r *kgo.Record) {
			id := string(harness.Header(r, "id"))
			sent[id] = append(sent[id], fmt.Sprintf("%s %s %t", r.Value, harness.Header(r, "tenant"), r.Value == nil))
		})
		if len(sent) < 2 {
			return fmt.Sprint(sent)
		}
		return ""
	})
	for n, want := range []string{`{"amount": 5} b false`, ` a true`} {
		if got := sent[plantedID(n+1)]; len(got) != 1 || got[0] != want {
			t.Errorf("event %d: got %q, want %q once", n+1, got, want)
		}
	}
}

// Breaks it catches: an edit of many without a question, or of none; one that tells nothing of what it left out; a dry
// run that edits; events that are sent as they were before.
func TestManyDeadLettersAreEditedAtOnce(t *testing.T) {
	harness.Full(t)
	t.Parallel()
	s := newServices(t, orderTopic)
	run := func(args ...string) outcome {
		return cdcRelay(t, s.environ, append([]string{"dlq", "edit"}, args...)...)
	}
	cdcRelay(t, s.environ, "init").want(t, exitDone, nil, nil)
	r := startRelay(t, s.environ)
	s.ready(t)
	s.pg.Exec(t, fmt.Sprintf(planted, 4)+`; UPDATE outbox_events_dlq SET payload = '{"amount": 5}';
		UPDATE outbox_events_dlq SET payload = '[]' WHERE original_id = '`+plantedID(4)+`'`)
	const merge, patch = "--merge-payload", `{"currency": "EUR"}`
	run().want(t, exitUsage, nil, []string{"nothing is chosen"})
	run("--all").want(t, exitUsage, nil, []string{"--merge-payload, --merge-headers"})
	run("--all", "--payload-file", "/no/such").want(t, exitUsage, nil, []string{"are for one"})
	run("--all", merge, "[]").want(t, exitUsage, nil, []string{"want a JSON object"})
	run("--all", merge, patch).want(t, exitUsage, nil, []string{"This edits 4 dead letters and replays", "--yes"})
	run("--all", merge, patch, "--topic", "none", "--yes").want(t, exitDone, []string{"no dead letters match"}, nil)
	run("--all", merge, patch, "--dry-run", "--key", "k").want(t, exitDone, []string{"no dead letters match"}, nil)
	run(plantedID(1), plantedID(2), merge, patch, "--dry-run").want(t, exitDone,
		[]string{"2 dead letters match; nothing was edited", `"currency":"EUR"`}, nil)
	run(plantedID(1), merge, patch, "--no-replay", "--yes").want(t, exitDone, []string{"1 of 1 dead letters edited"}, nil)
	run("--all", merge, patch, "--yes", "--note", "it was missing").want(t, exitFailed, []string{
		"2 of 4 dead letters edited, 1 were like this already, 1 cannot be changed like this", plantedID(4),
		"2 of 2 dead letters published"}, nil)
	cdcRelay(t, s.environ, "dlq", "show", plantedID(2)).want(t, exitDone,
		[]string{`{"amount": 5, "currency": "EUR"}`, "(it was missing); before that"}, nil)
	if code := r.stop(t, syscall.SIGTERM); code != exitDone {
		t.Errorf("the relay's exit code: got %d\n%s", code, r.log)
	}
	sent := map[string]string{}
	harness.Consume(t, s.broker.Addresses(), []string{"outbox.event.order"}, func(r *kgo.Record) {
		sent[string(harness.Header(r, "id"))] += string(r.Value)
	})
	for _, n := range []int{2, 3} {
		if got := sent[plantedID(n)]; len(sent) != 2 || !strings.Contains(got, `"currency"`) || strings.Count(got, "{") != 1 {
			t.Errorf("event %d: got %q, want it once as it was edited, and of %v no other", n, got, sent)
		}
	}
}
