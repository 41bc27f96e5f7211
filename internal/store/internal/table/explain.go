package table

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
)

// ExplainSince is Postgres's plan for what UnrecordedSince runs.
func ExplainSince(ctx context.Context, d *db.DB, since time.Time) (string, error) {
	o, err := d.Table(ctx)
	if err != nil {
		return "", err
	}
	s := New(d)
	p := new(db.Params).Int4(d.Source()).Int8(10_000).Int8(since.UnixMicro())
	return d.Explain(ctx, auditing, s.unrecordedSQL(s.sinceSQL(o)), p)
}

// ExplainIn is Postgres's plan for what UnrecordedIn runs, of a range of blocks.
func ExplainIn(ctx context.Context, d *db.DB) (string, error) {
	p := new(db.Params).Int4(d.Source()).Int8(10_000)
	for _, at := range []string{"(0,0)", "(1000,0)"} {
		p.Add(pgtype.TIDOID, db.TextFormat, []byte(at))
	}
	return d.Explain(ctx, auditing, New(d).unrecordedSQL(`o.ctid >= $3 AND o.ctid < $4`), p)
}

// ExplainCatchUp is Postgres's plan for what CatchUpRows runs.
func ExplainCatchUp(ctx context.Context, d *db.DB) (string, error) {
	o, err := d.Table(ctx)
	if err != nil {
		return "", err
	}
	return d.Explain(ctx, auditing, New(d).catchUpSQL(o), catchUpParams(d.Source(), 0, 500))
}
