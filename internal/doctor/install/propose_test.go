package install

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cdc-relay/cdc-relay/config"
)

// Breaks it catches: a proposal that the table does not fit, one for a key that someone has set, or for what the relay
// does anyway; a failure that nothing would take back; a name or a text that is no SQL. Seen to fail with the keys that
// are set not looked at, with names not quoted, with the bound of a column left out, and with states that are not known
// guessed.
func TestProposalsFitTheColumns(t *testing.T) {
	status := []string{"PENDING", "PROCESSED", "FAILED"}
	for name, row := range map[string]struct {
		change  func(*config.Outbox)
		columns []column
		want    string
	}{
		"the relay's own": {columns: []column{{name: "published_at", kind: "timestamp with time zone"}}},
		"none of that":    {columns: []column{{name: "note", kind: "text"}, {name: "processed", kind: "text"}}},
		"flags": {columns: []column{{name: "processed", kind: "boolean"},
			{name: "processed_at", kind: "timestamp with time zone"}, {name: "retry_count", kind: "integer"},
			{name: "last_error", kind: "character varying", length: 200, nullable: true}},
			want: `outbox:
  published_when: processed
  mark_set: processed = true, processed_at = now(), last_error = NULL
  dead_set: retry_count = {attempts}, last_error = left({last_error}, 200)
  retry_set: retry_count = {attempts}, last_error = left({last_error}, 200)`},
		"enum": {columns: []column{{name: "status", kind: `"OutboxStatus"`, words: status},
			{name: "retries", kind: "integer"}, {name: "lastError", kind: "jsonb"},
			{name: "processedAt", kind: "timestamp without time zone"}},
			want: `outbox:
  published_when: status = 'PROCESSED'
  mark_set: status = 'PROCESSED', "processedAt" = now()
  dead_set: status = 'FAILED', retries = {attempts}, "lastError" = to_jsonb({last_error})
  retry_set: status = 'PENDING', retries = {attempts}, "lastError" = to_jsonb({last_error})`},
		"some are set": {change: func(c *config.Outbox) { c.PublishedWhen, c.DeadSet = "x", "y = 1" },
			columns: []column{{name: "State", kind: "text", words: []string{"new", "sent", "failed"}}},
			want: `outbox:
  mark_set: "\"State\" = 'sent'"
  retry_set: "\"State\" = 'new'"`},
		"no way back": {columns: []column{{name: "status", kind: "text", words: []string{"done", "failed"}}},
			want: `outbox:
  published_when: status = 'done'
  mark_set: status = 'done'`},
		"unknown states": {columns: []column{{name: "status", kind: "text"}}},
		"a mapped column": {change: func(c *config.Outbox) { c.Columns.EventType = "status" },
			columns: []column{{name: "status", kind: "text", words: status}}},
		"keep": {change: func(c *config.Outbox) { c.AfterPublish = config.AfterPublishKeep },
			columns: []column{{name: "status", kind: "text", words: status}}},
		"delete": {change: func(c *config.Outbox) { c.AfterPublish = config.AfterPublishDelete },
			columns: []column{{name: "error", kind: "text"}},
			want:    "outbox:\n  dead_set: error = {last_error}\n  retry_set: error = {last_error}"},
	} {
		t.Run(name, func(t *testing.T) {
			c := config.Default()
			if row.change != nil {
				row.change(&c.Outbox)
			}
			lines := propose(c.Outbox, row.columns)
			if diff := cmp.Diff(row.want, strings.Join(YAML(lines), "\n")); diff != "" {
				t.Errorf("proposals (-want +got):\n%s", diff)
			}
		})
	}
}
