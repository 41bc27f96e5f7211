package store_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// auditTriggers are an application's: they name their table without its schema, in each place where a trigger can run.
const auditTriggers = `CREATE SCHEMA app; CREATE TABLE app.audit (what text, place text);
CREATE FUNCTION app.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO audit VALUES (TG_OP, TG_WHEN || ' ' || TG_LEVEL || TG_ARGV[0]);
IF TG_LEVEL = 'ROW' AND TG_WHEN = 'BEFORE' AND TG_OP = 'UPDATE' THEN RETURN NEW; END IF;
IF TG_LEVEL = 'ROW' AND TG_WHEN = 'BEFORE' THEN RETURN OLD; END IF; RETURN NULL; END $$;
CREATE TRIGGER a BEFORE UPDATE OR DELETE ON outbox_events FOR EACH STATEMENT EXECUTE FUNCTION app.note('');
CREATE TRIGGER b BEFORE UPDATE OR DELETE ON outbox_events FOR EACH ROW EXECUTE FUNCTION app.note('');
CREATE TRIGGER c AFTER UPDATE OR DELETE ON outbox_events FOR EACH ROW EXECUTE FUNCTION app.note('');
CREATE TRIGGER d AFTER UPDATE OR DELETE ON outbox_events FOR EACH STATEMENT EXECUTE FUNCTION app.note('');
CREATE CONSTRAINT TRIGGER e AFTER UPDATE OR DELETE ON outbox_events DEFERRABLE INITIALLY DEFERRED
 FOR EACH ROW EXECUTE FUNCTION app.note(' DEFERRED');
ALTER TABLE app.audit ENABLE ROW LEVEL SECURITY; CREATE POLICY all_of_them ON app.audit USING (true) WITH CHECK (true)`

// Break caught: a mark, a deletion or a failure that is shown, which an application's trigger refuses because it runs
// in our search_path, or with our row_security. Seen to fail with InRolesPath left out of each of the three statements:
// the relation audit does not exist; and with row_security left out of it.
func TestTriggersOfTheOutboxRunInTheRolesOwnSettings(t *testing.T) {
	const all = "AFTER ROW,AFTER ROW DEFERRED,AFTER STATEMENT,BEFORE ROW,BEFORE STATEMENT"
	for _, row := range []struct {
		what, after, op string
		do              func(s *store.Store) error
	}{
		{"mark", store.Mark, "UPDATE", func(s *store.Store) error { _, _, err := s.MirrorStep(t.Context(), 10); return err }},
		{"delete", store.Delete, "DELETE", func(s *store.Store) error {
			_, _, err := s.DeleteStep(t.Context(), 0, 10)
			return err
		}},
		{"show a failure", store.Mark, "UPDATE", func(s *store.Store) error {
			_, _, err := s.ShowDead(t.Context(), 0, 10)
			return err
		}},
	} {
		t.Run(row.what, func(t *testing.T) {
			pg := harness.Postgres(t)
			c := usual(t, pg)
			c.AfterPublish, c.DeadSet = row.after, "event_type = {error_class}"
			s := owner(t, pg, c)
			pg.Exec(t, auditTriggers)
			role := harness.Unique(t, "plain")
			pg.Exec(t, `CREATE ROLE `+role+` LOGIN; ALTER ROLE `+role+` SET search_path = app;
GRANT ALL ON SCHEMA public, app TO `+role+`; GRANT ALL ON ALL TABLES IN SCHEMA public, app TO `+role)
			t.Cleanup(func() { dropRole(t, pg, role) })
			u, err := url.Parse(pg.URL)
			must(t, "read the URL", err)
			u.User = url.User(role)
			insertEvents(t, pg, 0, 2)
			must(t, "settle", s.Settle(t.Context(), published(1, uuid), []store.Dead{dead(1)}))
			pg.Exec(t, `UPDATE cdc_relay_state SET confirmed = pg_current_wal_insert_lsn()`)
			c.URL = u.String()
			plain := open(t, c)
			harness.Eventually(t, time.Minute, "the triggers have run", func(ctx context.Context) string {
				must(t, row.what, row.do(plain))
				return pg.Query(t, `SELECT CASE WHEN count(*) = 0 THEN 'not yet' END FROM app.audit`)
			})
			got := pg.Query(t, `SELECT string_agg(DISTINCT place, ',' ORDER BY place) FROM app.audit WHERE what = '`+row.op+`'`)
			if got != all {
				t.Errorf("triggers that ran: got %s, want %s", got, all)
			}
		})
	}
}
