package store

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cdc-relay/cdc-relay/internal/store/internal/db"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/outcome"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/table"
	"github.com/cdc-relay/cdc-relay/internal/store/internal/upkeep"
)

// JournalSQL is the statement for batches that may hold ids that are journaled already.
var JournalSQL = outcome.JournalSQL

// Pool lets a test look at the very connections that the calls use.
func (s *Store) Pool() *pgxpool.Pool { return s.db.Pool }

// SettleAs settles with another statement than the chosen one, for the measurement of the journal's shape.
func (s *Store) SettleAs(ctx context.Context, statement string, published []Published) error {
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil {
		return err
	}
	p, err := outcome.JournalParams(o.IDType, source, published)
	if err != nil {
		return err
	}
	return s.db.Send(ctx, db.Writing, s.db.SQL(o, statement), p, nil, nil)
}

// LookupAs looks up with another statement.
func (s *Store) LookupAs(ctx context.Context, statement string, ids [][]byte) (found int, err error) {
	o, source, err := s.db.TableAndSource(ctx)
	if err != nil {
		return 0, err
	}
	p := new(db.Params).Int4(source)
	if err := p.IDs(o.IDType, len(ids), func(i int) []byte { return ids[i] }); err != nil {
		return 0, err
	}
	err = s.db.Send(ctx, db.Reading, s.db.SQL(o, statement), p, nil, func([][]byte) error { found++; return nil })
	return found, err
}

// Wrap has all connections from here on wrapped.
func (s *Store) Wrap(ctx context.Context, wrap func(net.Conn) net.Conn) error {
	c := s.db.Pool.Config()
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return wrap(conn), nil
	}
	s.db.Pool.Close()
	var err error
	s.db.Pool, err = pgxpool.NewWithConfig(ctx, c)
	return err
}

// EncodeBatch encodes a batch as Settle does.
var EncodeBatch = outcome.Encoder()

// ExplainSince and ExplainIn are Postgres's plans for what UnrecordedSince and UnrecordedIn run.
func (s *Store) ExplainSince(ctx context.Context, since time.Time) (string, error) {
	return table.ExplainSince(ctx, s.db, since)
}

// ExplainIn explains the look at a range of blocks.
func (s *Store) ExplainIn(ctx context.Context) (string, error) { return table.ExplainIn(ctx, s.db) }

// ExplainCatchUp and ExplainPruneDead do so for CatchUpRows and PruneDead.
func (s *Store) ExplainCatchUp(ctx context.Context) (string, error) {
	return table.ExplainCatchUp(ctx, s.db)
}

// ExplainPruneDead explains what PruneDead runs.
func (s *Store) ExplainPruneDead(ctx context.Context) (string, error) {
	return upkeep.ExplainPruneDead(ctx, s.db)
}
