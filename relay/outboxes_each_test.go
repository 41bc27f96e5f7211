package relay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/config"
	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/relay"
)

// A first start ends when it has registered the slot and not all outboxes yet. Break it catches: the rows of the others
// left to a sweep, which publishes them after newer ones of their keys. Seen to fail so.
func TestARegistrationThatWasCutOffLosesNoPlace(t *testing.T) {
	t.Parallel()
	b := newTenants(t, "tenant_1", "tenant_2")
	b.write(30, b.names...)
	ctx := t.Context()
	st, err := store.Open(ctx, relay.StoreConfig(b.c))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	first := st.Of("tenant_1", "outbox_events")
	o, err := first.Outbox(ctx)
	if err == nil {
		err = first.Migrate(ctx)
	}
	for _, s := range []struct {
		*store.Store
		oid uint32
	}{{st, 0}, {first, o.OID}} {
		if err == nil {
			_, err = s.Register(ctx, b.pg.Query(t, "SELECT system_identifier FROM pg_control_system()"), 1, s.oid, store.CatchUp)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	r, _ := b.start()
	b.waitRole(r, relay.RoleActive)
	b.write(30, b.names...)
	b.wantAll()
	if b.late > 0 {
		t.Errorf("events that a sweep found: got %d, want none", b.late)
	}
}

// Break it catches: a look at the whole that leaves tables out, or never ends. Seen to fail with looks that
// went on to the next table twice.
func TestALookAtTheWholeComesToEachTable(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{{"tenant_1", "tenant_2"}, {"tenant_1", "tenant_2", "tenant_3"}} {
		t.Run(fmt.Sprint(len(names)), func(t *testing.T) {
			b := newTenants(t, names...)
			b.c.Reconcile.Interval, b.c.Drift.Interval = config.Duration(time.Hour), config.Duration(time.Hour)
			r, _ := b.start()
			b.waitRole(r, relay.RoleActive)
			b.write(3, names...)
			b.wantAll()
			if _, err := r.Reconcile(t.Context()); err != nil { // no look is due from here on but the one asked for
				t.Fatal(err)
			}
			tables := strings.Join(names, ".outbox_events, ") + ".outbox_events"
			publication := "ALTER PUBLICATION " + b.c.Postgres.Publication
			b.pg.Exec(t, publication+" DROP TABLE "+tables)
			b.write(2, names...)
			b.pg.Exec(t, publication+" ADD TABLE "+tables)
			b.write(1, names...)
			report, err := r.Reconcile(t.Context())
			if want := 2 * len(names); err != nil || report.Missed != want {
				t.Errorf("rows that the stream has missed: got %d, %v, want %d", report.Missed, err, want)
			}
		})
	}
}

// A look has seen that the publication lacks a table, which then gets it. Break it catches: the first events of the
// table left out of the stream, until the next look, and published behind later ones. Seen to fail so.
func TestATableThatGetsThePublicationIsTakenWithItsFirstEvent(t *testing.T) {
	t.Parallel()
	b := newTenants(t, "tenant_1")
	b.c.Drift.Interval = config.Duration(time.Hour)
	r, stop := b.start()
	b.waitRole(r, relay.RoleActive)
	mustStop(t, stop)
	b.create("tenant_2")
	r, _ = b.start()
	b.waitRole(r, relay.RoleActive)
	b.publish("tenant_2")
	b.write(30, b.names...)
	b.wantAll()
	if b.late > 0 {
		t.Errorf("events that a sweep found: got %d, want none", b.late)
	}
}
