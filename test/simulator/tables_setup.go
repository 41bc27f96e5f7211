package simulator

import (
	"cmp"
	"context"

	"github.com/cdc-relay/cdc-relay/internal/store"
)

// Outbox describes the table.
func (t *tables) Outbox(ctx context.Context) (o store.Outbox, err error) {
	err = t.do(ctx, "outbox", func(*database) error {
		for _, of := range t.w.server.present() {
			if t.schema == "" || of.schema == t.schema {
				t.oid = of.oid
				o = t.shape(of.oid)
				return nil
			}
		}
		return store.ErrNoOutbox
	})
	return o, err
}

func (t *tables) shape(oid uint32) store.Outbox {
	return store.Outbox{
		OID: oid, OIDs: []uint32{oid}, Schema: cmp.Or(t.schema, "public"), Name: outboxName, IDType: "text",
		PayloadType: "jsonb", HeadersType: "jsonb", HasPublishedAt: true, Columns: columns, OrderBy: "seq",
		PublishedWhen: "published_at IS NOT NULL",
	}
}

// CheckExpressions has no SQL to look at.
func (t *tables) CheckExpressions(context.Context) error { return nil }

// Migrate has nothing to do.
func (t *tables) Migrate(ctx context.Context) error {
	return t.do(ctx, "migrate", func(*database) error { return nil })
}

// CreatePublication makes the publication.
func (t *tables) CreatePublication(ctx context.Context, _ string) error {
	return t.do(ctx, "create publication", func(db *database) error {
		if !db.published {
			for _, of := range t.w.server.tables {
				of.hidden = false
			}
		}
		db.published = true
		return nil
	})
}

// CheckPublication reports whether it is there.
func (t *tables) CheckPublication(ctx context.Context, _ string) (problems []store.Problem, err error) {
	err = t.do(ctx, "check publication", func(db *database) error {
		of, err := t.own()
		if err != nil {
			return err
		}
		if !db.published || of.hidden {
			problems = []store.Problem{{What: "there is no publication", Repair: "CREATE PUBLICATION"}}
		}
		return nil
	})
	return problems, err
}
