package store_test

import (
	"net/url"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// Break caught: a statement that runs what another role put into a schema of the search_path, with the rights of ours.
// Seen to fail with the role's own search_path behind pg_catalog: concat_ws(text, text, text), and unnest, and each
// comparison with a varchar.
func TestNothingThatAnotherRoleMadeRunsAsOurs(t *testing.T) {
	for _, after := range []string{store.Mark, store.Delete} {
		t.Run(after, func(t *testing.T) {
			pg := harness.Postgres(t)
			pg.SetTraps(t)
			pg.Exec(t, `CREATE TABLE outbox_events (id uuid PRIMARY KEY, aggregate_type varchar(40), aggregate_id varchar(40),
 event_type name, payload jsonb, created_at timestamptz DEFAULT clock_timestamp(), published_at timestamptz,
 state mood DEFAULT 'PENDING', word varchar(20) DEFAULT '')`)
			c := asOther(t, pg, usual(t, pg))
			c.AfterPublish, c.DeadSet, c.RetrySet = after, "aggregate_id = {error_class}", "aggregate_id = {error_class}"
			c.MarkSet, c.PublishedWhen = "state = 'PUBLISHED', word = word || 'x'", "state = 'PUBLISHED' OR word = 'sent'"
			u, err := url.Parse(c.URL)
			must(t, "read the URL", err)
			role := u.User.Username()
			pg.Exec(t, "ALTER ROLE "+role+" SET search_path = public, pg_catalog")
			s := owner(t, pg, c)
			insertEvents(t, pg, 0, 5)
			for _, row := range everyMethod(s, after) {
				must(t, row.what, row.do(t.Context()))
				if caught := pg.Caught(t, role); caught != "" {
					t.Fatalf("%s ran %s", row.what, caught)
				}
			}
		})
	}
}
