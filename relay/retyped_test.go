package relay_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/relay"
)

// retype is a statement that gives the payload column another type.
func retype(to, using string) string {
	return fmt.Sprintf("ALTER TABLE outbox_events ALTER payload TYPE %s USING %s;", to, using)
}

// payloads returns the payloads of the envelopes, in order; all have the key k.
func (b *bed) payloads() (got []string) {
	b.t.Helper()
	for _, value := range b.values("outbox.event.order")["k"] {
		var envelope struct {
			Payload       json.RawMessage `json:"payload"`
			PayloadBase64 json.RawMessage `json:"payload_base64"`
		}
		if err := json.Unmarshal([]byte(value), &envelope); err != nil {
			b.t.Errorf("the envelope is no JSON: %s: %v", value, err)
		}
		got = append(got, string(envelope.Payload)+string(envelope.PayloadBase64))
	}
	return got
}

// The payload column gets another type while the relay streams, while it is down, and in the middle of a transaction.
// Breaks it catches: messages made by the type of the session's start: envelopes that are no JSON, and dead letters of
// bytes that are no UTF-8. Or by that of the catalog, of rows that are older; sessions that end for it without an
// end. Seen to fail with what the stream announces not looked at, with the first announcement of a session not looked
// at, and, in a transaction, with a session that ends though it has made no messages.
func TestMessagesFitTheTypeOfThePayloadAtTheirTime(t *testing.T) {
	t.Parallel()
	text := retype("text", "payload::text")
	bytea := retype("bytea", `convert_to(payload, 'UTF8') || '\xff'`)
	object, words := insert("order", "k", `{"a": 1}`, ""), insert("order", "k", `plain "text"`, "")
	for _, test := range []struct {
		name string
		down bool     // the relay is, in the meantime
		sql  []string // each a transaction
		want []string
	}{
		{"jsonb, text, bytea", false, []string{object, text, words, bytea, insert("order", "k", `\xff00`, "")},
			[]string{`{"a": 1}`, `"plain \"text\""`, `"/wA="`}},
		{"while the relay is down", true, []string{object, text, words, bytea}, []string{`{"a": 1}`, `"plain \"text\""`}},
		{"in one transaction", false, []string{object + text + words}, []string{`{"a": 1}`, `"plain \"text\""`}},
		{"to a domain", false, []string{object, "CREATE DOMAIN words AS text", retype("words", "payload::text"), words},
			[]string{`{"a": 1}`, `"plain \"text\""`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			b.c.Message.Format = config.FormatEnvelope
			r, stop := b.start()
			b.waitRole(r, relay.RoleActive)
			if test.down {
				mustStop(t, stop)
			}
			for _, sql := range test.sql {
				b.pg.Exec(t, sql)
			}
			if test.down {
				r, stop = b.start()
				b.waitRole(r, relay.RoleActive)
			}
			b.waitRecorded(len(test.want))
			if got := b.payloads(); !slices.Equal(got, test.want) {
				t.Errorf("payloads: got %q, want %q", got, test.want)
			}
			b.waitQuery("no dead letters", "SELECT count(*) FROM outbox_events_dlq", "0")
			mustStop(t, stop)
		})
	}
}
