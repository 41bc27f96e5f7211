package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-relay/cdc-relay/internal/store"
	"github.com/cdc-relay/cdc-relay/test/harness"
)

// reads are asked with the context of the test that makes a reading of each.
type reads []reading

func (list *reads) add(what string, ask func(ctx context.Context) (any, error)) {
	*list = append(*list, reading{what, func(t *testing.T) string {
		t.Helper()
		answer, err := ask(t.Context())
		must(t, what, err)
		text, err := json.Marshal(answer)
		must(t, what, err)
		return string(text)
	}})
}

// auditReads are the reads of rows in ranges, of the table's shape, and of dead letters with what people did to them.
func auditReads(s *store.Store) (list reads) {
	hour, minutes := time.Now().Add(-time.Hour), time.Now().Add(-5*time.Hour)
	for what, within := range map[string]store.AuditRange{
		"from 70": {FromID: uuid(70)}, "to 70": {ToID: uuid(70)}, "since an hour": {Since: &hour},
		"until five hours ago": {Until: &minutes},
	} {
		list.add("AuditRows "+what, func(ctx context.Context) (any, error) {
			var rows []string
			err := s.AuditRows(ctx, within, nil, func(r *store.AuditRow) error {
				rows = append(rows, fmt.Sprint(r.ID[len(r.ID)-2:], " ", r.Order))
				return nil
			})
			slices.Sort(rows)
			return strings.Join(rows, ", "), err
		})
	}
	slices.SortFunc(list, func(a, b reading) int { return strings.Compare(a.what, b.what) })
	for _, blocks := range [][2]int64{{0, 1}, {1, 9}} {
		list.add(fmt.Sprint("UnrecordedIn blocks ", blocks), func(ctx context.Context) (any, error) {
			return s.UnrecordedIn(ctx, blocks[0], blocks[1], 100)
		})
	}
	list.add("RepublishRows with payloads", func(ctx context.Context) (any, error) {
		r := store.Request{RequestedAt: time.Now().Add(time.Minute)}
		for i := range events {
			r.Filter.IDs = append(r.Filter.IDs, uuid(i))
		}
		rows, err := s.RepublishRows(ctx, &r, 100)
		var said []string
		for _, row := range rows {
			said = append(said, fmt.Sprintf("%s %s", row.Event.ID[34:], row.Event.Payload))
		}
		return strings.Join(said, ", "), err
	})
	list.add("AuditState by hours", func(ctx context.Context) (any, error) {
		st, err := s.AuditState(ctx)
		return fmt.Sprint(time.Since(st.Horizon).Round(time.Hour), " ", st.SweptAt.IsZero()), err
	})
	list.add("Outbox", func(ctx context.Context) (any, error) { return s.Outbox(ctx) })
	list.add("DeadLetter of all", func(ctx context.Context) (any, error) {
		var said []string
		for i := range events {
			d, err := s.DeadLetter(ctx, uuid(i))
			if errors.Is(err, store.ErrNoDeadLetter) {
				continue
			}
			if err != nil {
				return nil, err
			}
			text := fmt.Sprint(i, " replaying ", d.Replaying)
			for _, e := range d.Edits {
				text += ", by " + e.Who
			}
			said = append(said, text)
		}
		return strings.Join(said, "; "), nil
	})
	return list
}

// upkeepReads say what is to be cleaned up where rows are marked, deleted, or left alone.
func upkeepReads(t *testing.T, c store.Config) (list reads) {
	t.Helper()
	for _, after := range []string{store.Mark, store.Delete, store.Keep} {
		for _, retention := range []time.Duration{0, 5 * time.Hour} {
			c.AfterPublish, c.Retention = after, retention
			s := open(t, c)
			name := fmt.Sprint(after, " after ", retention)
			list.add("MirrorLag, "+name, func(ctx context.Context) (any, error) {
				lag, age, err := s.MirrorLag(ctx)
				return fmt.Sprint(lag, " for ", age.Round(time.Hour)), err
			})
			for _, dead := range []time.Duration{0, 4 * time.Hour} {
				list.add(fmt.Sprint("Cleanable, ", name, ", dead after ", dead), func(ctx context.Context) (any, error) {
					return s.Cleanable(ctx, retention, 4*time.Hour, dead)
				})
			}
		}
	}
	return list
}

// Break caught: rows of an audit numbered in another order than outbox.order_by says. Seen to fail with the order left
// to chance.
func TestAuditNumbersRowsInTheirOrder(t *testing.T) {
	pg := harness.Postgres(t)
	c := usual(t, pg)
	c.OrderBy = "event_type"
	s := owner(t, pg, c)
	insertEvents(t, pg, 0, 9)
	pg.Exec(t, `UPDATE outbox_events SET event_type = 9 - seq`)
	err := s.AuditRows(t.Context(), store.AuditRange{}, []string{"event_type"}, func(r *store.AuditRow) error {
		if got := fmt.Sprint(r.Order - 1); got != *r.Columns[0] {
			t.Errorf("row of type %s: got it as number %d", *r.Columns[0], r.Order)
		}
		return nil
	})
	must(t, "audit", err)
}

// Break caught: a column of a domain told twice, once as the domain and once as what it is made of. Seen to fail with
// the domains left in.
func TestAColumnOfADomainIsOneColumn(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, `CREATE DOMAIN kind AS text; CREATE DOMAIN sort AS kind; CREATE TABLE outbox_events (id uuid PRIMARY KEY,
 aggregate_type sort, aggregate_id text, event_type kind, payload jsonb, created_at timestamptz)`)
	o, err := registered(t, usual(t, pg)).Outbox(t.Context())
	must(t, "read the outbox", err)
	if got := strings.Join(o.Columns, " "); got != "id aggregate_type aggregate_id event_type payload created_at" {
		t.Errorf("columns: got %s, want each once", got)
	}
}

// Break caught: a migration that takes the key of the dead letters with the constraint that it replaces. Seen to fail
// with every constraint dropped.
func TestDeadLettersKeepTheirKey(t *testing.T) {
	pg := harness.Postgres(t)
	pg.Exec(t, `CREATE TABLE outbox_events (id text PRIMARY KEY, aggregate_type text, aggregate_id text, event_type text,
 payload jsonb, created_at timestamptz)`)
	registered(t, usual(t, pg))
	if got := pg.Query(t, `SELECT string_agg(contype::text, ' ' ORDER BY contype) FROM pg_constraint
 WHERE conrelid = 'outbox_events_dlq'::regclass AND contype IN ('p', 'u', 'x')`); got != "p x" {
		t.Errorf("keys of the dead letters: got %s, want p x", got)
	}
}
